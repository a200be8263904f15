//! `read_file`: lines with their numbers, or a picture, or a document. However large the file and
//! however long its lines, only what is shown is held.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _};
use std::path::Path;

use serde_json::{Value, json};

use super::base64;
use super::fault::Fault;
use super::media::Media;
use super::root::Root;

/// How many lines are shown unless asked otherwise.
const DEFAULT_LINES: u64 = 2_000;
/// How much text is shown at most.
const MAX_TEXT_BYTES: usize = 100 * 1024;
/// How much of one line is shown.
const MAX_LINE_BYTES: usize = 2_000;
/// How much of a file is looked at to tell what it is.
const SNIFF_BYTES: u64 = 8 * 1024;

/// Which lines are wanted: the first, counted from one, and how many.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lines {
    pub(super) first: u64,
    pub(super) count: u64,
}

impl Lines {
    pub(super) fn new(offset: Option<u64>, limit: Option<u64>) -> Self {
        Self { first: offset.unwrap_or(1).max(1), count: limit.unwrap_or(DEFAULT_LINES).max(1) }
    }
}

/// What a file shows to a model: content blocks.
pub(super) fn read(root: &Root, path: &str, lines: Lines) -> Result<Vec<Value>, Fault> {
    let path = root.relative(path)?;
    let (mut file, stat) = root.read(&path)?;
    let fault = |error: io::Error| Fault::io(&path, &error);
    let mut start = Vec::new();
    (&mut file).take(SNIFF_BYTES).read_to_end(&mut start).map_err(fault)?;
    file.rewind().map_err(fault)?;
    let bytes = u64::try_from(stat.st_size).unwrap_or(0);
    match Kind::of(&start) {
        Kind::Media(media) => {
            let data = whole(&path, file, bytes, media)?;
            media.check(&data).map_err(|what| {
                let name = path.display();
                Fault::new(format!("{name} cannot be shown, it is {what}; look at it with bash"))
            })?;
            Ok(vec![media.block(&base64::encode(&data))])
        }
        Kind::Binary => Err(Fault::new(format!(
            "{} is a binary file of {bytes} bytes and cannot be shown as text; look at it with bash",
            path.display()
        ))),
        Kind::Text => {
            let text = show(file, lines).map_err(fault)?;
            let text = text.unwrap_or_else(|has| {
                format!(
                    "{} has only {has} lines, and none from line {}",
                    path.display(),
                    lines.first
                )
            });
            Ok(vec![json!({ "type": "text", "text": text })])
        }
    }
}

/// What a file is. The name says what it should be; the content says what it is.
enum Kind {
    Text,
    Media(Media),
    Binary,
}

impl Kind {
    fn of(start: &[u8]) -> Self {
        match Media::of(start) {
            Some(media) => Self::Media(media),
            None if start.contains(&0) => Self::Binary,
            None => Self::Text,
        }
    }
}

fn whole(path: &Path, file: File, bytes: u64, media: Media) -> Result<Vec<u8>, Fault> {
    let mut data = Vec::new();
    let max = media.max_bytes();
    // It may grow while it is read.
    file.take(max as u64 + 1).read_to_end(&mut data).map_err(|error| Fault::io(path, &error))?;
    if data.len() > max {
        let (name, limit) = (path.display(), media.limit());
        return Err(Fault::new(format!("{name} has {bytes} bytes, and {limit}")));
    }
    Ok(data)
}

/// The lines, numbered; or how many there are, if they end before the first that is wanted.
fn show(file: File, lines: Lines) -> io::Result<Result<String, u64>> {
    let mut reader = BufReader::new(file);
    let mut text = String::new();
    let mut number = 0;
    let mut line = Vec::new();
    let end = lines.first.saturating_add(lines.count);
    let (mut shown_lines, mut crlf_lines) = (0_u64, 0_u64);
    loop {
        line.clear();
        let Some(length) = read_line(&mut reader, &mut line)? else { break };
        number += 1;
        if number < lines.first {
            continue;
        }
        if number >= end || text.len() > MAX_TEXT_BYTES {
            write_str(&mut text, format_args!("[more follows: go on with offset {number}]\n"));
            break;
        }
        let shown = String::from_utf8_lossy(cut(&line));
        shown_lines += 1;
        crlf_lines += u64::from(shown.ends_with('\r'));
        let shown = shown.trim_end_matches('\r');
        let left_out = length.saturating_sub(cut(&line).len() as u64);
        write_str(&mut text, format_args!("{number:>6}\t{shown}"));
        if left_out > 0 {
            write_str(&mut text, format_args!(" [{left_out} more bytes in this line]"));
        }
        text.push('\n');
    }
    // They are not seen above, and decide whether an edit finds what it replaces.
    if crlf_lines > 0 {
        // The last line of a file often has no end at all.
        let which = if crlf_lines + 1 >= shown_lines { "the" } else { "some of these" };
        write_str(&mut text, format_args!("[{which} lines end with CRLF]\n"));
    }
    if text.is_empty() && lines.first > 1 {
        return Ok(Err(number));
    }
    if text.is_empty() {
        text.push_str("(the file is empty)");
    }
    Ok(Ok(text))
}

fn write_str(text: &mut String, more: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _infallible = text.write_fmt(more);
}

/// A line without a character that was cut in two.
fn cut(line: &[u8]) -> &[u8] {
    if line.len() < MAX_LINE_BYTES {
        return line;
    }
    match std::str::from_utf8(line) {
        Err(error) if error.error_len().is_none() => &line[..error.valid_up_to()],
        Ok(_) | Err(_) => line,
    }
}

/// Reads a line, keeps its beginning, and says how long it was; nothing: there are no more.
fn read_line(reader: &mut BufReader<File>, line: &mut Vec<u8>) -> io::Result<Option<u64>> {
    let mut length = 0;
    let mut is_any = false;
    loop {
        let chunk = reader.fill_buf()?;
        if chunk.is_empty() {
            return Ok(is_any.then_some(length));
        }
        is_any = true;
        let newline = chunk.iter().position(|&byte| byte == b'\n');
        let part = &chunk[..newline.unwrap_or(chunk.len())];
        let room = MAX_LINE_BYTES.saturating_sub(line.len()).min(part.len());
        line.extend_from_slice(&part[..room]);
        length += part.len() as u64;
        let used = part.len() + usize::from(newline.is_some());
        reader.consume(used);
        if newline.is_some() {
            return Ok(Some(length));
        }
    }
}
