//! What is held where.

use std::fs;

use ash_engine::bridge::cgroups_of;

use super::Server;

/// Memory of the machine, of the server, and of its sandboxes, in kilobytes.
pub(super) struct Memory {
    available: f64,
    slab: f64,
    page_tables_and_stacks: f64,
    server: f64,
    cgroups: f64,
}

impl Memory {
    pub(super) fn now(server: &Server) -> Self {
        let text = fs::read_to_string("/proc/meminfo").expect("this is Linux");
        let of = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let number = line.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok());
            number.unwrap_or(0.0)
        };
        let cgroups = cgroups_of(&server.remains.data);
        let names = cgroups.list().unwrap_or_default();
        let used = names.iter().filter_map(|name| {
            cgroups.open(name).ok().flatten().and_then(|cgroup| cgroup.stats().memory_bytes)
        });
        Self {
            available: of("MemAvailable"),
            slab: of("Slab"),
            page_tables_and_stacks: of("PageTables") + of("KernelStack") + of("Percpu"),
            server: server.process.resident() * 1e3,
            cgroups: used.map(|bytes| bytes as f64).sum::<f64>() / 1024.0,
        }
    }

    /// Prints what each of so many added.
    pub(super) fn print_more_than(&self, before: &Self, count: usize) {
        let each = |now: f64, before: f64| (now - before) / count as f64;
        let rows = [
            ("counted by its cgroups", each(self.cgroups, before.cgroups)),
            ("less that is available on the machine", each(before.available, self.available)),
            ("of it in the kernel's slabs", each(self.slab, before.slab)),
            (
                "of it in page tables, stacks, per processor",
                each(self.page_tables_and_stacks, before.page_tables_and_stacks),
            ),
            ("resident in the server", each(self.server, before.server)),
        ];
        for (what, kilobytes) in rows {
            println!("{what:<52} {kilobytes:>9.0} kB each");
        }
        println!("the server is at {:.1} MB", self.server / 1e3);
    }
}
