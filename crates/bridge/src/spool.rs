//! What was reported and is not on the server's disk yet: a file, and little else.
//!
//! A report is appended once and read from there by whoever is connected, so nothing queues up in
//! memory. What is acknowledged becomes a hole in the file. Offsets only grow; where a position
//! stands is known roughly (`MARK_BYTES`) and found by reading on from there.
//!
//! The file is not synced: an event is durable once the server has committed it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::rc::Rc;

use ash_protocol::{Event, HEADING_BYTES, Heading, MAX_FRAME_BYTES};
use rustix::fs::{FallocateFlags, fallocate};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::to_raw_value;
use tokio::sync::Notify;

/// How much may wait to be acknowledged. Beyond it, the agent stands still.
const MAX_UNACKNOWLEDGED_BYTES: u64 = 256 * 1024 * 1024;

/// How far apart the places are that are known by their position.
const MARK_BYTES: u64 = 64 * 1024;

/// How much is read at once, unless one report is longer.
const CHUNK_BYTES: usize = 64 * 1024;

/// The longest line: with what is put around it, a frame.
const MAX_LINE_BYTES: usize = MAX_FRAME_BYTES - 1024;

/// Reports in a file. Cheap to clone; all clones are the same spool.
#[derive(Clone)]
pub struct Spool(Rc<Shared>);

struct Shared {
    file: File,
    bound: u64,
    state: RefCell<State>,
    /// Something was appended.
    appended: Notify,
    /// Something was acknowledged.
    acknowledged: Notify,
}

struct State {
    /// Where the next report goes.
    end: u64,
    /// The last position.
    last: u64,
    /// The last position that the server has.
    acknowledged: u64,
    /// Everything before is a hole.
    hole: u64,
    /// Where some positions begin, in order, from the hole on.
    marks: VecDeque<Mark>,
}

#[derive(Clone, Copy)]
struct Mark {
    position: u64,
    offset: u64,
}

impl Spool {
    /// Takes a file for its own.
    pub fn open(file: File, heading: &Heading) -> io::Result<Self> {
        Self::with_bound(file, heading, MAX_UNACKNOWLEDGED_BYTES)
    }

    /// The same with a bound of its own, for tests.
    pub fn with_bound(file: File, heading: &Heading, bound: u64) -> io::Result<Self> {
        let heading = heading.encode().map_err(io::Error::other)?;
        file.write_all_at(&heading, 0)?;
        let begin = HEADING_BYTES as u64;
        let state =
            State { end: begin, last: 0, acknowledged: 0, hole: begin, marks: VecDeque::new() };
        Ok(Self(Rc::new(Shared {
            file,
            bound,
            state: RefCell::new(state),
            appended: Notify::new(),
            acknowledged: Notify::new(),
        })))
    }

    /// The last position.
    pub fn last(&self) -> u64 {
        self.0.state.borrow().last
    }

    /// Whether nothing more is taken until something is acknowledged.
    pub fn is_full(&self) -> bool {
        self.0.state.borrow().unacknowledged_bytes() >= self.0.bound
    }

    /// Appends a report. Waits while too much is not acknowledged.
    pub async fn append(&self, run: &str, event: &Event) -> io::Result<()> {
        loop {
            // Registered before the look, so that an acknowledgement in between is not missed.
            let room = self.0.acknowledged.notified();
            if !self.is_full() {
                break;
            }
            room.await;
        }
        let mut state = self.0.state.borrow_mut();
        let position = state.last + 1;
        let mut line = line_of(position, run, event)?;
        if line.len() > MAX_LINE_BYTES {
            let body = to_raw_value(&TooLarge { bytes: line.len() })?;
            let name = "report_too_large".to_owned();
            line = line_of(position, run, &Event::Output { name, body })?;
        }
        let offset = state.end;
        self.0.file.write_all_at(&line, offset)?;
        state.end += line.len() as u64;
        state.last = position;
        if state.marks.back().is_none_or(|mark| offset - mark.offset >= MARK_BYTES) {
            state.marks.push_back(Mark { position, offset });
        }
        drop(state);
        self.0.appended.notify_waiters();
        Ok(())
    }

