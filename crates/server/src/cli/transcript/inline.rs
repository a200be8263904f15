//! Markdown inside a line: emphasis, code, links.

use super::text::{Color, Look, Span};

/// Whether more of the line may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// What is open at its end is text as it stands.
    Whole,
    /// What is open at its end is taken as closed there: its end is on its way.
    Growing,
}

/// How markdown is told apart from plain text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    /// By colours; otherwise signs that are needed to understand it stay.
    pub(super) color: bool,
    pub(super) line: Line,
}

/// The pieces of a line.
pub(super) fn inline(text: &str, look: Look, style: Style) -> Vec<Span> {
    let mut reader =
        Reader { rest: text, before: None, look, style, plain: String::new(), spans: Vec::new() };
    reader.read();
    reader.spans
}

struct Reader<'a> {
    rest: &'a str,
    /// The character before `rest`.
    before: Option<char>,
    look: Look,
    style: Style,
    plain: String,
    spans: Vec<Span>,
}

impl<'a> Reader<'a> {
    fn read(&mut self) {
        while let Some(c) = self.rest.chars().next() {
            let taken = match c {
                '\\' => self.escaped(),
                '`' => self.code(),
                '*' | '_' => self.emphasis(c),
                '~' => self.strike(),
                '!' if self.rest.starts_with("![") => self.link(1),
                '[' => self.link(0),
                '<' => self.angle(),
                '&' => self.entity(),
                _ => false,
            };
            if !taken {
                self.plain.push(c);
                self.skip(c.len_utf8());
            }
        }
        self.flush();
    }

    fn skip(&mut self, bytes: usize) {
        self.before = self.rest[..bytes].chars().next_back().or(self.before);
        self.rest = &self.rest[bytes..];
    }

    fn flush(&mut self) {
        if !self.plain.is_empty() {
            let text = std::mem::take(&mut self.plain);
            self.spans.push(Span::new(&text, self.look));
        }
    }

    /// What is inside of something, in another look.
    fn inside(&mut self, text: &str, look: Look) {
        self.flush();
        self.spans.extend(inline(text, look, self.style));
    }

    fn as_it_is(&mut self, text: &str, look: Look) {
        self.flush();
        self.spans.push(Span::new(text, look));
    }

    fn is_growing(&self) -> bool {
        self.style.line == Line::Growing
    }

    fn escaped(&mut self) -> bool {
        let Some(next) = self.rest[1..].chars().next().filter(char::is_ascii_punctuation) else {
            return false;
        };
        self.plain.push(next);
        self.skip(2);
        true
    }

    fn code(&mut self) -> bool {
        let ticks = run(self.rest, '`');
        let after = &self.rest[ticks..];
        let (inner, taken) = match closing_ticks(after, ticks) {
            Some(at) => (&after[..at], 2 * ticks + at),
            None if self.is_growing() => (after, self.rest.len()),
            None => {
                self.plain.push_str(&self.rest[..ticks]);
                self.skip(ticks);
                return true;
            }
        };
        let is_padded = inner.starts_with(' ') && inner.ends_with(' ') && !inner.trim().is_empty();
        let inner = if is_padded { &inner[1..inner.len() - 1] } else { inner };
        let look = Look { color: Some(Color::Cyan), ..self.look };
        if self.style.color {
            self.as_it_is(inner, look);
        } else {
            self.as_it_is(&format!("`{inner}`"), look);
        }
        self.skip(taken);
        true
    }

    fn emphasis(&mut self, sign: char) -> bool {
        let length = run(self.rest, sign);
        let after = &self.rest[length..];
        let is_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        let opens = after.chars().next().is_some_and(|c| !c.is_whitespace())
            && !(sign == '_' && is_word(self.before));
        if opens && length <= 3 {
            let closing = closing_run(after, sign, length);
            let found = closing.or_else(|| self.is_growing().then_some(after.len()));
            if let Some(at) = found.filter(|at| *at > 0) {
                let look = Look {
                    bold: self.look.bold || length >= 2,
                    italic: self.look.italic || length != 2,
                    ..self.look
                };
                self.inside(&after[..at], look);
                self.skip((length + at + length).min(self.rest.len()));
                return true;
            }
        }
        self.plain.push_str(&self.rest[..length]);
        self.skip(length);
        true
    }

    fn strike(&mut self) -> bool {
        if run(self.rest, '~') != 2 {
            return false;
        }
        let after = &self.rest[2..];
        let Some(at) = after.find("~~").filter(|at| *at > 0 && !after.starts_with(' ')) else {
            return false;
        };
        self.inside(&after[..at], Look { strike: true, ..self.look });
        self.skip(at + 4);
        true
    }

    /// `[text](address)`, or with `!` before it a picture.
    fn link(&mut self, sign: usize) -> bool {
        let text_and_more = &self.rest[sign + 1..];
        let Some(end) = closing_bracket(text_and_more) else { return false };
        let (label, more) = (&text_and_more[..end], &text_and_more[end + 1..]);
        let Some(address) = more.strip_prefix('(') else { return false };
        let Some(closed) = closing_parenthesis(address) else { return false };
        let target = address[..closed].split_whitespace().next().unwrap_or_default();
        let target = target.trim_start_matches('<').trim_end_matches('>');
        if sign == 1 {
            self.as_it_is(&format!("[image: {label}]"), self.look);
        } else if label.trim().is_empty() {
            self.as_it_is(target, Look { underline: true, ..self.look });
        } else {
            self.inside(label, Look { underline: true, ..self.look });
        }
        let is_said = label.trim() == target || label.trim().is_empty();
        if !target.is_empty() && !is_said {
            self.as_it_is(&format!(" ({target})"), Look { dim: true, ..self.look });
        }
        self.skip(sign + 1 + end + 1 + 1 + closed + 1);
        true
    }

