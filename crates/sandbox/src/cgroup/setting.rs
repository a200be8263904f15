//! Which file gets which value.

use super::{Role, Version};
use crate::spec::Limits;

/// One value in one file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) role: Role,
    pub(super) file: &'static str,
    pub(super) value: String,
    /// Not every kernel has the file.
    pub(super) optional: bool,
}

/// The period over which processor time is shared out.
const PERIOD_MICROS: u64 = 100_000;

pub(super) fn settings(version: Version, limits: &Limits) -> Vec<Setting> {
    let set = |role, file, value| Setting { role, file, value, optional: false };
    let set_if_there = |role, file, value| Setting { role, file, value, optional: true };
    let or = |value: Option<u64>, unlimited: &str| {
        value.map_or_else(|| unlimited.to_owned(), |value| value.to_string())
    };
    let quota = limits.cpu_percent.map(|percent| u64::from(percent.max(1)) * PERIOD_MICROS / 100);
    let pids = set(Role::Pids, "pids.max", or(limits.pids.map(u64::from), "max"));
    match version {
        Version::V1 => {
            let bytes = or(limits.memory_bytes, "-1");
            vec![
                set(Role::Memory, "memory.limit_in_bytes", bytes.clone()),
                // Memory and swap together: as much as memory alone, so no swap.
                set_if_there(Role::Memory, "memory.memsw.limit_in_bytes", bytes),
                pids,
                set(Role::Cpu, "cpu.cfs_period_us", PERIOD_MICROS.to_string()),
                set(Role::Cpu, "cpu.cfs_quota_us", or(quota, "-1")),
            ]
        }
        Version::V2 => {
            let swap = if limits.memory_bytes.is_some() { "0" } else { "max" };
            vec![
                set(Role::Memory, "memory.max", or(limits.memory_bytes, "max")),
                set_if_there(Role::Memory, "memory.swap.max", swap.to_owned()),
                pids,
                set(Role::Cpu, "cpu.max", format!("{} {PERIOD_MICROS}", or(quota, "max"))),
            ]
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn table(version: Version, limits: &Limits) -> Vec<(&'static str, String)> {
        settings(version, limits).into_iter().map(|set| (set.file, set.value)).collect()
    }

    fn some() -> Limits {
        Limits {
            memory_bytes: Some(64 << 20),
            cpu_percent: Some(150),
            pids: Some(32),
            ..Limits::default()
        }
    }

    fn none() -> Limits {
        Limits { memory_bytes: None, cpu_percent: None, pids: None, ..Limits::default() }
    }

    fn owned(table: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
        table.iter().map(|&(file, value)| (file, value.to_owned())).collect()
    }

    #[test]
    fn limits_of_the_first_kind() {
        let expected = [
            ("memory.limit_in_bytes", "67108864"),
            ("memory.memsw.limit_in_bytes", "67108864"),
            ("pids.max", "32"),
            ("cpu.cfs_period_us", "100000"),
            ("cpu.cfs_quota_us", "150000"),
        ];
        assert_eq!(table(Version::V1, &some()), owned(&expected));
        let expected = [
            ("memory.limit_in_bytes", "-1"),
            ("memory.memsw.limit_in_bytes", "-1"),
            ("pids.max", "max"),
            ("cpu.cfs_period_us", "100000"),
            ("cpu.cfs_quota_us", "-1"),
        ];
        assert_eq!(table(Version::V1, &none()), owned(&expected));
    }

    #[test]
    fn limits_of_the_second_kind() {
        let expected = [
            ("memory.max", "67108864"),
            ("memory.swap.max", "0"),
            ("pids.max", "32"),
            ("cpu.max", "150000 100000"),
        ];
        assert_eq!(table(Version::V2, &some()), owned(&expected));
        let expected = [
            ("memory.max", "max"),
            ("memory.swap.max", "max"),
            ("pids.max", "max"),
            ("cpu.max", "max 100000"),
        ];
        assert_eq!(table(Version::V2, &none()), owned(&expected));
    }
}
