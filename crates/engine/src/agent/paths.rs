//! Which paths a file of an agent can have: relative, plain, and each with one spelling.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

/// The longest path of a file.
pub const MAX_PATH_BYTES: usize = 4096;
/// The longest name in a path.
pub const MAX_SEGMENT_BYTES: usize = 255;
/// The most names in a path.
pub const MAX_DEPTH: usize = 64;

/// What is wrong with a path, if anything is.
pub(super) fn fault(path: &str) -> Option<&'static str> {
    if path.is_empty() {
        return Some("it is empty");
    }
    if path.starts_with('/') {
        return Some("it is absolute");
    }
    if path.contains('\0') {
        return Some("it contains a NUL character");
    }
    if path.contains('\\') {
        return Some("it contains a backslash");
    }
    if path.len() > MAX_PATH_BYTES {
        return Some("it is longer than 4096 bytes");
    }
    if path.split('/').count() > MAX_DEPTH {
        return Some("it is more than 64 levels deep");
    }
    path.split('/').find_map(|segment| match segment {
        "" => Some("one of its names is empty"),
        "." | ".." => Some("it contains . or .."),
        long if long.len() > MAX_SEGMENT_BYTES => Some("one of its names is longer than 255 bytes"),
        _ => None,
    })
}

/// A path and the name at its end: `a/b/c` is `a/b` and `c`. The top is empty.
pub(super) fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// Every directory above a path, the outermost first.
pub(super) fn parents(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(end, _)| &path[..end])
}

/// Opens a directory beneath another, a name at a time. No link is followed, and no path is too
/// long for it.
pub(super) fn open_directory(root: impl AsFd, path: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut here = openat(root, ".", flags, Mode::empty())?;
    for name in path.split('/').filter(|name| !name.is_empty()) {
        here = openat(&here, name, flags, Mode::empty())?;
    }
    Ok(here)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_path_has_one_spelling_and_stays_inside() {
        let long = "n".repeat(MAX_SEGMENT_BYTES);
        let longest = [long.as_str(); 16].join("/");
        assert_eq!(longest.len(), MAX_PATH_BYTES - 1);
        let deepest = ["d"; MAX_DEPTH].join("/");
        for good in ["CLAUDE.md", ".claude/settings.json", "a b/ü…", "...", &longest, &deepest] {
            assert_eq!(fault(good), None, "{good:?}");
        }
        let (too_long_name, too_long) = (format!("{long}n"), format!("{longest}/n"));
        let too_deep = format!("{deepest}/d");
        for bad in [
            "",
            "/",
            "/a",
            "a/",
            "a//b",
            ".",
            "./a",
            "a/.",
            "..",
            "../a",
            "a/../b",
            "a\\b",
            "a\0",
            &too_long_name,
            &too_long,
            &too_deep,
        ] {
            assert!(fault(bad).is_some(), "{bad:?}");
        }
    }

    #[test]
    fn a_path_is_taken_apart() {
        assert_eq!(split("a/b/c"), ("a/b", "c"));
        assert_eq!(split("c"), ("", "c"));
        assert_eq!(parents("a/b/c").collect::<Vec<_>>(), ["a", "a/b"]);
        assert_eq!(parents("c").count(), 0);
    }
}
