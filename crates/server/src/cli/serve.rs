//! `ash serve`: runs the server.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::os::fd::{IntoRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use ash_store::sqlite::SqliteStore;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Hint;
use super::output::{note, print};
use crate::beside;
use crate::config::{Config, ServeFlags};
use crate::serve::Server;

/// Run the server
///
/// It listens on http://127.0.0.1:4100 and keeps everything in ./data unless told otherwise; `ash config`
/// shows what holds. On SIGTERM it ends in good order and leaves running turns to their bridges, which
/// the next server finds again; a second SIGTERM ends everything. On SIGUSR2 the program that is now in its
/// place takes over, with every session and every connection that waits; `ash upgrade` asks for that.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    flags: ServeFlags,
    /// Only say whether this program could serve so: asked by a server before it hands over to it
    #[arg(long, hide = true)]
    check: bool,
}

/// The same, as it is asked.
const CHECK: &str = "--check";

/// How long the next program, and its bridge, may take to say whether they are of use.
const CHECK_PATIENCE: Duration = Duration::from_secs(10);

/// How long a server that has left running turns to their bridges waits to be told to end them after all:
/// otherwise nobody could be quick enough to say so.
const LAST_WORD: Duration = Duration::from_secs(1);

/// How long what blocks may go on when everything else has ended. Whatever is not done then is cut off by the
/// end of the process, which is what lets go of the data.
const LAST_WORK: Duration = Duration::from_millis(500);

/// How much is passed on of what a program says that is of no use.
const MAX_COMPLAINT_CHARS: usize = 500;

pub(super) fn run(args: &Args, environment: BTreeMap<String, String>) -> anyhow::Result<()> {
    let config = Config::load(&args.flags, &environment, args.flags.config.as_deref())
        .context("could not use the configuration")?;
    if args.check {
        return check(&config);
    }
    allow_many_connections();
    bury_the_dead();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("could not start the runtime")?;
    // Known now: when it is needed, another program may lie there.
    let program = std::env::current_exe().context("could not find the program itself")?;
    let served = runtime.block_on(serve(&config, environment, &program));
    match served {
        // Every thread ends with the old program, before the data is let go of.
        Ok(Served { held: _held, handed_over: Some(socket) }) => {
            Err(become_the_next(&program, socket))
        }
        Ok(Served { held, handed_over: None }) => {
            // Held until the process is gone: what still works on files then is of this server.
            let _never_closed = held.into_raw_fd();
            runtime.shutdown_timeout(LAST_WORK);
            Ok(())
        }
        Err(error) => {
            runtime.shutdown_timeout(LAST_WORK);
            Err(error)
        }
    }
}

/// How a server ended.
struct Served {
    /// What keeps other servers from the data.
    held: OwnedFd,
    /// The socket, if another program is to go on with it.
    handed_over: Option<OwnedFd>,
}

/// What to do about a server that does not start.
fn hint(error: &anyhow::Error) -> Hint {
    let is_taken = |cause: &(dyn std::error::Error + 'static)| {
        let error = cause.downcast_ref::<std::io::Error>();
        error.is_some_and(|error| error.kind() == std::io::ErrorKind::AddrInUse)
    };
    Hint(if error.chain().any(is_taken) {
        "something listens there already; `--port` or ASH_PORT names another port, and `ash doctor` says what it is"
    } else {
        "`ash doctor` looks at what may be wrong"
    })
}

/// Serves until it is told to end.
async fn serve(
    config: &Config,
    environment: BTreeMap<String, String>,
    program: &Path,
) -> anyhow::Result<Served> {
    let mut signals = Signals::listen()?;
    let server = Server::start(config, environment).await;
    let mut server = server.map_err(|error| {
        let hint = hint(&error);
        error.context(hint)
    })?;
    let held = server.hold_data().context("could not keep the data")?;
    announce(config, &server)?;
    let patience = config.drain_ms;
    let has_sandboxes = loop {
        tokio::select! {
            told = signals.next() => match told {
                Told::End => {
                    note("shutting down; again to end everything");
                    break true;
                }
                Told::HandOver => match ask_the_next(program).await {
                    Ok(version) => {
                        note(&format!("handing over to {version}"));
                        let handed_over = server.hand_over(patience).await;
                        return Ok(Served { held, handed_over });
                    }
                    Err(error) => note(&format!("not handing over: {error:#}")),
                },
            },
            () = server.superseded() => {
                note("another server has taken the sessions over");
                break false;
            }
        }
    };
    if !has_sandboxes {
        server.drain(patience).await;
        return Ok(Served { held, handed_over: None });
    }
    let twice = {
        let begun = tokio::time::Instant::now();
        let draining = async {
            server.drain(patience).await;
            let left = server.left_alive().await;
            if left > 0 {
                note(&format!("{left} running turns go on without a server; again to end them"));
                let rest = patience.saturating_sub(begun.elapsed());
                tokio::time::sleep(rest.min(LAST_WORD)).await;
            }
        };
        tokio::select! {
            () = draining => false,
            () = signals.end() => true,
        }
    };
    if twice {
        note("ending everything");
        server.end_everything().await;
        server.drain(Duration::from_millis(100)).await;
    }
    Ok(Served { held, handed_over: None })
}

