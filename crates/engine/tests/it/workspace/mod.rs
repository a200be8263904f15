//! The files of a workspace, from outside, while somebody inside means harm.

mod archives;
mod hostile;
mod sessions;
mod tree;

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use ash_engine::files::{Executable, FileError, FilePath, Scope, Tree};
use tempfile::TempDir;

/// What must never be read, nor changed, from a workspace.
const SECRET: &str = "a secret of the host";

/// A workspace beside a secret.
struct Place {
    top: TempDir,
    tree: Tree,
}

impl Place {
    fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        fs::write(top.path().join("secret"), SECRET).unwrap();
        fs::create_dir(top.path().join("outside")).unwrap();
        fs::create_dir(top.path().join("workspace")).unwrap();
        let tree = Tree::open(&top.path().join("workspace")).unwrap();
        Self { top, tree }
    }

    fn root(&self) -> PathBuf {
        self.top.path().join("workspace")
    }

    /// Puts a file into the workspace, from inside.
    fn put(&self, path: &str, content: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn link(&self, path: &str, target: impl AsRef<Path>) {
        std::os::unix::fs::symlink(target, self.root().join(path)).unwrap();
    }

    fn write(&self, path: &str, content: &str) -> Result<u64, FileError> {
        let path = FilePath::file(path.as_bytes())?;
        self.tree.write(&path, Executable::AsBefore, &mut content.as_bytes())
    }

    fn read(&self, path: &str) -> Result<String, FileError> {
        let mut file = self.tree.read(&FilePath::file(path.as_bytes())?, 1 << 20)?.file;
        let mut content = String::new();
        file.read_to_string(&mut content).unwrap();
        Ok(content)
    }

    fn remove(&self, path: &str) -> Result<(), FileError> {
        self.tree.remove(&FilePath::file(path.as_bytes())?)
    }

    fn list(&self) -> Vec<String> {
        let listing = self.tree.list(&FilePath::ROOT, Scope::Usual).unwrap();
        assert!(!listing.truncated);
        listing.files.iter().map(|file| file.path.to_string()).collect()
    }

    /// Nothing outside was touched, and nothing is left in the workspace that only had to be there
    /// for a moment.
    #[track_caller]
    fn is_unharmed(&self) {
        assert_eq!(fs::read_to_string(self.top.path().join("secret")).unwrap(), SECRET);
        assert_eq!(fs::read_dir(self.top.path().join("outside")).unwrap().count(), 0);
        assert_eq!(fs::read_dir(self.top.path()).unwrap().count(), 3);
    }
}

fn path(text: &str) -> FilePath {
    FilePath::file(text.as_bytes()).unwrap()
}
