//! What a person types.

use std::io::{BufRead as _, IsTerminal as _, Read as _};

use anyhow::Context as _;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

use super::Hint;
use super::connect::Context;
use super::exit::Mistake;
use super::watch;

/// The longest text that is read: what a prompt may have, in the widest characters.
const MAX_BYTES: u64 = 4 * crate::api::MAX_TEXT_CHARS as u64;

/// All of standard input, as text.
pub(super) fn everything() -> anyhow::Result<String> {
    let mut text = String::new();
    let read = std::io::stdin().lock().take(MAX_BYTES + 1).read_to_string(&mut text);
    let read = read.context("could not read standard input")?;
    if read as u64 > MAX_BYTES {
        let limit = super::format::bytes(MAX_BYTES);
        return Err(Mistake::Usage(format!("standard input has more than {limit}")).into());
    }
    Ok(text)
}

/// The lines of standard input, one at a time. They are read by a thread of their own, which ends
/// with the process: a read of a terminal cannot be given up.
pub(super) fn lines() -> mpsc::Receiver<std::io::Result<String>> {
    let (sender, lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        loop {
            let mut line = String::new();
            let read = std::io::stdin().lock().take(MAX_BYTES).read_line(&mut line);
            let next = match read {
                Ok(0) => return,
                Ok(_) => Ok(line.trim_end_matches(['\n', '\r']).to_owned()),
                Err(error) => Err(error),
            };
            let is_last = next.is_err();
            if sender.blocking_send(next).is_err() || is_last {
                return;
            }
        }
    });
    lines
}

/// What comes from a terminal that hands over each key, as it comes. Read by a thread of its own, as above.
pub(super) fn bytes() -> mpsc::Receiver<Vec<u8>> {
    let (sender, keys) = mpsc::channel(16);
    std::thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(length @ 1..) = std::io::stdin().lock().read(&mut piece) {
            if sender.blocking_send(piece[..length].to_vec()).is_err() {
                return;
            }
        }
    });
    keys
}

/// The lines that a person types who sees what is shown; nothing, if nobody does.
pub(super) fn person(ctx: &Context) -> Option<mpsc::Receiver<std::io::Result<String>>> {
    // A terminal that is painted reads its keys itself.
    let reads = ctx.screen.is_terminal && !ctx.screen.json && !ctx.screen.rich;
    let sits_there = reads && std::io::stdin().is_terminal();
    sits_there.then(lines)
}

/// A secret: from a terminal without showing it, otherwise all of standard input.
pub(super) async fn secret(question: &str) -> anyhow::Result<String> {
    let stdin = std::io::stdin();
    let text = if stdin.is_terminal() {
        let mut ctrl_c = watch::ctrl_c()?;
        let _hidden = Hidden::begin()?;
        super::output::note(question);
        let mut lines = lines();
        tokio::select! {
            line = lines.recv() => {
                line.transpose().context("could not read the secret")?.unwrap_or_default()
            }
            _ = ctrl_c.recv() => return Err(Mistake::CtrlC.into()),
        }
    } else {
        everything()?
    };
    let text = text.trim();
    if text.is_empty() {
        return Err(Mistake::Usage("the secret is empty".to_owned()))
            .context(Hint("pipe it in, such as: printenv NAME | ash credential add anthropic"));
    }
    Ok(text.to_owned())
}

/// A terminal that does not show what is typed, until this is dropped.
struct Hidden(Termios);

impl Hidden {
    fn begin() -> anyhow::Result<Self> {
        let before = tcgetattr(rustix::stdio::stdin()).context("could not hide what is typed")?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        tcsetattr(rustix::stdio::stdin(), OptionalActions::Flush, &hidden)
            .context("could not hide what is typed")?;
        Ok(Self(before))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        // The terminal is gone, if this fails.
        let _gone = tcsetattr(rustix::stdio::stdin(), OptionalActions::Flush, &self.0);
    }
}
