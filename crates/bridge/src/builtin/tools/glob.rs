//! Patterns for names of files: `?` is one character, `*` any within a name, `**` any directories.
//!
//! Both levels, characters in a name and names in a path, are the same problem: items, and a star
//! that stands for any number of them. Remembering only the last star is enough, since an earlier
//! one can give up nothing that a later one could not; so the work is bounded by the product of the
//! lengths, and no pattern can make it explode.

/// A pattern, cut at its slashes.
#[derive(Debug)]
pub(super) struct Glob(Vec<Vec<char>>);

impl Glob {
    pub(super) fn new(pattern: &str) -> Self {
        let names = pattern.split('/').filter(|name| !name.is_empty() && *name != ".");
        Self(names.map(|name| name.chars().collect()).collect())
    }

    /// Whether it matches a path, given as its names.
    pub(super) fn matches(&self, path: &[&str]) -> bool {
        matches(
            &self.0,
            path,
            |name| name == &['*', '*'],
            |pattern, name| {
                let name: Vec<char> = name.chars().collect();
                matches(
                    pattern,
                    &name,
                    |item| *item == '*',
                    |item, found| *item == '?' || item == found,
                )
            },
        )
    }

    /// How deep a path can be that it matches; nothing: any depth.
    pub(super) fn depth(&self) -> Option<usize> {
        (!self.0.iter().any(|name| name == &['*', '*'])).then_some(self.0.len())
    }
}

fn matches<P, T>(
    pattern: &[P],
    items: &[T],
    is_star: impl Fn(&P) -> bool,
    fits: impl Fn(&P, &T) -> bool,
) -> bool {
    let (mut at, mut item) = (0, 0);
    let mut last_star: Option<(usize, usize)> = None;
    while item < items.len() {
        match pattern.get(at) {
            Some(star) if is_star(star) => {
                last_star = Some((at, item));
                at += 1;
            }
            Some(one) if fits(one, &items[item]) => {
                at += 1;
                item += 1;
            }
            Some(_) | None => {
                let Some((star, taken)) = last_star else { return false };
                last_star = Some((star, taken + 1));
                at = star + 1;
                item = taken + 1;
            }
        }
    }
    pattern[at..].iter().all(is_star)
}

#[cfg(test)]
mod test {
    use proptest::prelude::*;

    use super::*;

    /// The definition, by cases.
    fn reference(pattern: &[&str], path: &[&str]) -> bool {
        match (pattern, path) {
            ([], []) => true,
            (["**", rest @ ..], _) => {
                reference(rest, path) || (!path.is_empty() && reference(pattern, &path[1..]))
            }
            ([first, rest @ ..], [name, names @ ..]) => {
                let (first, name): (Vec<char>, Vec<char>) =
                    (first.chars().collect(), name.chars().collect());
                in_name(&first, &name) && reference(rest, names)
            }
            _ => false,
        }
    }

    fn in_name(pattern: &[char], name: &[char]) -> bool {
        match (pattern, name) {
            ([], []) => true,
            (['*', rest @ ..], _) => {
                in_name(rest, name) || (!name.is_empty() && in_name(pattern, &name[1..]))
            }
            (['?', rest @ ..], [_, name @ ..]) => in_name(rest, name),
            ([one, rest @ ..], [found, name @ ..]) => one == found && in_name(rest, name),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn it_agrees_with_the_definition(
            pattern in prop::collection::vec("[ab?*é]{1,4}|\\*\\*", 1..5),
            path in prop::collection::vec("[abé]{1,4}", 0..5),
        ) {
            let pattern: Vec<&str> = pattern.iter().map(String::as_str).collect();
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            let glob = Glob::new(&pattern.join("/"));
            prop_assert_eq!(glob.matches(&path), reference(&pattern, &path));
            if let Some(depth) = glob.depth() && glob.matches(&path) {
                prop_assert_eq!(path.len(), depth);
            }
        }
    }

    #[test]
    fn no_pattern_takes_for_ever() {
        let glob = Glob::new(&"*a".repeat(2_000));
        assert!(!glob.matches(&["a".repeat(2_000).as_str(), "b"]));
        let glob = Glob::new(&"**/a/".repeat(500));
        assert!(!glob.matches(&vec!["a"; 499]));
    }
}
