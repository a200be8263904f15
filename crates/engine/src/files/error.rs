//! Why something about a file was not done.

use std::io;

use rustix::io::Errno;

/// Why something about a file was not done.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// No file can be called so.
    #[error("Invalid file path")]
    BadPath,
    /// A name, or all of the path, is longer than there can be.
    #[error("The path is too long")]
    TooLong,
    /// There is nothing of that name.
    #[error("File not found")]
    NotFound,
    /// There is something, and it is no ordinary file; or a link is on the way to it.
    #[error("Path is not a file")]
    NotAFile,
    /// Something on the way is no directory.
    #[error("A directory of the path is not a directory")]
    NotADirectory,
    /// The owner of the file does not let it be read or written.
    #[error("The file's permissions do not allow it")]
    Denied,
    /// It is larger than what is wanted.
    #[error("File too large ({size} bytes, max {most})")]
    TooLarge {
        /// How large it is.
        size: u64,
        /// How large it may be.
        most: u64,
    },
    /// There are more files, or larger ones, than a bundle holds.
    #[error("The workspace is too large for a bundle: {0}")]
    TooMuch(&'static str),
    /// The bundle is none, or one that is not taken.
    #[error("Invalid bundle: {0}")]
    BadBundle(String),
    /// There is no room for it.
    #[error("There is no room left on the disk")]
    DiskFull,
    /// There is more than could be removed in time, or it was called off. What is removed stays removed, and
    /// whoever asks again goes on from there.
    #[error("Not everything could be removed in time: ask again to go on")]
    Busy,
    /// The disk did not do what it was told.
    #[error("the file could not be reached")]
    Unavailable(#[source] io::Error),
}

impl From<Errno> for FileError {
    fn from(error: Errno) -> Self {
        match error {
            Errno::NOENT => Self::NotFound,
            Errno::NOTDIR => Self::NotADirectory,
            // A link; a directory, a device without a driver or a socket.
            Errno::LOOP | Errno::ISDIR | Errno::NXIO | Errno::OPNOTSUPP => Self::NotAFile,
            Errno::NAMETOOLONG => Self::TooLong,
            Errno::INVAL | Errno::ILSEQ | Errno::XDEV => Self::BadPath,
            Errno::ACCESS | Errno::PERM => Self::Denied,
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Self::DiskFull,
            other => Self::Unavailable(other.into()),
        }
    }
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(errno) => errno.into(),
            None => Self::Unavailable(error),
        }
    }
}

impl FileError {
    /// Whether it says that something has gone or changed since it was seen.
    pub(super) const fn is_raced(&self) -> bool {
        match self {
            Self::NotFound | Self::NotAFile | Self::NotADirectory => true,
            Self::BadPath
            | Self::TooLong
            | Self::Denied
            | Self::TooLarge { .. }
            | Self::TooMuch(_)
            | Self::BadBundle(_)
            | Self::DiskFull
            | Self::Busy
            | Self::Unavailable(_) => false,
        }
    }
}
