//! What is said, where, and in which colour.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};

use anyhow::Context as _;
use serde::Serialize;

/// Where a command speaks to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Screen {
    /// Programs read it.
    pub(super) json: bool,
    /// Standard output is a terminal.
    pub(super) is_terminal: bool,
    /// Colours are wanted.
    pub(super) color: bool,
    /// A line on standard error may tell what goes on.
    pub(super) live: bool,
    /// Standard output is a terminal that can be painted.
    pub(super) rich: bool,
    /// More is to be told.
    pub(super) verbose: bool,
}

impl Screen {
    /// What standard output and standard error are, and what the environment says about colours.
    pub(super) fn of(json: bool, env: &BTreeMap<String, String>) -> Self {
        let is_dumb = env.get("TERM").is_some_and(|term| term == "dumb");
        let is_terminal = std::io::stdout().is_terminal();
        Self {
            json,
            is_terminal,
            color: wants_color(env, is_terminal) && !json,
            live: std::io::stderr().is_terminal() && !is_dumb && !json,
            rich: is_terminal && !is_dumb && !json,
            verbose: false,
        }
    }

    /// The same, and more is to be told if somebody wants to know.
    pub(super) fn telling_more(self, verbose: bool) -> Self {
        Self { verbose, ..self }
    }

    /// How many columns a line of standard output has, if it is a terminal that says so.
    pub(super) fn room(&self) -> Option<usize> {
        if !self.is_terminal {
            return None;
        }
        let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
        Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
    }

    /// Text in a style, or as it is.
    pub(super) fn paint(&self, style: Style, text: &str) -> String {
        paint(self.color, style, text)
    }

    /// One document, as JSON.
    pub(super) fn document(document: &impl Serialize) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(document).context("could not write JSON")?;
        print(&format!("{text}\n"))
    }
}

/// Whether colours are wanted on something that is a terminal or not.
pub(super) fn wants_color(env: &BTreeMap<String, String>, is_terminal: bool) -> bool {
    let is_dumb = env.get("TERM").is_some_and(|term| term == "dumb");
    let no_color = env.get("NO_COLOR").is_some_and(|value| !value.is_empty());
    is_terminal && !no_color && !is_dumb
}

/// The few styles there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// Beside the point.
    Dim,
    /// Headings.
    Bold,
    /// Trouble.
    Red,
    /// Well.
    Green,
    /// At rest, or odd.
    Yellow,
}

/// The one place that knows escapes.
pub(super) fn paint(color: bool, style: Style, text: &str) -> String {
    if !color || text.is_empty() {
        return text.to_owned();
    }
    let code = match style {
        Style::Dim => "2",
        Style::Bold => "1",
        Style::Red => "31",
        Style::Green => "32",
        Style::Yellow => "33",
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}

/// Text that cannot move the cursor: agents and tools say what they like, and a terminal obeys.
pub(super) fn plain(text: &str) -> String {
    // What turns the direction of text makes it look like another one.
    let turns = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().filter(|c| (!c.is_control() || matches!(c, '\n' | '\t')) && !turns(*c)).collect()
}

/// Text on one line, at most so many characters.
pub(super) fn one_line(text: &str, max_chars: usize) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = plain(&words.join(" "));
    if line.chars().count() <= max_chars {
        return line;
    }
    let cut: String = line.chars().take(max_chars.saturating_sub(1)).collect();
    format!("{}…", cut.trim_end())
}

/// Writes to standard output. Whoever closes it early, such as `head`, has seen enough.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    show(text).map(|_| ())
}

/// Writes to standard output a part of what goes on and on.
pub(super) fn show(text: &str) -> anyhow::Result<Reader> {
    let mut stdout = std::io::stdout().lock();
    reader(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// Whether somebody still reads standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    /// As far as one knows.
    There,
    /// It was closed: nobody wants to see more.
    Gone,
}

/// What a write to standard output says about its reader.
pub(super) fn reader(written: std::io::Result<()>) -> anyhow::Result<Reader> {
    match written {
        Ok(()) => Ok(Reader::There),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(error).context("could not write to standard output"),
    }
}

/// Whether standard output was closed, found out without writing: there may be nothing to write
/// for long.
pub(super) fn look_for_reader() -> Reader {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let stdout = std::io::stdout();
    let mut asked = [PollFd::new(&stdout, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let is_closed = poll(&mut asked, Some(&at_once)).is_ok()
        && asked[0].revents().intersects(PollFlags::ERR | PollFlags::NVAL);
    if is_closed { Reader::Gone } else { Reader::There }
}

/// Says something beside the result. Whoever closed standard error does not want to know.
pub(super) fn note(text: &str) {
    let _unseen = std::io::stderr().write_all(format!("{text}\n").as_bytes());
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn text_of_others_cannot_move_the_cursor() {
        assert_eq!(plain("a\x1b[2Jb\r\x07\u{9b}c\n\td"), "a[2Jbc\n\td");
        assert_eq!(one_line("  ls \n -la\tx", 100), "ls -la x");
        assert_eq!(one_line("abcdefgh", 4), "abc…");
    }

    #[test]
    fn colours_are_left_out_where_nobody_sees_them() {
        assert_eq!(paint(false, Style::Dim, "x"), "x");
        assert_eq!(paint(true, Style::Dim, "x"), "\x1b[2mx\x1b[0m");
    }
}
