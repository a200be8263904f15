//! How far long work is: one line on standard error, if that is a terminal.

use std::io::Write as _;
use std::time::{Duration, Instant};

use ash_snapshot::Progress;

use super::format::{bytes, count, things};
use super::live::TICK;
use super::output::Screen;

/// Shorter work is not worth a line.
const SHORT: Duration = Duration::from_millis(300);

/// Before this nobody knows how long the rest takes.
const EARLY: Duration = Duration::from_secs(1);

/// How wide the bar itself is, at the least and at the most.
const NARROWEST: usize = 8;
const WIDEST: usize = 30;

/// How wide a terminal is that does not say so.
const USUAL_WIDTH: usize = 80;

/// The line.
pub(super) struct Bar {
    enabled: bool,
    doing: &'static str,
    /// What is counted.
    what: &'static str,
    since: Instant,
    told: Instant,
    /// What it is to come to.
    all: (u64, u64),
    is_shown: bool,
}

impl Bar {
    /// A line about work of which `what` is counted.
    pub(super) fn new(screen: &Screen, doing: &'static str, what: &'static str) -> Self {
        let now = Instant::now();
        let (enabled, all) = (screen.live, (0, 0));
        Self { enabled, doing, what, since: now, told: now, all, is_shown: false }
    }

    /// Shows how far work is until it is done.
    pub(super) async fn during<T>(
        mut self,
        progress: impl Fn() -> Progress,
        work: impl Future<Output = T>,
    ) -> T {
        let mut work = std::pin::pin!(work);
        let mut ticks = tokio::time::interval(TICK);
        let done = loop {
            tokio::select! {
                done = &mut work => break done,
                _ = ticks.tick() => self.update(progress()),
            }
        };
        self.wipe();
        done
    }

    /// It has come so far.
    pub(super) fn update(&mut self, progress: Progress) {
        let now = Instant::now();
        let all = (progress.all_files, progress.all_bytes);
        if all != self.all {
            // Another part of the work, with a pace of its own.
            (self.all, self.since) = (all, now);
        }
        let is_due = now.duration_since(self.told) >= TICK;
        let elapsed = now.duration_since(self.since);
        if !self.enabled || !is_due || (elapsed < SHORT && !self.is_shown) {
            return;
        }
        self.told = now;
        self.is_shown = true;
        let line = line(self.doing, self.what, progress, elapsed, width());
        write(&format!("\r\x1b[2K{line}"));
    }

    /// Makes room for something else.
    pub(super) fn wipe(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            write("\r\x1b[2K");
        }
    }
}

fn write(text: &str) {
    let mut stderr = std::io::stderr().lock();
    // A line that cannot be shown is not missed.
    let _unseen = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

/// How wide the terminal is now.
fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr());
    size.map_or(USUAL_WIDTH, |size| match size.ws_col {
        0 => USUAL_WIDTH,
        columns => usize::from(columns),
    })
}

/// The line, which fits: `restoring ███████░░░ 68% 19,040 of 28,000 files, 333 MB of 490 MB, 120 MB/s, 2 s left`.
fn line(doing: &str, what: &str, progress: Progress, elapsed: Duration, width: usize) -> String {
    let Progress { files, all_files, bytes: done, all_bytes } = progress;
    let part = match (all_bytes, all_files) {
        (0, 0) => None,
        (0, all) => Some(files as f64 / all as f64),
        (all, _) => Some(done as f64 / all as f64),
    };
    let part = part.map(|part| part.clamp(0.0, 1.0));
    let seconds = elapsed.as_secs_f64().max(0.001);
    let mut words = Vec::new();
    // Of some work only the bytes are known.
    if files > 0 || all_files > 0 {
        words.push(format!("{} of {}", count(files), things(all_files, what)));
    }
    match (done, all_bytes) {
        (0, 0) if files == 0 => {}
        (0, 0) => words.push(format!("{:.0}/s", files as f64 / seconds)),
        (done, 0) => words.push(bytes(done)),
        (done, all) => words.push(format!("{} of {}", bytes(done), bytes(all))),
    }
    if done > 0 {
        words.push(format!("{}/s", bytes((done as f64 / seconds) as u64)));
    }
    if let Some(part) = part.filter(|part| *part > 0.01 && elapsed >= EARLY) {
        words.push(format!("{} left", left(seconds * (1.0 - part) / part)));
    }
    if words.is_empty() && elapsed >= EARLY {
        // Whoever does it does not say how far it is.
        words.push(format!("{} so far", left(seconds)));
    }
    let words = words.join(", ");
    // The last column stays free: what is written there begins another line in some terminals.
    let room = width.saturating_sub(1);
    let mut text = doing.to_owned();
    if let Some(part) = part {
        let percent = format!("{:>3.0}%", part * 100.0);
        let taken = doing.chars().count() + percent.len() + words.chars().count() + 3;
        let size = room.saturating_sub(taken).min(WIDEST);
        if size >= NARROWEST {
            let full = (part * size as f64).round() as usize;
            text = format!("{text} {}{}", "█".repeat(full), "░".repeat(size - full));
        }
        text = format!("{text} {percent}");
    }
    format!("{text} {words}").trim_end().chars().take(room).collect()
}

/// How long, in words.
fn left(seconds: f64) -> String {
    match seconds.round() as u64 {
        seconds @ 0..=99 => format!("{seconds} s"),
        seconds @ 100..=5_999 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

#[cfg(test)]
mod test {
    use proptest::prelude::*;

    use super::*;

    const MB: u64 = 1024 * 1024;

    #[test]
    fn it_says_how_much_of_what_is_done_how_fast_and_how_long_it_takes() {
        let progress =
            Progress { files: 7, all_files: 28_000, bytes: 100 * MB, all_bytes: 400 * MB };
        let shown = line("restoring", "file", progress, Duration::from_secs(2), 110);
        let expected = "restoring ████████░░░░░░░░░░░░░░░░░░░░░░  25% \
                        7 of 28,000 files, 100 MB of 400 MB, 50 MB/s, 6 s left";
        assert_eq!(shown, expected);
        let narrow = line("restoring", "file", progress, Duration::from_secs(2), 60);
        assert_eq!(narrow, "restoring  25% 7 of 28,000 files, 100 MB of 400 MB, 50 MB/s");
        let counted = Progress { files: 30, all_files: 60, ..Progress::default() };
        let shown = line("collecting", "step", counted, Duration::from_millis(500), 50);
        assert_eq!(shown, "collecting ██████░░░░░░  50% 30 of 60 steps, 60/s");
        let sent = Progress { bytes: 3 * MB, ..Progress::default() };
        assert_eq!(
            line("exporting", "", sent, Duration::from_secs(2), 50),
            "exporting 3.0 MB, 1.5 MB/s"
        );
        let unknown =
            |millis| line("exporting", "", Progress::default(), Duration::from_millis(millis), 50);
        assert_eq!(
            (unknown(500), unknown(4_000)),
            ("exporting".into(), "exporting 4 s so far".into())
        );
    }

    proptest! {
        #[test]
        fn it_always_fits(
            files: u64, all_files: u64, bytes: u64, all_bytes: u64,
            millis in 0_u64..1_000_000_000, width in 0_usize..300,
        ) {
            let progress = Progress { files, all_files, bytes, all_bytes };
            let shown = line("capturing", "file", progress, Duration::from_millis(millis), width);
            prop_assert!(shown.chars().count() <= width.saturating_sub(1), "{shown}");
        }
    }
}
