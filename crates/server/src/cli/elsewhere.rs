//! Commands of the original that are done in another way here: they say in which.

use anyhow::Context as _;

use super::Hint;
use super::exit::{Exit, Mistake};

/// Whatever was said behind the command.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(super) struct Anything {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _rest: Vec<String>,
}

fn refuse(message: &str, hint: &'static str) -> anyhow::Result<Exit> {
    Err(Mistake::Usage(message.to_owned())).context(Hint(hint))
}

pub(super) fn start() -> anyhow::Result<Exit> {
    refuse(
        "there is no container to start: the server is this program",
        "run it with: ash serve; docs/operating.md has a unit for systemd",
    )
}

pub(super) fn stop() -> anyhow::Result<Exit> {
    refuse(
        "there is no container to stop: the server is this program",
        "end `ash serve` with Ctrl-C or SIGTERM, or with: systemctl stop ash; sessions come back with it",
    )
}

pub(super) fn login() -> anyhow::Result<Exit> {
    refuse(
        "there is no cloud to log in to",
        "a server elsewhere is remembered with: ash link <url> --api-key <key>",
    )
}

pub(super) fn logout() -> anyhow::Result<Exit> {
    refuse("there is no cloud to log out of", "a server is forgotten with: ash unlink")
}
