//! The keeper: starts one command, says how it ended, and sees to it that nothing outlives it
//! unwanted. See [the module above](super) for why there is one.
//!
//! Plain threads, no runtime. The main one waits for children until there are none, and its return
//! is the end of the process; the other one hears the bridge. Killing needs no agreement between
//! the two: one kills for as long as it finds anybody, the other notices that nobody is left.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Signal, WaitOptions, WaitStatus, set_dumpable_behavior};

use super::wire::{self, Asked, Handover, Order, Said};
use super::{become_reaper, tree};

/// Between two rounds of killing: short at first, for a tree that forks while it is killed.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// When memory runs out, the kernel takes what a command started before it takes the keeper, who tells
/// how the command ended, and the keeper before the bridge, whose score is lower than both.
const COMMAND_OOM_SCORE: u16 = 500;
const KEEPER_OOM_SCORE: u16 = 400;

/// The main function of `ash-bridge keep`, whose standard input is the socket to the bridge.
pub fn keep() -> ExitCode {
    // Opened now: it is not ours to open once nobody may look into us.
    let oom_score = File::options().write(true).open("/proc/self/oom_score_adj");
    // What the agent runs must not read our memory or take our descriptors. What we execute has its own.
    if set_dumpable_behavior(DumpableBehavior::NotDumpable).is_err() {
        return ExitCode::FAILURE;
    }
    let Ok(socket) = rustix::stdio::stdin().try_clone_to_owned() else { return ExitCode::FAILURE };
    let socket = UnixStream::from(socket);
    let Ok((order, handover)) = wire::take_over(&socket) else { return ExitCode::FAILURE };
    let Handover { streams, drains } = handover;
    // Where it is refused, the kernel chooses as it likes.
    let _as_it_was = set_oom_score(&oom_score, COMMAND_OOM_SCORE);
    let started = become_reaper().and_then(|()| start(order, streams));
    let _as_it_was = set_oom_score(&oom_score, KEEPER_OOM_SCORE);
    let main = match started {
        Ok(main) => main,
        Err(error) => {
            say(&socket, &Said::NotStarted(error.to_string()));
            return ExitCode::SUCCESS;
        }
    };
    let Ok(heard) = socket.try_clone() else {
        kill_everything();
    };
    thread::spawn(move || obey(heard, drains));
    wait_for_all(main, &socket);
    ExitCode::SUCCESS
}

/// Sets it for this process, and for what it starts from now on.
fn set_oom_score(file: &io::Result<File>, score: u16) -> io::Result<()> {
    match file {
        Ok(file) => file.write_all_at(score.to_string().as_bytes(), 0),
        Err(error) => Err(error.kind().into()),
    }
}

fn start(order: Order, streams: [OwnedFd; 3]) -> io::Result<i32> {
    let [stdin, stdout, stderr] = streams;
    if !order.cwd.is_dir() {
        let what = format!("{} is not a directory", order.cwd.display());
        return Err(io::Error::new(io::ErrorKind::NotADirectory, what));
    }
    let child = Command::new(&order.program)
        .args(&order.args)
        .current_dir(&order.cwd)
        .env_clear()
        .envs(&order.env)
        .process_group(0)
        .stdin(Stdio::from(stdin))
        .stdout(Stdio::from(stdout))
        .stderr(Stdio::from(stderr))
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", order.program)))?;
    Ok(child.id().cast_signed())
}

/// Reaps until there is nothing left to reap, and says how the command itself ended.
fn wait_for_all(main: i32, socket: &UnixStream) {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get() == main => {
                say(socket, &said(status));
            }
            Ok(_) | Err(Errno::INTR) => {}
            // No children: since orphans become ours, no descendants either.
            Err(_) => return,
        }
    }
}

fn said(status: WaitStatus) -> Said {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Said::Exited(code),
        (None, Some(signal)) => Said::Killed(signal),
        (None, None) => Said::Exited(-1),
    }
}

fn say(mut socket: &UnixStream, said: &Said) {
    if let Ok(line) = wire::line(said) {
        // If nobody hears it, the other thread finds the socket closed.
        let _unheard = socket.write_all(&line);
    }
}

/// Does as the bridge asks. Returns only with the process.
fn obey(socket: UnixStream, mut drains: Vec<OwnedFd>) {
    let mut heard = Vec::new();
    let mut deadline: Option<Instant> = None;
    loop {
        while let Some(asked) = next(&mut heard) {
            match asked {
                Asked::Drain => drains.drain(..).for_each(drain),
                Asked::Terminate { grace_ms } => {
                    let until = Instant::now() + Duration::from_millis(grace_ms.min(60_000));
                    deadline = Some(deadline.map_or(until, |already| already.min(until)));
                    for found in tree::below(std::process::id().cast_signed(), |_| false) {
                        tree::signal(found, Signal::TERM);
                    }
                }
            }
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            kill_everything();
        }
        if socket.set_read_timeout(left).is_err() {
            kill_everything();
        }
        let mut chunk = [0; 256];
        match (&socket).read(&mut chunk) {
            Ok(0) => kill_everything(),
            Ok(read) if heard.len() < wire::MAX_LINE_BYTES => {
                heard.extend_from_slice(&chunk[..read]);
            }
            Err(error) if is_for_later(&error) => {}
            Ok(_) | Err(_) => kill_everything(),
        }
    }
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

/// Takes a line from what was heard. What is no message is passed over.
fn next(heard: &mut Vec<u8>) -> Option<Asked> {
    while let Some(end) = heard.iter().position(|&byte| byte == b'\n') {
        let line: Vec<u8> = heard.drain(..=end).collect();
        if let Ok(asked) = serde_json::from_slice(&line) {
            return Some(asked);
        }
    }
    None
}

/// Kills again and again: what forks while the list is read is in the next one. The other thread
/// ends the process when nobody is left.
fn kill_everything() -> ! {
    let mut pause = SHORTEST_PAUSE;
    loop {
        for found in tree::below(std::process::id().cast_signed(), |_| false) {
            tree::signal(found, Signal::KILL);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Reads an output to nowhere, on a thread that ends with it.
fn drain(output: OwnedFd) {
    // The bridge read it without blocking, and it shares that with us. It reads no more.
    if rustix::fs::fcntl_setfl(&output, OFlags::empty()).is_err() {
        return;
    }
    thread::spawn(move || io::copy(&mut File::from(output), &mut io::sink()));
}
