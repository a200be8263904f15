//! `ash-bridge`, the program inside the sandbox. It is started by the server, which hands it a
//! listening socket as standard input and the spool as standard output. It is also what starts
//! sandboxes (`launch`), what tries whether one holds (`probe`), and what lets sandboxes go when the server cannot
//! (`guard`).

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::ExitCode;

use ash_bridge::bridge::{self, Inherited, Start};
use ash_bridge::process::{self, Processes};
use ash_bridge::spool::Spool;
use ash_bridge::{RecordGone, note};
use ash_protocol::{EXIT_NO_ROOM, EXIT_RECORD_GONE, Heading};
use rustix::net::sockopt::socket_acceptconn;
use rustix::process::{DumpableBehavior, set_dumpable_behavior, setsid};
use rustix::stdio::{dup2_stdin, dup2_stdout};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::LocalSet;
use tokio_util::sync::CancellationToken;

fn main() -> ExitCode {
    let argument = std::env::args_os().nth(1);
    match argument.as_deref().map(|argument| argument.to_string_lossy()).as_deref() {
        None => match run() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                note(format_args!("{error}"));
                // The disk's room, or the session's share of it.
                let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
                if full.contains(&error.kind()) {
                    ExitCode::from(EXIT_NO_ROOM)
                } else if error.get_ref().is_some_and(|error| error.is::<RecordGone>()) {
                    ExitCode::from(EXIT_RECORD_GONE)
                } else {
                    ExitCode::FAILURE
                }
            }
        },
        Some("keep") => process::keep(),
        Some("launch") => ash_sandbox::launch(),
        Some("guard") => ash_sandbox::guard(),
        Some("probe") => ash_sandbox::inside_main(),
        Some("--version") => {
            let said = writeln!(io::stdout(), "ash-bridge {}", env!("CARGO_PKG_VERSION"));
            if said.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Some(other) => {
            note(format_args!("{other:?} is not known; it is started by the server"));
            ExitCode::from(2)
        }
    }
}

fn run() -> io::Result<()> {
    let (control, spool) = take_descriptors()?;
    // A session of its own: what ends the server's terminal does not end this. As pid 1 it has one.
    let _leader_already = setsid();
    process::become_reaper()?;
    // What the agent runs must not read our memory or take our descriptors.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let heading =
        Heading { release: env!("CARGO_PKG_VERSION").to_owned(), pid: std::process::id() };
    let spool = Spool::open(spool, &heading)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    control.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // The first process of a sandbox hears only signals that it asked for, and could not tell those
    // of the server from those of the agent. So it asks for none, and obeys its socket and KILL.
    let is_first = std::process::id() == 1;
    LocalSet::new().block_on(&runtime, async {
        let ending = CancellationToken::new();
        let start = Start {
            control: tokio::net::UnixListener::from_std(control)?,
            spool,
            listener,
            processes: Processes::new(PathBuf::from("/proc/self/exe")),
            inherited: inherited(),
            ending,
        };
        // Whatever ends it, its children end with it: their keepers see that it is gone.
        tokio::select! {
            ended = bridge::run(start) => ended,
            ended = terminated(), if !is_first => ended,
        }
    })
}

/// Waits until somebody asks for the end by a signal.
async fn terminated() -> io::Result<()> {
    signal(SignalKind::terminate())?.recv().await;
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "this is where the program starts")]
fn inherited() -> Inherited {
    let of = |name| std::env::var(name).ok();
    Inherited { path: of("PATH"), lang: of("LANG"), term: of("TERM") }
}

/// Takes standard input and output for what they are, and puts nothing in their place, so that no
/// child can inherit them.
fn take_descriptors() -> io::Result<(UnixListener, File)> {
    let control = io::stdin().as_fd().try_clone_to_owned()?;
    if !socket_acceptconn(&control).unwrap_or(false) {
        let message = "standard input is not a listening socket; it is started by the server";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let spool = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let nothing = OwnedFd::from(OpenOptions::new().read(true).write(true).open("/dev/null")?);
    dup2_stdin(&nothing)?;
    dup2_stdout(&nothing)?;
    Ok((UnixListener::from(control), spool))
}
