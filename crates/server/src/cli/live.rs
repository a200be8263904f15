//! One line on standard error that tells what goes on, while there is nothing else to see.

use std::io::Write as _;
use std::time::Duration;

use tokio::time::Instant;

use super::output::Screen;

/// How often it moves.
pub(super) const TICK: Duration = Duration::from_millis(100);

/// Shorter waits are not worth a line.
const SHORT: Duration = Duration::from_millis(300);

const FRAMES: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// The live line.
#[derive(Debug)]
pub(super) struct Live {
    enabled: bool,
    label: String,
    since: Instant,
    frame: usize,
    is_shown: bool,
}

impl Live {
    /// A line that is not shown yet. On a screen that has no room for it, it never is.
    pub(super) fn new(screen: &Screen, label: &str) -> Self {
        let label = label.to_owned();
        Self { enabled: screen.live, label, since: Instant::now(), frame: 0, is_shown: false }
    }

    /// Something else goes on now.
    pub(super) fn say(&mut self, label: &str) {
        if self.label != label {
            label.clone_into(&mut self.label);
            self.since = Instant::now();
        }
    }

    /// The same goes on, and has come further.
    pub(super) fn go_on(&mut self, label: &str) {
        label.clone_into(&mut self.label);
    }

    /// Moves on.
    pub(super) fn tick(&mut self) {
        let waited = self.since.elapsed();
        if !self.enabled || waited < SHORT {
            return;
        }
        self.frame = (self.frame + 1) % FRAMES.len();
        let (frame, seconds) = (FRAMES[self.frame], waited.as_secs());
        self.write(&format!("\r\x1b[2K{frame} {} {seconds}s", self.label));
        self.is_shown = true;
    }

    /// Makes room for output.
    pub(super) fn wipe(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            self.write("\r\x1b[2K");
        }
    }

    /// Shows the line until something is done.
    pub(super) async fn during<T>(mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        let mut ticks = tokio::time::interval(TICK);
        let done = loop {
            tokio::select! {
                done = &mut work => break done,
                _ = ticks.tick() => self.tick(),
            }
        };
        self.wipe();
        done
    }

    fn write(&self, text: &str) {
        let mut stderr = std::io::stderr().lock();
        // A line that cannot be shown is not missed.
        let _unseen = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
    }
}
