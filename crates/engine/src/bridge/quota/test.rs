//! What is decided about quotas, on a file system that does as it is told; and on a real one, if there is one.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use proptest::prelude::*;

use super::*;

/// A file system with quotas, or with what is wrong with it.
#[derive(Debug, Default)]
struct Pretended {
    lacks: Option<Lack>,
    projects: Mutex<BTreeMap<PathBuf, Project>>,
    limits: Mutex<BTreeMap<u32, QuotaLimits>>,
    usage: Mutex<BTreeMap<u32, QuotaUsage>>,
    /// How many more gifts succeed, if not all do.
    gifts: Mutex<Option<usize>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lack {
    Projects,
    Change,
    Quotas,
    Inheritance,
    Enforcement,
}

fn path_of(file: BorrowedFd<'_>) -> PathBuf {
    fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap()
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pretended {
    fn without(lack: Lack) -> Arc<Self> {
        Arc::new(Self { lacks: Some(lack), ..Self::default() })
    }

    fn check(&self, lack: Lack, errno: rustix::io::Errno) -> io::Result<()> {
        if self.lacks == Some(lack) { Err(errno.into()) } else { Ok(()) }
    }

    fn of(&self, path: &Path) -> Project {
        let projects = lock(&self.projects);
        if let Some(project) = projects.get(path) {
            return *project;
        }
        let above = path.parent().and_then(|parent| projects.get(parent)).copied();
        let hands_on = self.lacks != Some(Lack::Inheritance);
        above.filter(|above| above.is_inherited && hands_on).unwrap_or_default()
    }
}

impl Quotas for Pretended {
    fn project(&self, file: BorrowedFd<'_>) -> io::Result<Project> {
        self.check(Lack::Projects, rustix::io::Errno::NOTTY)?;
        Ok(self.of(&path_of(file)))
    }

    fn set_project(&self, file: BorrowedFd<'_>, project: Project) -> io::Result<()> {
        self.check(Lack::Change, rustix::io::Errno::OPNOTSUPP)?;
        if let Some(left) = &mut *lock(&self.gifts) {
            *left = left.checked_sub(1).ok_or(rustix::io::Errno::IO)?;
        }
        lock(&self.projects).insert(path_of(file), project);
        Ok(())
    }

    fn usage(&self, _place: BorrowedFd<'_>, id: u32) -> io::Result<QuotaUsage> {
        self.check(Lack::Quotas, rustix::io::Errno::SRCH)?;
        Ok(lock(&self.usage).get(&id).copied().unwrap_or_default())
    }

    fn set_limits(&self, _place: BorrowedFd<'_>, id: u32, limits: QuotaLimits) -> io::Result<()> {
        self.check(Lack::Quotas, rustix::io::Errno::SRCH)?;
        lock(&self.limits).insert(id, limits);
        Ok(())
    }

    fn write_bounded(&self, file: &File, bytes: usize) -> io::Result<()> {
        let project = self.of(&path_of(file.as_fd()));
        let limit = lock(&self.limits).get(&project.id).and_then(|limits| limits.bytes);
        let is_enforced = self.lacks != Some(Lack::Enforcement);
        match limit {
            Some(limit) if is_enforced && bytes as u64 > limit => {
                Err(rustix::io::Errno::DQUOT.into())
            }
            Some(_) | None => Ok(()),
        }
    }
}

fn tried(place: &Path, quotas: &Arc<Pretended>) -> String {
    DiskLimits::try_out(place, 200_000, Arc::<Pretended>::clone(quotas)).told()
}

#[test]
fn quotas_are_believed_in_when_too_much_was_refused() {
    let dir = tempfile::tempdir().unwrap();
    let quotas = Arc::new(Pretended::default());
    assert_eq!(tried(dir.path(), &quotas), "project quotas");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
    let limits = lock(&quotas.limits).clone();
    assert_eq!(limits, BTreeMap::from([(200_000, QuotaLimits::default())]), "no limit either");
}

#[test]
fn whatever_is_missing_is_told_and_files_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let told = |lack| tried(dir.path(), &Pretended::without(lack));
    let starts = [
        (Lack::Projects, "counted (the file system has no projects: "),
        (Lack::Change, "counted (the file system has no projects: "),
        (Lack::Quotas, "counted (it is not mounted with prjquota, or the server may not set"),
        (Lack::Inheritance, "counted (a project is not handed on to new files)"),
        (Lack::Enforcement, "counted (limits of projects are not enforced)"),
    ];
    for (lack, start) in starts {
        let told = told(lack);
        assert!(told.starts_with(start), "{lack:?}: {told}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
    }
    let gone = tried(&dir.path().join("gone"), &Arc::default());
    assert!(gone.starts_with("counted (nothing could be tried out"), "{gone}");
}

/// A session's two trees, with something in them.
fn trees(dir: &Path) -> [PathBuf; 2] {
    let trees = ["workspace", "home"].map(|name| dir.join(name));
    fs::create_dir_all(trees[0].join("src/deep")).unwrap();
    fs::create_dir(&trees[1]).unwrap();
    fs::write(trees[0].join("src/deep/file"), "").unwrap();
    fs::write(trees[1].join("notes"), "").unwrap();
    symlink("/etc/passwd", trees[0].join("src/link")).unwrap();
    trees
}

#[test]
fn everything_in_a_session_is_of_its_project_and_nothing_else_is() {
    let dir = tempfile::tempdir().unwrap();
    let [workspace, home] = trees(dir.path());
    let quotas = Arc::new(Pretended::default());
    let disk = DiskLimits::Quotas(Arc::<Pretended>::clone(&quotas));
    let bound = disk.bound([&workspace, &home], Some(200_007), Some(1 << 20)).unwrap();
    assert_eq!(bound, Some(200_007), "it has the number of its user");
    let directory = Project { id: 200_007, is_inherited: true };
    let file = Project { id: 200_007, is_inherited: false };
    let expected = [
        (home.clone(), directory),
        (home.join("notes"), file),
        (workspace.clone(), directory),
        (workspace.join("src"), directory),
        (workspace.join("src/deep"), directory),
        (workspace.join("src/deep/file"), file),
    ];
    assert_eq!(*lock(&quotas.projects), BTreeMap::from(expected));
    let limits = QuotaLimits { bytes: Some(1 << 20), files: Some(256) };
    assert_eq!(lock(&quotas.limits).get(&200_007), Some(&limits));
    // Once it is theirs, no more than two directories are looked at.
    *lock(&quotas.gifts) = Some(0);
    disk.bound([&workspace, &home], Some(200_007), None).unwrap();
    assert_eq!(lock(&quotas.limits).get(&200_007), Some(&QuotaLimits::default()));
}

#[test]
fn a_gift_that_was_cut_short_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let [workspace, home] = trees(dir.path());
    for cut in 0..6 {
        let quotas = Arc::new(Pretended { gifts: Mutex::new(Some(cut)), ..Pretended::default() });
        let disk = DiskLimits::Quotas(Arc::<Pretended>::clone(&quotas));
        let bound = || disk.bound([&workspace, &home], Some(200_001), Some(1 << 30));
        assert!(bound().is_err(), "{cut}");
        *lock(&quotas.gifts) = None;
        bound().unwrap();
        assert_eq!(lock(&quotas.projects).len(), 6, "cut short after {cut}");
    }
}

#[test]
fn whoever_has_no_user_or_no_quotas_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let [workspace, home] = trees(dir.path());
    let quotas = DiskLimits::Quotas(Arc::new(Pretended::default()));
    assert_eq!(quotas.bound([&workspace, &home], None, Some(1)).unwrap(), None);
    let counted = DiskLimits::Counted { why: "so".to_owned() };
    assert_eq!(counted.bound([&workspace, &home], Some(7), Some(1)).unwrap(), None);
    assert_eq!(counted.usage(&workspace, 7), None);
    let broken = DiskLimits::Quotas(Pretended::without(Lack::Quotas));
    assert_eq!(broken.usage(&workspace, 7), None, "what does not answer is counted");
    assert_eq!(quotas.usage(&dir.path().join("gone"), 7), None);
}

