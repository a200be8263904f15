//! A store that is asked no faster than somebody said.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ash_snapshot::objects::{Listed, NewObject, Objects, Put};

/// So many bytes in a second, for all who share it.
pub(super) struct Pace {
    bytes_per_second: f64,
    /// When what was let through so far is through.
    next: Mutex<Instant>,
}

impl Pace {
    #[expect(clippy::cast_precision_loss, reason = "nobody has a line as fast as that matters")]
    pub(super) fn new(bytes_per_second: u64) -> Self {
        let bytes_per_second = bytes_per_second.max(1) as f64;
        Self { bytes_per_second, next: Mutex::new(Instant::now()) }
    }

    /// Waits until as many bytes may pass. Those that come first go first, each after all before it.
    #[expect(clippy::cast_precision_loss, reason = "objects are small")]
    fn pass(&self, bytes: usize) {
        let takes = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second);
        let begins = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let begins = (*next).max(Instant::now());
            *next = begins + takes;
            begins
        };
        std::thread::sleep(begins.saturating_duration_since(Instant::now()));
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
        self.pace.pass(length(&read));
        Ok(read)
    }
}

impl Objects for Paced {
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<Put> {
        self.pace.pass(bytes.len());
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
        self.pace.pass(self.bytes);
        self.below.finish(name)
    }
}

#[cfg(test)]
mod test {
    use ash_snapshot::objects::MemoryObjects;

    use super::*;

    #[test]
    fn each_one_waits_for_all_before_it() {
        let pace = Arc::new(Pace::new(1_000_000));
        let paced = Paced::new(Box::new(MemoryObjects::default()), Arc::clone(&pace));
        let begin = Instant::now();
        for name in ["a", "b", "c"] {
            paced.put(name, &[0; 20_000]).unwrap();
        }
        // The third one goes when two have had their time, whatever else this machine does.
        assert!(begin.elapsed() >= Duration::from_millis(39));
        let next = *pace.next.lock().unwrap();
        assert!(next >= begin + Duration::from_millis(60));
        assert_eq!(paced.get("b", 20_000).unwrap().len(), 20_000);
    }
}
