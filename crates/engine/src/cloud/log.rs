//! The log of a session in the cloud: few parts, however often it grows.

use std::collections::BTreeMap;
use std::sync::Arc;

use ash_core::id::SessionId;
use ash_core::number::Seq;
use ash_core::session::LogEntry;
use ash_store::{Store, StoredSession};

use super::blocking;
use super::error::CloudError;
use super::place::Shelf;
use super::set::{Head, MAX_LOG, SEGMENT_BYTES, Segment, digest_of, line, place_of};

/// How many entries are read at once.
const PAGE: u32 = 1_000;

/// A log that is there.
pub(super) struct PutLog {
    pub(super) segments: Vec<Segment>,
    /// The digest of its last entry.
    pub(super) end: Option<String>,
}

/// Adds what the log has more than an earlier set of this server. Parts that are no longer than what comes after
/// them are put again with it, so that there are few; and all of it from the first part on that is not there any
/// more, or is of another history.
pub(super) async fn bring_up(
    store: &dyn Store,
    shelf: &Arc<Shelf>,
    stored: &StoredSession,
    earlier: Option<&Head>,
) -> Result<PutLog, CloudError> {
    let session = stored.session.id();
    let (epoch, end) = (stored.session.log_epoch(), stored.session.last_seq());
    let mut segments = match earlier {
        Some(earlier) if continues(store, session, end, earlier).await? => {
            let (shelf, segments) = (Arc::clone(shelf), earlier.log.clone());
            blocking(move || still_there(&shelf, session, segments)).await?
        }
        // The first version said less of its end.
        Some(Head { end: None, .. }) | None => Vec::new(),
        Some(earlier) => {
            tracing::warn!(
                session.id = %session,
                "what is in the cloud of session {session} up to entry {} is of another history than here: all of \
                 it is copied again", earlier.seq,
            );
            Vec::new()
        }
    };
    let mut after = keep_few(&mut segments, end);
    let mut bytes: u64 = segments.iter().map(|segment| segment.part.bytes).sum();
    let mut open = OpenSegment::default();
    let mut last_line = None;
    let stem = format!("{}log/{:010}", place_of(session), epoch.get());
    while after < end {
        let entries = store.events_after(session, after, PAGE).await?;
        let entries: Vec<LogEntry> =
            entries.into_iter().take_while(|entry| entry.seq <= end).collect();
        let Some(last) = entries.last() else {
            return Err(CloudError::here(format!("the log of {session} ends at {after}")));
        };
        after = last.seq;
        for entry in entries {
            let line = line(&entry).map_err(CloudError::here)?;
            open.add(entry.seq, &line);
            bytes += line.len() as u64;
            if bytes > MAX_LOG {
                return Err(CloudError::TooLarge(format!("the log of session {session}")));
            }
            last_line = Some(digest_of(line.as_bytes()));
            if open.lines.len() >= SEGMENT_BYTES {
                segments.push(open.put(shelf, &stem).await?);
            }
        }
    }
    if !open.lines.is_empty() {
        segments.push(open.put(shelf, &stem).await?);
    }
    // Nothing was added: it ends as it did.
    let end = last_line.or_else(|| earlier.and_then(|earlier| earlier.end.clone()));
    Ok(PutLog { segments, end })
}

/// Whether the log here begins with that of an earlier set: a data directory that was restored from a backup, or a
/// copy of another one, has gone on otherwise.
async fn continues(
    store: &dyn Store,
    session: SessionId,
    end: Seq,
    earlier: &Head,
) -> Result<bool, CloudError> {
    let Some(digest) = &earlier.end else { return Ok(false) };
    if earlier.seq > end || earlier.seq == Seq::ZERO {
        return Ok(false);
    }
    let before = Seq::new(earlier.seq.get() - 1);
    let entries = store.events_after(session, before, 1).await?;
    let line = entries.first().map(line).transpose().map_err(CloudError::here)?;
    Ok(line.is_some_and(|line| digest_of(line.as_bytes()) == *digest))
}

/// Those parts that are there, up to the first that is not, or has another length. Blocks.
fn still_there(
    shelf: &Shelf,
    session: SessionId,
    mut segments: Vec<Segment>,
) -> Result<Vec<Segment>, CloudError> {
    let listed = shelf.list(&format!("{}log/", place_of(session)))?;
    let sizes: BTreeMap<&str, u64> =
        listed.iter().map(|listed| (listed.name.as_str(), listed.size)).collect();
    let is_there = |segment: &Segment| {
        let size = sizes.get(segment.part.name.as_str());
        size.is_some_and(|size| segment.part.stored.is_none_or(|stored| stored == *size))
    };
    let whole = segments.iter().take_while(|segment| is_there(segment)).count();
    segments.truncate(whole);
    Ok(segments)
}

/// Drops parts that are to be put again with what follows; returns where the others end.
fn keep_few(segments: &mut Vec<Segment>, end: Seq) -> Seq {
    let end_of = |segments: &[Segment]| segments.last().map_or(Seq::ZERO, |last| last.last);
    let mut more = end.get().saturating_sub(end_of(segments).get());
    if more == 0 {
        return end_of(segments);
    }
    while let Some(last) = segments.last() {
        let entries = last.last.get() - last.first.get() + 1;
        if entries > more || last.part.bytes >= SEGMENT_BYTES as u64 {
            break;
        }
        more += entries;
        segments.pop();
    }
    end_of(segments)
}

/// A part of a log that grows.
#[derive(Default)]
struct OpenSegment {
    first: Seq,
    last: Seq,
    lines: Vec<u8>,
}

impl OpenSegment {
    fn add(&mut self, seq: Seq, line: &str) {
        if self.lines.is_empty() {
            self.first = seq;
        }
        self.last = seq;
        self.lines.extend_from_slice(line.as_bytes());
    }

    async fn put(&mut self, shelf: &Arc<Shelf>, stem: &str) -> Result<Segment, CloudError> {
        let Self { first, last, lines } = std::mem::take(self);
        let stem = format!("{stem}-{:020}-{:020}", first.get(), last.get());
        let shelf = Arc::clone(shelf);
        let part = blocking(move || shelf.put_part(&stem, &lines)).await?;
        Ok(Segment { first, last, part })
    }
}

#[cfg(test)]
mod test {
    use super::super::set::Part;
    use super::*;

    fn segment(first: u64, last: u64, bytes: usize) -> Segment {
        let part =
            Part { name: String::new(), bytes: bytes as u64, blake3: String::new(), stored: None };
        Segment { first: Seq::new(first), last: Seq::new(last), part }
    }

    #[test]
    fn a_log_has_few_parts_however_often_it_grows() {
        let mut segments = Vec::new();
        let mut put = 0;
        for end in 1..=4_096_u64 {
            let after = keep_few(&mut segments, Seq::new(end));
            put += end - after.get();
            segments.push(segment(after.get() + 1, end, 1));
            assert!(segments.len() <= 13, "{} parts at {end}", segments.len());
        }
        assert!(put <= 4_096 * 14, "{put} entries were put");
    }

    #[test]
    fn a_part_that_is_long_enough_is_not_put_again() {
        let mut segments = vec![segment(1, 10, SEGMENT_BYTES), segment(11, 12, 1)];
        assert_eq!(keep_few(&mut segments, Seq::new(100)), Seq::new(10));
        assert_eq!(segments.len(), 1);
        assert_eq!(keep_few(&mut segments, Seq::new(10)), Seq::new(10));
    }
}
