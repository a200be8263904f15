//! A terminal for tests: understands what we write, and refuses everything else.

use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

/// A screen of a size, and what has scrolled off it.
#[derive(Debug)]
pub(crate) struct Emulator {
    columns: usize,
    lines: usize,
    /// What has scrolled away, and what is on the screen.
    rows: Vec<Vec<String>>,
    /// Which of them is the first on the screen.
    top: usize,
    row: usize,
    column: usize,
    /// The end of a write that broke off in a character or an escape.
    held: Vec<u8>,
}

impl Emulator {
    pub(crate) fn new(columns: usize, lines: usize) -> Self {
        let rows = vec![Vec::new()];
        Self { columns, lines, rows, top: 0, row: 0, column: 0, held: Vec::new() }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
        let valid = match std::str::from_utf8(&self.held) {
            Ok(_) => self.held.len(),
            Err(error) => error.valid_up_to(),
        };
        let rest = self.held.split_off(valid);
        let text = String::from_utf8(std::mem::replace(&mut self.held, rest)).unwrap();
        let mut graphemes = text.graphemes(true).peekable();
        let mut open = String::new();
        while let Some(grapheme) = graphemes.next() {
            match grapheme {
                "\r\n" => {
                    self.column = 0;
                    self.down();
                }
                "\n" => self.down(),
                "\r" => self.column = 0,
                "\x07" => {}
                "\x1b" => {
                    let mut code = String::new();
                    let mut is_whole = false;
                    for next in graphemes.by_ref() {
                        code.push_str(next);
                        if code.len() > 1 && next.bytes().all(|byte| (0x40..=0x7e).contains(&byte))
                        {
                            is_whole = true;
                            break;
                        }
                    }
                    match is_whole {
                        true => self.escape(&code),
                        false => open = format!("\x1b{code}"),
                    }
                }
                text => self.put(text),
            }
        }
        self.held.splice(0..0, open.into_bytes());
    }

    fn escape(&mut self, code: &str) {
        let code = code.strip_prefix('[').unwrap_or_else(|| panic!("no escape of ours: {code:?}"));
        let (number, kind) = code.split_at(code.len() - 1);
        let count = || number.parse::<usize>().unwrap_or(1);
        match kind {
            "A" => self.row = self.row.saturating_sub(count()).max(self.top),
            "B" => self.row = (self.row + count()).min(self.rows.len() - 1),
            "C" => self.column = (self.column + count()).min(self.columns - 1),
            "J" => {
                self.rows.truncate(self.row + 1);
                self.rows[self.row].truncate(self.column);
            }
            "K" => self.rows[self.row].clear(),
            "m" => {}
            "h" | "l" if number.starts_with('?') => {}
            _ => panic!("no escape of ours: {code:?}"),
        }
    }

    fn down(&mut self) {
        self.row += 1;
        if self.row == self.rows.len() {
            self.rows.push(Vec::new());
        }
        self.top = self.top.max((self.row + 1).saturating_sub(self.lines));
    }

    fn put(&mut self, grapheme: &str) {
        let width = grapheme.width();
        if self.column + width > self.columns {
            self.column = 0;
            self.down();
        }
        let row = &mut self.rows[self.row];
        while row.len() < self.column + width {
            row.push(" ".to_owned());
        }
        if width > 0 {
            grapheme.clone_into(&mut row[self.column]);
            // The second column of a wide one shows nothing of its own.
            row[self.column + 1..self.column + width].iter_mut().for_each(String::clear);
        }
        self.column += width;
    }

    /// Everything that was shown and stayed, without blanks at the ends.
    pub(crate) fn lines(&self) -> Vec<String> {
        let line = |row: &Vec<String>| row.concat().trim_end().to_owned();
        let mut lines: Vec<String> = self.rows.iter().map(line).collect();
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        lines
    }
}
