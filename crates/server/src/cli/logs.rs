//! `ash logs`: what a session's sandbox says about itself.

use std::time::Duration;

use anyhow::Context as _;
use tokio::time::MissedTickBehavior;

use super::connect::Context;
use super::exit::{Exit, Mistake};
use super::output::{Reader, Screen, Style, look_for_reader, plain, show};
use super::{Hint, prefix, watch};
use crate::api::Log;

/// How often it is asked for more.
const ASK: Duration = Duration::from_millis(500);

/// Show what a session's sandbox says about itself: its starts and ends, and what is printed beside the conversation
///
/// The server's own log goes to its standard error, and from there to wherever it was started, such as the journal.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session's id, or how that begins
    id: Option<String>,
    /// Wait for more
    #[arg(long, short)]
    follow: bool,
}

pub(super) async fn run(ctx: &Context, args: &Args) -> anyhow::Result<Exit> {
    let Some(id) = &args.id else {
        let message = "say of which session; the server's own log goes to its standard error";
        return Err(Mistake::Usage(message.to_owned())).context(Hint(
            "ash ps shows the sessions; a server under systemd is read with: journalctl -fu ash",
        ));
    };
    let id = prefix::session(&ctx.client, id).await?;
    if ctx.screen.json && !args.follow {
        Screen::document(&ctx.client.logs(id, None).await?)?;
        return Ok(Exit::Ok);
    }
    let mut ctrl_c = watch::ctrl_c()?;
    let mut ticks = tokio::time::interval(ASK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut seen = Seen::default();
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = ctrl_c.recv() => return Ok(Exit::CtrlC),
        }
        if look_for_reader() == Reader::Gone {
            return Ok(Exit::Ok);
        }
        let logs = match ctx.client.logs(id, None).await {
            Ok(logs) => logs.logs,
            // The server starts again, maybe.
            Err(error) if args.follow && seen.has_any && error.is_transient() => continue,
            Err(error) => return Err(error.into()),
        };
        let mut text = String::new();
        for log in seen.fresh(&logs) {
            text.push_str(&line(ctx, log));
        }
        if show(&text)? == Reader::Gone || !args.follow {
            return Ok(Exit::Ok);
        }
    }
}

fn line(ctx: &Context, log: &Log) -> String {
    if ctx.screen.json {
        return format!("{}\n", serde_json::json!(log));
    }
    let style = match log.level.as_str() {
        "system" => Style::Yellow,
        _ => Style::Dim,
    };
    let level = ctx.screen.paint(style, &format!("{:<6}", plain(&log.level)));
    format!("{level} {}\n", plain(&log.text).replace('\n', " "))
}

/// What was shown. Lines are counted anew with every answer, those of the server before those of the sandbox: what is
/// new is found by comparing each kind with itself.
#[derive(Debug, Default)]
struct Seen {
    system: Vec<String>,
    said: Vec<String>,
    has_any: bool,
}

impl Seen {
    fn fresh<'a>(&mut self, logs: &'a [Log]) -> Vec<&'a Log> {
        self.has_any = true;
        let (system, said): (Vec<&Log>, Vec<&Log>) =
            logs.iter().partition(|log| log.level == "system");
        let mut fresh = Vec::new();
        for (known, now) in [(&mut self.system, system), (&mut self.said, said)] {
            let texts: Vec<String> = now.iter().map(|log| log.text.clone()).collect();
            fresh.extend(now.into_iter().skip(overlap(known, &texts)));
            *known = texts;
        }
        fresh
    }
}

/// How many of the lines that there are now were there before. Old ones may be gone from the front.
fn overlap(before: &[String], now: &[String]) -> usize {
    let longest = before.len().min(now.len());
    (0..=longest)
        .rev()
        .find(|length| before[before.len() - length..] == now[..*length])
        .unwrap_or(0)
}

#[cfg(test)]
mod test {
    use super::*;

    fn log(level: &str, text: &str) -> Log {
        let (level, text, ts) = (level.to_owned(), text.to_owned(), String::new());
        Log { index: 0, level, text, ts }
    }

    #[test]
    fn each_line_is_shown_once_though_others_come_before_it() {
        let mut seen = Seen::default();
        let texts = |fresh: Vec<&Log>| fresh.iter().map(|log| log.text.clone()).collect::<Vec<_>>();
        let (up, one, two) = (log("system", "up"), log("stderr", "one"), log("stderr", "two"));
        assert_eq!(texts(seen.fresh(&[up.clone(), one.clone()])), ["up", "one"]);
        let down = log("system", "down");
        let now = [up.clone(), down.clone(), one.clone(), two.clone()];
        assert_eq!(texts(seen.fresh(&now)), ["down", "two"]);
        assert_eq!(texts(seen.fresh(&now)), Vec::<String>::new());
        let later = [down, two, log("stderr", "two")];
        assert_eq!(texts(seen.fresh(&later)), ["two"], "the first ones were left out");
    }
}
