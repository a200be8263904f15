//! How figures are taken and printed.

use std::time::Duration;

/// How long a number of repetitions took, each.
pub(crate) struct Figures {
    sorted: Vec<Duration>,
    total: Duration,
}

impl Figures {
    /// `total` is how long all of them took together, which is less than their sum if they ran
    /// at the same time.
    pub(crate) fn new(mut each: Vec<Duration>, total: Duration) -> Self {
        each.sort_unstable();
        Self { sorted: each, total }
    }

    /// Of what never ran at the same time.
    pub(crate) fn one_by_one(each: Vec<Duration>) -> Self {
        let total = each.iter().sum();
        Self::new(each, total)
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.sorted.len() as f64 / self.total.as_secs_f64()
    }

    pub(crate) fn least(&self) -> Duration {
        self.percentile(0)
    }

    pub(crate) fn p50(&self) -> Duration {
        self.percentile(50)
    }

    pub(crate) fn p99(&self) -> Duration {
        self.percentile(99)
    }

    pub(crate) fn worst(&self) -> Duration {
        self.percentile(100)
    }

    fn percentile(&self, percent: usize) -> Duration {
        let last = self.sorted.len().saturating_sub(1);
        self.sorted.get(last * percent / 100).copied().unwrap_or_default()
    }

    pub(crate) fn print(&self, what: &str) {
        println!(
            "{what:<52} {:>9.0}/s   p50 {:>9}   p99 {:>9}   n {}",
            self.per_second(),
            millis(self.p50()),
            millis(self.p99()),
            self.sorted.len(),
        );
    }

    /// For what is compared by its minimum too.
    pub(crate) fn print_least(&self, what: &str) {
        println!(
            "{what:<52} least {:>10}   p50 {:>10}   p99 {:>10}   n {}",
            millis(self.least()),
            millis(self.p50()),
            millis(self.p99()),
            self.sorted.len(),
        );
    }
}

pub(crate) fn millis(duration: Duration) -> String {
    format!("{:.3} ms", duration.as_secs_f64() * 1_000.0)
}

pub(crate) fn heading(text: &str) {
    println!("\n{text}\n{}", "-".repeat(text.len()));
}
