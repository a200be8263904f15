//! Directories that become agents: what is taken, what is refused, and that nothing leads out.

mod files;
mod paths;

use std::fs;
use std::path::{Path, PathBuf};

use ash_engine::agent::{Definition, DeployError, Library};
use tempfile::TempDir;

/// A library beside a secret that is none of its business, and a directory to capture.
struct Place {
    top: TempDir,
    library: Library,
}

impl Place {
    fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        fs::write(top.path().join("secret"), "a secret").unwrap();
        fs::create_dir(top.path().join("source")).unwrap();
        let library = Library::open(&top.path().join("library")).unwrap();
        Self { top, library }
    }

    /// A place whose directory has instructions.
    fn with_instructions() -> Self {
        let place = Self::new();
        place.write("CLAUDE.md", "be kind");
        place
    }

    fn source(&self) -> PathBuf {
        self.top.path().join("source")
    }

    /// Puts a file into the directory.
    fn write(&self, path: &str, content: &str) {
        let path = self.source().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn capture(&self) -> Result<Definition, DeployError> {
        self.library.capture_path(&self.source())
    }

    /// What is in the library itself.
    fn kept(&self) -> Vec<String> {
        names_in(&self.top.path().join("library"))
    }

    /// The directory that was captured has these files, and this is in them.
    #[track_caller]
    fn holds(&self, definition: &Definition, expected: &[(&str, &str)]) {
        let listed = self.library.list(definition).unwrap();
        let read =
            |path: &str| String::from_utf8(self.library.read(definition, path).unwrap()).unwrap();
        let found: Vec<_> =
            listed.iter().map(|file| (file.path.clone(), read(&file.path))).collect();
        let expected: Vec<_> =
            expected.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        assert_eq!(found, expected);
        for (file, (_, text)) in listed.iter().zip(expected) {
            assert_eq!(file.size, text.len() as u64);
        }
    }

    /// The capture is refused with this code, for a reason that says this, and nothing is kept.
    #[track_caller]
    fn refuses(&self, code: &str, says: &str) {
        let error = self.capture().unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(self.kept(), Vec::<String>::new());
    }
}

fn names_in(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}
