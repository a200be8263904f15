//! `ash completions`: what a shell needs to complete command lines.

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::Cli;
use super::exit::Exit;
use super::output::print;

/// Print completions for a shell
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Which shell
    shell: Shell,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "ash", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Ok)
}
