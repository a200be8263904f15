//! Markdown as it comes.
//!
//! It is read a line of its source at a time. A line that is whole is turned into rows for ever; the one that still grows is shown as far as it is
//! known, and anew when it has grown. So what is on the screen in the end depends on the text alone, not on the pieces it came in.

use super::inline::{Line, Style, inline};
use super::table;
use super::text::{Break, Color, Look, Row, Span, wrap};

/// No line is longer: one that is, is taken as several. What is not whole is read again with every piece.
const LONGEST: usize = 2_048;

/// No table is longer, for the same reason.
const TALLEST: usize = 300;

/// No indentation is deeper.
const DEEPEST: usize = 16;

/// How wide rules are at the most.
const RULE: usize = 40;

/// Turns markdown into rows.
#[derive(Debug)]
pub(super) struct Markdown {
    color: bool,
    /// The line that is not whole.
    line: String,
    /// The lines of a table, or one that may be its first.
    table: Vec<String>,
    /// Where code ends, while there is some.
    fence: Option<Fence>,
    /// A blank line comes before the next row.
    gap: Gap,
}

/// The blank line before the next row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gap {
    /// Nothing was shown yet: no blank line comes first.
    Start,
    None,
    Blank,
}

#[derive(Clone, Debug)]
struct Fence {
    sign: char,
    length: usize,
    indent: usize,
}

