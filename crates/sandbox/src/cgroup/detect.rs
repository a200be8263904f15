//! Where on this machine cgroups can be made.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{Cgroups, Role, Version, check_name, make_dir, write};

/// Controllers of the second kind that bound something.
const CONTROLLERS: [(&str, Role); 3] =
    [("memory", Role::Memory), ("pids", Role::Pids), ("cpu", Role::Cpu)];

/// Where the processes of a cgroup go that is to have cgroups below it. Of the second kind, only one
/// without processes of its own can bound others.
const LEAF: &str = "ash-server";

/// Trees of cgroups that are mounted.
#[derive(Debug, Default, PartialEq, Eq)]
struct Mounts {
    /// By controller, of the first kind.
    v1: BTreeMap<String, PathBuf>,
    /// Of the second kind.
    v2: Option<PathBuf>,
}

pub(super) fn detect(prefix: &str, mountinfo: &str, own: &str, is_root: bool) -> Cgroups {
    if check_name(prefix).is_err() {
        return Cgroups::none();
    }
    let base = format!("ash-{prefix}");
    let mounts = parse(mountinfo);
    let split = mounts.v1.contains_key("memory") || mounts.v1.contains_key("pids");
    let version = if split { Version::V1 } else { Version::V2 };
    let mut bases = BTreeMap::new();
    if split && is_root {
        bases.extend(split_bases(&mounts, &base));
    }
    if let Some(mount) = &mounts.v2 {
        // Root's are at the top, so that they outlive the unit in which the server runs.
        let parent = if is_root { Some(mount.clone()) } else { own_dir(mount, own) };
        let found = parent.and_then(|parent| unified_bases(&parent, &base).ok());
        if let Some(found) = found {
            bases.extend(found);
        }
    }
    // One way to freeze is enough, and the second kind's is the better one.
    if bases.contains_key(&Role::Unified)
        && let Some(freezer) = bases.remove(&Role::Freezer)
    {
        let _unused = fs::remove_dir(freezer);
    }
    Cgroups { version, bases }
}

fn parse(mountinfo: &str) -> Mounts {
    let mut mounts = Mounts::default();
    for line in mountinfo.lines() {
        let Some((before, after)) = line.split_once(" - ") else { continue };
        let Some(place) = before.split(' ').nth(4).map(PathBuf::from) else { continue };
        let mut after = after.split(' ');
        let (kind, options) = (after.next(), after.nth(1).unwrap_or_default());
        match kind {
            Some("cgroup2") if mounts.v2.is_none() => mounts.v2 = Some(place),
            Some("cgroup") => {
                for option in options.split(',') {
                    mounts.v1.entry(option.to_owned()).or_insert_with(|| place.clone());
                }
            }
            Some(_) | None => {}
        }
    }
    mounts
}

fn split_bases(mounts: &Mounts, base: &str) -> BTreeMap<Role, PathBuf> {
    let mut wanted = vec![
        ("memory", Role::Memory),
        ("pids", Role::Pids),
        ("cpu", Role::Cpu),
        ("freezer", Role::Freezer),
    ];
    // Joining one more tree costs as much as the others do, so only where it is the same tree.
    if mounts.v1.get("cpuacct") == mounts.v1.get("cpu") {
        wanted.push(("cpuacct", Role::CpuAccount));
    }
    let base_of = |(controller, role): (&str, Role)| {
        let dir = mounts.v1.get(controller)?.join(base);
        make_dir(&dir).ok().map(|()| (role, dir))
    };
    wanted.into_iter().filter_map(base_of).collect()
}

/// The directory of the cgroup that we are in.
fn own_dir(mount: &Path, own: &str) -> Option<PathBuf> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    // An earlier life of this process has moved itself out of the way, one further down.
    let above = path.strip_suffix(LEAF).and_then(|path| path.strip_suffix('/'));
    Some(mount.join(above.unwrap_or(path)))
}

fn unified_bases(parent: &Path, base: &str) -> io::Result<BTreeMap<Role, PathBuf>> {
    let dir = parent.join(base);
    make_dir(&dir)?;
    if !dir.join("cgroup.freeze").exists() {
        fs::remove_dir(&dir)?;
        return Err(io::Error::new(io::ErrorKind::Unsupported, "this kernel's cannot freeze"));
    }
    let mut bases = BTreeMap::from([(Role::Unified, dir.clone())]);
    // It counts processor time whether or not it bounds it.
    bases.insert(Role::CpuAccount, dir.clone());
    for (controller, role) in CONTROLLERS {
        if enable(parent, controller).and_then(|()| enable(&dir, controller)).is_ok() {
            bases.insert(role, dir.clone());
        }
    }
    Ok(bases)
}

