//! The command line: one file per sub-command.
//!
//! Exit codes: 0 for success, 1 for failure, 2 for a command line that is not understood.

mod model;

use std::fmt;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing::Level;

/// Runs AI coding agents in sandboxes, and keeps their sessions through anything.
#[derive(Debug, Parser)]
#[command(name = "ash", version, arg_required_else_help = true, max_term_width = 100)]
struct Cli {
    /// Say more about what happens, on standard error
    #[arg(long, short, global = true, display_order = 100)]
    verbose: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Model(model::Args),
}

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
    tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).init();
    let result = match cli.command {
        Command::Model(args) => model::run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&error);
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stderr, reason = "errors are told to the person at the terminal")]
fn report(error: &anyhow::Error) {
    let hint = error.downcast_ref::<Hint>().map(ToString::to_string);
    let chain = error.chain().map(ToString::to_string);
    let mut chain = chain.filter(|message| Some(message) != hint.as_ref());
    eprintln!("error: {}", chain.next().unwrap_or_default());
    for cause in chain {
        eprintln!("cause: {cause}");
    }
    if let Some(hint) = hint {
        eprintln!("hint: {hint}");
    }
}
