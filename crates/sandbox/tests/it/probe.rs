//! The probe that decides which tier a server has.

use std::fs;
use std::path::Path;

use ash_sandbox::{Cgroups, Probe, Tier, probe};

use crate::support::{Place, helper, is_root};

#[test]
fn the_probe_finds_the_tier_of_this_user() {
    let place = Place::new();
    let scratch = tempfile::tempdir().unwrap();
    let probed = probe(&Probe {
        helper: &helper(),
        uid: is_root().then_some(265_000),
        cgroups: &place.cgroups,
        scratch: scratch.path(),
        hidden: &[scratch.path()],
    });
    println!("tier {:?}, {} checks", probed.tier, probed.checks.len());
    let expected = if is_root() { Tier::Full } else { Tier::Rootless };
    assert_eq!(probed.tier, Some(expected), "{:?} {:?}", probed.why_not, probed.hint);
    assert!(probed.checks.len() > 100);
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "nothing is left of it");
}

#[test]
fn what_cannot_be_started_has_no_tier_and_a_reason() {
    let scratch = tempfile::tempdir().unwrap();
    let probed = probe(&Probe {
        helper: Path::new("/bin/true"),
        uid: is_root().then_some(265_001),
        cgroups: &Cgroups::none(),
        scratch: scratch.path(),
        hidden: &[],
    });
    assert_eq!(probed.tier, None);
    assert!(probed.why_not.is_some_and(|why| why.contains("helper")), "it names the part");
}

#[test]
fn root_without_users_to_give_has_no_tier() {
    if !is_root() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let probed = probe(&Probe {
        helper: &helper(),
        uid: None,
        cgroups: &Cgroups::none(),
        scratch: scratch.path(),
        hidden: &[],
    });
    assert_eq!(probed.tier, None);
}
