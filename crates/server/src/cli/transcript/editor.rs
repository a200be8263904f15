//! The line that a person types, while the terminal shows something else too.

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use unicode_segmentation::UnicodeSegmentation as _;

use super::text::{Look, Row, Span, width};

/// The longest line that is taken.
const MAX_BYTES: usize = 4 * crate::api::MAX_TEXT_CHARS;

/// What came of what was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Typed {
    /// A line.
    Line(String),
    /// Ctrl-D on an empty line, or the end of input.
    End,
}

/// A terminal that hands over each key and shows none itself, until this is dropped. Ctrl-C is still a signal.
pub(in crate::cli) struct Keys(Termios);

impl Keys {
    /// Nothing, if standard input is no terminal.
    pub(in crate::cli) fn begin() -> Option<Self> {
        let before = tcgetattr(rustix::stdio::stdin()).ok()?;
        let keys = Self(before);
        keys.again();
        Some(keys)
    }

    /// Once more: somebody else had the terminal meanwhile.
    pub(in crate::cli) fn again(&self) {
        let mut raw = self.0.clone();
        raw.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::IEXTEN);
        // The terminal is gone, if this fails.
        let _gone = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &raw);
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let _gone = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &self.0);
    }
}

/// A line that is edited.
#[derive(Debug, Default)]
pub(in crate::cli) struct Editor {
    text: String,
    /// Where the cursor is, in bytes.
    at: usize,
    /// Bytes that are not a whole character or key yet.
    held: Vec<u8>,
    history: Vec<String>,
    /// Which of the earlier lines is shown, counted from the last.
    back: usize,
    /// What was typed before an earlier line was looked at.
    draft: String,
    is_pasting: bool,
}

impl Editor {
    pub(in crate::cli) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub(in crate::cli) fn clear(&mut self) {
        self.text.clear();
        self.at = 0;
    }

    /// Takes what came from the terminal.
    pub(in crate::cli) fn feed(&mut self, bytes: &[u8]) -> Vec<Typed> {
        self.held.extend_from_slice(bytes);
        let held = std::mem::take(&mut self.held);
        let mut typed = Vec::new();
        let mut rest = held.as_slice();
        while let Some((first, more)) = rest.split_first() {
            let taken = match first {
                0x1b => match sequence(rest) {
                    Some((key, length)) => {
                        self.key(key);
                        length
                    }
                    None if rest.len() < 8 && bytes.len() > 1 => break,
                    None => 1,
                },
                b'\r' | b'\n' if self.is_pasting => {
                    self.insert("\n");
                    1
                }
                b'\r' | b'\n' => {
                    typed.push(Typed::Line(self.enter()));
                    1
                }
                0x04 if self.text.is_empty() => {
                    typed.push(Typed::End);
                    1
                }
                byte if *byte < 0x20 || *byte == 0x7f => {
                    self.control(*byte);
                    1
                }
                _ => {
                    let length = utf8_length(*first);
                    if more.len() + 1 < length {
                        break;
                    }
                    if let Ok(text) = std::str::from_utf8(&rest[..length]) {
                        self.insert(text);
                    }
                    length
                }
            };
            rest = &rest[taken.min(rest.len())..];
        }
        self.held = rest.to_vec();
        typed
    }

    fn insert(&mut self, text: &str) {
        if self.text.len() + text.len() <= MAX_BYTES {
            self.text.insert_str(self.at, text);
            self.at += text.len();
        }
    }

    fn enter(&mut self) -> String {
        let line = std::mem::take(&mut self.text);
        (self.at, self.back) = (0, 0);
        if !line.trim().is_empty() && self.history.last() != Some(&line) {
            self.history.push(line.clone());
        }
        line
    }

    fn control(&mut self, byte: u8) {
        match byte {
            0x01 => self.at = 0,
            0x05 => self.at = self.text.len(),
            0x02 => self.at = self.before(),
            0x06 => self.at = self.behind(),
            0x04 => self.remove(self.at, self.behind()),
            0x08 | 0x7f => self.remove(self.before(), self.at),
            0x0b => self.remove(self.at, self.text.len()),
            0x15 => self.remove(0, self.at),
            0x17 => {
                let head = self.text[..self.at].trim_end();
                let word = head.rfind(char::is_whitespace).map_or(0, |space| space + 1);
                self.remove(word, self.at);
            }
            0x10 => self.earlier(),
            0x0e => self.later(),
            b'\t' => self.insert("    "),
            _ => {}
        }
    }

    fn key(&mut self, key: Key) {
        match key {
            Key::Up => self.earlier(),
            Key::Down => self.later(),
            Key::Left => self.at = self.before(),
            Key::Right => self.at = self.behind(),
            Key::Home => self.at = 0,
            Key::End => self.at = self.text.len(),
            Key::Delete => self.remove(self.at, self.behind()),
            Key::Newline => self.insert("\n"),
            Key::Paste => self.is_pasting = true,
            Key::PasteOver => self.is_pasting = false,
            Key::Other => {}
        }
    }

    fn remove(&mut self, from: usize, to: usize) {
        self.text.replace_range(from..to, "");
        self.at = from;
    }

    fn before(&self) -> usize {
        let head = &self.text[..self.at];
        self.at - head.graphemes(true).next_back().map_or(0, str::len)
    }

    fn behind(&self) -> usize {
        self.at + self.text[self.at..].graphemes(true).next().map_or(0, str::len)
    }

