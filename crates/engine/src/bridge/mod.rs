//! The engine's side of the bridge: starting one, talking to it, and believing little of it.
//!
//! [`BridgeHost`] runs bridges. What is around them is an [`Enclosure`]: a sandbox, or nothing at all. The
//! rest does not depend on that: `files` says who is alive, `workspace` what there is to work on, `persist` captures it, `away` removes it,
//! `connection` talks to one bridge, `hooks` has it run the agent's own scripts, `warm` keeps some ready, `report` reads what it says, `leftover` reads what a dead one left
//! behind.

mod away;
mod bridges;
mod bring_back;
mod came;
mod captures;
mod connection;
mod disk;
mod enclosure;
mod files;
mod footing;
mod found;
mod guard;
mod hooks;
mod inner;
mod kill;
mod launch;
mod leftover;
mod mend;
mod notes;
mod options;
mod persist;
mod place;
mod process;
mod pump;
mod put_back;
mod quota;
mod rebuild;
mod remains;
mod report;
mod reserve;
mod retell;
mod said;
mod state;
mod still;
mod transcript;
mod tree;
mod upkeep;
mod users;
mod warm;
mod word;
mod workspace;

pub use ash_sandbox::{Cgroup, Check, Limits as SandboxLimits, Tier};
pub use bridges::BridgeHost;
pub use enclosure::{Enclosure, NoSandbox, Sandboxing, cgroups_of};
pub use hooks::longest_hooks;
pub use mend::boot_id;
pub use options::{Agent, Describe, Egress, EgressGuard, HostOptions, Resources};
pub use quota::DiskLimits;
pub use reserve::give_up_reserve;
pub use users::Users;
