//! `ash session exec`

use std::io::Write as _;
use std::time::Duration;

use crate::api::ExecCommand;
use crate::cli::connect::Context;
use crate::cli::exit::Exit;
use crate::cli::live::Live;
use crate::cli::output::{Screen, note, print};
use crate::cli::{format, parse, prefix};

/// Run a command beside the agent, and end with its exit code
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session's id, or how that begins
    id: String,
    /// After how long it is killed, such as 90s, or a number of milliseconds; at most 5m
    #[arg(long, value_name = "DURATION", value_parser = parse::duration_or_millis)]
    timeout: Option<Duration>,
    /// The command; alone, it is for a shell, and several words are taken as they are
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// What `timeout` ends with too.
const TIMED_OUT: u8 = 124;

pub(super) async fn run(ctx: &Context, args: Args) -> anyhow::Result<Exit> {
    let id = prefix::session(&ctx.client, &args.id).await?;
    let command = match args.command.as_slice() {
        [command] => command.clone(),
        words => words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
    };
    let command = ExecCommand { command, timeout: parse::millis(args.timeout) };
    let live = Live::new(&ctx.screen, "running…");
    let outcome = live.during(ctx.client.exec(id, &command)).await?;
    let exit = match outcome.timed_out {
        true => Exit::Of(TIMED_OUT),
        false => Exit::Of(outcome.exit_code.rem_euclid(256).try_into().unwrap_or(1)),
    };
    if ctx.screen.json {
        Screen::document(&outcome)?;
        return Ok(exit);
    }
    print(&outcome.stdout)?;
    // Whoever closed standard error does not want to know.
    let _unseen = std::io::stderr().write_all(outcome.stderr.as_bytes());
    if outcome.omitted_bytes > 0 {
        note(&format!("({} of output were left out)", format::bytes(outcome.omitted_bytes)));
    }
    if outcome.timed_out {
        note("(it took too long and was killed)");
    }
    Ok(exit)
}

/// A word that a shell takes as it is.
fn quoted(word: &str) -> String {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_safe) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn words_reach_the_command_as_they_are() {
        let words = ["ls", "a b", "it's", "", "$HOME"].map(quoted);
        assert_eq!(words.join(" "), r"ls 'a b' 'it'\''s' '' '$HOME'");
    }
}
