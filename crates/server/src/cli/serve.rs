//! `ash serve`: runs the server.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Hint;
use super::output::{note, print};
use crate::config::{Config, ServeFlags};
use crate::serve::Server;

/// Run the server
///
/// It listens on http://127.0.0.1:4100 and keeps everything in ./data unless told otherwise; `ash config`
/// shows what holds. On SIGTERM it ends in good order and leaves running turns to their bridges, which
/// the next server finds again; a second SIGTERM ends everything.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    flags: ServeFlags,
}

pub(super) fn run(args: &Args, environment: BTreeMap<String, String>) -> anyhow::Result<()> {
    let config = Config::load(&args.flags, &environment, args.flags.config.as_deref())
        .context("could not use the configuration")?;
    allow_many_connections();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("could not start the runtime")?;
    runtime.block_on(async {
        let mut signals = Signals::listen()?;
        let server = Server::start(&config, environment).await;
        let mut server = server.context(Hint("`ash doctor` looks at what may be wrong"))?;
        announce(&config, &server)?;
        tokio::select! {
            () = signals.next() => note("shutting down; again to end everything"),
            () = server.superseded() => {
                note("another server has taken the sessions over");
            }
        }
        let patience = config.drain_ms;
        let twice = {
            let draining = server.drain(patience);
            tokio::select! {
                () = draining => false,
                () = signals.next() => true,
            }
        };
        if twice {
            note("ending everything");
            server.end_everything().await;
            server.drain(Duration::from_millis(100)).await;
        }
        Ok(())
    })
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

/// The two signals that ask a server to end.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> anyhow::Result<Self> {
        let failed = "could not listen for signals";
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context(failed)?,
            interrupt: signal(SignalKind::interrupt()).context(failed)?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
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
    let model = config.anthropic_base_url.as_str();
    lines.push(match config.anthropic_api_key {
        Some(_) => format!("  model  {model}"),
        None => format!("  model  {model}, without a key: set ANTHROPIC_API_KEY"),
    });
    if std::io::stdout().is_terminal() {
        lines.push("  next   ash deploy <directory>, then ash chat <agent>".to_owned());
    }
    print(&(lines.join("\n") + "\n"))?;
    note(
        "warning: there are no sandboxes yet: agents run as plain processes and can do whatever you can. \
         Only run agents that you trust",
    );
    for warning in config.warnings() {
        note(&format!("warning: {warning}"));
    }
    Ok(())
}
