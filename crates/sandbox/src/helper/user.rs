//! Who the sandbox is: the session's user outside, `agent` (1000) inside.

use std::fs;
use std::io;

use rustix::process::{DumpableBehavior, Gid, Uid, set_dumpable_behavior};
use rustix::thread::{CapabilitySet, CapabilitySets, UnshareFlags};

use super::root::{Given, Trees};
use super::{At as _, Failure};
use crate::error::Step;
use crate::order::Order;
use crate::spec::Tier;
use crate::sys;

/// The user and the group inside.
pub(super) const INSIDE_ID: u32 = 1000;

/// Takes hold of the directories, becomes the session's user and enters new namespaces.
pub(super) fn enter(order: &Order, given: &Given) -> Result<Trees, Failure> {
    let trees = match (order.tier, order.uid) {
        (Tier::Full, Some(uid)) => {
            // While we may enter every directory, and before the mounts are copied.
            let trees = given.clone_as_root().at(Step::Trees)?;
            become_user(uid).at(Step::User)?;
            Some(trees)
        }
        (Tier::Full, None) | (Tier::Rootless, _) => None,
    };
    let outside = (rustix::process::geteuid(), rustix::process::getegid());
    forbid_root().at(Step::User)?;
    sys::unshare(
        UnshareFlags::NEWUSER
            | UnshareFlags::NEWNS
            | UnshareFlags::NEWPID
            | UnshareFlags::NEWNET
            | UnshareFlags::NEWIPC
            | UnshareFlags::NEWUTS
            | UnshareFlags::NEWCGROUP,
    )
    .at(Step::Namespaces)?;
    map_ids(outside.0, outside.1).at(Step::IdMaps)?;
    match trees {
        Some(trees) => Ok(trees),
        None => given.clone_by_path().at(Step::Trees),
    }
}

/// The one rule that every other depends on.
fn forbid_root() -> io::Result<()> {
    let users = [rustix::process::getuid(), rustix::process::geteuid()];
    let groups = [rustix::process::getgid(), rustix::process::getegid()];
    if users.iter().any(|uid| uid.is_root()) || groups.iter().any(|gid| gid.is_root()) {
        return Err(io::Error::other("root never enters a sandbox"));
    }
    Ok(())
}

fn become_user(id: u32) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
    // One capability outlives the change of user and ends with the user namespace that follows:
    // AppArmor on Ubuntu lets only its holders have user namespaces that are of use.
    rustix::thread::set_keep_capabilities(true)?;
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    let kept = CapabilitySet::SYS_ADMIN;
    rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() },
    )?;
    Ok(())
}

fn map_ids(uid: Uid, gid: Gid) -> io::Result<()> {
    // A process that changed its user does not own its files in /proc, unless it may be dumped.
    // Executing the program puts an end to that.
    set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{INSIDE_ID} {} 1", uid.as_raw()))?;
    fs::write("/proc/self/gid_map", format!("{INSIDE_ID} {} 1", gid.as_raw()))
}
