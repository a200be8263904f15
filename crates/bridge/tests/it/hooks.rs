//! Scripts of the agent: run once, whoever asks, and before anything else.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use ash_protocol::{
    Answer, Ask, Config, ExecEnd, Hook, HookFailure, HooksRequest, HooksResult, LegacyProgram,
};

use crate::control::{Bridge, Client, senseless};

fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn script(bridge: &Bridge, hook: Hook, text: &str) {
    fs::write(bridge.dir.path().join(hook.file_name()), text).unwrap();
}

fn asked(hooks: &[Hook], timeout_ms: u64) -> Ask {
    Ask::Hooks(HooksRequest { hooks: hooks.to_vec(), timeout_ms })
}

fn run(server: &mut Client, hooks: &[Hook], timeout_ms: u64) -> HooksResult {
    let answer = server.ask(&asked(hooks, timeout_ms));
    let Answer::Hooked(result) = answer else { panic!("{answer:?}") };
    result
}

fn lines(path: &Path) -> usize {
    fs::read_to_string(path).unwrap_or_default().lines().count()
}

#[test]
fn scripts_are_run_once_and_go_on_without_a_server() {
    let bridge = Bridge::start();
    let dir = bridge.dir.path();
    script(
        &bridge,
        Hook::Install,
        "touch begun; while [ ! -e go ]; do sleep 0.02; done; echo x >> ran",
    );
    script(&bridge, Hook::Startup, "echo y >> ran");
    let mut first = bridge.greeted(1, 0);
    let too_early = first.ask(&asked(&[Hook::Install], 1_000));
    assert!(matches!(too_early, Answer::Refused { .. }), "{too_early:?}");
    let config = Config { hooked: true, ..bridge.configuration(60_000) };
    first.ask(&Ask::Configure(Box::new(config)));
    let both = [Hook::Install, Hook::Startup];
    first.send(&asked(&both, 30_000).frame().unwrap().asking(99));
    until("it is in the middle", || dir.join("begun").exists());
    drop(first);

    let mut second = bridge.greeted(2, 0);
    fs::write(dir.join("go"), "").unwrap();
    // What is asked first counts.
    let result = run(&mut second, &[Hook::Startup], 30_000);
    assert_eq!(result, HooksResult { done: both.to_vec(), failed: None });
    assert_eq!(run(&mut second, &both, 30_000), result, "it is remembered");
    assert_eq!(fs::read_to_string(dir.join("ran")).unwrap(), "x\ny\n");
    second.ask(&senseless("a"));
    assert!(!second.run_to_its_end().is_empty(), "prompts are worked on");
}

#[test]
fn a_script_that_fails_is_the_last_thing_that_is_run() {
    let bridge = Bridge::start();
    let dir = bridge.dir.path();
    script(&bridge, Hook::Install, "#!/bin/sh\necho first; echo last; echo; exit 7");
    script(&bridge, Hook::Startup, "touch never");
    let mut server = bridge.greeted(1, 0);
    let config = Config { hooked: true, ..bridge.configuration(60_000) };
    server.ask(&Ask::Configure(Box::new(config)));
    let result = run(&mut server, &[Hook::Install, Hook::Startup], 30_000);
    let last_line = "last".to_owned();
    let failed = HookFailure { hook: Hook::Install, end: ExecEnd::Exited(7), last_line };
    assert_eq!(result, HooksResult { done: Vec::new(), failed: Some(failed) });
    assert!(!dir.join("never").exists());
    assert_eq!(run(&mut server, &[Hook::Startup], 30_000), result, "nor later");
    // Commands beside it can be run, to look at what there is.
    let command = ash_protocol::ExecRequest {
        command: "ls".to_owned(),
        cwd: None,
        timeout_ms: 10_000,
        max_output_bytes: 1_000,
    };
    assert!(matches!(server.ask(&Ask::Exec(command)), Answer::Executed(_)));
}

#[test]
fn a_script_that_takes_too_long_is_ended_with_all_it_began() {
    let bridge = Bridge::start();
    let dir = bridge.dir.path();
    let endless =
        "#!/bin/sh\ntrap '' TERM\n(while :; do date +%N > alive; sleep 0.02; done) &\nsleep 1000\n";
    script(&bridge, Hook::Startup, endless);
    let mut server = bridge.greeted(1, 0);
    let config = Config { hooked: true, ..bridge.configuration(60_000) };
    server.ask(&Ask::Configure(Box::new(config)));
    let result = run(&mut server, &[Hook::Startup], 300);
    assert_eq!(result.failed.unwrap().end, ExecEnd::TimedOut);
    fs::remove_file(dir.join("alive")).unwrap();
    let beside = ash_protocol::ExecRequest {
        command: "sleep 0.2; ls".to_owned(),
        cwd: None,
        timeout_ms: 10_000,
        max_output_bytes: 1_000,
    };
    let Answer::Executed(seen) = server.ask(&Ask::Exec(beside)) else { panic!() };
    assert!(!seen.stdout.contains("alive"), "{}", seen.stdout);
}

#[test]
fn a_program_that_is_started_early_is_started_after_the_scripts() {
    let bridge = Bridge::start();
    let dir = bridge.dir.path();
    // It gives a program that does not wait all the time to be seen.
    let patient = "i=0; while [ ! -e seen ] && [ $i -lt 30 ]; do i=$((i+1)); sleep 0.02; done";
    script(&bridge, Hook::Install, &format!("{patient}; echo x > made"));
    let mut server = bridge.greeted(1, 0);
    let command = ["/bin/sh", "-c", "ls > seen.new; mv seen.new seen; sleep 1000"];
    let legacy = LegacyProgram {
        command: command.map(str::to_owned).to_vec(),
        env: std::collections::BTreeMap::new(),
    };
    let config = Config {
        runtime: "legacy".to_owned(),
        session: Some("a-session".to_owned()),
        legacy: Some(legacy),
        hooked: true,
        ..bridge.configuration(60_000)
    };
    fs::create_dir_all(dir.join("home")).unwrap();
    server.ask(&Ask::Configure(Box::new(config)));
    server.send(&asked(&[Hook::Install], 30_000).frame().unwrap().asking(99));
    until("the program runs", || dir.join("seen").exists());
    let seen = fs::read_to_string(dir.join("seen")).unwrap();
    assert!(seen.lines().any(|name| name == "made"), "{seen}");
    assert_eq!(lines(&dir.join("made")), 1);
}

#[test]
fn a_bridge_that_was_told_of_no_scripts_runs_none() {
    let bridge = Bridge::start();
    script(&bridge, Hook::Install, "touch never");
    let mut server = bridge.greeted(1, 0);
    server.ask(&Ask::Configure(Box::new(bridge.configuration(60_000))));
    assert_eq!(run(&mut server, &[Hook::Install], 1_000), HooksResult::default());
    assert!(!bridge.dir.path().join("never").exists());
    server.ask(&senseless("a"));
    assert!(!server.run_to_its_end().is_empty());
}
