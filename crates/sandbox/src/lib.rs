//! Starts a program where it can harm nobody, and holds it there.
//!
//! A [`Launcher`] starts one [`Spec`] at a time: a process tree with a user, namespaces, a file system,
//! a network and limits of its own, whose pid 1 is the program that was asked for. [`Cgroups`] count,
//! bound, freeze and kill such trees. [`probe()`] finds out which [`Tier`] this machine can do, by starting
//! one and trying to get out of it. [`Quotas`] bound what files take, where a file system has them.
//!
//! Calls block, briefly. This is the one crate with `unsafe` in it, all of it in `sys.rs`.

mod cgroup;
mod error;
mod guard;
mod helper;
mod inside;
mod launcher;
mod order;
mod probe;
mod quota;
mod spec;
mod sys;

pub use cgroup::{Abilities, Cgroup, Cgroups, Stats, oom_kills_here};
pub use error::{LaunchError, Step};
pub use guard::{END_LINE, free_line, go_line, guard, hold_line, pause_line, wait_line};
pub use helper::{CLAUDE, SHARED, is_shown, launch};
pub use inside::{Check, Outside, inside_main};
pub use launcher::{Ended, Launched, Launcher, wait};
pub use probe::{Probe, Probed, probe};
pub use quota::{KernelQuotas, Project, QuotaLimits, QuotaUsage, Quotas};
pub use spec::{Limits, Shared, Spec, Tier};