proptest! {
    #[test]
    fn no_one_within_both_limits_has_too_much_and_whoever_is_beyond_one_has(
        most in LEAST..1 << 40,
        bytes in 0_u64..1 << 41,
        files in 0_u64..1 << 29,
    ) {
        let limits = limits_of(Some(most));
        let is_within = bytes <= limits.bytes.unwrap() && files <= limits.files.unwrap();
        let quotas = Pretended::default();
        lock(&quotas.usage).insert(7, QuotaUsage { bytes, files });
        let taken = DiskLimits::Quotas(Arc::new(quotas)).usage(Path::new("/"), 7).unwrap();
        prop_assert_eq!(taken <= most, is_within, "{} of {}", taken, most);
    }
}

#[test]
fn what_is_made_in_a_new_workspace_is_of_its_project_from_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let quotas = Arc::new(Pretended::default());
    let disk = DiskLimits::Quotas(Arc::<Pretended>::clone(&quotas));
    lock(&quotas.limits).insert(200_007, QuotaLimits { bytes: Some(1), files: Some(1) });
    disk.begin(dir.path(), 200_007).unwrap();
    let begun =
        BTreeMap::from([(dir.path().to_owned(), Project { id: 200_007, is_inherited: true })]);
    assert_eq!(*lock(&quotas.projects), begun);
    let limits = lock(&quotas.limits).get(&200_007).copied();
    assert_eq!(limits, Some(QuotaLimits::default()), "what an earlier one had does not hold");
    let counted = DiskLimits::Counted { why: "so".to_owned() };
    counted.begin(&dir.path().join("gone"), 7).unwrap();
}

