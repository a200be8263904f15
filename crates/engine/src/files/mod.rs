//! The files of a workspace as somebody outside of it reads and writes them, while whoever is inside
//! does what he likes.
//!
//! **No name can lead out.** Everything is opened beneath one descriptor, by the kernel, in one step
//! (`beneath`), and no link is ever followed: there is no moment between a check and a use. What is
//! not an ordinary file is never opened for reading: a FIFO waits, and a device does something.
//!
//! **Nothing is without a bound.** How much is looked at, held, packed and unpacked is said below.
//! A tree that goes beyond it is shown in part, with a word that it is a part, or refused.
//!
//! All of it blocks. [`Workspace`](crate::Workspace) is the way to it for whoever must not.

mod archive;
mod beneath;
mod error;
mod list;
mod pack;
mod path;
mod remove;
mod stored;
mod unpack;
mod walk;
mod write;

use std::fs::File;

use ash_core::time::Timestamp;

pub use beneath::Tree;
pub use error::FileError;
pub use list::{Directories, Listed, Listing, Scope};
pub use path::{FilePath, MAX_NAME_BYTES, MAX_PATH_BYTES};
pub use stored::Stored;
pub use unpack::Unpacked;
pub use write::Executable;

/// How many files are listed, packed or unpacked at the most.
pub const MAX_FILES: usize = 100_000;

/// How many entries of directories are looked at for that.
const MAX_SEEN: usize = 1_000_000;

/// How many names are looked up on the way to directories for that: deep ones take many each.
const MAX_STEPS: usize = 10_000_000;

/// How many bytes of paths are held for that.
const MAX_HELD_BYTES: usize = 16 * 1024 * 1024;

/// The largest bundle, packed, in bytes.
pub const MAX_BUNDLE_BYTES: u64 = 100 * 1024 * 1024;

/// How many bytes the files of a bundle may have together.
pub const MAX_UNPACKED_BYTES: u64 = 1024 * 1024 * 1024;

/// A file that is open for reading.
#[derive(Debug)]
pub struct OpenFile {
    /// The file.
    pub file: File,
    /// How many bytes it had when it was opened.
    pub size: u64,
    /// When it was last changed.
    pub modified: Timestamp,
}

/// How names begin that are there for a moment only: they are not shown.
const TEMPORARY: &str = ".ash-new-";
