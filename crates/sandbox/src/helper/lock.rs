//! What a process of a sandbox cannot do, whoever it is: limits of its own, and no capabilities.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_capabilities_secure_bits,
    set_no_new_privs,
};

use super::{At as _, Failure};
use crate::error::Step;
use crate::order::Bounded;
use crate::spec::Limits;

/// Locked memory: enough for what keeps a key in it.
const LOCKED_BYTES: u64 = 1 << 20;

/// When memory runs out on the machine, a sandbox goes before the server does.
const OOM_SCORE: &str = "300";

/// While we are root still: what somebody with `CAP_SYS_RESOURCE` set, nobody inside can lower.
pub(super) fn offer_to_oom_killer() -> Result<(), Failure> {
    fs::write("/proc/self/oom_score_adj", OOM_SCORE).at_object(Step::Limits, "oom_score_adj")
}

/// Leads a session of its own, with limits.
pub(super) fn prepare(limits: &Limits, bounded: Bounded) -> Result<(), Failure> {
    // As pid 1 it leads one already if the kernel said so.
    let _leader_already = rustix::process::setsid();
    // Not nothing: a handler of the machine's would be given a core all the same, and run for it. One byte
    // is what the kernel takes for never.
    limit(Resource::Core, 1)?;
    limit(Resource::Memlock, LOCKED_BYTES)?;
    limit(Resource::Nofile, limits.open_files)?;
    limit(Resource::Nice, 0)?;
    limit(Resource::Rtprio, 0)?;
    if let Some(pids) = limits.pids.filter(|_| !bounded.pids) {
        limit(Resource::Nproc, pids.into())?;
    }
    // Its data, not its addresses: runtimes such as node reserve far more than they use.
    if let Some(bytes) = limits.memory_bytes.filter(|_| !bounded.memory) {
        limit(Resource::Data, bytes)?;
    }
    Ok(())
}

fn limit(resource: Resource, most: u64) -> Result<(), Failure> {
    // What the server itself may not exceed, a sandbox cannot be allowed to.
    let most = getrlimit(resource).maximum.map_or(most, |maximum| maximum.min(most));
    let limit = Rlimit { current: Some(most), maximum: Some(most) };
    setrlimit(resource, limit).at_object(Step::Limits, &format!("{resource:?}"))
}

/// Drops every capability, for this process and all that come from it.
pub(super) fn drop_capabilities() -> Result<(), Failure> {
    clear_ambient_capability_set().at(Step::Capabilities)?;
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // The kernel knows no more.
            Err(rustix::io::Errno::INVAL) => break,
            Err(errno) => return Err(errno).at(Step::Capabilities),
        }
    }
    let bits = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_SETUID_FIXUP
        | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    set_capabilities_secure_bits(bits).at(Step::Capabilities)?;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, sets).at(Step::Capabilities)?;
    set_no_new_privs(true).at(Step::Capabilities)
}
