//! Changes to files: every edit of a call takes effect, or none does.
//!
//! The whole result is computed first, in memory; nothing is written before all of it is known to
//! be possible. Then it is staged beside its destinations and renamed into place, and if a rename
//! fails, those before it are taken back ([`super::commit`]).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Stat};

use super::commit;
use super::fault::Fault;
use super::record::Journal;
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

/// What was changed.
#[derive(Debug)]
pub(super) struct Changed {
    pub(super) files: Vec<String>,
    /// What the model should know of it.
    pub(super) notes: Vec<String>,
}

/// Makes all the changes, or none.
pub(super) fn apply(root: &Root, journal: &Journal, edits: Vec<Edit>) -> Result<Changed, Refusal> {
    let mut changes: BTreeMap<PathBuf, Change> = BTreeMap::new();
    let mut crlf = BTreeSet::new();
    for (index, edit) in edits.into_iter().enumerate() {
        plan(root, edit, &mut changes, &mut crlf).map_err(|fault| (Some(index), fault))?;
    }
    // A file that was made and deleted again by one call never was.
    changes.retain(|_, change| change.before.is_some() || change.after.is_some());
    check_nesting(&changes).map_err(|fault| (None, fault))?;
    commit::commit(root, journal, &changes).map_err(|fault| (None, fault))?;
    let notes = crlf.into_iter().map(|path: PathBuf| {
        format!("[{} has CRLF line ends, and so have the new lines]", path.display())
    });
    Ok(Changed {
        notes: notes.collect(),
        files: changes.into_keys().map(|path| path.to_string_lossy().into_owned()).collect(),
    })
}

fn plan(
    root: &Root,
    edit: Edit,
    changes: &mut BTreeMap<PathBuf, Change>,
    crlf: &mut BTreeSet<PathBuf>,
) -> Result<(), Fault> {
    let given = root.relative(edit.path())?;
    if given.as_os_str().is_empty() {
        return Err(Fault::new("the path names the workspace itself; name a file in it"));
    }
    let fault = |error: io::Error| Fault::io(&given, &error);
    // A file is written through the links that lead to it, and a link is deleted as itself; if it
    // was, by an edit before this one, then it leads nowhere any longer.
    let own = root.resolve_parent(&given).map_err(fault)?;
    let is_delete = matches!(edit, Edit::Delete { .. });
    let is_deleted = changes.get(&own).is_some_and(|change| change.after.is_none());
    let path = if is_delete || is_deleted { own } else { root.resolve(&given).map_err(fault)? };
    if path.as_os_str().is_empty() {
        return Err(Fault::new("the path names the workspace itself; name a file in it"));
    }
    if !changes.contains_key(&path) {
        let needs_content = matches!(edit, Edit::Replace { .. });
        changes.insert(path.clone(), current(root, &path, needs_content, is_delete)?);
    }
    let Some(change) = changes.get_mut(&path) else { return Ok(()) };
    match edit {
        Edit::Write { content, .. } => change.after = Some(content.into_bytes()),
        Edit::Delete { .. } if change.after.is_none() => {
            return Err(Fault::new(format!("{} does not exist", path.display())));
        }
        Edit::Delete { .. } => change.after = None,
        Edit::Replace { old, new, .. } => {
            let (after, is_crlf) = replace(&path, change.after.take(), &old, &new)?;
            change.after = Some(after);
            if is_crlf {
                crlf.insert(path);
            }
        }
    }
    Ok(())
}

/// A file as it is. Its content is read only where it is needed: what is overwritten or deleted
/// may be of any size.
fn current(
    root: &Root,
    path: &Path,
    needs_content: bool,
    may_be_link: bool,
) -> Result<Change, Fault> {
    let Some(stat) = root.look(path).map_err(|error| Fault::io(path, &error))? else {
        return Ok(Change { before: None, after: None });
    };
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind == FileType::Symlink && may_be_link {
        return Ok(Change { before: Some(stat), after: Some(Vec::new()) });
    }
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

/// The new content, and whether line ends were made CRLF in it.
fn replace(
    path: &Path,
    now: Option<Vec<u8>>,
    old: &str,
    new: &str,
) -> Result<(Vec<u8>, bool), Fault> {
    let name = path.display();
    let Some(now) = now else {
        return if old.is_empty() {
            Ok((new.as_bytes().to_vec(), false))
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
    // A model does not see the line ends of what it reads, and writes the usual ones.
    let (fitted_old, fitted_new) = fit_line_ends(text, old, new);
    let (old, new) = (fitted_old.as_ref(), fitted_new.as_ref());
    let is_crlf = matches!((&fitted_old, &fitted_new), (Cow::Owned(_), _) | (_, Cow::Owned(_)));
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
    Ok(([&text[..at], new, &text[at + old.len()..]].concat().into_bytes(), is_crlf))
}

/// Gives both texts the line ends of a file that has CRLF, unless they are found as they are or
/// have some themselves.
fn fit_line_ends<'a>(text: &str, old: &'a str, new: &'a str) -> (Cow<'a, str>, Cow<'a, str>) {
    let crlf = |text: &'a str| -> Cow<'a, str> {
        if text.contains('\n') { text.replace('\n', "\r\n").into() } else { text.into() }
    };
    let has_own = old.contains('\r') || new.contains('\r');
    if has_own || !text.contains("\r\n") {
        return (old.into(), new.into());
    }
    // Where some lines end otherwise, what is found as it is stays as it is.
    let is_mixed = text.matches('\n').count() != text.matches("\r\n").count();
    if text.contains(old) && is_mixed {
        return (old.into(), new.into());
    }
    (crlf(old), crlf(new))
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
