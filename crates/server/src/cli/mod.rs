//! The command line: one file per sub-command.
//!
//! Exit codes, which do not change: 0 for success, 1 for failure, 2 for a command line that is not
//! understood, 3 if no server can be reached, 4 for what does not exist, 5 for what the server
//! refuses, 6 without a valid key, 7 if a run failed or was interrupted, 130 after Ctrl-C. `session
//! exec` ends with the code of its command. See `docs/cli.md`.

mod agent;
mod agent_runtime;
mod ask;
mod bar;
mod chat;
mod columns;
mod completions;
mod config;
mod connect;
mod credential;
mod deploy;
mod doctor;
mod elsewhere;
mod exit;
mod files;
mod follow;
mod format;
mod health;
mod hints;
mod key;
mod link;
mod live;
mod logs;
mod model;
mod output;
mod parse;
mod prefix;
mod ps;
mod questions;
mod queue;
mod reference;
mod render;
mod serve;
mod session;
mod snapshot;
mod suggest;
mod talk;
mod transcript;
mod upgrade;
mod watch;

use std::collections::BTreeMap;
use std::fmt;
use std::io::IsTerminal as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use tracing::Level;

use connect::{Connection, Context};
use exit::Exit;
use output::Screen;

/// Runs AI coding agents, and keeps their sessions through anything.
#[derive(Debug, Parser)]
#[command(name = "ash", version, arg_required_else_help = true, max_term_width = 100)]
struct Cli {
    /// Say more about what happens, on standard error
    #[arg(long, short, global = true, display_order = 100)]
    verbose: bool,
    /// Print JSON: one document, or one line per event
    #[arg(long, global = true, display_order = 99)]
    json: bool,
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Args),
    Upgrade(upgrade::Args),
    Deploy(deploy::Args),
    Agent(agent::Args),
    AgentRuntime(agent_runtime::Args),
    Session(session::Args),
    Chat(chat::Args),
    Key(key::Args),
    Credential(credential::Args),
    Queue(queue::Args),
    Ps(ps::Args),
    Logs(logs::Args),
    #[command(visible_alias = "status")]
    Health(health::Args),
    Link(link::Link),
    Unlink(link::Unlink),
    Config(config::Args),
    Doctor(doctor::Args),
    Model(model::Args),
    Snapshot(snapshot::Args),
    Completions(completions::Args),
    #[command(hide = true)]
    Start(elsewhere::Anything),
    #[command(hide = true)]
    Stop(elsewhere::Anything),
    #[command(hide = true)]
    Login(elsewhere::Anything),
    #[command(hide = true)]
    Logout(elsewhere::Anything),
}

pub use reference::reference;

/// What a person can do about an error. It is put into the chain as a context.
#[derive(Debug)]
struct Hint(&'static str);

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Does what the command line says.
#[must_use]
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    let level = if cli.verbose { Level::DEBUG } else { Level::WARN };
    let json = cli.json;
    let env = match crate::config::environment() {
        Ok(env) => env,
        Err(error) => {
            let error = anyhow::Error::from(error);
            exit::report(&error, json);
            return exit::of(&error).into();
        }
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(output::wants_color(&env, std::io::stderr().is_terminal()))
        // It would be told on the same standard error that cannot be written.
        .log_internal_errors(false)
        .init();
    let told = Told { json, verbose: cli.verbose };
    match dispatch(cli.command, &cli.connection, env, told) {
        Ok(exit) => exit.into(),
        Err(error) => {
            exit::report(&error, json);
            exit::of(&error).into()
        }
    }
}

/// How results are told.
#[derive(Clone, Copy, Debug)]
struct Told {
    json: bool,
    verbose: bool,
}

fn dispatch(
    command: Command,
    connection: &Connection,
    env: BTreeMap<String, String>,
    told: Told,
) -> anyhow::Result<Exit> {
    let json = told.json;
    match command {
        Command::Upgrade(upgrade::Args) => {
            with_server(connection, env, told, async |ctx| upgrade::run(&ctx).await)
        }
        Command::Deploy(args) => {
            with_server(connection, env, told, async |ctx| deploy::run(&ctx, args).await)
        }
        Command::Agent(args) => {
            with_server(connection, env, told, async |ctx| agent::run(&ctx, args).await)
        }
        Command::Session(args) => {
            with_server(connection, env, told, async |ctx| session::run(&ctx, args).await)
        }
        Command::Chat(args) => {
            with_server(connection, env, told, async |ctx| chat::run(&ctx, args).await)
        }
        Command::Key(args) => {
            with_server(connection, env, told, async |ctx| key::run(&ctx, args).await)
        }
        Command::Credential(args) => {
            with_server(connection, env, told, async |ctx| credential::run(&ctx, args).await)
        }
        Command::Queue(args) => {
            with_server(connection, env, told, async |ctx| queue::run(&ctx, args).await)
        }
        Command::Ps(args) => {
            with_server(connection, env, told, async |ctx| ps::run(&ctx, args).await)
        }
        Command::Logs(args) => {
            with_server(connection, env, told, async |ctx| logs::run(&ctx, &args).await)
        }
        Command::Link(args) => {
            connection.is_not_for("link")?;
            link::link(&args, &env, &Screen::of(json, &env))
        }
        Command::Unlink(link::Unlink) => {
            connection.is_not_for("unlink")?;
            link::unlink(&env, &Screen::of(json, &env))
        }
        Command::Start(_) => elsewhere::start(),
        Command::Stop(_) => elsewhere::stop(),
        Command::Login(_) => elsewhere::login(),
        Command::Logout(_) => elsewhere::logout(),
        Command::Health(_) => {
            with_server(connection, env, told, async |ctx| health::run(&ctx).await)
        }
        Command::AgentRuntime(args) => {
            connection.is_not_for("agent-runtime")?;
            agent_runtime::run(args, connection, env, json)
        }
        Command::Serve(args) => {
            connection.is_not_for("serve")?;
            serve::run(&args, env).map(|()| Exit::Ok)
        }
        Command::Config(args) => {
            connection.is_not_for("config")?;
            config::run(&args, &env, json).map(|()| Exit::Ok)
        }
        Command::Doctor(args) => {
            connection.is_not_for("doctor")?;
            doctor::run(&args, &env, json).map(|()| Exit::Ok)
        }
        Command::Model(args) => {
            connection.is_not_for("model")?;
            model::run(args).map(|()| Exit::Ok)
        }
        Command::Snapshot(args) => {
            connection.is_not_for("snapshot")?;
            snapshot::run(args, &env, json)
        }
        Command::Completions(args) => {
            connection.is_not_for("completions")?;
            completions::run(&args)
        }
    }
}

/// Finds the server, and runs a command that talks to it.
fn with_server(
    connection: &Connection,
    env: BTreeMap<String, String>,
    told: Told,
    command: impl AsyncFnOnce(Context) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    let found = connect::find(connection, &env)?;
    let screen = Screen::of(told.json, &env).telling_more(told.verbose);
    let ctx = Context { client: found.client()?, screen, env };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("could not start the runtime")?;
    let client = ctx.client.clone();
    runtime.block_on(async {
        match Box::pin(command(ctx)).await {
            Err(error) if exit::is_missing_session(&error) => {
                // It does not say which one; whoever wrote a whole id meant a session.
                match suggest::whole_ids(std::env::args().skip(1)).first() {
                    Some(id) => Err(suggest::session(&client, id, error).await),
                    None => Err(error),
                }
            }
            done => done,
        }
    })
}