    fn earlier(&mut self) {
        if self.back < self.history.len() {
            if self.back == 0 {
                self.draft.clone_from(&self.text);
            }
            self.back += 1;
            self.recall();
        }
    }

    fn later(&mut self) {
        if self.back > 0 {
            self.back -= 1;
            self.recall();
        }
    }

    fn recall(&mut self) {
        self.text = match self.back {
            0 => self.draft.clone(),
            back => self.history[self.history.len() - back].clone(),
        };
        self.at = self.text.len();
    }

    /// The line, as much of it as fits around the cursor, and the column of the cursor.
    pub(in crate::cli) fn row(&self, prompt: &str, room: usize) -> (Row, usize) {
        let shown = |text: &str| text.replace('\n', "⏎");
        let (head, tail) = (shown(&self.text[..self.at]), shown(&self.text[self.at..]));
        let start = width(prompt);
        let most = room.saturating_sub(start + 1).max(1);
        let mut visible: Vec<&str> = Vec::new();
        let mut used = 0;
        for grapheme in head.graphemes(true).rev() {
            used += width(grapheme);
            if used > most {
                break;
            }
            visible.push(grapheme);
        }
        visible.reverse();
        let head = visible.concat();
        let column = start + width(&head);
        let spans = vec![
            Span::new(prompt, Look::BOLD),
            Span::new(&head, Look::PLAIN),
            Span::new(&tail, Look::PLAIN),
        ];
        (Row::new(spans).cut(room), column)
    }
}

/// A key that is more than a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Up,
    Down,
    Left,
    Right,
    Home,
    End,
    Delete,
    Newline,
    Paste,
    PasteOver,
    Other,
}

/// The key that a sequence of bytes stands for, and how long that is.
fn sequence(bytes: &[u8]) -> Option<(Key, usize)> {
    match bytes {
        [0x1b, b'\r' | b'\n', ..] => Some((Key::Newline, 2)),
        [0x1b, b'[' | b'O', rest @ ..] => {
            let end = rest.iter().position(|byte| (0x40..=0x7e).contains(byte))?;
            let key = match (rest[end], &rest[..end]) {
                (b'A', _) => Key::Up,
                (b'B', _) => Key::Down,
                (b'C', _) => Key::Right,
                (b'D', _) => Key::Left,
                (b'H', _) | (b'~', b"1" | b"7") => Key::Home,
                (b'F', _) | (b'~', b"4" | b"8") => Key::End,
                (b'~', b"3") => Key::Delete,
                (b'~', b"200") => Key::Paste,
                (b'~', b"201") => Key::PasteOver,
                _ => Key::Other,
            };
            Some((key, end + 3))
        }
        _ => None,
    }
}

fn utf8_length(first: u8) -> usize {
    match first {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf7 => 4,
        _ => 1,
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn typed(editor: &mut Editor, text: &str) -> Vec<Typed> {
        editor.feed(text.as_bytes())
    }

    fn line(text: &str) -> Vec<Typed> {
        vec![Typed::Line(text.to_owned())]
    }

    #[test]
    fn a_line_is_edited_before_it_is_sent() {
        let mut editor = Editor::default();
        assert_eq!(typed(&mut editor, "helo\x1b[D\x1b[Dl\x05!\r"), line("hello!"));
        assert_eq!(typed(&mut editor, "one two\x17three\r"), line("one three"));
        assert_eq!(typed(&mut editor, "日本\x7f\r"), line("日"));
        assert_eq!(typed(&mut editor, "abc\x15d\r"), line("d"));
        assert_eq!(typed(&mut editor, "ab\x01\x1b[3~\r"), line("b"));
    }

    #[test]
    fn a_character_may_come_in_pieces() {
        let mut editor = Editor::default();
        for byte in "é👍".bytes() {
            assert_eq!(editor.feed(&[byte]), []);
        }
        assert_eq!(typed(&mut editor, "\r"), line("é👍"));
    }

    #[test]
    fn what_is_pasted_is_one_message() {
        let mut editor = Editor::default();
        assert_eq!(typed(&mut editor, "\x1b[200~a\nb\x1b[201~"), []);
        assert_eq!(typed(&mut editor, "\r"), line("a\nb"));
    }

    #[test]
    fn earlier_lines_come_back() {
        let mut editor = Editor::default();
        typed(&mut editor, "one\rtwo\rthr");
        assert_eq!(typed(&mut editor, "\x1b[A\x1b[A\r"), line("one"));
        typed(&mut editor, "x\x1b[A\x1b[B");
        assert_eq!(typed(&mut editor, "\r"), line("x"));
    }

    #[test]
    fn ctrl_d_ends_an_empty_line_only() {
        let mut editor = Editor::default();
        assert_eq!(typed(&mut editor, "a\x04"), []);
        assert_eq!(typed(&mut editor, "\x7f\x04"), [Typed::End]);
    }

    #[test]
    fn the_cursor_is_always_seen() {
        let mut editor = Editor::default();
        typed(&mut editor, &"abcdefghij".repeat(3));
        let (row, column) = editor.row("> ", 12);
        assert_eq!((row.paint(false).as_str(), column), ("> bcdefghij", 11));
        typed(&mut editor, "\x01");
        let (row, column) = editor.row("> ", 12);
        assert_eq!((row.paint(false).as_str(), column), ("> abcdefghi…", 2));
    }
}
