//! Two texts, line by line: what was taken out, what was put in, and a little around it.

use std::fmt::Write as _;

/// How many lines are shown around what differs.
const CONTEXT: usize = 3;

/// How many lines may be taken out and put in before everything in between counts as different: the search takes
/// the square of it.
const MAX_EDITS: usize = 600;

/// What becomes of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edit {
    Keep,
    Remove,
    Add,
}

/// The difference of two texts in the form that `patch` reads. Nothing is a file that is not there.
pub(crate) fn unified(path: &str, before: Option<&str>, after: Option<&str>) -> String {
    let (was, is) = (lines(before), lines(after));
    let edits = script(&was, &is);
    if edits.iter().all(|edit| *edit == Edit::Keep) {
        return String::new();
    }
    let name = |side: char, text: Option<&str>| match text {
        Some(_) => named(&format!("{side}/{path}")),
        None => "/dev/null".to_owned(),
    };
    let mut out = format!("--- {}\n+++ {}\n", name('a', before), name('b', after));
    for hunk in hunks(&edits) {
        hunk.write(&was, &is, &edits, &mut out);
    }
    out
}

/// A name as `patch` and `git apply` read it to its end, and nothing else than a name: in quotes if there is anything in it
/// that could end it or a line, and with a tab behind it if there is a space.
fn named(name: &str) -> String {
    if name.chars().any(|c| c.is_control() || matches!(c, '"' | '\\')) {
        let mut quoted = String::from("\"");
        for c in name.chars() {
            match c {
                '"' | '\\' => quoted.extend(['\\', c]),
                '\n' => quoted.push_str("\\n"),
                '\t' => quoted.push_str("\\t"),
                c if c.is_control() => {
                    let mut bytes = [0; 4];
                    let octal = |byte: &u8| format!("\\{byte:03o}");
                    quoted.extend(c.encode_utf8(&mut bytes).as_bytes().iter().map(octal));
                }
                c => quoted.push(c),
            }
        }
        quoted + "\""
    } else if name.contains(' ') {
        format!("{name}\t")
    } else {
        name.to_owned()
    }
}

/// The lines of a text, each with its end.
fn lines(text: Option<&str>) -> Vec<&str> {
    text.map(|text| text.split_inclusive('\n').collect()).unwrap_or_default()
}

/// What to do with the lines of one text to get the other.
fn script(was: &[&str], is: &[&str]) -> Vec<Edit> {
    let same_at_begin = was.iter().zip(is).take_while(|(a, b)| a == b).count();
    let (rest, other) = (&was[same_at_begin..], &is[same_at_begin..]);
    let same_at_end = rest.iter().rev().zip(other.iter().rev()).take_while(|(a, b)| a == b).count();
    let (rest, other) = (&rest[..rest.len() - same_at_end], &other[..other.len() - same_at_end]);
    let mut edits = vec![Edit::Keep; same_at_begin];
    edits.extend(shortest(rest, other).unwrap_or_else(|| {
        let removed = std::iter::repeat_n(Edit::Remove, rest.len());
        removed.chain(std::iter::repeat_n(Edit::Add, other.len())).collect()
    }));
    edits.extend(std::iter::repeat_n(Edit::Keep, same_at_end));
    edits
}

/// The shortest way (Myers, 1986), if it is not too long. How far each diagonal goes is remembered for each number
/// of edits, and the way is found from the end.
fn shortest(was: &[&str], is: &[&str]) -> Option<Vec<Edit>> {
    let most = (was.len() + is.len()).min(MAX_EDITS);
    // Diagonal `k` lies at `k + most + 1`, so that its neighbors are there too.
    let at = |k: isize| usize::try_from(k + most.cast_signed() + 1).unwrap_or_default();
    let mut reach = vec![0_usize; 2 * most + 3];
    let mut past = Vec::new();
    let from_above = |reach: &[usize], k: isize, edits: isize| {
        k == -edits || (k != edits && reach[at(k - 1)] < reach[at(k + 1)])
    };
    for edits in 0..=most.cast_signed() {
        past.push(reach.clone());
        let mut k = -edits;
        while k <= edits {
            let mut x =
                if from_above(&reach, k, edits) { reach[at(k + 1)] } else { reach[at(k - 1)] + 1 };
            let mut y = usize::try_from(x.cast_signed() - k).unwrap_or_default();
            while x < was.len() && y < is.len() && was[x] == is[y] {
                (x, y) = (x + 1, y + 1);
            }
            reach[at(k)] = x;
            if x >= was.len() && y >= is.len() {
                return Some(back(was.len(), is.len(), &past, &from_above, &at));
            }
            k += 2;
        }
    }
    None
}

fn back(
    mut x: usize,
    mut y: usize,
    past: &[Vec<usize>],
    from_above: &dyn Fn(&[usize], isize, isize) -> bool,
    at: &dyn Fn(isize) -> usize,
) -> Vec<Edit> {
    let mut edits = Vec::new();
    for (round, reach) in past.iter().enumerate().skip(1).rev() {
        let k = x.cast_signed() - y.cast_signed();
        let above = from_above(reach, k, round.cast_signed());
        let before = if above { k + 1 } else { k - 1 };
        let from_x = reach[at(before)];
        let from_y = usize::try_from(from_x.cast_signed() - before).unwrap_or_default();
        while x > from_x && y > from_y {
            edits.push(Edit::Keep);
            (x, y) = (x - 1, y - 1);
        }
        if above {
            edits.push(Edit::Add);
            y = y.saturating_sub(1);
        } else {
            edits.push(Edit::Remove);
            x = x.saturating_sub(1);
        }
    }
    edits.extend(std::iter::repeat_n(Edit::Keep, x));
    edits.reverse();
    edits
}