    /// Forgets reports through a position.
    pub fn acknowledge(&self, through: u64) {
        let mut state = self.0.state.borrow_mut();
        let through = through.min(state.last);
        if through <= state.acknowledged {
            return;
        }
        state.acknowledged = through;
        if through == state.last {
            state.marks.clear();
        }
        while state.marks.get(1).is_some_and(|mark| mark.position <= through + 1) {
            state.marks.pop_front();
        }
        let (from, to) = (state.hole, state.marks.front().map_or(state.end, |mark| mark.offset));
        // Small holes free nothing: whole blocks are given back.
        if to - from >= MARK_BYTES {
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // A file system that cannot do this keeps the bytes until the sandbox ends.
            let _unsupported = fallocate(&self.0.file, punch, from, to - from);
            state.hole = to;
        }
        drop(state);
        self.0.acknowledged.notify_waiters();
    }

    /// Reads everything after a position, and then on.
    pub fn read_after(&self, after: u64) -> Reader {
        let state = self.0.state.borrow();
        // Who claims to have more than there is has it from somewhere else.
        let after = after.min(state.last).max(state.acknowledged);
        let mark = state.marks.iter().rev().find(|mark| mark.position <= after + 1);
        let offset = mark.map_or(state.end, |mark| mark.offset);
        let skip_through = if mark.is_some() { after } else { 0 };
        Reader { spool: self.clone(), offset, skip_through, chunk: Vec::new() }
    }
}

impl State {
    fn unacknowledged_bytes(&self) -> u64 {
        self.end - self.marks.front().map_or(self.end, |mark| mark.offset)
    }
}

/// Reads a spool as it grows.
pub struct Reader {
    spool: Spool,
    offset: u64,
    /// Lines through this position are passed over.
    skip_through: u64,
    chunk: Vec<u8>,
}

impl Reader {
    /// The next lines: at least one, each with its end. Waits for them. Nothing is lost if the
    /// wait is given up.
    pub async fn next(&mut self) -> io::Result<&[u8]> {
        loop {
            loop {
                let spool = self.spool.clone();
                let more = spool.0.appended.notified();
                if self.offset < spool.0.state.borrow().end {
                    break;
                }
                more.await;
            }
            let from = self.read_lines()?;
            if from < self.chunk.len() {
                return Ok(&self.chunk[from..]);
            }
        }
    }

    /// Reads whole lines, and says where in them those begin that were asked for.
    fn read_lines(&mut self) -> io::Result<usize> {
        let end = self.spool.0.state.borrow().end;
        let mut size = CHUNK_BYTES;
        loop {
            let available = usize::try_from(end - self.offset).unwrap_or(usize::MAX);
            self.chunk.resize(size.min(available), 0);
            self.spool.0.file.read_exact_at(&mut self.chunk, self.offset)?;
            if let Some(last) = self.chunk.iter().rposition(|&byte| byte == b'\n') {
                self.chunk.truncate(last + 1);
                break;
            }
            size *= 2; // A report is always whole, so this ends.
        }
        self.chunk.shrink_to(2 * CHUNK_BYTES);
        self.offset += self.chunk.len() as u64;
        let mut from = 0;
        while self.skip_through > 0 && from < self.chunk.len() {
            let line = self.chunk[from..].split(|&byte| byte == b'\n').next().unwrap_or_default();
            if position_of(line)? > self.skip_through {
                self.skip_through = 0;
            } else {
                from += line.len() + 1;
            }
        }
        Ok(from)
    }
}

fn line_of(position: u64, run: &str, event: &Event) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(&event.numbered(position, run)?)?;
    for byte in &mut line {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' '; // Layout between tokens; inside a string they are escaped.
        }
    }
    line.push(b'\n');
    Ok(line)
}

