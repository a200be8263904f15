//! Whether a server does what snapshots rely on.
//!
//! Some that speak S3 take a create-only put for any other, and overwrite. Two captures would then
//! destroy each other's work in silence, so such a one is found out before anything is stored.

use std::io;

use super::{Objects, Put, is_altered};

/// Where objects are that are put to see what happens.
const PROBES: &str = "probe/";

/// Why a store cannot be relied on.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// What is there is overwritten.
    #[error(
        "it overwrites objects though it is asked only to create them, and captures would destroy each \
         other: use a server that honours `If-None-Match: *` (S3) or `x-goog-if-generation-match: 0` (GCS)"
    )]
    Overwrites,
    /// What was put is not what is read.
    #[error("it does not return what was put: use another server")]
    Forgets,
    /// Other bytes come than were asked for.
    #[error("it does not return the range that is asked for: use a server that honours `Range`")]
    Ranges,
    /// A list has not what is there.
    #[error("its lists are wrong: use a server whose lists have every object as soon as it is put")]
    Lists,
    /// What was deleted is still there.
    #[error("what is deleted is still there: use a server whose deletes hold at once")]
    Keeps,
    /// It could not be tried out.
    #[error("it could not be tried out")]
    Failed(#[source] io::Error),
}

/// Tries out a store with one small object, which is removed again.
pub fn probe(objects: &dyn Objects) -> Result<(), Unfit> {
    let name = format!("{PROBES}{}", uuid::Uuid::now_v7());
    let tried = tried(objects, &name);
    let deleted = objects.delete(&name);
    tried?;
    deleted.map_err(Unfit::Failed)?;
    match objects.get(&name, 64) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Unfit::Failed(error)),
        Ok(_) => Err(Unfit::Keeps),
    }
}

fn tried(objects: &dyn Objects, name: &str) -> Result<(), Unfit> {
    let (first, second) = (b"what was put first", b"what must not be put");
    match objects.put(name, first) {
        Ok(Put::Created) => {}
        Ok(Put::Existed) => return Err(Unfit::Forgets),
        Err(error) if is_altered(&error) => return Err(Unfit::Forgets),
        Err(error) => return Err(Unfit::Failed(error)),
    }
    let again = match objects.put(name, second) {
        // It says that it took it, whichever it has now.
        Err(error) if is_altered(&error) => return Err(Unfit::Overwrites),
        put => put.map_err(Unfit::Failed)?,
    };
    let found = objects.get(name, 64).map_err(Unfit::Failed)?;
    if again == Put::Created || found == second {
        return Err(Unfit::Overwrites);
    }
    if found != first {
        return Err(Unfit::Forgets);
    }
    // A server that does not know ranges answers with something that is refused below.
    let ranged = |read: io::Result<Vec<u8>>| match read {
        Err(error) if error.kind() != io::ErrorKind::Other => Err(Unfit::Failed(error)),
        Ok(bytes) => Ok(bytes),
        Err(_) => Err(Unfit::Ranges),
    };
    let middle = ranged(objects.get_range(name, 5, 3))?;
    let over = ranged(objects.get_range(name, 13, 99))?;
    let (end, size) = match objects.get_end(name, 5) {
        Ok((end, size)) => (end, size),
        Err(error) => (ranged(Err(error))?, 0),
    };
    if middle != b"was" || over != b"first" || (end.as_slice(), size) != (b"first", 18) {
        return Err(Unfit::Ranges);
    }
    let listed = objects.list(PROBES).map_err(Unfit::Failed)?;
    if !listed.iter().any(|listed| listed.name == name && listed.size == 18) {
        return Err(Unfit::Lists);
    }
    Ok(())
}