    fn angle(&mut self) -> bool {
        let Some(end) = self.rest.find('>') else { return false };
        let inner = &self.rest[1..end];
        let is_address = ["http://", "https://", "mailto:"].iter().any(|s| inner.starts_with(s));
        if is_address && !inner.contains(char::is_whitespace) {
            self.as_it_is(inner, Look { underline: true, ..self.look });
        } else if matches!(inner, "br" | "br/" | "br /") {
            self.plain.push(' ');
        } else {
            return false;
        }
        self.skip(end + 1);
        true
    }

    fn entity(&mut self) -> bool {
        let known = [
            ("&amp;", '&'),
            ("&lt;", '<'),
            ("&gt;", '>'),
            ("&quot;", '"'),
            ("&#39;", '\''),
            ("&nbsp;", ' '),
        ];
        let Some((name, c)) = known.iter().find(|(name, _)| self.rest.starts_with(name)) else {
            return false;
        };
        self.plain.push(*c);
        self.skip(name.len());
        true
    }
}

/// How often a text begins with a character.
fn run(text: &str, sign: char) -> usize {
    text.bytes().take_while(|byte| char::from(*byte) == sign).count()
}

/// Where the same number of ticks stands again.
fn closing_ticks(text: &str, ticks: usize) -> Option<usize> {
    let mut at = 0;
    while let Some(found) = text[at..].find('`') {
        at += found;
        match run(&text[at..], '`') {
            length if length == ticks => return Some(at),
            length => at += length,
        }
    }
    None
}

/// Where an emphasis ends: a run of its length behind something that is no blank. Code counts as one piece.
fn closing_run(text: &str, sign: char, length: usize) -> Option<usize> {
    let mut at = 0;
    let mut before = ' ';
    while let Some(c) = text[at..].chars().next() {
        let step = match c {
            '\\' => 1 + text[at + 1..].chars().next().map_or(0, char::len_utf8),
            '`' => {
                let ticks = run(&text[at..], '`');
                closing_ticks(&text[at + ticks..], ticks).map_or(ticks, |end| end + 2 * ticks)
            }
            c if c == sign => {
                let here = run(&text[at..], sign);
                let next = text[at + here..].chars().next();
                let in_word = sign == '_' && next.is_some_and(char::is_alphanumeric);
                let closes = !before.is_whitespace() && !in_word;
                // `**` is no end of `*`, and what is nested may end together with it.
                if closes && here == length {
                    return Some(at);
                }
                if closes && here == 3 {
                    return Some(at + 3 - length);
                }
                here
            }
            c => c.len_utf8(),
        };
        before = text[at..at + step].chars().next_back().unwrap_or(before);
        at += step;
    }
    None
}

/// The bracket that belongs to the one before the text.
fn closing_bracket(text: &str) -> Option<usize> {
    let mut depth = 0_u32;
    for (at, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' if depth == 0 => return Some(at),
            ']' => depth -= 1,
            _ => {}
        }
    }
    None
}

fn closing_parenthesis(text: &str) -> Option<usize> {
    let mut depth = 0_u32;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 0 => return Some(at),
            ')' => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod test {
    use super::super::text::Row;
    use super::*;

    fn shown(text: &str) -> String {
        let style = Style { color: true, line: Line::Whole };
        Row::new(inline(text, Look::PLAIN, style)).paint(true)
    }

    fn plain(text: &str, line: Line) -> String {
        let style = Style { color: false, line };
        Row::new(inline(text, Look::PLAIN, style)).paint(false)
    }

    #[test]
    fn emphasis_code_and_links_look_different() {
        assert_eq!(shown("a **b** c"), "a \x1b[1mb\x1b[0m c");
        assert_eq!(shown("*b* and _c_"), "\x1b[3mb\x1b[0m and \x1b[3mc\x1b[0m");
        assert_eq!(shown("`a*b*`"), "\x1b[36ma*b*\x1b[0m");
        assert_eq!(shown("``a`b``"), "\x1b[36ma`b\x1b[0m");
        assert_eq!(shown("[t](http://x)"), "\x1b[4mt\x1b[0m\x1b[2m (http://x)\x1b[0m");
        assert_eq!(shown("~~no~~"), "\x1b[9mno\x1b[0m");
        assert_eq!(shown("**a *b* c**"), "\x1b[1ma \x1b[0m\x1b[1;3mb\x1b[0m\x1b[1m c\x1b[0m");
        assert_eq!(shown("***b***"), "\x1b[1;3mb\x1b[0m");
    }

    #[test]
    fn what_is_no_markdown_stays() {
        for text in
            ["2 * 3 * 4", "snake_case_name", "a ** b", "**", "[x] y", "`open", "a < b", "*x", "5~6"]
        {
            assert_eq!(plain(text, Line::Whole), text, "{text}");
        }
        assert_eq!(plain(r"\*no\* &lt;b&gt;", Line::Whole), "*no* <b>");
        assert_eq!(
            plain("<https://a.b> <br> ![p](q)", Line::Whole),
            "https://a.b   [image: p] (q)"
        );
        assert_eq!(plain("[http://x](http://x)", Line::Whole), "http://x");
        assert_eq!(plain("`code`", Line::Whole), "`code`");
    }

    #[test]
    fn what_is_still_open_is_shown_as_it_will_be() {
        assert_eq!(plain("a **bo", Line::Growing), "a bo");
        assert_eq!(plain("a `co", Line::Growing), "a `co`");
    }
}
