//! Trees that do what they can to survive, and do not.

use std::fs;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;
use std::time::Duration;

use ash_bridge::process::{End, Running, Stream, become_reaper, reaper};
use tokio::io::AsyncReadExt as _;
use tokio::task::{JoinSet, LocalSet};

use crate::trees::{Mark, processes, until};

/// Asks politely and no longer.
const AT_ONCE: Duration = Duration::ZERO;

/// Forks so often that a list of processes is old when it is read; ends by itself at 150.
const BOMB: &str = r#"
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(150):
    if os.fork() == 0:
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
        time.sleep(600)
print("full", flush=True)
time.sleep(600)
"#;

async fn read_all(running: &mut Running) -> String {
    let mut text = String::new();
    running.stdout.take().unwrap().read_to_string(&mut text).await.unwrap();
    text
}

async fn read_line(running: &mut Running) {
    let stdout = running.stdout.as_mut().unwrap();
    while stdout.read_u8().await.unwrap() != b'\n' {}
}

#[tokio::test]
async fn a_command_prints_and_ends() {
    let mark = Mark::new();
    let mut running = processes().spawn(mark.shell("echo hello; exit 7")).unwrap();
    assert_eq!(read_all(&mut running).await, "hello\n");
    assert_eq!(running.wait().await, End::Exited(7));
    running.gone().await;
    let mut running = processes().spawn(mark.shell("kill -SEGV $$")).unwrap();
    assert_eq!(running.wait().await, End::Killed(11));
}

#[tokio::test]
async fn what_cannot_be_started_says_so() {
    let mark = Mark::new();
    let mut spec = mark.shell("");
    spec.program = "/no/such/program".to_owned();
    let end = processes().spawn(spec.clone()).unwrap().wait().await;
    let End::NotStarted(why) = end else { panic!("{end:?}") };
    assert!(why.starts_with("/no/such/program: No such file"), "{why}");
    spec.cwd = "/no/such/directory".into();
    let end = processes().spawn(spec).unwrap().wait().await;
    assert_eq!(end, End::NotStarted("/no/such/directory is not a directory".to_owned()));
}

#[tokio::test]
async fn what_ignores_the_request_to_end_is_killed() {
    let mark = Mark::new();
    let script = "trap '' TERM; echo; while :; do sleep 600; done";
    let mut running = processes().spawn(mark.shell(script)).unwrap();
    read_line(&mut running).await;
    running.terminate(Duration::from_millis(50));
    assert_eq!(running.wait().await, End::Killed(9));
    running.gone().await;
    assert_eq!(mark.alive(), Vec::<i32>::new());
}

#[tokio::test]
async fn what_wants_to_tidy_up_may() {
    let mark = Mark::new();
    let script = "trap 'echo tidy; exit 3' TERM; echo; while :; do sleep 0.01; done";
    let mut running = processes().spawn(mark.shell(script)).unwrap();
    read_line(&mut running).await;
    running.terminate(Duration::from_secs(60));
    assert_eq!(read_all(&mut running).await, "tidy\n");
    assert_eq!(running.wait().await, End::Exited(3));
    running.gone().await;
}

#[tokio::test]
async fn what_hides_in_its_own_session_dies_with_a_dropped_handle() {
    let mark = Mark::new();
    let script =
        "setsid bash -c 'sleep 600 & sleep 600 & disown -a; exit' & wait; echo; sleep 600; :";
    let mut running = processes().spawn(mark.shell(script)).unwrap();
    read_line(&mut running).await;
    mark.until_alive(4).await; // The shell, its sleep, and two orphans.
    drop(running);
    mark.until_gone().await;
}

#[tokio::test]
async fn a_bomb_is_defused() {
    let mark = Mark::new();
    let mut spec = mark.shell("");
    (spec.program, spec.args) = ("python3".to_owned(), vec!["-c".to_owned(), BOMB.to_owned()]);
    let mut running = processes().spawn(spec.clone()).unwrap();
    read_line(&mut running).await;
    running.terminate(AT_ONCE);
    running.gone().await;
    assert_eq!(mark.alive(), Vec::<i32>::new());

    // And once more while it is still growing.
    let running = processes().spawn(spec).unwrap();
    until("the bomb grows", || mark.alive().len() > 5).await;
    drop(running);
    mark.until_gone().await;
}

