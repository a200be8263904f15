//! A cloud that hangs: it was asked, and nothing comes.
//!
//! What is waited for is the next sign that it is there: an answer, a part of one, a slice of what may pass. So a slow
//! line is no silence, however long everything takes. What others ask and are answered is none of it.

use std::io;
use std::time::Duration;

use ash_snapshot::objects::{Listed, NewObject, Objects, Put, Signs};
use tokio::time::Instant;

/// How long nothing may come before whoever waits for it is told.
const LONGEST: Duration = Duration::from_secs(8);

/// How often that is looked at.
const EVERY: Duration = Duration::from_millis(250);

/// Resolves when nothing has come for too long though something was asked for.
pub(crate) async fn is_too_long(signs: &Signs) {
    let (mut heard, mut since) = (signs.count(), Instant::now());
    loop {
        tokio::time::sleep(EVERY).await;
        let now = signs.count();
        if now != heard || !signs.is_awaited() {
            (heard, since) = (now, Instant::now());
        } else if since.elapsed() >= LONGEST {
            return;
        }
    }
}

/// Objects that are listened to.
pub(super) fn over(below: Box<dyn Objects>, signs: &Signs) -> Box<dyn Objects> {
    Box::new(Heard { below, signs: signs.clone() })
}

/// Objects that are listened to.
struct Heard {
    below: Box<dyn Objects>,
    signs: Signs,
}

impl Objects for Heard {
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<Put> {
        let _asked = self.signs.ask();
        self.below.put(name, bytes)
    }

    fn begin(&self) -> io::Result<Box<dyn NewObject + '_>> {
        let below = self.below.begin()?;
        Ok(Box::new(HeardNew { below, signs: &self.signs }))
    }

    fn get(&self, name: &str, most: u64) -> io::Result<Vec<u8>> {
        let _asked = self.signs.ask();
        self.below.get(name, most)
    }

    fn get_range(&self, name: &str, offset: u64, length: u64) -> io::Result<Vec<u8>> {
        let _asked = self.signs.ask();
        self.below.get_range(name, offset, length)
    }

    fn get_end(&self, name: &str, length: u64) -> io::Result<(Vec<u8>, u64)> {
        let _asked = self.signs.ask();
        self.below.get_end(name, length)
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<Listed>> {
        let _asked = self.signs.ask();
        self.below.list(prefix)
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        let _asked = self.signs.ask();
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

struct HeardNew<'a> {
    below: Box<dyn NewObject + 'a>,
    signs: &'a Signs,
}

impl NewObject for HeardNew<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.below.write(bytes)
    }

    fn finish(self: Box<Self>, name: &str) -> io::Result<Put> {
        let _asked = self.signs.ask();
        self.below.finish(name)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_who_was_asked_and_says_nothing_is_silent() {
        let signs = Signs::default();
        let minutes = Duration::from_secs(600);
        let mut waited = Box::pin(is_too_long(&signs));
        assert!(tokio::time::timeout(minutes, &mut waited).await.is_err(), "nothing was asked");
        let asked = signs.ask();
        for _ in 0..100 {
            // A part comes every now and then: it is slow, and there.
            assert!(tokio::time::timeout(LONGEST / 2, &mut waited).await.is_err());
            signs.add();
        }
        let begun = Instant::now();
        waited.await;
        assert!(begun.elapsed() >= LONGEST / 2 && begun.elapsed() < LONGEST * 2);
        drop(asked);
        assert!(tokio::time::timeout(minutes, is_too_long(&signs)).await.is_err());
    }
}