/// Stands in for a report that no frame could carry.
#[derive(Serialize)]
struct TooLarge {
    bytes: usize,
}

fn position_of(line: &[u8]) -> io::Result<u64> {
    #[derive(Deserialize)]
    struct Positioned {
        position: u64,
        #[serde(flatten)]
        _rest: IgnoredAny,
    }
    Ok(serde_json::from_slice::<Positioned>(line).map_err(io::Error::other)?.position)
}

#[cfg(test)]
mod test {
    use std::os::unix::fs::MetadataExt as _;

    use ash_protocol::Reported;
    use proptest::prelude::*;

    use super::*;

    fn spool(bound: u64) -> (Spool, File) {
        let file = tempfile::tempfile().unwrap();
        let heading = Heading { release: "test".to_owned(), pid: 1 };
        (Spool::with_bound(file.try_clone().unwrap(), &heading, bound).unwrap(), file)
    }

    fn block_on<F: Future>(future: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    /// The positions of everything that can be read without waiting.
    async fn positions(reader: &mut Reader) -> Vec<u64> {
        let mut found = Vec::new();
        loop {
            tokio::select! {
                biased;
                lines = reader.next() => for line in lines.unwrap().split(|&b| b == b'\n') {
                    if !line.is_empty() {
                        found.push(serde_json::from_slice::<Reported>(line).unwrap().position);
                    }
                },
                () = std::future::ready(()) => return found,
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// Whatever was acknowledged and whoever connects again: everything after is there, once,
        /// in order.
        #[test]
        fn a_reader_sees_all_that_is_not_acknowledged(
            // Large ones have a mark each, of small ones many share one.
            sizes in prop::collection::vec(prop_oneof![0_usize..40_000, 65_536_usize..70_000], 1..20),
            acks in prop::collection::vec((0_usize..20, 0_u64..25), 0..20),
            after in 0_u64..25,
        ) {
            block_on(async {
                let (spool, _file) = spool(u64::MAX);
                let mut acked = 0;
                for (index, size) in sizes.iter().enumerate() {
                    spool.append("r", &Event::TextDelta("x".repeat(*size))).await.unwrap();
                    for (at, through) in &acks {
                        if *at == index {
                            spool.acknowledge(*through);
                            acked = acked.max((*through).min(spool.last()));
                        }
                    }
                }
                let from = after.max(acked);
                let expected: Vec<u64> = (from + 1..=sizes.len() as u64).collect();
                assert_eq!(positions(&mut spool.read_after(after)).await, expected);
            });
        }
    }

    #[test]
    fn a_full_spool_holds_the_agent_until_something_is_acknowledged() {
        block_on(async {
            let (spool, _file) = spool(1000);
            let event = Event::TextDelta("x".repeat(600));
            spool.append("r", &event).await.unwrap();
            spool.append("r", &event).await.unwrap();
            let mut third = Box::pin(spool.append("r", &event));
            assert!(futures_pending(&mut third).await, "more was taken than the bound allows");
            spool.acknowledge(2);
            third.await.unwrap();
            assert_eq!(spool.last(), 3);
        });
    }

    async fn futures_pending<F: Future + Unpin>(future: &mut F) -> bool {
        tokio::select! {
            biased;
            _ = future => false,
            () = tokio::task::yield_now() => true,
        }
    }

    #[test]
    fn what_is_acknowledged_is_given_back_to_the_disk() {
        block_on(async {
            let (spool, file) = spool(u64::MAX);
            let event = Event::TextDelta("x".repeat(10_000));
            for _ in 0..400 {
                spool.append("r", &event).await.unwrap();
            }
            let before = file.metadata().unwrap().blocks();
            spool.acknowledge(400);
            let after = file.metadata().unwrap().blocks();
            assert!(after < before / 10, "{before} blocks became {after}");
            let mut heading = vec![0; HEADING_BYTES];
            file.read_exact_at(&mut heading, 0).unwrap();
            assert!(Heading::decode(&heading).unwrap().is_some(), "the heading stays");
        });
    }
}
