//! Commands that take too long, print too much, or hold on to what is not theirs.

use std::path::Path;
use std::time::Duration;

use ash_bridge::exec::run;
use ash_protocol::{ExecEnd, ExecRequest, ExecResult};

use crate::trees::{Mark, processes};

fn request(command: &str) -> ExecRequest {
    ExecRequest {
        command: command.to_owned(),
        cwd: None,
        timeout_ms: 60_000,
        max_output_bytes: 10_000,
    }
}

async fn exec(mark: &Mark, request: &ExecRequest) -> ExecResult {
    run(&processes(), request, &mark.env(), Path::new("/tmp")).await
}

#[tokio::test]
async fn a_command_answers_with_what_it_printed() {
    let result = exec(&Mark::new(), &request("echo out; echo err >&2; exit 5")).await;
    let expected = ExecResult {
        end: ExecEnd::Exited(5),
        stdout: "out\n".to_owned(),
        stderr: "err\n".to_owned(),
        omitted_bytes: 0,
    };
    assert_eq!(result, expected);
}

#[tokio::test]
async fn it_runs_beneath_the_workspace() {
    let dir = tempfile::tempdir().unwrap();
    let real = dir.path().canonicalize().unwrap();
    std::fs::create_dir(real.join("sub")).unwrap();
    let mark = Mark::new();
    let mut request = request("pwd");
    request.cwd = Some("sub".into());
    let result = run(&processes(), &request, &mark.env(), &real).await;
    assert_eq!(result.stdout, format!("{}\n", real.join("sub").display()));
    for outside in ["..", "/", "nowhere"] {
        request.cwd = Some(outside.into());
        let result = run(&processes(), &request, &mark.env(), &real).await;
        assert!(matches!(result.end, ExecEnd::NotStarted(_)), "{outside}: {result:?}");
    }
}

#[tokio::test]
async fn fifty_megabytes_leave_a_beginning_and_an_end() {
    let script = "echo first; head -c 50000000 /dev/zero | tr '\\0' x; echo; echo last";
    let result = exec(&Mark::new(), &request(script)).await;
    assert_eq!(result.end, ExecEnd::Exited(0));
    assert!(result.stdout.starts_with("first\nxxx") && result.stdout.ends_with("xxx\nlast\n"));
    assert!(result.stdout.len() < 10_100);
    assert_eq!(result.omitted_bytes, 50_000_012 - 10_000);
}

#[tokio::test]
async fn too_long_is_an_end_of_everything() {
    let mark = Mark::new();
    let mut request = request("echo begun; setsid sleep 600 & trap '' TERM; sleep 600; sleep 600");
    request.timeout_ms = 300;
    let result = exec(&mark, &request).await;
    assert_eq!(result.end, ExecEnd::TimedOut);
    assert_eq!(result.stdout, "begun\n");
    assert_eq!(mark.alive(), Vec::<i32>::new());
}

#[tokio::test]
async fn a_command_without_output_still_ends_in_time() {
    let mark = Mark::new();
    let mut request = request("exec >&- 2>&-; sleep 600");
    request.timeout_ms = 200;
    assert_eq!(exec(&mark, &request).await.end, ExecEnd::TimedOut);
    assert_eq!(mark.alive(), Vec::<i32>::new());
}

#[tokio::test]
async fn whoever_holds_the_pipe_does_not_hold_the_answer() {
    let mark = Mark::new();
    let processes = processes();
    let request = request("(setsid sleep 600 &) ; sleep 600 & yes & echo done; exit 4");
    let result = run(&processes, &request, &mark.env(), Path::new("/tmp")).await;
    assert_eq!(result.end, ExecEnd::Exited(4));
    assert!(result.stdout.contains("done") || result.omitted_bytes > 0);
    mark.until_alive(3).await; // The background goes on; at first it may be about to begin.
    drop(processes);
    mark.until_gone().await;
}

#[tokio::test]
async fn whoever_kills_its_keeper_was_killed() {
    // Without a reaper in this process nobody would kill its children, so it has none.
    let result = exec(&Mark::new(), &request("kill -9 $PPID")).await;
    assert!(matches!(result.end, ExecEnd::Killed(9) | ExecEnd::Exited(0)), "{result:?}");
}

#[tokio::test]
async fn a_dropped_command_is_killed() {
    let mark = Mark::new();
    let (processes, env) = (processes(), mark.env());
    let request = request("setsid sleep 600 & sleep 600; :");
    tokio::select! {
        result = run(&processes, &request, &env, Path::new("/tmp")) => panic!("{result:?}"),
        () = mark.until_alive(3) => {}
    }
    mark.until_gone().await;
    let waited =
        tokio::time::timeout(Duration::ZERO, run(&processes, &request, &env, Path::new("/")));
    assert!(waited.await.is_err());
    mark.until_gone().await;
}