/// What a line is.
enum Kind<'a> {
    Blank,
    Fence(Fence, &'a str),
    Heading(usize, &'a str),
    Rule,
    Quote(&'a str),
    Item { indent: usize, marker: String, text: &'a str },
    Text { indent: usize, text: &'a str },
}

impl Markdown {
    pub(super) fn new(color: bool) -> Self {
        let (line, table) = (String::new(), Vec::new());
        Self { color, line, table, fence: None, gap: Gap::Start }
    }

    /// Whether nothing was said since it began.
    pub(super) fn is_new(&self) -> bool {
        self.gap == Gap::Start && self.line.is_empty() && self.table.is_empty()
    }

    /// Takes a piece of text; returns the rows that are certain now.
    pub(super) fn push(&mut self, text: &str, width: usize) -> Vec<Row> {
        let mut rows = Vec::new();
        for c in text.chars() {
            match c {
                '\n' => {
                    let line = std::mem::take(&mut self.line);
                    rows.extend(self.whole(&line, width));
                }
                '\r' => {}
                c => self.line.push(c),
            }
            if self.line.len() >= LONGEST {
                let at = self.line.rfind(' ').map_or(self.line.len(), |at| at + 1);
                let rest = self.line.split_off(at);
                let line = std::mem::replace(&mut self.line, rest);
                rows.extend(self.whole(&line, width));
            }
        }
        rows
    }

    /// The rows of what is not certain yet.
    pub(super) fn live(&self, width: usize) -> Vec<Row> {
        let style = Style { color: self.color, line: Line::Growing };
        let mut rows = Vec::new();
        // A sign that may be half of another is not shown yet.
        let line = self.line.trim_end_matches(['*', '_', '`', '~']);
        if self.fence.is_none() && self.table.len() > 1 {
            let mut lines = self.table.clone();
            if line.contains('|') {
                lines.push(line.to_owned());
            }
            rows.extend(table::table(&lines, width, style));
        } else {
            for held in &self.table {
                rows.extend(self.rows(held, width, style));
            }
            if !self.line.trim().is_empty() && self.fence_of(&self.line).is_none() {
                let line = if self.fence.is_some() { &self.line } else { line };
                rows.extend(self.rows(line, width, style));
            }
        }
        if self.gap == Gap::Blank && !rows.is_empty() {
            rows.insert(0, Row::default());
        }
        rows
    }

    /// The text is over: returns the rows of the rest, and begins anew.
    pub(super) fn finish(&mut self, width: usize) -> Vec<Row> {
        let mut rows = Vec::new();
        let line = std::mem::take(&mut self.line);
        if !line.trim().is_empty() {
            rows.extend(self.whole(&line, width));
        }
        rows.extend(self.end_of_table(width));
        if self.fence.take().is_some() {
            rows.push(rule(width, ""));
        }
        self.gap = Gap::Start;
        rows
    }

    /// Takes a line that is whole.
    fn whole(&mut self, line: &str, width: usize) -> Vec<Row> {
        let mut rows = Vec::new();
        if self.fence.is_some() {
            if self.fence_of(line).is_some() {
                self.fence = None;
                return vec![rule(width, "")];
            }
            return self.code(line, width);
        }
        match self.table.len() {
            0 => {}
            1 => {
                let columns = table::cells(&self.table[0]).len();
                if table::is_ruler(line, columns) {
                    self.table.push(line.to_owned());
                    return rows;
                }
                rows.extend(self.end_of_table(width));
            }
            2..TALLEST if line.contains('|') => {
                self.table.push(line.to_owned());
                return rows;
            }
            _ => rows.extend(self.end_of_table(width)),
        }
        let kind = kind(line);
        if matches!(kind, Kind::Text { .. }) && table::may_begin(line) {
            self.table.push(line.to_owned());
            return rows;
        }
        match kind {
            Kind::Blank => {
                if self.gap == Gap::None {
                    self.gap = Gap::Blank;
                }
                return rows;
            }
            Kind::Fence(fence, label) => {
                self.fence = Some(fence);
                rows.extend(self.spaced(vec![rule(width, label)]));
            }
            Kind::Heading(..)
            | Kind::Rule
            | Kind::Quote(_)
            | Kind::Item { .. }
            | Kind::Text { .. } => {
                let style = Style { color: self.color, line: Line::Whole };
                let made = self.rows(line, width, style);
                rows.extend(self.spaced(made));
            }
        }
        rows
    }

    fn end_of_table(&mut self, width: usize) -> Vec<Row> {
        let lines = std::mem::take(&mut self.table);
        let style = Style { color: self.color, line: Line::Whole };
        let rows = match lines.as_slice() {
            [] => return Vec::new(),
            [line] => self.rows(line, width, style),
            lines => table::table(lines, width, style),
        };
        self.spaced(rows)
    }

    /// With the blank line before them, if there is to be one.
    fn spaced(&mut self, mut rows: Vec<Row>) -> Vec<Row> {
        if self.gap == Gap::Blank {
            rows.insert(0, Row::default());
        }
        self.gap = Gap::None;
        rows
    }

    /// Whether a line ends the code that there is, or begins some.
    fn fence_of(&self, line: &str) -> Option<()> {
        let found = fence(line)?;
        match &self.fence {
            Some(open) => {
                let closes = found.0.sign == open.sign
                    && found.0.length >= open.length
                    && found.1.is_empty();
                closes.then_some(())
            }
            None => Some(()),
        }
    }

    /// The rows of a line, whatever it is.
    fn rows(&self, line: &str, width: usize, style: Style) -> Vec<Row> {
        if self.fence.is_some() {
            return self.code(line, width);
        }
        line_rows(line, width, style)
    }

    fn code(&self, line: &str, width: usize) -> Vec<Row> {
        let indent = self.fence.as_ref().map_or(0, |fence| fence.indent);
        let blanks = line.bytes().take_while(|byte| *byte == b' ').count();
        let span = Span::new(&line[blanks.min(indent)..], Look::of(Color::Cyan));
        let before = Row::of("  ", Look::PLAIN);
        wrap(&[span], width, (&before, &before), Break::Anywhere)
    }
}

/// Around code: above it with its language, below it without.
fn rule(width: usize, label: &str) -> Row {
    let label = label.split_whitespace().next().unwrap_or_default();
    let line =
        if label.is_empty() { "────".to_owned() } else { format!("──── {label}") };
    Row::of(&format!("  {line}"), Look::DIM).cut(width)
}

fn line_rows(line: &str, width: usize, style: Style) -> Vec<Row> {
    let blank = |columns: usize| Row::of(&" ".repeat(columns), Look::PLAIN);
    match kind(line) {
        Kind::Blank => Vec::new(),
        Kind::Fence(_, label) => vec![rule(width, label)],
        Kind::Heading(level, text) => {
            let look = Look { bold: true, underline: level == 1, ..Look::PLAIN };
            let mut spans = inline(text, look, style);
            if !style.color {
                spans.insert(0, Span::new(&format!("{} ", "#".repeat(level)), Look::PLAIN));
            }
            wrap(&spans, width, (&blank(0), &blank(0)), Break::Words)
        }
        Kind::Rule => vec![Row::of(&"─".repeat(width.min(RULE)), Look::DIM)],
        Kind::Quote(text) => {
            let bar = Row::of("│ ", Look::DIM);
            let inner = line_rows(text, width.saturating_sub(2).max(2), style);
            let inner = if inner.is_empty() { vec![Row::default()] } else { inner };
            inner.into_iter().map(|row| row.after(&bar)).collect()
        }
        Kind::Item { indent, marker, text } => {
            let first = Row::of(&format!("{}{marker} ", " ".repeat(indent)), Look::PLAIN);
            let rest = blank(first.width());
            wrap(&inline(text, Look::PLAIN, style), width, (&first, &rest), Break::Words)
        }
        Kind::Text { indent, text } => {
            let before = blank(indent);
            wrap(&inline(text, Look::PLAIN, style), width, (&before, &before), Break::Words)
        }
    }
}

fn kind(line: &str) -> Kind<'_> {
    let columns = |text: &str| text.chars().map(|c| if c == '\t' { 4 } else { 1 }).sum::<usize>();
    let text = line.trim_start_matches([' ', '\t']);
    let indent = columns(&line[..line.len() - text.len()]).min(DEEPEST);
    let text = text.trim_end();
    if text.is_empty() {
        return Kind::Blank;
    }
    if let Some((fence, label)) = fence(line) {
        return Kind::Fence(fence, label);
    }
    let hashes = text.bytes().take_while(|byte| *byte == b'#').count();
    if (1..=6).contains(&hashes) && indent < 4 {
        let rest = &text[hashes..];
        if rest.starts_with(' ') {
            return Kind::Heading(hashes, rest.trim().trim_end_matches('#').trim_end());
        }
    }
    if is_rule(text) {
        return Kind::Rule;
    }
    if let Some(rest) = text.strip_prefix('>') {
        return Kind::Quote(rest.strip_prefix(' ').unwrap_or(rest));
    }
    if let Some((marker, rest)) = item(text, indent) {
        return Kind::Item { indent, marker, text: rest };
    }
    Kind::Text { indent, text }
}

fn is_rule(text: &str) -> bool {
    let mut signs = text.chars().filter(|c| *c != ' ');
    let Some(first) = signs.next().filter(|c| matches!(c, '-' | '*' | '_')) else { return false };
    signs.clone().count() >= 2 && signs.all(|c| c == first)
}

/// The marker of a list's item as it is shown, and the rest of the line.
fn item(text: &str, indent: usize) -> Option<(String, &str)> {
    let (marker, rest) = text.split_once(' ')?;
    let rest = rest.trim_start();
    let is_number = |marker: &str| {
        let digits = marker.trim_end_matches(['.', ')']);
        marker.len() == digits.len() + 1
            && (1..=9).contains(&digits.len())
            && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    match marker {
        "-" | "*" | "+" => {
            for (sign, shown) in [("[ ] ", "☐"), ("[x] ", "☑"), ("[X] ", "☑")] {
                if let Some(rest) = rest.strip_prefix(sign) {
                    return Some((shown.to_owned(), rest));
                }
            }
            let bullet = if (indent / 2).is_multiple_of(2) { "•" } else { "◦" };
            Some((bullet.to_owned(), rest))
        }
        number if is_number(number) => Some((number.to_owned(), rest)),
        _ => None,
    }
}

/// The fence that a line is, and what is said behind it.
fn fence(line: &str) -> Option<(Fence, &str)> {
    let text = line.trim_start_matches(' ');
    let indent = line.len() - text.len();
    let sign = text.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let length = text.chars().take_while(|c| *c == sign).count();
    let label = text[length..].trim();
    let is_fence = length >= 3 && !(sign == '`' && label.contains('`'));
    is_fence.then_some((Fence { sign, length, indent }, label))
}

#[cfg(test)]
mod test {
    use super::*;

    fn shown(text: &str, width: usize) -> Vec<String> {
        let mut markdown = Markdown::new(false);
        let mut rows = markdown.push(text, width);
        rows.extend(markdown.finish(width));
        rows.iter().map(|row| row.paint(false)).collect()
    }

    #[test]
    fn lists_hang_and_quotes_have_a_bar() {
        let text = "- one two three four\n  - nested\n1. first\n- [x] done\n> a quote of words";
        let expected = [
            "• one two",
            "  three four",
            "  ◦ nested",
            "1. first",
            "☑ done",
            "│ a quote of",
            "│ words",
        ];
        assert_eq!(shown(text, 12), expected);
    }

    #[test]
    fn code_is_as_it_is_between_two_rules() {
        let text = "Look:\n\n```rust\nfn main() {\n    **no**\n}\n```\nafter";
        let expected =
            ["Look:", "", "  ──── rust", "  fn main() {", "      **no**", "  }", "  ────", "after"];
        assert_eq!(shown(text, 40), expected);
        assert_eq!(shown("```\nabcdefgh", 6), ["  ────", "  abcd", "  efgh", "  ────"]);
    }

    #[test]
    fn blank_lines_are_one_at_the_most_and_none_at_the_ends() {
        assert_eq!(shown("\n\na\n\n\n\nb\n\n", 40), ["a", "", "b"]);
    }

    #[test]
    fn a_table_gives_way_to_the_terminal() {
        let text =
            "| name | what it does |\n|---|:--|\n| a | first thing |\n| `b\\|c` | second |\n";
        let expected = [
            "name  │ what it does",
            "──────┼─────────────",
            "a     │ first thing",
            "`b|c` │ second",
        ];
        assert_eq!(shown(text, 40), expected);
        let narrow = ["name  │ what it", "      │ does"];
        assert_eq!(shown(text, 18)[..2], narrow);
        assert_eq!(shown(text, 12)[..3], ["name: a", "what it", "  does:"]);
        assert_eq!(shown("a | b\nno table", 40), ["a | b", "no table"]);
    }

    #[test]
    fn headings_and_rules_stand_out() {
        assert_eq!(
            shown("# One\n## Two ##\n#no\n---", 10),
            ["# One", "## Two", "#no", "──────────"]
        );
        let mut markdown = Markdown::new(true);
        assert_eq!(markdown.push("# One\n", 10)[0].paint(true), "\x1b[1;4mOne\x1b[0m");
    }

    #[test]
    fn what_grows_is_shown_as_far_as_it_is_known() {
        let mut markdown = Markdown::new(false);
        assert!(markdown.push("a **bold", 40).is_empty());
        assert_eq!(markdown.live(40)[0].paint(false), "a bold");
        markdown.push("*", 40);
        assert_eq!(markdown.live(40)[0].paint(false), "a bold");
        assert_eq!(markdown.push("* b\n", 40)[0].paint(false), "a bold b");
        assert!(markdown.live(40).is_empty());
    }

    #[test]
    fn an_endless_line_is_taken_as_several() {
        let mut markdown = Markdown::new(false);
        let rows = markdown.push(&"word ".repeat(10_000), 80);
        assert!(rows.len() > 500 && markdown.line.len() < LONGEST);
    }
}
