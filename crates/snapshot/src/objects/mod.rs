//! Where objects are kept: a flat set of names, each with bytes that never change.
//!
//! What is put is durable when the call returns, under its name as a whole or not at all. Calls
//! block; they are made from threads that may.

#[cfg(feature = "remote")]
mod answer;
mod cached;
mod local;
mod memory;
#[cfg(feature = "remote")]
mod place;
mod probe;
#[cfg(feature = "remote")]
mod remote;
mod signs;

use std::io;
use std::time::Duration;

#[cfg(feature = "remote")]
use answer::is_altered;
#[cfg(feature = "remote")]
pub use answer::{is_missing_bucket, is_transient};
pub use cached::CachedObjects;
pub use local::LocalObjects;
pub use memory::MemoryObjects;
#[cfg(feature = "remote")]
pub use place::{GoogleCredentials, Options, Secret, directory, is_remote, open};
pub use probe::{Unfit, probe};
#[cfg(feature = "remote")]
pub use remote::{Limits, RemoteObjects};
pub use signs::Signs;

/// Whether it is worth trying again what failed with this error: only servers are busy.
#[cfg(not(feature = "remote"))]
pub fn is_transient(_error: &io::Error) -> bool {
    false
}

/// Whether what is there of an object has other bytes than were put: only servers are asked.
#[cfg(not(feature = "remote"))]
fn is_altered(_error: &io::Error) -> bool {
    false
}

/// What became of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// The object is there now.
    Created,
    /// There was one of that name already. It was left as it is.
    Existed,
}

/// An object of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its whole name.
    pub name: String,
    /// How long it is.
    pub size: u64,
    /// When it was put, in milliseconds since 1970.
    pub put_at: i64,
}

/// A set of objects. Names are of letters, digits, `-`, `.`, with `/` between parts.
pub trait Objects: Send + Sync {
    /// Puts an object, unless there is one of that name.
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<Put>;

    /// Begins an object whose name is known when it is whole.
    fn begin(&self) -> io::Result<Box<dyn NewObject + '_>>;

    /// All bytes of an object, which may be at most `most`; `NotFound` if there is none.
    fn get(&self, name: &str, most: u64) -> io::Result<Vec<u8>>;

    /// Some bytes of an object, from `offset` on: fewer than `length` only where it ends.
    fn get_range(&self, name: &str, offset: u64, length: u64) -> io::Result<Vec<u8>>;

    /// The last bytes of an object, at most `length`, and how long it is.
    fn get_end(&self, name: &str, length: u64) -> io::Result<(Vec<u8>, u64)>;

    /// All objects whose names begin with `prefix`, which ends with `/`, by name.
    fn list(&self, prefix: &str) -> io::Result<Vec<Listed>>;

    /// Removes an object. One that is not there is gone already.
    fn delete(&self, name: &str) -> io::Result<()>;

    /// Removes what processes that died left of objects that they had begun, and is older than `age`.
    fn clear(&self, age: Duration) -> io::Result<()>;

    /// How long an object may be that is put: packs are made no longer.
    fn max_object(&self) -> u64 {
        u64::MAX
    }

    /// What has to be tried out before it is relied on: a server, which may not do what it is asked.
    fn to_probe(&self) -> Option<&dyn Objects> {
        None
    }

    /// The store itself, if this keeps some of it nearby: for who must know what is there.
    fn past_cache(&self) -> Option<&dyn Objects> {
        None
    }

    /// What was read of an object is not what it should be: whatever is kept of it nearby is dropped. Says
    /// whether the store is asked then, and may answer otherwise.
    fn refuse(&self, _name: &str) -> bool {
        false
    }
}

/// An object that is being written. Dropped unfinished, it never was.
pub trait NewObject: Send {
    /// Adds bytes.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Gives it its name, unless there is one of that name; durable when it returns.
    fn finish(self: Box<Self>, name: &str) -> io::Result<Put>;
}

/// An error for an object that is longer than it may be.
fn too_long(name: &str, most: u64) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{name} has more than {most} bytes"))
}

/// Refuses what is no object's name.
fn check_name(name: &str) -> io::Result<()> {
    let fine = |part: &str| {
        let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        !part.is_empty() && !part.starts_with('.') && part.bytes().all(known)
    };
    if name.split('/').all(fine) {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{name:?} is no object's name")))
}
