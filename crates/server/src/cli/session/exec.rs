//! `ash session exec`

use std::io::Write as _;
use std::time::Duration;

use anyhow::Context as _;

use crate::api::ExecCommand;
use crate::cli::connect::Context;
use crate::cli::exit::{Exit, Mistake};
use crate::cli::live::Live;
use crate::cli::output::{Screen, note, print};
use crate::cli::{Hint, format, parse, prefix, watch};

/// Run a command beside the agent, and end with its exit code
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session's id, or how that begins
    id: String,
    /// After how long it is killed, such as 90s, or a number of milliseconds; at most 5m. It stands before the command, or
    /// behind one that is a line for a shell
    #[arg(long, value_name = "DURATION", value_parser = parse::duration_or_millis)]
    timeout: Option<Duration>,
    /// The command; alone, it is for a shell, and several words are taken as they are. Everything behind -- is its own
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// What `timeout` ends with too.
const TIMED_OUT: u8 = 124;

pub(super) async fn run(ctx: &Context, args: Args) -> anyhow::Result<Exit> {
    let dashes = match std::env::args().any(|word| word == "--") {
        true => Dashes::Said,
        false => Dashes::Missing,
    };
    let (words, timeout) = sorted(args.command, args.timeout, dashes)?;
    let id = prefix::session(&ctx.client, &args.id).await?;
    let command = match words.as_slice() {
        [command] => command.clone(),
        words => words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
    };
    let command = ExecCommand { command, timeout: parse::millis(timeout) };
    let live = Live::new(&ctx.screen, "running…");
    let mut ctrl_c = watch::ctrl_c()?;
    let outcome = tokio::select! {
        outcome = live.during(ctx.client.exec(id, &command)) => outcome?,
        _ = ctrl_c.recv() => {
            note("left; the command goes on in the sandbox, until it ends or its time is over");
            return Ok(Exit::CtrlC);
        }
    };
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

/// Whether it was said where the command begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dashes {
    Said,
    Missing,
}

/// The words of the command, and after how long it is killed. Behind a command that is a line for a shell nothing can
/// be the command's own, so `--timeout` is ours there. Behind a single word it may be either's.
fn sorted(
    mut words: Vec<String>,
    timeout: Option<Duration>,
    dashes: Dashes,
) -> anyhow::Result<(Vec<String>, Option<Duration>)> {
    let Some(at) = words.iter().skip(1).position(|word| is_timeout(word)).map(|at| at + 1) else {
        return Ok((words, timeout));
    };
    if dashes == Dashes::Said {
        return Ok((words, timeout));
    }
    let is_line = words[0].contains(char::is_whitespace);
    let said = match &words[1..] {
        [one] => one.strip_prefix("--timeout=").map(str::to_owned),
        [_, value] if at == 1 => Some(value.clone()),
        _ => None,
    };
    match said {
        Some(said) if is_line && timeout.is_none() => {
            let wrong = |why| Mistake::Usage(format!("--timeout {said}: {why}"));
            let timeout = parse::duration_or_millis(&said).map_err(wrong)?;
            words.truncate(1);
            Ok((words, Some(timeout)))
        }
        Some(_) | None => {
            let message = "--timeout stands behind the command, where it can be meant for either";
            Err(Mistake::Usage(message.to_owned())).context(Hint(
                "ash session exec --timeout 5s ID … bounds it; ash session exec ID -- … hands it over",
            ))
        }
    }
}

fn is_timeout(word: &str) -> bool {
    word == "--timeout" || word.starts_with("--timeout=")
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

    fn sort(words: &[&str], dashes: Dashes) -> Result<(Vec<String>, Option<Duration>), String> {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        sorted(words, None, dashes).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn a_bound_behind_the_command_is_ours_where_it_cannot_be_the_commands() {
        let bounded = Ok((vec!["ls -la".to_owned()], Some(Duration::from_secs(5))));
        assert_eq!(sort(&["ls -la", "--timeout", "5000"], Dashes::Missing), bounded);
        assert_eq!(sort(&["ls -la", "--timeout=5s"], Dashes::Missing), bounded);
        let own = sort(&["pytest", "--timeout", "5"], Dashes::Said).unwrap();
        assert_eq!((own.0.len(), own.1), (3, None));
        assert_eq!(sort(&["ls", "-la"], Dashes::Missing).unwrap().0.len(), 2);
        for either in [
            &["pytest", "--timeout", "5"][..],
            &["pytest", "--timeout=5", "-x"],
            &["ls -la", "--timeout", "5s", "x"],
        ] {
            let told = sort(either, Dashes::Missing).unwrap_err();
            assert!(told.contains("either") && told.contains("ID -- "), "{told}");
        }
        let told = sort(&["ls -la", "--timeout", "soon"], Dashes::Missing).unwrap_err();
        assert!(told.contains("--timeout soon"), "{told}");
    }

    #[test]
    fn words_reach_the_command_as_they_are() {
        let words = ["ls", "a b", "it's", "", "$HOME"].map(quoted);
        assert_eq!(words.join(" "), r"ls 'a b' 'it'\''s' '' '$HOME'");
    }
}
