//! Text on a terminal: how wide it is, where it is broken, and how it looks.

use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

/// How many columns a tab takes.
const TAB: &str = "    ";

/// A colour that every terminal has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Color {
    Red,
    Green,
    Yellow,
    Cyan,
}

/// How a piece of text looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::cli) struct Look {
    pub(in crate::cli) bold: bool,
    pub(in crate::cli) dim: bool,
    pub(in crate::cli) italic: bool,
    pub(in crate::cli) underline: bool,
    pub(in crate::cli) strike: bool,
    pub(in crate::cli) color: Option<Color>,
}

impl Look {
    pub(in crate::cli) const PLAIN: Self = Self {
        bold: false,
        dim: false,
        italic: false,
        underline: false,
        strike: false,
        color: None,
    };
    pub(in crate::cli) const DIM: Self = Self { dim: true, ..Self::PLAIN };
    pub(in crate::cli) const BOLD: Self = Self { bold: true, ..Self::PLAIN };

    pub(in crate::cli) const fn of(color: Color) -> Self {
        Self { color: Some(color), ..Self::PLAIN }
    }

    /// What switches it on.
    fn codes(self) -> String {
        let color = self.color.map(|color| match color {
            Color::Red => "31",
            Color::Green => "32",
            Color::Yellow => "33",
            Color::Cyan => "36",
        });
        let flags = [
            (self.bold, "1"),
            (self.dim, "2"),
            (self.italic, "3"),
            (self.underline, "4"),
            (self.strike, "9"),
        ];
        let flags = flags.iter().filter(|(is_on, _)| *is_on).map(|(_, code)| *code);
        flags.chain(color).collect::<Vec<_>>().join(";")
    }
}

/// A piece of text that looks the same throughout. It cannot move the cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct Span {
    text: String,
    look: Look,
}

impl Span {
    pub(in crate::cli) fn new(text: &str, look: Look) -> Self {
        Self { text: harmless(text), look }
    }
}

/// What stands on one line of a terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::cli) struct Row(Vec<Span>);

impl Row {
    pub(in crate::cli) fn new(spans: Vec<Span>) -> Self {
        Self(spans)
    }

    pub(in crate::cli) fn of(text: &str, look: Look) -> Self {
        Self(vec![Span::new(text, look)])
    }

    /// How many columns it takes.
    pub(in crate::cli) fn width(&self) -> usize {
        cells(&self.0).iter().map(|cell| cell.width).sum()
    }

    /// As it is written to a terminal.
    pub(in crate::cli) fn paint(&self, color: bool) -> String {
        let mut painted = String::new();
        for Span { text, look } in &self.0 {
            if text.is_empty() {
                continue;
            }
            if color && *look != Look::PLAIN {
                painted.push_str(&format!("\x1b[{}m{text}\x1b[0m", look.codes()));
            } else {
                painted.push_str(text);
            }
        }
        painted
    }

    /// The same with something before it.
    pub(in crate::cli) fn after(self, before: &Self) -> Self {
        let mut spans = before.0.clone();
        spans.extend(self.0);
        Self(spans)
    }

    /// The same, at most so wide. What is cut is told by a sign.
    pub(in crate::cli) fn cut(self, width: usize) -> Self {
        if self.width() <= width {
            return self;
        }
        let mut kept = Vec::new();
        let mut used = 0;
        for cell in cells(&self.0) {
            if used + cell.width + 1 > width {
                break;
            }
            used += cell.width;
            kept.push(cell);
        }
        let mut spans = merged(&kept);
        if width > 0 {
            let look = spans.last().map_or(Look::PLAIN, |span| span.look);
            spans.push(Span::new("…", look));
        }
        Self(spans)
    }

    /// The same, filled with blanks up to a width.
    pub(in crate::cli) fn filled(mut self, width: usize) -> Self {
        let missing = width.saturating_sub(self.width());
        self.0.push(Span { text: " ".repeat(missing), look: Look::PLAIN });
        self
    }

    pub(in crate::cli) fn push(&mut self, span: Span) {
        self.0.push(span);
    }
}

/// How many columns a text takes.
pub(in crate::cli) fn width(text: &str) -> usize {
    text.graphemes(true).map(|cell| cell.width()).sum()
}

/// Text that can neither move the cursor nor turn the direction of what stands around it.
pub(in crate::cli) fn harmless(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' => kept.push_str(TAB),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' => {}
            '\u{feff}' | '\u{2028}' | '\u{2029}' => {}
            c if c.is_control() => {}
            c => kept.push(c),
        }
    }
    kept
}

/// What a terminal shows in one or two columns.
#[derive(Clone, Copy)]
struct Cell<'a> {
    text: &'a str,
    look: Look,
    width: usize,
}

impl Cell<'_> {
    fn is_space(&self) -> bool {
        self.text == " "
    }
}

fn cells(spans: &[Span]) -> Vec<Cell<'_>> {
    spans.iter().flat_map(span_cells).collect()
}

fn span_cells(span: &Span) -> Vec<Cell<'_>> {
    let graphemes = span.text.graphemes(true);
    graphemes.map(|text| Cell { text, look: span.look, width: text.width() }).collect()
}

