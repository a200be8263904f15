//! What a directory will consist of, before any of it is written: which paths are taken, and how
//! much there is already.

use std::collections::BTreeSet;

use super::error::DeployError;
use super::paths;

/// How many files and links an agent may have, and how many directories.
pub const MAX_FILES: u64 = 10_000;
/// How large the files of an agent may be together.
pub const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// The paths of a directory, and how large its files are together.
#[derive(Debug, Default)]
pub(super) struct Outline {
    files: BTreeSet<String>,
    directories: BTreeSet<String>,
    bytes: u64,
}

impl Outline {
    /// Takes the path of a file or a link. Returns how many of the directories above it were there
    /// before, from the outermost.
    pub(super) fn take(&mut self, path: &str) -> Result<usize, DeployError> {
        let refused = |reason| Err(DeployError::BadPath { path: path.to_owned(), reason });
        if let Some(reason) = paths::fault(path) {
            return refused(reason);
        }
        if self.files.contains(path) {
            return refused("it was given twice");
        }
        if self.directories.contains(path) {
            return refused("it is also a directory");
        }
        if paths::parents(path).any(|parent| self.files.contains(parent)) {
            return refused("one of its directories is also a file");
        }
        // Whatever lies above a directory that is there is there too.
        let known =
            paths::parents(path).filter(|parent| self.directories.contains(*parent)).count();
        let directories = self.directories.len() + paths::parents(path).count() - known;
        if self.files.len() as u64 >= MAX_FILES || directories as u64 > MAX_FILES {
            return Err(DeployError::TooManyFiles { limit: MAX_FILES });
        }
        self.files.insert(path.to_owned());
        self.directories.extend(paths::parents(path).skip(known).map(str::to_owned));
        Ok(known)
    }

    /// Adds to how large the files are together.
    pub(super) fn weigh(&mut self, bytes: usize) -> Result<(), DeployError> {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        if self.bytes > MAX_BYTES {
            return Err(DeployError::TooLarge { limit: MAX_BYTES });
        }
        Ok(())
    }

    /// How large the files are together.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Every directory beneath the top, those above before those below.
    pub(super) fn directories(&self) -> &BTreeSet<String> {
        &self.directories
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn an_agent_has_so_many_files_and_no_more() {
        let mut outline = Outline::default();
        for number in 0..MAX_FILES {
            assert_eq!(outline.take(&format!("{number}")).unwrap(), 0);
        }
        let error = outline.take("one more").unwrap_err();
        assert!(matches!(error, DeployError::TooManyFiles { limit: 10_000 }), "{error}");
    }

    #[test]
    fn an_agent_has_so_many_directories_and_no_more() {
        let mut outline = Outline::default();
        for number in 0..MAX_FILES / 2 {
            assert_eq!(outline.take(&format!("{number}/d/f")).unwrap(), 0);
        }
        assert_eq!(outline.take("0/d/g").unwrap(), 2, "no directory is new");
        let error = outline.take("0/e/f").unwrap_err();
        assert!(matches!(error, DeployError::TooManyFiles { .. }), "{error}");
        assert_eq!(outline.directories().len() as u64, MAX_FILES);
    }

    #[test]
    fn an_agent_is_so_large_and_no_larger() {
        let mut outline = Outline::default();
        outline.weigh(usize::try_from(MAX_BYTES).unwrap()).unwrap();
        assert_eq!(outline.bytes(), MAX_BYTES);
        assert!(matches!(outline.weigh(1), Err(DeployError::TooLarge { limit: MAX_BYTES })));
    }
}
