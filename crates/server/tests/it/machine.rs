//! What this machine has for tests: the bridge that was built, and sandboxes, if there are any.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use ash_engine::bridge::{Enclosure, Sandboxing, Users};

use crate::processes::end_sandboxes;

/// A sandbox, where this machine has any.
pub(crate) fn enclosure(data: &Path) -> Enclosure {
    match Sandboxing::probe(data, &bridge_program(), Users::new(200_000, 65_536), &[]) {
        Ok((sandboxing, _)) => Enclosure::Sandbox(Arc::new(sandboxing)),
        Err(error) => {
            eprintln!("without sandboxes: {error}");
            Enclosure::Nothing
        }
    }
}

/// The bridge beside the `ash` that is tested. `cargo test --workspace` has built it; whoever tests
/// this crate alone may not have.
pub(crate) fn bridge_program() -> PathBuf {
    static BRIDGE: OnceLock<PathBuf> = OnceLock::new();
    let beside = || {
        let bridge = Path::new(env!("CARGO_BIN_EXE_ash")).with_file_name("ash-bridge");
        if !bridge.exists() {
            let build = ["build", "--quiet", "--package", "ash-bridge", "--bin", "ash-bridge"];
            let built = Command::new(env!("CARGO")).args(build).status().unwrap();
            assert!(built.success() && bridge.exists(), "build the workspace first");
        }
        bridge
    };
    BRIDGE.get_or_init(beside).clone()
}

/// Whether this machine has sandboxes.
pub(crate) fn can_isolate() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let can = matches!(enclosure(&dir.path().join("data")), Enclosure::Sandbox(_));
        end_sandboxes(&dir.path().join("data"));
        can
    })
}
