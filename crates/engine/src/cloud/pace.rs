//! A store that is asked no faster than somebody said.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ash_snapshot::objects::{Listed, NewObject, Objects, Put, Signs};

/// How many bytes pass at once: who has little to send waits for so much of everybody else, and not for all of it.
const SLICE: usize = 64 * 1024;

/// So many bytes in a second, for all who share it.
pub(super) struct Pace {
    bytes_per_second: f64,
    line: Mutex<Line>,
    /// Nobody reads any more.
    free: Condvar,
    /// Where it is said that something passes: who waits for the line does not wait for the cloud.
    signs: Signs,
}

struct Line {
    /// When what was let through so far is through.
    next: Instant,
    /// How many wait to read.
    readers: usize,
}

/// Whether bytes come or go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Read,
    Write,
}

impl Pace {
    #[expect(clippy::cast_precision_loss, reason = "nobody has a line as fast as that matters")]
    pub(super) fn new(bytes_per_second: u64, signs: Signs) -> Self {
        let bytes_per_second = bytes_per_second.max(1) as f64;
        let line = Mutex::new(Line { next: Instant::now(), readers: 0 });
        Self { bytes_per_second, line, free: Condvar::new(), signs }
    }

    /// Waits until as many bytes may pass: in slices, in turn with all others. Somebody waits for what is read, so
    /// it goes before what is written.
    fn pass(&self, way: Way, bytes: usize) {
        if way == Way::Read {
            self.line().readers += 1;
        }
        let mut left = bytes;
        while left > 0 {
            let slice = left.min(SLICE);
            let begins = self.begin(way, slice);
            std::thread::sleep(begins.saturating_duration_since(Instant::now()));
            self.signs.add();
            left -= slice;
        }
        if way == Way::Read {
            self.line().readers -= 1;
            self.free.notify_all();
        }
    }

    /// When a slice may pass, which takes its time from all after it.
    #[expect(clippy::cast_precision_loss, reason = "slices are small")]
    fn begin(&self, way: Way, bytes: usize) -> Instant {
        let takes = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second);
        let mut line = self.line();
        if way == Way::Write {
            let busy = |line: &mut Line| line.readers > 0;
            line = self.free.wait_while(line, busy).unwrap_or_else(PoisonError::into_inner);
        }
        let begins = line.next.max(Instant::now());
        line.next = begins + takes;
        begins
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Objects at a pace.
pub(super) struct Paced {
    below: Box<dyn Objects>,
    pace: Arc<Pace>,
}

impl Paced {
    pub(super) fn new(below: Box<dyn Objects>, pace: Arc<Pace>) -> Self {
        Self { below, pace }
    }

    fn read<T>(&self, read: io::Result<T>, length: impl Fn(&T) -> usize) -> io::Result<T> {
        let read = read?;
        // What has come cannot be held back: what comes next is.
        self.pace.pass(Way::Read, length(&read));
        Ok(read)
    }
}

impl Objects for Paced {
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<Put> {
        self.pace.pass(Way::Write, bytes.len());
        self.below.put(name, bytes)
    }

    fn begin(&self) -> io::Result<Box<dyn NewObject + '_>> {
        Ok(Box::new(PacedNew { below: self.below.begin()?, pace: &self.pace, bytes: 0 }))
    }

    fn get(&self, name: &str, most: u64) -> io::Result<Vec<u8>> {
        self.read(self.below.get(name, most), Vec::len)
    }

    fn get_range(&self, name: &str, offset: u64, length: u64) -> io::Result<Vec<u8>> {
        self.read(self.below.get_range(name, offset, length), Vec::len)
    }

    fn get_end(&self, name: &str, length: u64) -> io::Result<(Vec<u8>, u64)> {
        self.read(self.below.get_end(name, length), |(bytes, _)| bytes.len())
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<Listed>> {
        self.below.list(prefix)
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.below.delete(name)
    }

    fn clear(&self, age: Duration) -> io::Result<()> {
        self.below.clear(age)
    }

    fn max_object(&self) -> u64 {
        self.below.max_object()
    }

    fn to_probe(&self) -> Option<&dyn Objects> {
        self.below.to_probe()
    }

    fn past_cache(&self) -> Option<&dyn Objects> {
        self.below.past_cache()
    }

    fn refuse(&self, name: &str) -> bool {
        self.below.refuse(name)
    }
}

struct PacedNew<'a> {
    below: Box<dyn NewObject + 'a>,
    pace: &'a Pace,
    bytes: usize,
}

impl NewObject for PacedNew<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.bytes += bytes.len();
        self.below.write(bytes)
    }

    fn finish(self: Box<Self>, name: &str) -> io::Result<Put> {
        // It is sent when it is whole.
        self.pace.pass(Way::Write, self.bytes);
        self.below.finish(name)
    }
}

#[cfg(test)]
mod test {
    use ash_snapshot::objects::MemoryObjects;

    use super::*;

    #[test]
    fn each_one_waits_for_all_before_it() {
        let pace = Arc::new(Pace::new(1_000_000, Signs::default()));
        let paced = Paced::new(Box::new(MemoryObjects::default()), Arc::clone(&pace));
        let begin = Instant::now();
        for name in ["a", "b", "c"] {
            paced.put(name, &[0; 20_000]).unwrap();
        }
        // The third one goes when two have had their time, whatever else this machine does.
        assert!(begin.elapsed() >= Duration::from_millis(39));
        let next = pace.line().next;
        assert!(next >= begin + Duration::from_millis(60));
        assert_eq!(paced.get("b", 20_000).unwrap().len(), 20_000);
    }

    #[test]
    fn a_short_one_does_not_wait_for_the_whole_of_a_long_one() {
        // A long one of which each slice takes a minute has its first: the short one comes after that slice, and not
        // after all of them.
        let pace = Pace::new(SLICE as u64 / 60, Signs::default());
        let begun = Instant::now();
        let _first = pace.begin(Way::Write, SLICE);
        let short = pace.begin(Way::Write, 1);
        assert!(short.duration_since(begun) < Duration::from_secs(62));
        assert!(short.duration_since(begun) > Duration::from_secs(58));
    }

    #[test]
    fn what_is_read_goes_before_what_is_written() {
        let pace = Arc::new(Pace::new(u64::MAX, Signs::default()));
        pace.line().readers = 1;
        let writer = {
            let pace = Arc::clone(&pace);
            std::thread::spawn(move || pace.pass(Way::Write, 1))
        };
        // A reader passes though somebody reads; who writes is let go by the last of them.
        pace.pass(Way::Read, 1);
        assert_eq!(pace.line().readers, 1);
        assert!(!writer.is_finished());
        pace.line().readers = 0;
        pace.free.notify_all();
        writer.join().unwrap();
    }
}