#[tokio::test]
async fn what_was_started_in_the_background_lives_as_long_as_the_bridge() {
    let mark = Mark::new();
    let dir = tempfile::tempdir().unwrap();
    let done = dir.path().join("done");
    // More than a pipe holds: it would block for ever, or die, if nobody read it.
    let script = format!(
        "(sleep 0.2; head -c 3000000 /dev/zero && touch {} && sleep 600) &",
        done.display()
    );
    let processes = processes();
    let mut running = processes.spawn(mark.shell(&script)).unwrap();
    assert_eq!(running.wait().await, End::Exited(0));
    drop(running);
    until("the background goes on", || done.exists()).await;
    assert!(!mark.alive().is_empty());
    drop(processes);
    mark.until_gone().await;
}

#[tokio::test]
async fn the_oldest_background_makes_room() {
    let processes = processes();
    let first = Mark::new();
    let others = Mark::new();
    for index in 0..65 {
        let mark = if index == 0 { &first } else { &others };
        let mut running = processes.spawn(mark.shell("sleep 600 &")).unwrap();
        assert_eq!(running.wait().await, End::Exited(0));
    }
    first.until_gone().await;
    others.until_alive(64).await;
    drop(processes);
    others.until_gone().await;
}

#[tokio::test]
async fn nothing_is_inherited_but_what_was_given() {
    let secrets =
        ["ASH_X", "AWS_SECRET_ACCESS_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "ANTHROPIC_API_KEY"];
    let mark = Mark::new();
    let output =
        play("environment", &mark).envs(secrets.map(|name| (name, "secret"))).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    let found: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("child: ")).collect();
    let mark = format!("MARK={}", mark.name());
    let path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    assert_eq!(found, ["HOME=/tmp", "LANG=C.UTF-8", &mark, path, "TERM=dumb", "0", "1", "2", "3"]);
}

#[tokio::test]
async fn a_long_order_is_carried_out() {
    let mark = Mark::new();
    let mut spec = mark.shell("cat; shift; echo $#");
    spec.args.extend((0..10).map(|_| "x".repeat(100_000)));
    spec.stdin = Stream::Pipe;
    let mut running = processes().spawn(spec).unwrap();
    drop(running.stdin.take());
    assert_eq!(read_all(&mut running).await, "8\n");
    assert_eq!(running.wait().await, End::Exited(0));
}

#[test]
fn a_tree_whose_keeper_is_killed_is_killed() {
    let mark = Mark::new();
    let output = play("killer", &mark).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(mark.alive(), Vec::<i32>::new());
}

#[test]
fn a_tree_that_stops_its_keeper_is_killed() {
    let mark = Mark::new();
    let output = play("stopper", &mark).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(mark.alive(), Vec::<i32>::new());
}

#[tokio::test]
async fn nothing_outlives_a_bridge_that_is_killed() {
    let mark = Mark::new();
    let mut bridge = play("holder", &mark).spawn().unwrap();
    mark.until_alive(2).await;
    bridge.kill().unwrap();
    assert_eq!(bridge.wait().unwrap().signal(), Some(9));
    mark.until_gone().await;
}

/// This program again, as a process in which nothing but one role is played: the reaper waits for
/// every child of its process, and the tests beside it have children too.
fn play(role: &str, mark: &Mark) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "process::a_role_is_played", "--nocapture"])
        .env("BRIDGE_TEST_ROLE", role)
        .env("BRIDGE_TEST_MARK", mark.name())
        .stdout(std::process::Stdio::piped());
    command
}

#[test]
fn a_role_is_played() {
    let variable = |name| std::env::var_os(name).map(|value| value.into_string().unwrap());
    let (Some(role), Some(mark)) = (variable("BRIDGE_TEST_ROLE"), variable("BRIDGE_TEST_MARK"))
    else {
        return; // Nobody asked; this is an ordinary run of the tests.
    };
    become_reaper().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, perform(&role, &Mark::given(mark)));
}

