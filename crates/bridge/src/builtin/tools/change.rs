//! Changes to files: every edit of a call takes effect, or none does.
//!
//! The whole result is computed first, in memory; nothing is written before all of it is known to
//! be possible. Then it is staged beside its destinations and renamed into place, and if a rename
//! fails, those before it are taken back ([`super::commit`]).

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Stat};

use super::commit;
use super::fault::Fault;
use super::root::Root;

/// How large a file may be that is edited: it is held in memory, twice.
const MAX_FILE_BYTES: u64 = 10 * 1024 * 1024;

/// One change of one file.
#[derive(Clone, Debug)]
pub(super) enum Edit {
    /// Puts one text in the place of another, which must be there exactly once.
    Replace { path: String, old: String, new: String },
    /// Gives a file its whole content.
    Write { path: String, content: String },
    /// Removes a file.
    Delete { path: String },
}

impl Edit {
    fn path(&self) -> &str {
        match self {
            Self::Replace { path, .. } | Self::Write { path, .. } | Self::Delete { path } => path,
        }
    }
}

/// What a file is to be.
pub(super) struct Change {
    /// What kept its mode and owner, if it was there before.
    pub(super) before: Option<Stat>,
    /// Its content; nothing: it is to be gone.
    pub(super) after: Option<Vec<u8>>,
}

/// Which edit was wrong, counted from nothing, and why; no edit: the writing failed.
pub(super) type Refusal = (Option<usize>, Fault);

/// Makes all the changes, or none. Returns the files that changed.
pub(super) fn apply(root: &Root, edits: Vec<Edit>) -> Result<Vec<String>, Refusal> {
    let mut changes: BTreeMap<PathBuf, Change> = BTreeMap::new();
    for (index, edit) in edits.into_iter().enumerate() {
        plan(root, edit, &mut changes).map_err(|fault| (Some(index), fault))?;
    }
    // A file that was made and deleted again by one call never was.
    changes.retain(|_, change| change.before.is_some() || change.after.is_some());
    check_nesting(&changes).map_err(|fault| (None, fault))?;
    commit::commit(root, &changes).map_err(|fault| (None, fault))?;
    Ok(changes.into_keys().map(|path| path.to_string_lossy().into_owned()).collect())
}

fn plan(root: &Root, edit: Edit, changes: &mut BTreeMap<PathBuf, Change>) -> Result<(), Fault> {
    let given = root.relative(edit.path())?;
    let path = root.resolve(&given).map_err(|error| Fault::io(&given, &error))?;
    if path.as_os_str().is_empty() {
        return Err(Fault::new("the path names the workspace itself; name a file in it"));
    }
    if !changes.contains_key(&path) {
        let needs_content = matches!(edit, Edit::Replace { .. });
        changes.insert(path.clone(), current(root, &path, needs_content)?);
    }
    let Some(change) = changes.get_mut(&path) else { return Ok(()) };
    match edit {
        Edit::Write { content, .. } => change.after = Some(content.into_bytes()),
        Edit::Delete { .. } if change.after.is_none() => {
            return Err(Fault::new(format!("{} does not exist", path.display())));
        }
        Edit::Delete { .. } => change.after = None,
        Edit::Replace { old, new, .. } => {
            change.after = Some(replace(&path, change.after.take(), &old, new)?);
        }
    }
    Ok(())
}

/// A file as it is. Its content is read only where it is needed: what is overwritten or deleted
/// may be of any size.
fn current(root: &Root, path: &Path, needs_content: bool) -> Result<Change, Fault> {
    let Some(stat) = root.look(path).map_err(|error| Fault::io(path, &error))? else {
        return Ok(Change { before: None, after: None });
    };
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind == FileType::Symlink {
        let name = path.display();
        return Err(Fault::new(format!("{name} is a link that leads to nothing in here")));
    }
    if kind != FileType::RegularFile {
        return Err(Fault::new(format!("{} is not an ordinary file", path.display())));
    }
    if !needs_content {
        return Ok(Change { before: Some(stat), after: Some(Vec::new()) });
    }
    let (file, stat) = root.read(path)?;
    let mut content = Vec::new();
    file.take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut content)
        .map_err(|error| Fault::io(path, &error))?;
    if content.len() as u64 > MAX_FILE_BYTES {
        let name = path.display();
        return Err(Fault::new(format!("{name} is larger than 10 MB: change it with bash")));
    }
    Ok(Change { before: Some(stat), after: Some(content) })
}

fn replace(path: &Path, now: Option<Vec<u8>>, old: &str, new: String) -> Result<Vec<u8>, Fault> {
    let name = path.display();
    let Some(now) = now else {
        return if old.is_empty() {
            Ok(new.into_bytes())
        } else {
            Err(Fault::new(format!("{name} does not exist; an empty \"old\" would create it")))
        };
    };
    if old.is_empty() {
        return Err(Fault::new(format!(
            "{name} exists, and \"old\" is empty: say which text to replace, or replace the whole file with write_file"
        )));
    }
    if old == new {
        return Err(Fault::new("\"old\" and \"new\" are the same: nothing would change"));
    }
    let Ok(text) = std::str::from_utf8(&now) else {
        return Err(Fault::new(format!("{name} is not UTF-8 text: change it with bash")));
    };
    let Some(at) = text.find(old) else {
        return Err(Fault::new(format!(
            "\"old\" occurs 0 times in {name}: read the file, and copy the text exactly, with its white space"
        )));
    };
    // Occurrences that overlap are not counted by `matches`, and are just as ambiguous.
    let step = old.chars().next().map_or(1, char::len_utf8);
    if text[at + step..].contains(old) {
        let times = text.matches(old).count().max(2);
        return Err(Fault::new(format!(
            "\"old\" occurs {times} times in {name}: add lines around it, so that it occurs once"
        )));
    }
    Ok([&text[..at], &new, &text[at + old.len()..]].concat().into_bytes())
}

/// Refuses a call that wants one name to be a file and a directory.
fn check_nesting(changes: &BTreeMap<PathBuf, Change>) -> Result<(), Fault> {
    for path in changes.iter().filter(|(_, change)| change.after.is_some()).map(|(path, _)| path) {
        if let Some(above) = path.ancestors().skip(1).find(|above| changes.contains_key(*above)) {
            let (name, above) = (path.display(), above.display());
            return Err(Fault::new(format!("{name} cannot lie in {above}, which is a file")));
        }
    }
    Ok(())
}
