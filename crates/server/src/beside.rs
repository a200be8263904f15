//! Programs that come with this one.

use std::io;
use std::path::{Path, PathBuf};

/// The name of the bridge's program.
const BRIDGE: &str = "ash-bridge";

/// The bridge that lies beside a program of ours; where the program was built as a test or an
/// example, one directory up.
///
/// # Errors
/// It is in neither place. The message says where it was sought.
pub fn bridge_beside(program: &Path) -> io::Result<PathBuf> {
    let places = program.ancestors().skip(1).take(2).map(|dir| dir.join(BRIDGE));
    let places: Vec<PathBuf> = places.collect();
    places.iter().find(|place| place.is_file()).cloned().ok_or_else(|| {
        let sought: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
        let message = format!("there is no {BRIDGE} at {}; build it too", sought.join(" or "));
        io::Error::new(io::ErrorKind::NotFound, message)
    })
}

/// The bridge that belongs to the program that runs.
///
/// # Errors
/// It is not there, or the program does not know its own place.
pub fn bridge() -> io::Result<PathBuf> {
    bridge_beside(&std::env::current_exe()?)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_bridge_is_found_beside_and_one_up_and_its_absence_is_explained() {
        let dir = tempfile::tempdir().unwrap();
        let beside = dir.path().join("bin/ash");
        std::fs::create_dir(dir.path().join("bin")).unwrap();
        let error = bridge_beside(&beside).unwrap_err().to_string();
        assert!(error.contains("bin/ash-bridge"), "{error}");
        std::fs::write(dir.path().join("ash-bridge"), "").unwrap();
        assert_eq!(bridge_beside(&beside).unwrap(), dir.path().join("ash-bridge"));
        std::fs::write(dir.path().join("bin/ash-bridge"), "").unwrap();
        assert_eq!(bridge_beside(&beside).unwrap(), dir.path().join("bin/ash-bridge"));
    }
}
