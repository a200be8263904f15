//! What snapshot commands say alike: times, and names that need not be text.

use std::io::{BufWriter, Stdout, Write as _};
use std::time::Duration;

use anyhow::Context as _;
use ash_snapshot::SnapshotError;
use base64::Engine as _;
use serde_json::{Map, Value, json};

use crate::cli::format::things;
use crate::cli::output::{Reader, Screen, note, plain, reader};

/// Where the time went: each step, and all of it.
pub(super) struct Times<'a> {
    pub(super) total: Duration,
    pub(super) steps: &'a [(&'static str, Duration)],
}

impl Times<'_> {
    /// For programs.
    pub(super) fn json(&self) -> Value {
        let all = self.steps.iter().copied().chain([("total", self.total)]);
        all.map(|(name, took)| (name.to_owned(), json!(milliseconds(took))))
            .collect::<Map<_, _>>()
            .into()
    }

    /// For people: steps that took no time are left out.
    pub(super) fn text(&self) -> String {
        let long = self.steps.iter().filter(|(_, took)| took.as_millis() > 0);
        let long: Vec<String> =
            long.map(|(name, took)| format!("{name} {}", took.as_millis())).collect();
        let total = self.total.as_millis();
        if long.is_empty() {
            format!("{total} ms")
        } else {
            format!("{total} ms ({})", long.join(", "))
        }
    }
}

fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 10_000.0).round() / 10.0
}

/// A path for programs: as text under a name; and its bytes in base64 under the name with `Bytes` if the text is not
/// all of it.
pub(super) fn put_path(document: &mut Value, name: &str, path: &[u8]) {
    document[name] = json!(String::from_utf8_lossy(path));
    if std::str::from_utf8(path).is_err() {
        let encoded = base64::engine::general_purpose::STANDARD.encode(path);
        document[format!("{name}Bytes")] = json!(encoded);
    }
}

/// The same, as a document of its own.
pub(super) fn path_document(path: &[u8]) -> Value {
    let mut document = json!({});
    put_path(&mut document, "path", path);
    document
}

/// A path for people, on one line.
pub(super) fn path_text(path: &[u8]) -> String {
    plain(&String::from_utf8_lossy(path)).replace(['\n', '\t'], " ")
}

/// Names hard links that are none any more.
pub(super) fn tell_copied(copied: u64) {
    if copied > 0 {
        let links = things(copied, "hard link");
        note(&format!("warning: {links} became files of their own: no file may have more names"));
    }
}

/// Prints what goes on and on, as it comes: lines, or the items of one document.
pub(super) struct Printing {
    out: BufWriter<Stdout>,
    json: bool,
    items: u64,
    /// Why no more is printed.
    ended: Option<anyhow::Result<Reader>>,
}

impl Printing {
    /// Begins with what a document says beside its items, and what these are called.
    pub(super) fn begin(screen: &Screen, beside: &Value, items: &str) -> Self {
        let out = BufWriter::new(std::io::stdout());
        let mut printing = Self { out, json: screen.json, items: 0, ended: None };
        if screen.json {
            let beside = beside.to_string();
            let open = beside.strip_suffix('}').unwrap_or_default();
            let comma = if open == "{" { "" } else { "," };
            printing.write(&format!("{open}{comma}\"{items}\":["));
        }
        printing
    }

    pub(super) fn is_json(&self) -> bool {
        self.json
    }

    /// Prints a line.
    pub(super) fn line(&mut self, line: &str) -> Result<(), SnapshotError> {
        self.write(&format!("{line}\n"));
        self.go_on()
    }

    /// Prints an item.
    pub(super) fn item(&mut self, item: &Value) -> Result<(), SnapshotError> {
        let comma = if self.items > 0 { "," } else { "" };
        self.items += 1;
        self.write(&format!("{comma}\n{item}"));
        self.go_on()
    }

    /// Ends what was done meanwhile. A document of work that failed stays open: nobody takes it for all there is.
    pub(super) fn end(mut self, done: Result<(), SnapshotError>) -> anyhow::Result<()> {
        if let (Err(error), None) = (done, &self.ended) {
            let _unseen = self.out.flush();
            return Err(super::of(error));
        }
        if self.json {
            self.write("\n]}\n");
        }
        let flushed = self.out.flush();
        match self.ended {
            Some(ended) => ended.map(|_| ()),
            None => reader(flushed).map(|_| ()),
        }
    }

    /// Whoever closed standard output has seen enough.
    fn go_on(&self) -> Result<(), SnapshotError> {
        if self.ended.is_none() { Ok(()) } else { Err(SnapshotError::Cancelled) }
    }

    fn write(&mut self, text: &str) {
        if self.ended.is_none()
            && let Err(error) = self.out.write_all(text.as_bytes())
        {
            self.ended = Some(reader(Err(error)).context("could not print"));
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_path_that_is_no_text_is_told_in_bytes_too() {
        assert_eq!(path_document("caf\u{e9}".as_bytes()), json!({ "path": "caf\u{e9}" }));
        let odd = path_document(b"caf\xe9");
        assert_eq!(odd, json!({ "path": "caf\u{fffd}", "pathBytes": "Y2Fm6Q==" }));
    }

    #[test]
    fn times_say_each_step() {
        let millis = Duration::from_millis;
        let steps = [("look", millis(3)), ("sync", Duration::from_micros(120))];
        let times = Times { total: millis(4), steps: &steps };
        assert_eq!(times.json(), json!({ "look": 3.0, "sync": 0.1, "total": 4.0 }));
        assert_eq!(times.text(), "4 ms (look 3)");
        assert_eq!(Times { total: millis(4), steps: &[] }.text(), "4 ms");
    }
}
