//! How the workspaces of two snapshots differ, within bounds.

use ash_core::id::{SnapshotId, TenantId};
use ash_snapshot::{Difference, Entry, Kind, Repository};

use super::{Archive, ArchiveError, MAX_ENTRIES, WORKSPACE, theirs};
use crate::diff::unified;
use crate::host::{ChangedFile, Comparison, Detail, HowChanged, TextDiff};

/// How many files are named.
const MAX_FILES: usize = 1_000;

/// How large a file may be that is shown line by line.
const MAX_FILE_BYTES: u64 = 256 * 1024;

/// How many bytes of lines are shown of all files together.
const MAX_SHOWN_BYTES: usize = 2 * 1024 * 1024;

impl Archive {
    /// How the workspace of one snapshot became that of another. No snapshot is an empty one. Blocks. What is not
    /// asked for is not counted.
    pub(crate) fn compare(
        &self,
        tenant: &TenantId,
        (before, after): (Option<SnapshotId>, Option<SnapshotId>),
        detail: Detail,
    ) -> Result<Comparison, ArchiveError> {
        for id in [before, after].into_iter().flatten() {
            self.with_snapshot(tenant, id, |here, snapshot| Ok(here.is_present(snapshot)?))?;
        }
        let repository = self.repository(tenant)?;
        let find = |id: Option<SnapshotId>| {
            id.map(|id| repository.snapshot(theirs(id))).transpose().map_err(ArchiveError::from)
        };
        let (before, after) = (find(before)?, find(after)?);
        let was = before.as_ref().map(|snapshot| snapshot.root(WORKSPACE)).transpose()?;
        let is = after.as_ref().map(|snapshot| snapshot.root(WORKSPACE)).transpose()?;
        let mut out = Comparison::default();
        let mut listed = Vec::new();
        repository.each_change(was, is, MAX_ENTRIES, &mut |change| {
            if !is_wanted(&detail, &change.path) {
                return Ok(());
            }
            let Some(how) = counted(&change.what, &mut out) else { return Ok(()) };
            if let Detail::Files { .. } = detail {
                if listed.len() < MAX_FILES {
                    listed.push((how, change));
                } else {
                    out.left_out += 1;
                }
            }
            Ok(())
        })?;
        let mut room = MAX_SHOWN_BYTES;
        for (how, change) in listed {
            let path = String::from_utf8_lossy(&change.path).into_owned();
            let (was, is) = match &change.what {
                Difference::Added(is) => (None, Some(is)),
                Difference::Removed(was) => (Some(was), None),
                Difference::Modified(was, is) => (Some(was), Some(is)),
            };
            let text = lines(&repository, &path, was, is, &mut room)?;
            let (size_before, size_after) = (change.size_before, change.size_after);
            out.files.push(ChangedFile { path, how, size_before, size_after, text });
        }
        Ok(out)
    }
}

/// Whether a path lies at or beneath the one that was asked for.
fn is_wanted(detail: &Detail, path: &[u8]) -> bool {
    let Detail::Files { beneath: Some(beneath) } = detail else { return true };
    let rest = path.strip_prefix(beneath.trim_matches('/').as_bytes());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/") || rest == path)
}

/// Counts what is no directory before or after. A directory is what is in it.
fn counted(what: &Difference, out: &mut Comparison) -> Option<HowChanged> {
    let is_directory = |entry: &Entry| matches!(entry.kind, Kind::Directory(_));
    let (how, count) = match what {
        Difference::Added(is) if is_directory(is) => return None,
        Difference::Removed(was) if is_directory(was) => return None,
        Difference::Modified(was, is) => match (is_directory(was), is_directory(is)) {
            (true, true) => return None,
            (true, false) => (HowChanged::Added, &mut out.added),
            (false, true) => (HowChanged::Removed, &mut out.removed),
            (false, false) => (HowChanged::Modified, &mut out.modified),
        },
        Difference::Added(_) => (HowChanged::Added, &mut out.added),
        Difference::Removed(_) => (HowChanged::Removed, &mut out.removed),
    };
    *count += 1;
    Some(how)
}

/// What is in a file, as far as it is shown.
enum Shown {
    Text(Option<String>),
    Binary,
    TooLarge,
}

fn lines(
    repository: &Repository,
    path: &str,
    was: Option<&Entry>,
    is: Option<&Entry>,
    room: &mut usize,
) -> Result<TextDiff, ArchiveError> {
    if *room == 0 {
        return Ok(TextDiff::TooLarge);
    }
    match (shown(repository, was)?, shown(repository, is)?) {
        (Shown::Binary, _) | (_, Shown::Binary) => Ok(TextDiff::Binary),
        (Shown::TooLarge, _) | (_, Shown::TooLarge) => Ok(TextDiff::TooLarge),
        (Shown::Text(was), Shown::Text(is)) => {
            let text = unified(path, was.as_deref(), is.as_deref());
            if text.len() > *room {
                *room = 0;
                return Ok(TextDiff::TooLarge);
            }
            *room -= text.len();
            Ok(TextDiff::Lines(text))
        }
    }
}

fn shown(repository: &Repository, entry: Option<&Entry>) -> Result<Shown, ArchiveError> {
    let Some(entry) = entry else { return Ok(Shown::Text(None)) };
    let bytes = match &entry.kind {
        Kind::File(content) if content.size > MAX_FILE_BYTES => return Ok(Shown::TooLarge),
        Kind::File(content) => repository.bytes(*content, MAX_FILE_BYTES)?,
        // Where they lead is all there is to say.
        Kind::Symlink(target) | Kind::HardLink(target) => target.clone(),
        Kind::Directory(_) => return Ok(Shown::Text(None)),
    };
    if bytes.contains(&0) {
        return Ok(Shown::Binary);
    }
    Ok(String::from_utf8(bytes).map_or(Shown::Binary, |text| Shown::Text(Some(text))))
}
