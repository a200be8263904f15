//! The image is made of what there is: where no container can be built, its lines are at least held against the tree.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn the_image_is_built_by_the_same_compiler_and_has_the_programs() {
    let image = text("deploy/Dockerfile");
    let toolchain = text("rust-toolchain.toml");
    let channel = toolchain.split("channel = \"").nth(1).unwrap().split('"').next().unwrap();
    let compiler = image.split("FROM rust:").nth(1).unwrap().split('-').next().unwrap();
    assert!(channel.starts_with(compiler), "{channel} is not {compiler}");
    let built: Vec<&str> =
        image.split(" -p ").skip(1).map(|of| of.split_whitespace().next().unwrap()).collect();
    let programs: Vec<&str> = image
        .split("/src/target/release/")
        .skip(1)
        .map(|of| of.split_whitespace().next().unwrap())
        .collect();
    assert_eq!((built.len(), programs.len()), (2, 2), "{image}");
    for (package, program) in built.iter().zip(programs) {
        let manifest = text(&format!("crates/{}/Cargo.toml", package.trim_start_matches("ash-")));
        assert!(manifest.contains(&format!("name = \"{package}\"")), "{package}");
        let is_named = manifest.contains(&format!("name = \"{program}\""));
        assert!(is_named, "{package} has no program {program}");
    }
    // What is not to be in it lies in no way of what it is made of.
    for left_out in text(".dockerignore").lines().filter(|line| line.starts_with('/')) {
        assert!(!["/crates", "/Cargo.toml", "/Cargo.lock", "/.cargo"].contains(&left_out));
    }
}
