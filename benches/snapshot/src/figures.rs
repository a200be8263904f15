//! How figures are printed.

use std::time::Duration;

/// How long something took, each time.
#[derive(Default)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) took: Vec<Duration>,
}

impl Row {
    pub(crate) fn named(name: &'static str) -> Self {
        Self { name, took: Vec::new() }
    }

    pub(crate) fn p50(&self) -> Duration {
        let mut sorted = self.took.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or_default()
    }

    fn worst(&self) -> Duration {
        self.took.iter().max().copied().unwrap_or_default()
    }
}

/// Prints rows, each with its ratio to the first.
pub(crate) fn print(what: &str, rows: &[&Row]) {
    let Some(first) = rows.first().map(|row| row.p50().as_secs_f64()) else { return };
    println!("{what}");
    for row in rows.iter().filter(|row| !row.took.is_empty()) {
        println!(
            "  {:<28} p50 {:>9.1} ms   worst {:>9.1} ms   n {:<3} {:>7.2}x",
            row.name,
            milliseconds(row.p50()),
            milliseconds(row.worst()),
            row.took.len(),
            row.p50().as_secs_f64() / first.max(f64::EPSILON),
        );
    }
}

pub(crate) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

pub(crate) fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

pub(crate) fn heading(text: &str) {
    println!("\n{text}\n{}", "-".repeat(text.len()));
}
