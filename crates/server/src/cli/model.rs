//! `ash model`: serves the scripted model.

use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use super::Hint;
use super::output::print;
use crate::model::{Model, Options, Script};

/// Serve a scripted stand-in for the model API, for tests and demonstrations
///
/// It answers the Anthropic Messages API and does what the prompt or a script tells it to. Point an
/// agent at it with ANTHROPIC_BASE_URL. See docs/scripted-model.md for what it can be told.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The port to listen on; 0 takes any that is free
    #[arg(long, value_name = "PORT")]
    port: u16,
    /// The address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: IpAddr,
    /// A file with rules that are tried before the prompt is looked at
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// A file that each request is appended to, as a line of JSON without keys
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Take requests without a key, too
    #[arg(long)]
    no_key: bool,
}

pub(super) fn run(args: Args) -> anyhow::Result<()> {
    let script = match &args.script {
        Some(path) => Some(
            Script::read(path)
                .with_context(|| format!("could not use the script {}", path.display()))
                .context(Hint("docs/scripted-model.md explains what a script can say"))?,
        ),
        None => None,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("could not start the runtime")?;
    runtime.block_on(serve(args, script))
}

async fn serve(args: Args, script: Option<Script>) -> anyhow::Result<()> {
    let wanted = (args.host, args.port);
    let listener = TcpListener::bind(wanted)
        .await
        .with_context(|| format!("could not listen on {}:{}", args.host, args.port))
        .context(Hint("--port 0 takes any port that is free"))?;
    // Before the line below: whoever waits for it may send a signal at once.
    let mut terminate = signal(SignalKind::terminate()).context("could not listen for signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("could not listen for signals")?;
    let log = args.log.clone();
    let options = Options { script, log: args.log, require_key: !args.no_key };
    let model = Model::start(listener, options).with_context(|| match log {
        Some(log) => format!("could not open the log {}", log.display()),
        None => "could not start the scripted model".to_owned(),
    })?;
    let url = model.url();
    print(&format!(
        "ash model: a scripted stand-in for the model API, not a model; listening on {url}\n"
    ))?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    model.shutdown().await;
    Ok(())
}