async fn perform(role: &str, mark: &Mark) {
    let processes = processes();
    let mut tasks = JoinSet::new();
    tasks.spawn_local(reaper::reap(processes.clone()));
    let sleepers = "(trap '' TERM; setsid sleep 600) & (setsid sleep 600 &)";
    match role {
        "holder" => {
            let _held = processes.spawn(mark.shell("sleep 600 & wait")).unwrap();
            std::future::pending::<()>().await;
        }
        "environment" => {
            let mut spec = mark.shell("");
            spec.program = "/usr/bin/env".to_owned();
            spec.args = Vec::new();
            let mut running = processes.spawn(spec.clone()).unwrap();
            let mut lines: Vec<String> =
                read_all(&mut running).await.lines().map(str::to_owned).collect();
            lines.sort();
            let before = inheritable();
            // The descriptor of the directory itself is the last one.
            (spec.program, spec.args) = ("/bin/ls".to_owned(), vec!["/proc/self/fd".to_owned()]);
            let mut running = processes.spawn(spec).unwrap();
            let found = read_all(&mut running).await;
            let is_ours = |line: &&str| !before.contains(&(*line).to_owned());
            lines.extend(found.lines().filter(is_ours).map(str::to_owned));
            let mut out = std::io::stdout().lock();
            for line in lines {
                writeln!(out, "child: {line}").unwrap();
            }
        }
        "killer" => {
            let script = format!("{sleepers}; echo; read -r < <(sleep 600); :");
            let mut running = processes.spawn(mark.shell(&script)).unwrap();
            read_line(&mut running).await;
            let other = Mark::new();
            let mut innocent = processes.spawn(other.shell("sleep 600")).unwrap();
            let mut assassin = processes
                .spawn(mark.shell(&format!("{sleepers}; kill -9 $PPID; sleep 600")))
                .unwrap();
            assert_eq!(assassin.wait().await, End::KeeperLost);
            kill_keeper_of(mark);
            assert_eq!(running.wait().await, End::KeeperLost);
            mark.until_gone().await;
            assert_eq!(other.alive().len(), 1, "others are left alone");
            innocent.terminate(AT_ONCE);
            innocent.gone().await;
            until("every child is reaped", || children().is_empty()).await;
        }
        "stopper" => {
            let script = format!("{sleepers}; kill -STOP $PPID; sleep 600");
            let mut running = processes.spawn(mark.shell(&script)).unwrap();
            assert_eq!(running.wait().await, End::KeeperLost);
            mark.until_gone().await;
            until("every child is reaped", || children().is_empty()).await;
        }
        unknown => panic!("no role {unknown}"),
    }
}

/// Descriptors beyond the standard ones that whoever started the tests lets everybody have.
fn inheritable() -> Vec<String> {
    let entries = fs::read_dir("/proc/self/fdinfo").unwrap().flatten();
    let is_inheritable = |info: &str| {
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
        u32::from_str_radix(flags, 8).unwrap() & 0o2_000_000 == 0
    };
    entries
        .filter(|entry| fs::read_to_string(entry.path()).is_ok_and(|info| is_inheritable(&info)))
        .map(|entry| entry.file_name().into_string().unwrap())
        .filter(|name| !["0", "1", "2"].contains(&name.as_str()))
        .collect()
}

/// Kills the keeper of what is alive, from outside of its tree.
fn kill_keeper_of(mark: &Mark) {
    let keepers = children();
    let of_mark = mark.alive().into_iter().filter_map(parent).find(|pid| keepers.contains(pid));
    let keeper = rustix::process::Pid::from_raw(of_mark.unwrap()).unwrap();
    rustix::process::kill_process(keeper, rustix::process::Signal::KILL).unwrap();
}

fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()
}

/// The children of this process, zombies too.
fn children() -> Vec<i32> {
    let own = std::process::id().cast_signed();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|&pid| parent(pid) == Some(own)).collect()
}
