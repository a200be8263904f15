//! Puts rows on a terminal: those that stay scroll away, those at the bottom are painted over.
//!
//! Only what differs is written, in one piece. No row reaches the last column, where terminals differ about what comes next.

use std::collections::VecDeque;
use std::io::{self, Write};

use super::text::Row;

/// How large a terminal is that does not say so.
const USUAL: Size = Size { columns: 80, lines: 24 };

/// How many rows that stay are remembered, in case they are taken back.
const REMEMBERED: usize = 200;

/// How large a terminal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) struct Size {
    pub(in crate::cli) columns: usize,
    pub(in crate::cli) lines: usize,
}

impl Size {
    /// That of the terminal that standard output is.
    pub(in crate::cli) fn now() -> Self {
        let Ok(size) = rustix::termios::tcgetwinsize(std::io::stdout()) else { return USUAL };
        let or = |said: u16, usual: usize| if said == 0 { usual } else { usize::from(said) };
        Self { columns: or(size.ws_col, USUAL.columns), lines: or(size.ws_row, USUAL.lines) }
    }

    /// How wide a row may be.
    pub(in crate::cli) fn room(self) -> usize {
        self.columns.saturating_sub(1).max(4)
    }
}

/// Where the cursor is to be: in which of the rows at the bottom, and in which column.
pub(in crate::cli) type Place = (usize, usize);

/// What is to be on the terminal.
#[derive(Debug, Default)]
pub(in crate::cli) struct Picture {
    /// How many rows that stayed do not any more.
    pub(in crate::cli) back: usize,
    /// Rows that stay.
    pub(in crate::cli) rows: Vec<Row>,
    /// Rows at the bottom.
    pub(in crate::cli) bottom: Vec<Row>,
    /// Where the cursor is to be; behind the last row, if nowhere else.
    pub(in crate::cli) cursor: Option<Place>,
}

/// Paints one terminal.
#[derive(Debug)]
pub(in crate::cli) struct Painter<W> {
    out: W,
    color: bool,
    /// The rows at the bottom, as they are painted.
    shown: Vec<Row>,
    /// In which of them the cursor is.
    at: Place,
    /// Rows above them.
    above: VecDeque<Row>,
    columns: usize,
}

impl<W: Write> Painter<W> {
    pub(in crate::cli) fn new(out: W, color: bool) -> Self {
        let (shown, above) = (Vec::new(), VecDeque::new());
        Self { out, color, shown, at: (0, 0), above, columns: 0 }
    }

    /// How many rows that stay can still be taken back.
    pub(in crate::cli) fn reach(&self, size: Size) -> usize {
        let room = size.lines.saturating_sub(self.shown.len() + 1);
        self.above.len().min(room)
    }