/// Says what this program is, if it could serve: the configuration is read already, and nothing is changed.
fn check(config: &Config) -> anyhow::Result<()> {
    let path = config.database_path();
    SqliteStore::can_open(&path)
        .with_context(|| format!("could not open the database {}", path.display()))?;
    let bridge = beside::bridge().context("could not find the bridge")?;
    let shown = bridge.display();
    let asked = std::process::Command::new(&bridge).arg("--version").stdin(Stdio::null()).output();
    let output = asked.with_context(|| format!("{shown} cannot be run"))?;
    let says = String::from_utf8_lossy(&output.stdout);
    let is_one = output.status.success() && says.starts_with("ash-bridge ");
    anyhow::ensure!(is_one, "{shown} does not say that it is a bridge");
    let (its_version, version) = (says.trim(), concat!("ash-bridge ", env!("CARGO_PKG_VERSION")));
    anyhow::ensure!(its_version == version, "{shown} is {its_version:.100}, and not {version}");
    print(concat!("ash ", env!("CARGO_PKG_VERSION"), "\n"))
}

/// Asks the program that lies in the place of this one now whether it could serve with the same arguments,
/// and which one it is.
async fn ask_the_next(program: &Path) -> anyhow::Result<String> {
    let shown = program.display();
    let asked = tokio::process::Command::new(program)
        .args(std::env::args_os().skip(1))
        .arg(CHECK)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(CHECK_PATIENCE, asked).await;
    let output = output.with_context(|| format!("{shown} does not answer"))?;
    let output = output.with_context(|| format!("{shown} cannot be run"))?;
    let says = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        text.trim().chars().take(MAX_COMPLAINT_CHARS).collect::<String>()
    };
    if !output.status.success() {
        anyhow::bail!("{shown} could not serve in its place:\n{}", says(&output.stderr));
    }
    let version = says(&output.stdout);
    anyhow::ensure!(version.starts_with("ash "), "{shown} does not say that it is ash");
    Ok(version)
}

/// Runs the program that lies in the place of this one now, in this process, with the same arguments. Returns
/// only if that fails: sandboxes go on, and whoever starts a server next finds them.
fn become_the_next(program: &Path, socket: OwnedFd) -> anyhow::Error {
    let arguments = std::env::args_os().skip(1);
    let error = std::process::Command::new(program).args(arguments).stdin(socket).exec();
    anyhow::Error::new(error).context(format!("{} could not be run", program.display()))
}

/// Waits for children that ended while one program handed over to the next. Those that live are found later.
fn bury_the_dead() {
    use rustix::process::{WaitId, WaitIdOptions, waitid};
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    while let Ok(Some(_)) = waitid(WaitId::All, ended) {}
}

/// How many files the server wants to have open: a connection is one.
const DESCRIPTORS: u64 = 65_536;

/// Takes as many descriptors as it may. What most machines give to begin with is used up by a thousand
/// followers, and then nothing can be opened any more, not even for the sessions.
fn allow_many_connections() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(DESCRIPTORS, |maximum| maximum.min(DESCRIPTORS));
    if current.is_some_and(|current| current < wanted) {
        let limit = Rlimit { current: Some(wanted), maximum };
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the limit of open files could not be raised to {wanted}",
            );
        }
    }
}

/// The signals that ask a server to end, and the one to hand over.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    upgrade: Signal,
}

impl Signals {
    fn listen() -> anyhow::Result<Self> {
        let failed = "could not listen for signals";
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context(failed)?,
            interrupt: signal(SignalKind::interrupt()).context(failed)?,
            upgrade: signal(SignalKind::user_defined2()).context(failed)?,
        })
    }

    async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.terminate.recv() => Told::End,
            _ = self.interrupt.recv() => Told::End,
            _ = self.upgrade.recv() => Told::HandOver,
        }
    }

    /// Waits until it is told to end.
    async fn end(&mut self) {
        while self.next().await != Told::End {}
    }
}

/// What a server is told by a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    End,
    HandOver,
}

/// Tells whoever starts a server where it is. Nobody has to listen.
fn announce(config: &Config, server: &Server) -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let mut lines = vec![
        format!("ash {version} listening on http://{}", server.address()),
        format!("  data   {}", config.data_dir.display()),
    ];
    lines.push(match server.key_file() {
        Some(path) => format!("  key    in {}, where the command line finds it", path.display()),
        None if config.api_key.is_some() => "  key    the one in ASH_API_KEY".to_owned(),
        None => "  key    one that was made before".to_owned(),
    });
    lines.push(format!("  agents isolated: {}", server.isolation()));
    lines.push(format!("  disk   {}", server.disk()));
    let model = config.anthropic_base_url.as_str();
    lines.push(match config.anthropic_api_key {
        Some(_) => format!("  model  {model}"),
        None => format!("  model  {model}, without a key: set ANTHROPIC_API_KEY"),
    });
    if std::io::stdout().is_terminal() {
        lines.push("  next   ash deploy <directory>, then ash chat <agent>".to_owned());
    }
    print(&(lines.join("\n") + "\n"))?;
    if server.isolation() == "none" {
        note(
            "warning: without sandboxes agents are plain processes, and can do whatever you can. Only run agents \
             that you trust",
        );
    }
    for warning in config.warnings() {
        note(&format!("warning: {warning}"));
    }
    Ok(())
}
