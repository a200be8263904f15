//! How the command line finds a server on the same machine: a small file in the home directory that
//! says where the server's data is. The key is not in it; whoever can read the data directory has it.

use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use ash_core::time::Timestamp;
use serde::{Deserialize, Serialize};

/// What a server says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Found {
    /// Where it listens.
    pub url: String,
    /// Where its data is.
    pub data_dir: PathBuf,
    /// Its process.
    pub pid: u32,
    /// When it began, in milliseconds since 1970: one program after the other can run in a process.
    #[serde(default)]
    pub began: i64,
}

/// Removed when the server ends, unless another one has taken its place.
#[derive(Debug)]
pub(crate) struct Announcement {
    path: PathBuf,
    found: Found,
}

impl Announcement {
    /// Leaves it standing: who comes next says the same.
    pub(crate) fn leave(self) {
        std::mem::forget(self);
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        if read(&self.path).as_ref() == Some(&self.found) {
            let _gone_already = fs::remove_file(&self.path);
        }
    }
}

/// Says that a server is there. It is a convenience: without it, the command line is told where the
/// data is.
pub(crate) fn announce(
    home: Option<&Path>,
    address: SocketAddr,
    data: &Path,
    began: Timestamp,
) -> Option<Announcement> {
    let path = file(home?, address.port());
    let found = Found {
        url: format!("http://{address}"),
        data_dir: data.to_owned(),
        pid: std::process::id(),
        began: began.as_millis(),
    };
    match write(&path, &found) {
        Ok(()) => Some(Announcement { path, found }),
        Err(error) => {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "{} could not be written; commands have to be told where the data is",
                path.display(),
            );
            None
        }
    }
}

/// The server that listens on a port of this machine, as far as it said so.
pub fn find(home: &Path, port: u16) -> Option<Found> {
    read(&file(home, port))
}

fn file(home: &Path, port: u16) -> PathBuf {
    home.join(".ash/servers").join(format!("{port}.json"))
}

fn read(path: &Path) -> Option<Found> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn write(path: &Path, found: &Found) -> std::io::Result<()> {
    let dir = path.parent().expect("it lies in a directory");
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let temporary = path.with_extension(format!("{}.tmp", found.pid));
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(&serde_json::to_vec(found)?)?;
    fs::rename(&temporary, path)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_server_is_found_while_it_is_there() {
        let home = tempfile::tempdir().unwrap();
        let address = "127.0.0.1:4100".parse().unwrap();
        let announced =
            announce(Some(home.path()), address, Path::new("/data"), Timestamp::from_millis(1))
                .unwrap();
        let found = find(home.path(), 4100).unwrap();
        assert_eq!(
            (found.url.as_str(), found.data_dir.as_path()),
            ("http://127.0.0.1:4100", Path::new("/data"))
        );
        drop(announced);
        assert_eq!(find(home.path(), 4100), None);
    }

    #[test]
    fn whoever_came_later_is_left_alone() {
        let home = tempfile::tempdir().unwrap();
        let address = "127.0.0.1:4100".parse().unwrap();
        let announced =
            announce(Some(home.path()), address, Path::new("/old"), Timestamp::from_millis(1))
                .unwrap();
        let later = Found { url: "u".to_owned(), data_dir: "/new".into(), pid: 1, began: 2 };
        write(&file(home.path(), 4100), &later).unwrap();
        drop(announced);
        assert_eq!(find(home.path(), 4100), Some(later));
    }
}
