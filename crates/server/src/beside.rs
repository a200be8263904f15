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
    let mut directories = program.ancestors().skip(1);
    let own = directories.next();
    // Nowhere else: what lies above could be anybody's.
    let is_built = own.is_some_and(|own| own.ends_with("deps") || own.ends_with("examples"));
    let above = directories.next().filter(|_| is_built);
    let places: Vec<PathBuf> = own.into_iter().chain(above).map(|dir| dir.join(BRIDGE)).collect();
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
    fn a_bridge_is_found_beside_and_its_absence_is_explained() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("ash-bridge"), "").unwrap();
        for (name, above) in [("bin", false), ("deps", true)] {
            let program = dir.path().join(name).join("ash");
            std::fs::create_dir(dir.path().join(name)).unwrap();
            match bridge_beside(&program) {
                Ok(found) => assert!(above && found == dir.path().join("ash-bridge"), "{name}"),
                Err(error) => {
                    let error = error.to_string();
                    assert!(!above && error.contains(&format!("{name}/ash-bridge")), "{error}");
                }
            }
            let beside = dir.path().join(name).join("ash-bridge");
            std::fs::write(&beside, "").unwrap();
            assert_eq!(bridge_beside(&program).unwrap(), beside);
        }
    }
}
