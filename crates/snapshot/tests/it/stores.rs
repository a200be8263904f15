//! Stores that several share, and that are slow or fail.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ash_snapshot::objects::{Listed, NewObject, Objects, Put};

/// What is asked of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Put,
    Begin,
    Write,
    Finish,
    Get,
    List,
    Delete,
}

/// What becomes of a call.
#[derive(Debug)]
pub(crate) enum Answer {
    /// What the store below says.
    Right,
    /// It fails, and nothing was done.
    Fail(io::Error),
    /// It is done, and fails all the same.
    DoneButFail(io::Error),
    /// It is done, and the process dies before anybody knows.
    DoneThenStop,
    /// What is read is shorter than it is.
    Short,
    /// What is read has other bytes.
    Wrong,
    /// What is written is stored with other bytes.
    Miswritten,
}

impl Answer {
    fn done<T>(self, done: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        match self {
            Self::Fail(error) => Err(error),
            Self::DoneButFail(error) => done().and(Err(error)),
            Self::DoneThenStop => {
                drop(done());
                std::process::abort()
            }
            Self::Right | Self::Short | Self::Wrong | Self::Miswritten => done(),
        }
    }
}

/// A store that many share, and that something decides about before every call.
pub(crate) struct Odd {
    below: Arc<dyn Objects>,
    decide: Box<Decide>,
}

/// Decides about a call by what it is and the name in it.
type Decide = dyn Fn(Call, &str) -> Answer + Send + Sync;

impl Odd {
    pub(crate) fn new(
        below: &Arc<dyn Objects>,
        decide: impl Fn(Call, &str) -> Answer + Send + Sync + 'static,
    ) -> Box<Self> {
        Box::new(Self { below: Arc::clone(below), decide: Box::new(decide) })
    }

    /// One that only many share.
    pub(crate) fn shared(below: &Arc<dyn Objects>) -> Box<Self> {
        Self::new(below, |_, _| Answer::Right)
    }

    fn done<T>(
        &self,
        call: Call,
        name: &str,
        done: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        (self.decide)(call, name).done(done)
    }

    fn read(&self, name: &str, read: impl FnOnce() -> io::Result<Vec<u8>>) -> io::Result<Vec<u8>> {
        match (self.decide)(Call::Get, name) {
            Answer::Fail(error) | Answer::DoneButFail(error) => Err(error),
            Answer::Right | Answer::Miswritten => read(),
            Answer::DoneThenStop => std::process::abort(),
            Answer::Short => read().map(|mut bytes| {
                bytes.truncate(bytes.len() / 2);
                bytes
            }),
            Answer::Wrong => read().map(|mut bytes| {
                let middle = bytes.len() / 2;
                bytes.iter_mut().skip(middle).take(1).for_each(|byte| *byte ^= 4);
                bytes
            }),
        }
    }
}

impl Objects for Odd {
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<Put> {
        self.done(Call::Put, name, || self.below.put(name, bytes))
    }

    fn begin(&self) -> io::Result<Box<dyn NewObject + '_>> {
        let below = self.done(Call::Begin, "", || self.below.begin())?;
        Ok(Box::new(OddNew { odd: self, below }))
    }

    fn get(&self, name: &str, most: u64) -> io::Result<Vec<u8>> {
        self.read(name, || self.below.get(name, most))
    }

    fn get_range(&self, name: &str, offset: u64, length: u64) -> io::Result<Vec<u8>> {
        self.read(name, || self.below.get_range(name, offset, length))
    }

    fn get_end(&self, name: &str, length: u64) -> io::Result<(Vec<u8>, u64)> {
        let mut size = 0;
        let bytes = self.read(name, || {
            let (bytes, whole) = self.below.get_end(name, length)?;
            size = whole;
            Ok(bytes)
        })?;
        Ok((bytes, size))
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<Listed>> {
        self.done(Call::List, prefix, || self.below.list(prefix))
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.done(Call::Delete, name, || self.below.delete(name))
    }

    fn clear(&self, age: Duration) -> io::Result<()> {
        self.below.clear(age)
    }
}

struct OddNew<'a> {
    odd: &'a Odd,
    below: Box<dyn NewObject + 'a>,
}

impl NewObject for OddNew<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Self { odd, below } = self;
        match (odd.decide)(Call::Write, "") {
            Answer::Miswritten => {
                let mut bytes = bytes.to_vec();
                let middle = bytes.len() / 2;
                bytes.iter_mut().skip(middle).take(1).for_each(|byte| *byte ^= 4);
                below.write(&bytes)
            }
            answer @ (Answer::Right
            | Answer::Fail(_)
            | Answer::DoneButFail(_)
            | Answer::DoneThenStop
            | Answer::Short
            | Answer::Wrong) => answer.done(|| below.write(bytes)),
        }
    }

    fn finish(self: Box<Self>, name: &str) -> io::Result<Put> {
        let Self { odd, below } = *self;
        odd.done(Call::Finish, name, || below.finish(name))
    }
}
