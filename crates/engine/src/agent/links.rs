//! Where a path leads when its links are followed, and whether it stays inside.
//!
//! The kernel is not asked: what lies where is told by the caller, who knows a tree that nobody
//! changes. So the answer is the same on every machine.

/// How many links one path may go through.
const MAX_LINKS: usize = 40;

/// What lies at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Missing,
    Directory,
    File,
    Link(String),
}

/// Where a path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Lead {
    /// To this directory; the top is empty.
    Directory(String),
    /// To this file.
    File(String),
    /// To nothing, inside.
    Nothing,
    /// Out of the tree.
    Outside,
    /// From link to link without end.
    Circle,
}

/// Follows a path from the top of a tree. `look` tells what lies at a path without links in it.
pub(super) fn follow<E>(
    path: &str,
    mut look: impl FnMut(&str) -> Result<Node, E>,
) -> Result<Lead, E> {
    let names_of = |path: &str| path.split('/').rev().map(str::to_owned).collect::<Vec<_>>();
    let mut to_go = names_of(path);
    let mut here: Vec<String> = Vec::new();
    let mut found = Node::Directory;
    let mut is_nothing = false;
    let mut links = 0;
    while let Some(name) = to_go.pop() {
        match name.as_str() {
            "" | "." => continue,
            ".." => {
                // A file has no parent directory in it.
                is_nothing |= found == Node::File;
                found = Node::Directory;
                if here.pop().is_none() {
                    return Ok(Lead::Outside);
                }
                continue;
            }
            _ => here.push(name),
        }
        found = look(&here.join("/"))?;
        match &found {
            Node::Directory => {}
            // The rest leads to nothing. It is gone through all the same: it must not leave,
            // whatever will be put here.
            Node::Missing => is_nothing = true,
            Node::File => {}
            Node::Link(target) => {
                links += 1;
                if links > MAX_LINKS {
                    return Ok(Lead::Circle);
                }
                if target.starts_with('/') {
                    return Ok(Lead::Outside);
                }
                to_go.extend(names_of(target));
                here.pop();
                found = Node::Directory;
            }
        }
    }
    Ok(match found {
        _ if is_nothing => Lead::Nothing,
        Node::Directory => Lead::Directory(here.join("/")),
        Node::File => Lead::File(here.join("/")),
        Node::Missing | Node::Link(_) => Lead::Nothing,
    })
}

#[cfg(test)]
mod test {
    use std::convert::Infallible;

    use super::*;

    fn lead(path: &str) -> Lead {
        let look = |path: &str| {
            Ok::<_, Infallible>(match path {
                "d" | "d/e" | "x" => Node::Directory,
                "f" | "d/e/f" => Node::File,
                "to-file" => Node::Link("d/e/f".to_owned()),
                "to-directory" => Node::Link("./d//e/".to_owned()),
                "d/up" => Node::Link("..".to_owned()),
                "d/out" => Node::Link("../../f".to_owned()),
                "absolute" => Node::Link("/f".to_owned()),
                "round" => Node::Link("about".to_owned()),
                "about" => Node::Link("round".to_owned()),
                "dangling" => Node::Link("nothing/here".to_owned()),
                "dangling-out" => Node::Link("nothing/../../f".to_owned()),
                // Its letters stay inside; what they mean does not.
                "sly" => Node::Link("d/to-x/../../f".to_owned()),
                "d/to-x" => Node::Link("../x".to_owned()),
                _ => Node::Missing,
            })
        };
        follow(path, look).unwrap()
    }

    #[test]
    fn links_lead_where_the_kernel_would_go() {
        let file = |path: &str| Lead::File(path.to_owned());
        let directory = |path: &str| Lead::Directory(path.to_owned());
        for (path, expected) in [
            ("f", file("f")),
            ("d/e", directory("d/e")),
            ("", directory("")),
            ("to-file", file("d/e/f")),
            ("to-directory", directory("d/e")),
            ("to-directory/f", file("d/e/f")),
            ("to-directory/../e/f", file("d/e/f")),
            ("d/up", directory("")),
            ("d/up/d/up/f", file("f")),
            ("d/out", Lead::Outside),
            ("..", Lead::Outside),
            ("absolute", Lead::Outside),
            ("sly", Lead::Outside),
            ("round", Lead::Circle),
            ("dangling", Lead::Nothing),
            ("dangling-out", Lead::Outside),
            ("f/g", Lead::Nothing),
            ("f/../f", Lead::Nothing),
            ("nothing", Lead::Nothing),
        ] {
            assert_eq!(lead(path), expected, "{path}");
        }
    }
}
