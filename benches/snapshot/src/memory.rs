//! How much memory it takes: each step in a process of its own, by its own account of its peak.

use std::path::Path;
use std::process::Command;

use ash_snapshot::State;

use crate::figures::heading;
use crate::own::Own;

const FILES: u32 = 100_000;

pub(crate) fn measure(at: &Path) {
    heading("100,000 files: memory at its peak");
    let at = at.join("memory");
    for directory in 0..FILES / 50 {
        let directory = at.join(format!("tree/some/where/directory-{directory}"));
        std::fs::create_dir_all(&directory).expect("the directory is made");
        for file in 0..50 {
            let path = directory.join(format!("a-file-of-some-name-{file}.txt"));
            std::fs::write(&path, format!("{}\n", path.display()).repeat(10)).expect("it is made");
        }
    }
    let program = std::env::current_exe().expect("this is a program");
    for step in ["nothing", "first", "again", "restore"] {
        let mut command = Command::new(&program);
        let output = command.arg(&at).args(["peak", step]).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        print!("{}", String::from_utf8_lossy(&output.stdout));
    }
}

/// One step, and its peak.
pub(crate) fn peak(at: &Path, step: Option<&str>) {
    let step = step.unwrap_or("nothing");
    let (tree, state) = (at.join("tree"), at.join("state"));
    match step {
        "first" | "again" => {
            let mut own = Own::new(&at.join("store"));
            own.state = State::load(&state);
            own.capture(&tree);
            own.state.save(&state).expect("it is saved");
        }
        "restore" => {
            let mut own = Own::new(&at.join("store"));
            own.state = State::load(&state);
            let (snapshot, _, _) = own.capture(&tree);
            // What the capture took is not asked for.
            reset_peak();
            own.restore(&snapshot, &at.join("restored"));
        }
        _ => {}
    }
    let status = std::fs::read_to_string("/proc/self/status").expect("it is read");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("").trim();
    println!("  {step:<8} {peak}");
}

fn reset_peak() {
    std::fs::write("/proc/self/clear_refs", "5").expect("the peak is reset");
}
