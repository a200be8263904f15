//! Which paths there are beneath a root: relative, plain, and each with one spelling.

use std::borrow::Borrow;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::FileError;

/// The longest path, in bytes: what the kernel takes at once.
pub const MAX_PATH_BYTES: usize = 4095;

/// The longest name in a path.
pub const MAX_NAME_BYTES: usize = 255;

/// A path beneath a root. It is bytes, because names of files are: they need not be text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilePath(Vec<u8>);

impl FilePath {
    /// The root itself.
    pub const ROOT: Self = Self(Vec::new());

    /// The path of a file.
    pub fn file(text: &[u8]) -> Result<Self, FileError> {
        let path = Self::directory(text)?;
        if path.is_root() || text.ends_with(b"/") {
            return Err(FileError::BadPath);
        }
        Ok(path)
    }

    /// The path of a directory, which may be the root: nothing, or a dot.
    pub fn directory(text: &[u8]) -> Result<Self, FileError> {
        if text.first() == Some(&b'/') || text.contains(&0) {
            return Err(FileError::BadPath);
        }
        let mut path = Self::ROOT;
        for name in text.split(|&byte| byte == b'/') {
            match name {
                b"" | b"." => {}
                b".." => return Err(FileError::BadPath),
                name => path = path.with(name).ok_or(FileError::TooLong)?,
            }
        }
        Ok(path)
    }

    /// This path beneath a directory.
    pub fn beneath(&self, directory: &Self) -> Result<Self, FileError> {
        let joined = [directory.as_bytes(), self.as_bytes()].join(&b'/');
        // Either may be the root.
        Self::directory(joined.strip_prefix(b"/").unwrap_or(&joined))
    }

    /// The path as bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The path as text, if it is text.
    pub fn to_text(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }

    /// The path as it stands in an address: whatever is not plain is `%` and two digits.
    pub fn encoded(&self) -> String {
        let mut text = String::new();
        for &byte in &self.0 {
            if byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte) {
                text.push(char::from(byte));
            } else {
                text.push_str(&format!("%{byte:02X}"));
            }
        }
        text
    }

    /// Whether it is the root.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The name at its end.
    pub fn name(&self) -> &[u8] {
        self.0.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
    }

    /// The directory it lies in.
    pub(super) fn parent(&self) -> Self {
        let end = self.0.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
        Self(self.0[..end].to_vec())
    }

    /// Every directory above it but the root, the outermost first.
    pub(super) fn parents(&self) -> impl Iterator<Item = &[u8]> {
        let ends = self.0.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        ends.map(|(end, _)| &self.0[..end])
    }

    /// The names it is made of.
    pub(super) fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|&byte| byte == b'/').filter(|name| !name.is_empty())
    }

    /// What lies in it under a name; nothing, if the name is none or all of it too long.
    pub(super) fn with(&self, name: &[u8]) -> Option<Self> {
        let joined = if self.is_root() { name.to_vec() } else { [&self.0, name].join(&b'/') };
        let fits = (1..=MAX_NAME_BYTES).contains(&name.len()) && joined.len() <= MAX_PATH_BYTES;
        fits.then_some(Self(joined))
    }

    /// As the system takes it.
    pub(super) fn as_path(&self) -> &Path {
        if self.is_root() { Path::new(".") } else { Path::new(OsStr::from_bytes(&self.0)) }
    }
}

impl Borrow<[u8]> for FilePath {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

#[cfg(test)]
mod test {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_path_has_one_spelling_and_stays_inside() {
        let long = "n".repeat(MAX_NAME_BYTES);
        for (text, plain) in [
            ("a", "a"),
            ("./a//b/./c", "a/b/c"),
            ("...", "..."),
            ("a..b", "a..b"),
            (" ", " "),
            ("a\\b", "a\\b"),
            (&long, &long),
        ] {
            assert_eq!(FilePath::file(text.as_bytes()).unwrap().to_text(), Some(plain));
        }
        let (too_long, far) = (format!("{long}n"), "d/".repeat(2048) + "d");
        for bad in
            ["", ".", "./", "/", "/a", "a/", "..", "../a", "a/..", "a/../b", "a\0", &too_long]
        {
            assert!(FilePath::file(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(FilePath::file(far.as_bytes()).is_err());
        assert!(FilePath::directory(b".").unwrap().is_root());
    }

    #[test]
    fn a_path_is_taken_apart_and_put_together() {
        let path = FilePath::file(b"a/b/c").unwrap();
        assert_eq!((path.name(), path.parent().as_bytes()), (&b"c"[..], &b"a/b"[..]));
        assert_eq!(path.parents().collect::<Vec<_>>(), [&b"a"[..], b"a/b"]);
        assert_eq!(FilePath::ROOT.parents().count(), 0);
        let under = FilePath::directory(b"x/").unwrap();
        assert_eq!(path.beneath(&under).unwrap().as_bytes(), b"x/a/b/c");
        assert_eq!(path.beneath(&FilePath::ROOT).unwrap(), path);
        assert_eq!(FilePath::file(b"\xff%/ a").unwrap().encoded(), "%FF%25/%20a");
    }

    proptest! {
        #[test]
        fn whatever_is_taken_has_no_way_up(text in prop::collection::vec(
            prop_oneof![Just(b'/'), Just(b'.'), Just(b'a'), any::<u8>()], 0..40,
        )) {
            let Ok(path) = FilePath::file(&text) else { return Ok(()) };
            prop_assert!(!path.as_bytes().starts_with(b"/"));
            prop_assert!(path.as_bytes().split(|&byte| byte == b'/').all(
                |name| !name.is_empty() && name != b"." && name != b".." && !name.contains(&0)
            ));
            prop_assert_eq!(&FilePath::file(path.as_bytes()).unwrap(), &path);
        }
    }
}