/// Lets the cgroups below `dir` be bound by a controller.
fn enable(dir: &Path, controller: &str) -> io::Result<()> {
    let has = |file: &str| {
        let list = fs::read_to_string(dir.join(file)).unwrap_or_default();
        list.split_whitespace().any(|name| name == controller)
    };
    if has("cgroup.subtree_control") {
        return Ok(());
    }
    if !has("cgroup.controllers") {
        let what = format!("{} does not have {controller}", dir.display());
        return Err(io::Error::new(io::ErrorKind::Unsupported, what));
    }
    let control = dir.join("cgroup.subtree_control");
    let on = format!("+{controller}");
    match write(&control, &on) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            move_processes(dir, &dir.join(LEAF))?;
            write(&control, &on)
        }
        done => done,
    }
}

/// Moves the processes of a cgroup that is ours, and those alone, out of its way.
fn move_processes(from: &Path, to: &Path) -> io::Result<()> {
    make_dir(to)?;
    for pid in fs::read_to_string(from.join("cgroup.procs"))?.lines() {
        // One that ended meanwhile need not be moved.
        let _ended = write(&to.join("cgroup.procs"), pid);
    }
    Ok(())
}

#[cfg(test)]
mod test {
    use super::*;

    const HYBRID: &str = "\
25 20 0:22 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
26 25 0:23 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
27 25 0:24 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
28 25 0:25 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
29 25 0:26 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer
30 25 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw";

    #[test]
    fn mounts_are_found_by_controller() {
        let mounts = parse(HYBRID);
        let place = |name: &str| mounts.v1.get(name).map(|path| path.to_str().unwrap());
        assert_eq!(place("memory"), Some("/sys/fs/cgroup/memory"));
        assert_eq!(place("cpuacct"), Some("/sys/fs/cgroup/cpu,cpuacct"));
        assert_eq!(place("blkio"), None);
        assert_eq!(mounts.v2.as_deref(), Some(Path::new("/sys/fs/cgroup/unified")));
    }

    #[test]
    fn a_machine_without_cgroups_has_none() {
        let found = detect("test", "", "", true);
        assert!(found.bases.is_empty());
        assert!(!found.abilities().memory && !found.abilities().freeze);
    }

    #[test]
    fn our_own_cgroup_is_found_among_those_of_both_kinds() {
        let own = "4:memory:/a\n0::/user.slice/b.scope\n";
        let dir = own_dir(Path::new("/cg"), own);
        assert_eq!(dir.as_deref(), Some(Path::new("/cg/user.slice/b.scope")));
        let moved = own_dir(Path::new("/cg"), &format!("0::/user.slice/b.scope/{LEAF}\n"));
        assert_eq!(moved, dir, "also after a hand-over");
    }

    /// A delegated tree of the second kind, as plain files.
    #[test]
    fn controllers_are_switched_on_along_the_way_and_limits_are_written() {
        let tree = tempfile::tempdir().unwrap();
        let parent = tree.path().join("unit");
        let base = parent.join("ash-x");
        for dir in [&parent, &base] {
            fs::create_dir_all(dir).unwrap();
            fs::write(dir.join("cgroup.controllers"), "cpu memory pids").unwrap();
            fs::write(dir.join("cgroup.subtree_control"), "").unwrap();
            fs::write(dir.join("cgroup.freeze"), "0").unwrap();
        }
        let bases = unified_bases(&parent, "ash-x").unwrap();
        assert_eq!(bases.len(), 5, "{bases:?}");
        let switched = fs::read_to_string(base.join("cgroup.subtree_control")).unwrap();
        assert_eq!(switched, "+cpu", "a plain file keeps the last of them");
        let cgroups = Cgroups { version: Version::V2, bases };
        let limits = crate::Limits::default();
        let cgroup = cgroups.create("one", &limits).unwrap().unwrap();
        let written = |file: &str| fs::read_to_string(base.join("one").join(file)).unwrap();
        assert_eq!(written("memory.max"), (2_u64 << 30).to_string());
        assert_eq!(written("pids.max"), "512");
        assert_eq!(written("cpu.max"), "max 100000");
        assert_eq!(cgroups.list().unwrap(), ["one"]);
        assert_eq!(cgroup.name(), "one");
    }
}
