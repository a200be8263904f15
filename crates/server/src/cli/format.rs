//! Figures, times and receipts in words.

use std::time::Duration;

use ash_core::time::Timestamp;

use super::output::plain;
use super::transcript::text::width as columns;
use crate::api::{ResumeReceipt, Usage, from_rfc3339};

/// A size, such as `812 B` or `50 MB`.
pub(super) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KB", "MB", "GB", "TB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut size = bytes as f64 / 1024.0;
    let mut unit = 0;
    // What would be written as 1024 belongs to the next unit.
    while size >= 1023.5 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    let unit = UNITS[unit];
    if size < 9.95 { format!("{size:.1} {unit}") } else { format!("{size:.0} {unit}") }
}

/// How long, in its largest unit.
pub(super) fn age(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3_600 => format!("{} min", seconds / 60),
        seconds @ 3_600..86_400 => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

/// How long ago a time of the wire is; a time that is none, as it is.
pub(super) fn ago(at: &str, now: Timestamp) -> String {
    from_rfc3339(at).map_or_else(|| plain(at), |at| age(now.since(at)))
}

/// A number with its thousands apart.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number in few characters: `812`, `12.3k`, `4.5M`.
pub(super) fn short_count(number: u64) -> String {
    match number {
        0..1_000 => number.to_string(),
        1_000..999_950 => format!("{:.1}k", number as f64 / 1e3),
        _ => format!("{:.1}M", number as f64 / 1e6),
    }
}

/// A number of things.
pub(super) fn things(number: u64, one: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{} {one}{ending}", count(number))
}

/// What a run came to: `end_turn · 1,204 tokens in, 56 out · $0.0123 · 3.2 s`.
pub(super) fn run_line(stop_reason: &str, usage: &Usage, took: Option<Duration>) -> String {
    let input = usage.input_tokens + usage.cache_creation_tokens + usage.cache_read_tokens;
    let mut parts = vec![plain(stop_reason)];
    if input + usage.output_tokens > 0 {
        parts.push(format!("{} tokens in, {} out", count(input), count(usage.output_tokens)));
    }
    if usage.cost_usd > 0.0 {
        parts.push(format!("${:.4}", usage.cost_usd));
    }
    if let Some(took) = took {
        parts.push(format!("{:.1} s", took.as_secs_f64()));
    }
    parts.join(" · ")
}

/// A receipt in one line: `resumed cold from local: workspace kept (812 files, 50 MB), conversation
/// intact (7 of 7 turns), 14 ms`.
pub(super) fn receipt(receipt: &ResumeReceipt) -> String {
    if receipt.path == "noop" {
        return "already active, nothing had to be done".to_owned();
    }
    let source =
        receipt.source.as_ref().map(|source| format!(" from {source}")).unwrap_or_default();
    let size = match (receipt.files, receipt.bytes) {
        (Some(files), Some(size)) => format!(" ({}, {})", things(files, "file"), bytes(size)),
        (Some(files), None) => format!(" ({})", things(files, "file")),
        (None, _) => String::new(),
    };
    let newer = match (receipt.unverified, &receipt.snapshot_id) {
        (0, _) => String::new(),
        (count, Some(_)) if receipt.workspace != "restored" => {
            format!(", {} unverified", things(count, "newer file"))
        }
        (count, _) => format!(", {} unverified", things(count, "file")),
    };
    let conversation = &receipt.conversation;
    let remembered = match conversation.native.as_str() {
        "none" => "no conversation yet".to_owned(),
        native => {
            let (turns, of) = (conversation.turns, conversation.turns_in_log);
            format!("conversation {native} ({turns} of {of} turns)")
        }
    };
    let cut = match receipt.interrupted_run {
        Some(run) => format!(", run {run} was cut"),
        None => String::new(),
    };
    let (path, workspace) = (&receipt.path, &receipt.workspace);
    let millis = receipt.duration_ms.max(0.0).round();
    plain(&format!(
        "resumed {path}{source}: workspace {workspace}{size}{newer}, {remembered}{cut}, {millis} ms"
    ))
}

/// What did not come back, if something did not.
pub(super) fn loss(receipt: &ResumeReceipt) -> Option<String> {
    let turns = receipt.conversation.turns_in_log;
    let mut lost = Vec::new();
    if receipt.workspace == "fresh" && turns > 0 {
        lost.push("its workspace is a fresh copy of the agent, and earlier files are gone");
    }
    if receipt.left_out > 0 {
        lost.push("some files of its workspace could not be read back, and are missing");
    }
    if receipt.outdated {
        lost.push("its files are those of an earlier snapshot: later ones are lost");
    }
    if receipt.conversation.native == "lost" {
        lost.push("the agent does not remember the conversation");
    }
    (!lost.is_empty()).then(|| format!("CONTEXT LOST: {}", lost.join("; ")))
}

/// Rows under headings, each column as wide as it has to be. Cells are made harmless.
pub(super) fn table(headings: &[&str], rows: &[Vec<String>]) -> String {
    let harmless = |cell: &String| plain(cell).replace(['\n', '\t'], " ");
    let mut lines: Vec<Vec<String>> =
        vec![headings.iter().map(|cell| (*cell).to_owned()).collect()];
    lines.extend(rows.iter().map(|row| row.iter().map(harmless).collect()));
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|cell| columns(cell)).max()
    };
    let widths: Vec<usize> = (0..headings.len()).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for line in &lines {
        let padded = |(cell, width): (&String, &usize)| {
            format!("{cell}{}", " ".repeat(width.saturating_sub(columns(cell))))
        };
        let cells = line.iter().zip(&widths).map(padded);
        let cells: Vec<String> = cells.collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Names and values, one pair a line. Empty values are left out.
pub(super) fn fields(fields: &[(&str, String)]) -> String {
    let shown = fields.iter().filter(|(_, value)| !value.is_empty());
    let width = shown.clone().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines = shown.map(|(name, value)| {
        let value = plain(value).replace('\n', " ");
        format!("{name:<width$}  {value}\n")
    });
    lines.collect()
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::api::ConversationReceipt;

    fn cold() -> ResumeReceipt {
        ResumeReceipt {
            path: "cold".to_owned(),
            source: Some("local".to_owned()),
            workspace: "kept".to_owned(),
            snapshot_id: None,
            snapshot_seq: None,
            outdated: false,
            left_out: 0,
            unverified: 0,
            last_seq: 124,
            files: Some(812),
            bytes: Some(52_428_800),
            conversation: ConversationReceipt {
                native: "intact".to_owned(),
                turns: 7,
                turns_in_log: 7,
            },
            interrupted_run: None,
            duration_ms: 14.2,
        }
    }

    #[test]
    fn a_receipt_is_one_readable_line() {
        assert_eq!(
            receipt(&cold()),
            "resumed cold from local: workspace kept (812 files, 50 MB), \
             conversation intact (7 of 7 turns), 14 ms"
        );
        assert_eq!(loss(&cold()), None);
        let mended = ResumeReceipt {
            workspace: "repaired".to_owned(),
            snapshot_id: Some("01890a5d-ac96-774b-bcce-b302099a8058".to_owned()),
            unverified: 2,
            conversation: ConversationReceipt {
                native: "rebuilt".to_owned(),
                turns: 7,
                turns_in_log: 7,
            },
            ..cold()
        };
        assert_eq!(
            receipt(&mended),
            "resumed cold from local: workspace repaired (812 files, 50 MB), 2 newer files \
             unverified, conversation rebuilt (7 of 7 turns), 14 ms"
        );
        assert_eq!(loss(&mended), None);
        let warm = ResumeReceipt {
            path: "warm".to_owned(),
            source: None,
            files: None,
            bytes: None,
            conversation: ConversationReceipt {
                native: "none".to_owned(),
                turns: 0,
                turns_in_log: 0,
            },
            ..cold()
        };
        assert_eq!(receipt(&warm), "resumed warm: workspace kept, no conversation yet, 14 ms");
        let noop = ResumeReceipt { path: "noop".to_owned(), ..cold() };
        assert_eq!(receipt(&noop), "already active, nothing had to be done");
    }

    #[test]
    fn a_loss_is_said_aloud() {
        let conversation =
            ConversationReceipt { native: "lost".to_owned(), turns: 0, turns_in_log: 7 };
        let lost = ResumeReceipt { workspace: "fresh".to_owned(), conversation, ..cold() };
        assert_eq!(
            loss(&lost).unwrap(),
            "CONTEXT LOST: its workspace is a fresh copy of the agent, and earlier files are gone; \
             the agent does not remember the conversation"
        );
        let less = ResumeReceipt { outdated: true, left_out: 3, ..cold() };
        assert_eq!(
            loss(&less).unwrap(),
            "CONTEXT LOST: some files of its workspace could not be read back, and are missing; \
             its files are those of an earlier snapshot: later ones are lost"
        );
        let unknown = ResumeReceipt { unverified: 812, ..cold() };
        assert!(receipt(&unknown).contains(", 812 files unverified, "), "{}", receipt(&unknown));
    }

    #[test]
    fn sizes_ages_and_counts_are_short() {
        let sizes = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KB"),
            (52_428_800, "50 MB"),
            (1024 * 1024 - 1, "1.0 MB"),
            (u64::MAX, "16777216 TB"),
        ];
        for (size, text) in sizes {
            assert_eq!(bytes(size), text);
        }
        let ages = [(0, "0 s"), (59, "59 s"), (60, "1 min"), (7_199, "1 h"), (200_000, "2 d")];
        for (seconds, text) in ages {
            assert_eq!(age(Duration::from_secs(seconds)), text);
        }
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(number), text);
        }
        assert_eq!((things(1, "file"), things(2, "file")), ("1 file".into(), "2 files".into()));
        let now = from_rfc3339("2026-11-16T08:15:30.250Z").unwrap();
        assert_eq!(ago("2026-11-16T08:10:30.250Z", now), "5 min");
        assert_eq!(ago("soon", now), "soon");
    }

    #[test]
    fn a_table_is_aligned_and_cannot_move_the_cursor() {
        let rows = vec![vec!["a\x1b[2J".into(), "1".into()], vec!["b".into(), String::new()]];
        assert_eq!(table(&["NAME", "N"], &rows), "NAME  N\na[2J  1\nb\n");
        let wide = vec![vec!["日本".into(), "1".into()]];
        assert_eq!(table(&["A", "N"], &wide), "A     N\n日本  1\n");
        assert_eq!(
            fields(&[("id", "x".into()), ("no", String::new()), ("name", "y".into())]),
            "id    x\nname  y\n"
        );
    }
}
