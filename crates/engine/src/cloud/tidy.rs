//! Sets that are not needed any more go, and nothing that somebody may still need.

use std::collections::BTreeSet;

use ash_core::time::Timestamp;

use super::error::CloudError;
use super::place::Shelf;
use super::set::{Head, heads_of, line_of, place_of};

/// How many sets of a session are kept, and how many there are before the others go.
pub(super) const KEPT_HEADS: usize = 2;
const MAX_HEADS: usize = 6;

/// How old an object is that no head names, and that nobody will name any more: whoever has put it is dead.
const LEFT_BEHIND_MS: i64 = 24 * 60 * 60 * 1_000;

/// Removes sets that are not the latest, once there are some, and what only they needed. What no head names is
/// another server's that has not come to its head yet, unless it is old.
pub(super) fn tidy_up(shelf: &Shelf, latest: &Head, now: Timestamp) -> Result<(), CloudError> {
    let (session, whose) = (latest.session, (&latest.tenant, latest.session));
    let names = shelf.heads(session)?;
    if names.len() <= MAX_HEADS || names.last() != Some(&latest.name()) {
        return Ok(());
    }
    let mut needed = BTreeSet::new();
    let mut unneeded = BTreeSet::new();
    let (mut kept, mut old) = (0, Vec::new());
    for name in names.iter().rev() {
        let head = match shelf.head(name, whose) {
            Ok(Some(head)) => head,
            Ok(None) => continue,
            // It helps nobody; what it named is old one day.
            Err(CloudError::Damaged(_)) => {
                old.push(name);
                continue;
            }
            Err(error) => return Err(error),
        };
        let is_kept = kept < KEPT_HEADS;
        kept += usize::from(is_kept);
        let parts = head.log.into_iter().map(|segment| segment.part.name);
        let parts = parts.chain([head.record.name]);
        let parts = parts.chain(head.attachments.into_iter().map(|there| there.part.name));
        if is_kept {
            needed.extend(parts);
        } else if line_of(name).is_some_and(|(epoch, _)| epoch <= latest.epoch) {
            unneeded.extend(parts);
            old.push(name);
        }
    }
    for name in old {
        shelf.delete(name)?;
    }
    let heads = heads_of(session);
    for listed in shelf.list(&place_of(session))? {
        let is_left_behind = now.as_millis().saturating_sub(listed.put_at) > LEFT_BEHIND_MS;
        let may_go = unneeded.contains(&listed.name) || is_left_behind;
        if may_go && !listed.name.starts_with(&heads) && !needed.contains(&listed.name) {
            shelf.delete(&listed.name)?;
        }
    }
    Ok(())
}