fn merged(cells: &[Cell<'_>]) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for cell in cells {
        match spans.last_mut() {
            Some(last) if last.look == cell.look => last.text.push_str(cell.text),
            Some(_) | None => spans.push(Span { text: cell.text.to_owned(), look: cell.look }),
        }
    }
    spans
}

/// Where a line may be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Break {
    /// Between words.
    Words,
    /// Anywhere: every blank counts.
    Anywhere,
}

/// Breaks text into rows no wider than `width`. The first begins with `first`, the others with `rest`. There is always one.
pub(in crate::cli) fn wrap(
    spans: &[Span],
    width: usize,
    (first, rest): (&Row, &Row),
    at: Break,
) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut line: Vec<Cell<'_>> = Vec::new();
    let mut used = 0;
    // After which cell of the line it may be broken.
    let mut gap = None;
    let (first_room, rest_room) = (room(width, first), room(width, rest));
    for cell in cells(spans) {
        let room = if rows.is_empty() { first_room } else { rest_room };
        if used + cell.width > room && !line.is_empty() {
            let by_words = at == Break::Words;
            let cut = match gap {
                Some(gap) if by_words && !cell.is_space() && cell.width < 2 => gap,
                Some(_) | None => line.len(),
            };
            let left = line.split_off(cut);
            rows.push(row(&line, if rows.is_empty() { first } else { rest }, at));
            line = left;
            used = line.iter().map(|cell| cell.width).sum();
            gap = None;
        }
        if at == Break::Words && line.is_empty() && !rows.is_empty() && cell.is_space() {
            continue;
        }
        line.push(cell);
        used += cell.width;
        if cell.is_space() || cell.width > 1 {
            gap = Some(line.len());
        }
    }
    if rows.is_empty() || !line.is_empty() {
        rows.push(row(&line, if rows.is_empty() { first } else { rest }, at));
    }
    rows
}

/// A wide character has to fit, however narrow it is.
fn room(width: usize, before: &Row) -> usize {
    width.saturating_sub(before.width()).max(2)
}

fn row(cells: &[Cell<'_>], before: &Row, at: Break) -> Row {
    let mut kept = cells;
    while let [head @ .., last] = kept
        && last.is_space()
        && at == Break::Words
    {
        kept = head;
    }
    Row(merged(kept)).after(before)
}

#[cfg(test)]
mod test {
    use proptest::prelude::*;

    use super::*;

    fn wrapped(text: &str, width: usize) -> Vec<String> {
        let none = Row::default();
        let rows = wrap(&[Span::new(text, Look::PLAIN)], width, (&none, &none), Break::Words);
        rows.iter().map(|row| row.paint(false)).collect()
    }

    #[test]
    fn lines_are_broken_between_words_and_long_words_anywhere() {
        assert_eq!(wrapped("the quick brown fox", 10), ["the quick", "brown fox"]);
        assert_eq!(wrapped("a  b", 10), ["a  b"]);
        assert_eq!(wrapped("abcdefghijkl mn", 5), ["abcde", "fghij", "kl mn"]);
        assert_eq!(wrapped("", 5), [""]);
        assert_eq!(wrapped("ab cdefgh", 5), ["ab", "cdefg", "h"]);
    }

    #[test]
    fn wide_characters_and_emoji_take_two_columns() {
        assert_eq!(wrapped("日本語のテキスト", 6), ["日本語", "のテキ", "スト"]);
        assert_eq!(wrapped("a日本", 4), ["a日", "本"]);
        assert_eq!((width("👩‍👩‍👧‍👦"), width("🇩🇪"), width("é"), width("e\u{301}")), (2, 2, 1, 1));
        assert_eq!(wrapped("👍🏽👍🏽👍🏽", 4), ["👍🏽👍🏽", "👍🏽"]);
    }

    #[test]
    fn what_agents_say_cannot_move_the_cursor() {
        assert_eq!(harmless("a\x1b[2Jb\r\x07\u{9b}c\u{202e}d\te"), "a[2Jbcd    e");
    }

    #[test]
    fn a_row_that_is_too_long_is_cut() {
        let row = Row::of("日本語", Look::PLAIN);
        assert_eq!(row.clone().cut(6).paint(false), "日本語");
        assert_eq!(row.clone().cut(5).paint(false), "日本…");
        assert_eq!(row.cut(0).paint(false), "");
    }

    #[test]
    fn a_look_is_switched_off_again() {
        let look = Look { bold: true, color: Some(Color::Cyan), ..Look::PLAIN };
        let row = Row::new(vec![Span::new("a", look), Span::new("b", Look::PLAIN)]);
        assert_eq!(row.paint(true), "\x1b[1;36ma\x1b[0mb");
        assert_eq!(row.paint(false), "ab");
    }

    proptest! {
        #[test]
        fn no_row_is_too_wide_and_no_word_is_lost(text in "[a-z 日👍]{0,80}", width in 2_usize..40) {
            let rows = wrapped(&text, width);
            for row in &rows {
                prop_assert!(super::width(row) <= width, "{row:?}");
            }
            let without = |text: &str| text.replace(' ', "");
            prop_assert_eq!(without(&rows.concat()), without(&text));
        }
    }
}