#[test]
fn a_little_more_than_the_limit_ends_nobody() {
    let most = 100 << 20;
    for (taken, is_far) in [(most, false), (most + (2 << 20), false), (most + (3 << 20), true)] {
        assert_eq!(is_far_beyond(taken, most), is_far, "{taken}");
    }
    assert!(!is_far_beyond(u64::MAX, u64::MAX));
}

#[test]
fn quotas_are_for_kernels_that_keep_projects_from_those_inside() {
    for old in ["5.12.19", "4.19.0-27-amd64", "", "six", "5"] {
        assert!(!is_new_enough(old), "{old:?}");
    }
    for new in ["5.13.0", "5.13-rc1", "6.1.0-test", "10.0"] {
        assert!(is_new_enough(new), "{new:?}");
    }
}

/// The whole, where there is a file system with project quotas: `make test-quota DIR=...`.
#[test]
fn a_real_file_system_refuses_what_is_too_much() {
    // The project is nobody's, as far as a test can know.
    const PROJECT: u32 = 2_000_000_001;
    #[expect(
        clippy::disallowed_methods,
        reason = "whoever runs the tests says where there are quotas"
    )]
    let Ok(place) = std::env::var("ASH_TEST_QUOTA_DIR") else {
        eprintln!("skipped: ASH_TEST_QUOTA_DIR names no directory with project quotas");
        return;
    };
    let dir = tempfile::tempdir_in(&place).unwrap();
    let disk = DiskLimits::find_out(dir.path(), PROJECT - 1);
    assert_eq!(disk.told(), "project quotas", "of {place}");
    let [workspace, home] = trees(dir.path());
    let most = 4 << 20;
    let bound = disk.bound([&workspace, &home], Some(PROJECT), Some(most)).unwrap();
    assert_eq!(bound, Some(PROJECT));
    let DiskLimits::Quotas(quotas) = &disk else { panic!("it has just been said") };
    let usage = || disk.usage(&workspace, PROJECT).unwrap();
    assert!(usage() <= 64 << 10, "{} for next to nothing", usage());
    // Deep in one tree, then in the other: both together have the limit.
    let deep = File::create_new(workspace.join("src/deep/large")).unwrap();
    quotas.write_bounded(&deep, 3 << 20).unwrap();
    assert!((3 << 20..=most).contains(&usage()), "{}", usage());
    let more = File::create_new(home.join("more")).unwrap();
    let refused = quotas.write_bounded(&more, 2 << 20).unwrap_err();
    assert!(is_full(&refused), "{refused}");
    assert!(usage() <= most);
    // What has no name any more counts, until nobody has it.
    fs::remove_file(workspace.join("src/deep/large")).unwrap();
    assert!(usage() >= 3 << 20, "{}", usage());
    drop(deep);
    more.set_len(0).unwrap();
    quotas.write_bounded(&more, 2 << 20).unwrap();
    // On ext4 the server is not bound by it, and what it puts there is seen. XFS asks nobody who they are.
    match fs::write(workspace.join("put"), vec![1; 5 << 20]) {
        Ok(()) => {
            more.sync_all().unwrap();
            File::open(workspace.join("put")).unwrap().sync_all().unwrap();
            assert!(usage() > most, "{}", usage());
        }
        Err(error) => assert!(is_full(&error), "{error}"),
    }
    disk.limit(&workspace, PROJECT, None).unwrap();
}