/// Edits that are shown together: from one of them to another, with the lines around.
struct Hunk {
    from: usize,
    until: usize,
}

fn hunks(edits: &[Edit]) -> Vec<Hunk> {
    let mut hunks: Vec<Hunk> = Vec::new();
    for (index, _) in edits.iter().enumerate().filter(|(_, edit)| **edit != Edit::Keep) {
        let (from, until) = (index.saturating_sub(CONTEXT), (index + 1 + CONTEXT).min(edits.len()));
        match hunks.last_mut() {
            Some(last) if from <= last.until => last.until = until,
            Some(_) | None => hunks.push(Hunk { from, until }),
        }
    }
    hunks
}

impl Hunk {
    fn write(&self, was: &[&str], is: &[&str], edits: &[Edit], out: &mut String) {
        let (before, here) = (&edits[..self.from], &edits[self.from..self.until]);
        let count = |edits: &[Edit], not: Edit| edits.iter().filter(|edit| **edit != not).count();
        let (mut x, mut y) = (count(before, Edit::Add), count(before, Edit::Remove));
        let range = |begin: usize, lines: usize| match lines {
            // Of no lines, the one before them is named.
            0 => format!("{begin},0"),
            1 => format!("{}", begin + 1),
            lines => format!("{},{lines}", begin + 1),
        };
        let removed = range(x, count(here, Edit::Add));
        let added = range(y, count(here, Edit::Remove));
        writeln!(out, "@@ -{removed} +{added} @@").expect("a string takes everything");
        for edit in here {
            let (sign, line) = match edit {
                Edit::Keep => (' ', was[x]),
                Edit::Remove => ('-', was[x]),
                Edit::Add => ('+', is[y]),
            };
            x += usize::from(*edit != Edit::Add);
            y += usize::from(*edit != Edit::Remove);
            out.push(sign);
            out.push_str(line);
            if !line.ends_with('\n') {
                out.push_str("\n\\ No newline at end of file\n");
            }
        }
    }
}

#[cfg(test)]
mod test {
    use proptest::prelude::*;

    use super::*;

    /// What becomes of a text if the edits are made.
    fn apply(was: &[&str], is: &[&str]) -> (String, String) {
        let (mut x, mut y) = (0, 0);
        let (mut old, mut new) = (String::new(), String::new());
        for edit in script(was, is) {
            if edit != Edit::Add {
                old.push_str(was[x]);
            }
            if edit != Edit::Remove {
                new.push_str(if edit == Edit::Keep { was[x] } else { is[y] });
            }
            x += usize::from(edit != Edit::Add);
            y += usize::from(edit != Edit::Remove);
        }
        (old, new)
    }

    #[test]
    fn a_changed_line_is_shown_with_what_is_around_it() {
        let before = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let after = before.replace('5', "five");
        let expected = "--- a/n\n+++ b/n\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n";
        assert_eq!(unified("n", Some(before), Some(&after)), expected);
        assert_eq!(unified("n", Some(before), Some(before)), "");
    }

    #[test]
    fn a_name_is_a_name_whatever_is_in_it() {
        for (name, expected) in [
            ("n", "a/n"),
            ("ä", "a/ä"),
            ("sp ace", "a/sp ace\t"),
            ("tab\tname", "\"a/tab\\tname\""),
            ("z\n--- a/keep\n+++ b/keep", "\"a/z\\n--- a/keep\\n+++ b/keep\""),
            ("quote\" back\\", "\"a/quote\\\" back\\\\\""),
            ("\u{1b}[2J\u{9b}", "\"a/\\033[2J\\302\\233\""),
        ] {
            let shown = unified(name, Some("a\n"), None);
            assert_eq!(shown.lines().next(), Some(format!("--- {expected}").as_str()), "{name:?}");
            assert_eq!(shown.lines().count(), 4, "{shown}");
        }
    }

    #[test]
    fn a_file_that_comes_or_goes_is_compared_with_nothing() {
        let expected =
            "--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+new\n\\ No newline at end of file\n";
        assert_eq!(unified("n", None, Some("new")), expected);
        let expected = "--- a/n\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-a\n-b\n";
        assert_eq!(unified("n", Some("a\nb\n"), None), expected);
    }

    #[test]
    fn texts_that_have_nothing_in_common_are_replaced_as_a_whole() {
        let numbered = |word: &str| (0..2_000).map(|n| format!("{word} {n}\n")).collect::<String>();
        let (before, after) = (numbered("old"), numbered("new"));
        let (was, is) = (lines(Some(&before)), lines(Some(&after)));
        assert_eq!(apply(&was, &is), (before.clone(), after.clone()));
    }

    proptest! {
        #[test]
        fn the_edits_make_one_text_of_the_other(
            was in prop::collection::vec("[abc]\n", 0..40),
            is in prop::collection::vec("[abc]\n", 0..40),
        ) {
            let was: Vec<&str> = was.iter().map(String::as_str).collect();
            let is: Vec<&str> = is.iter().map(String::as_str).collect();
            prop_assert_eq!(apply(&was, &is), (was.concat(), is.concat()));
        }
    }
}
