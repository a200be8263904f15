//! The process that lets sandboxes go when their server cannot.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

#[test]
fn what_a_server_held_when_it_died_is_let_go_and_what_it_had_let_go_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (held, freed) = (dir.path().join("held"), dir.path().join("freed"));
    for file in [&held, &freed] {
        fs::write(file, "1").unwrap();
    }
    let mut guard = Command::new(env!("CARGO_BIN_EXE_ash-bridge"))
        .arg("guard")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = guard.stdin.take().unwrap();
    for file in [&held, &freed] {
        let line = ash_sandbox::hold_line(file.to_str().unwrap(), "0").unwrap();
        input.write_all(line.as_bytes()).unwrap();
    }
    input.write_all(ash_sandbox::free_line(freed.to_str().unwrap()).as_bytes()).unwrap();
    // As the death of a server would.
    drop(input);
    assert!(guard.wait().unwrap().success());
    assert_eq!(fs::read_to_string(held).unwrap(), "0");
    assert_eq!(fs::read_to_string(freed).unwrap(), "1");
}