    /// Paints.
    pub(in crate::cli) fn paint(&mut self, picture: Picture, size: Size) -> io::Result<()> {
        let Picture { back, mut rows, mut bottom, cursor } = picture;
        // What does not fit is not seen until it stays.
        let hidden = bottom.len().saturating_sub(size.lines.saturating_sub(1).max(1));
        bottom.drain(..hidden);
        let cursor = cursor.map(|(row, column)| (row.saturating_sub(hidden), column));
        let is_resized = self.columns != 0 && self.columns != size.columns;
        self.columns = size.columns;
        let stay = rows.len();
        rows.append(&mut bottom);
        let all = rows;
        let alike = all.iter().zip(&self.shown).take_while(|(new, old)| new == old).count();
        let is_whole = back > 0 || is_resized;
        // The last row of either is written again: it is where the cursor goes.
        let most = self.shown.len().min(all.len()).saturating_sub(1);
        let from = if is_whole { 0 } else { alike.min(most) };
        let unchanged = !is_whole && alike == all.len() && alike == self.shown.len() && stay == 0;
        let mut text = String::new();
        if !unchanged {
            if !self.shown.is_empty() || back > 0 {
                text.push_str(&self.go_to(from, back, size));
            }
            let painted: Vec<String> =
                all[from..].iter().map(|row| row.paint(self.color)).collect();
            text.push_str(&painted.join("\r\n"));
            if all.len() == stay && stay > 0 {
                text.push_str("\r\n");
            }
            for _ in 0..back {
                self.above.pop_back();
            }
            let last = all.last().map_or(0, Row::width);
            self.shown = all[stay..].to_vec();
            self.above.extend(all.into_iter().take(stay));
            while self.above.len() > REMEMBERED {
                self.above.pop_front();
            }
            self.at = (self.shown.len().saturating_sub(1), last);
        }
        if !self.shown.is_empty() {
            let end = (self.shown.len() - 1, self.shown.last().map_or(0, Row::width));
            text.push_str(&self.place(cursor.unwrap_or(end)));
        }
        if text.is_empty() {
            return Ok(());
        }
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    /// Goes to the beginning of a row at the bottom, and clears all from there on.
    fn go_to(&self, row: usize, back: usize, size: Size) -> String {
        // A terminal that became narrower has broken the rows that were too wide for it.
        let lines = |row: &Row| row.width().max(1).div_ceil(size.columns.max(1));
        let lines_to = |end: usize| self.shown.iter().take(end).map(lines).sum::<usize>();
        let mut text = String::new();
        let (here, there) = (lines_to(self.at.0) + self.at.1 / size.columns.max(1), lines_to(row));
        let taken: usize = self.above.iter().rev().take(back).map(lines).sum();
        let there = there as isize - taken as isize;
        let distance = here as isize - there;
        match distance {
            0 => {}
            1.. => text.push_str(&format!("\x1b[{distance}A")),
            _ => text.push_str(&format!("\x1b[{}B", -distance)),
        }
        text.push_str("\r\x1b[J");
        text
    }

    fn place(&mut self, (row, column): Place) -> String {
        let mut text = String::new();
        let row = row.min(self.shown.len() - 1);
        if (row, column) == self.at {
            return text;
        }
        match row as isize - self.at.0 as isize {
            0 => {}
            down @ 1.. => text.push_str(&format!("\x1b[{down}B")),
            up => text.push_str(&format!("\x1b[{}A", -up)),
        }
        text.push('\r');
        if column > 0 {
            text.push_str(&format!("\x1b[{column}C"));
        }
        self.at = (row, column);
        text
    }

    /// Whatever was painted is not there any more: it is painted again below the cursor.
    pub(in crate::cli) fn forget(&mut self) {
        self.shown.clear();
        self.above.clear();
        self.at = (0, 0);
    }
}

#[cfg(test)]
impl Painter<Vec<u8>> {
    /// Everything that was written.
    pub(super) fn into_written(self) -> Vec<u8> {
        self.out
    }
}

#[cfg(test)]
mod test {
    use proptest::prelude::*;

    use super::super::emulator::Emulator;
    use super::super::text::Look;
    use super::*;

    fn rows(texts: &[String]) -> Vec<Row> {
        texts.iter().map(|text| Row::of(text, Look::PLAIN)).collect()
    }

    #[test]
    fn only_what_differs_is_written() {
        let size = Size { columns: 20, lines: 10 };
        let mut painter = Painter::new(Vec::new(), false);
        let bottom = |texts: [&str; 2]| rows(&texts.map(str::to_owned));
        let picture = Picture { bottom: bottom(["one", "two"]), ..Picture::default() };
        painter.paint(picture, size).unwrap();
        painter.out.clear();
        let same = Picture { bottom: bottom(["one", "two"]), ..Picture::default() };
        painter.paint(same, size).unwrap();
        assert_eq!(painter.out, b"");
        let other = Picture { bottom: bottom(["one", "three"]), ..Picture::default() };
        painter.paint(other, size).unwrap();
        assert_eq!(painter.out, b"\r\x1b[Jthree");
    }

    proptest! {
        /// Whatever is painted in whichever steps, the terminal shows the rows that stay, and the last bottom.
        #[test]
        fn the_terminal_shows_what_was_painted_last(
            steps in prop::collection::vec(
                (prop::collection::vec("[a-z]{0,9}", 0..3), prop::collection::vec("[a-z日]{0,9}", 0..4), 0_usize..3),
                1..12,
            ),
        ) {
            let size = Size { columns: 20, lines: 40 };
            let mut painter = Painter::new(Vec::new(), false);
            let mut stayed: Vec<String> = Vec::new();
            let mut last = Vec::new();
            for (stay, bottom, back) in steps {
                let back = back.min(painter.reach(size));
                stayed.truncate(stayed.len() - back);
                stayed.extend(stay.iter().cloned());
                let cursor = (!bottom.is_empty()).then_some((0, 0)).filter(|_| back == 1);
                let picture = Picture { back, rows: rows(&stay), bottom: rows(&bottom), cursor };
                painter.paint(picture, size).unwrap();
                last = bottom;
            }
            let mut expected: Vec<String> = stayed.into_iter().chain(last).collect();
            while expected.last().is_some_and(String::is_empty) {
                expected.pop();
            }
            let mut terminal = Emulator::new(size.columns, size.lines);
            terminal.write(&painter.out);
            prop_assert_eq!(terminal.lines(), expected);
        }
    }
}
