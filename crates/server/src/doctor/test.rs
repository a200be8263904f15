//! Machines that have trouble, and what is said about them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use ash_engine::bridge::Tier;

use super::*;
use crate::config::ServeFlags;

struct World {
    dir: tempfile::TempDir,
    machine: Machine,
    env: BTreeMap<String, String>,
}

impl World {
    /// A machine on which nothing is wrong.
    fn sound() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            path
        };
        file("proc/self/stat", "1");
        file("proc/sys/kernel/osrelease", "6.1.0-test\n");
        file("proc/sys/user/max_user_namespaces", "1000\n");
        file("cgroup/cgroup.controllers", "memory");
        let bridge = file("bin/ash-bridge", "");
        fs::set_permissions(bridge, fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(dir.path().join("data")).unwrap();
        let machine = Machine {
            program: dir.path().join("bin/ash"),
            proc: dir.path().join("proc"),
            cgroup: dir.path().join("cgroup"),
            now: EARLIEST,
            descriptors: (Some(65_536), None),
            sandbox: |_, _| Ok(FULL),
        };
        let data = dir.path().join("data");
        let env = [
            ("ASH_DATA_DIR", data.to_str().unwrap()),
            ("ASH_PORT", "0"),
            ("ANTHROPIC_API_KEY", "sk-hush"),
        ];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        Self { dir, machine, env }
    }

    fn set(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    fn examine(&self) -> Vec<Check> {
        let config = Config::load(&ServeFlags::default(), &self.env, None).unwrap();
        examine(&config, &self.machine)
    }

    /// The one check of that name, which asks for something to be done.
    fn trouble(&self, name: &str) -> Check {
        let check = self.examine().into_iter().find(|check| check.name == name).unwrap();
        assert!(check.verdict != Verdict::Ok && check.fix.is_some(), "{check:?}");
        check
    }
}

#[test]
fn a_sound_machine_has_no_problem_and_is_left_as_it_was() {
    let world = World::sound();
    // Where temporary files are may be in memory, small or slow: that is this machine's trouble.
    let shaky = ["file system", "room", "room kept free", "sync"];
    for check in world.examine().iter().filter(|check| !shaky.contains(&check.name)) {
        assert_eq!((check.verdict, check.fix.as_ref()), (Verdict::Ok, None), "{check:?}");
        assert!(!check.found.contains('\n') && !check.found.contains("sk-hush"), "{check:?}");
    }
    assert_eq!(fs::read_dir(world.dir.path().join("data")).unwrap().count(), 0);
}

#[test]
fn a_directory_that_is_not_there_is_not_made() {
    let world = World::sound();
    let deep = world.dir.path().join("a/b/data");
    let world = world.set("ASH_DATA_DIR", deep.to_str().unwrap());
    assert!(world.examine().iter().any(|check| check.found.ends_with("a/b/data will be made")));
    assert!(!world.dir.path().join("a").exists());
}

#[test]
fn a_directory_that_cannot_be_written_is_a_problem() {
    // Nobody can make anything there, not even root.
    let check = World::sound().set("ASH_DATA_DIR", "/proc/sys").trouble("data directory");
    assert_eq!(check.verdict, Verdict::Problem);
    assert!(check.found.starts_with("/proc/sys cannot be written: "), "{check:?}");
    let world = World::sound();
    let file = world.dir.path().join("proc/self/stat/data");
    let check = world.set("ASH_DATA_DIR", file.to_str().unwrap()).trouble("data directory");
    assert!(check.found.ends_with("cannot be a directory"), "{check:?}");
}

#[test]
fn a_bridge_that_is_missing_or_cannot_be_run_is_a_problem() {
    let world = World::sound();
    let bridge = world.dir.path().join("bin/ash-bridge");
    fs::set_permissions(&bridge, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(world.trouble("bridge").fix.unwrap().starts_with("chmod 755 "));
    fs::remove_file(bridge).unwrap();
    let check = world.trouble("bridge");
    assert_eq!(check.verdict, Verdict::Problem);
    assert!(check.found.contains("bin/ash-bridge"), "{check:?}");
}

/// A server that gives the same answer to one request; its port.
fn answering(answer: &'static str) -> (u16, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 1024];
        let read = stream.read(&mut request).unwrap();
        assert!(request[..read].starts_with(b"GET /health HTTP/1.1\r\n"));
        stream.write_all(answer.as_bytes()).unwrap();
    });
    (port, thread)
}

#[test]
fn a_port_in_use_is_a_problem_unless_an_ash_server_has_it() {
    let ash =
        "HTTP/1.1 200 OK\r\n\r\n{\"status\":\"ok\",\"version\":\"1.2.3\",\"isolation\":\"none\"}";
    let (port, thread) = answering(ash);
    let check = port::check(Ipv4Addr::LOCALHOST.into(), port);
    assert_eq!(
        check,
        Check::ok("port", format!("an Ash server 1.2.3 answers on 127.0.0.1:{port}"))
    );
    thread.join().unwrap();
    for other in ["HTTP/1.1 200 OK\r\n\r\n{\"status\":\"ok\"}", "}{", "", "SSH-2.0-x\r\n"] {
        let (port, thread) = answering(other);
        let check = World::sound().set("ASH_PORT", &port.to_string()).trouble("port");
        assert_eq!(check.verdict, Verdict::Problem, "{other}");
        assert_eq!(check.found, format!("127.0.0.1:{port} is taken by another program"));
        thread.join().unwrap();
    }
}

#[test]
fn a_missing_model_key_is_a_warning_that_names_the_scripted_model() {
    let check = World::sound().set("ANTHROPIC_API_KEY", "").trouble("model");
    assert_eq!(check.verdict, Verdict::Warning);
    assert!(check.fix.unwrap().contains("ash model --port"));
}

const FULL: Sandboxes =
    Sandboxes { tier: Tier::Full, attempts: 20, bounded: true, freezable: true };

#[test]
fn what_sandboxes_cannot_hold_is_said_with_what_to_do() {
    let mut world = World::sound();
    world.machine.sandbox = |_, _| {
        let hint = Some("sysctl something=1".to_owned());
        Err(NoSandbox { why: "user namespaces: EPERM".to_owned(), hint })
    };
    let check = world.trouble("isolation");
    assert_eq!(check.verdict, Verdict::Problem);
    assert!(check.found.contains("EPERM"), "{check:?}");
    let fix = check.fix.unwrap();
    assert!(
        fix.contains("sysctl something=1") && fix.contains("--dangerously-no-sandbox"),
        "{fix}"
    );

    world.machine.sandbox = |_, _| Ok(Sandboxes { bounded: false, ..FULL });
    assert_eq!(world.trouble("isolation").verdict, Verdict::Warning);

    let mut world = World::sound().set("ASH_MIN_ISOLATION", "full");
    world.machine.sandbox = |_, _| Ok(Sandboxes { tier: Tier::Rootless, ..FULL });
    let check = world.trouble("isolation");
    assert_eq!(check.verdict, Verdict::Problem);
    assert!(check.fix.unwrap().contains("ASH_MIN_ISOLATION=rootless"));
}

#[test]
fn what_the_kernel_does_not_give_is_said() {
    let mut world = World::sound();
    world.machine.descriptors = (Some(256), Some(512));
    world.machine.now = Timestamp::from_millis(0);
    assert!(world.trouble("open files").fix.unwrap().contains("hard limit"));
    assert_eq!(world.trouble("clock").verdict, Verdict::Problem);
    let proc = world.machine.proc.clone();
    fs::write(proc.join("sys/kernel/apparmor_restrict_unprivileged_userns"), "1\n").unwrap();
    assert!(world.trouble("user namespaces").found.contains("AppArmor"));
    fs::write(proc.join("sys/kernel/osrelease"), "4.19.0\n").unwrap();
    assert_eq!(world.trouble("kernel").verdict, Verdict::Warning);
    fs::remove_dir_all(&proc).unwrap();
    fs::remove_dir_all(&world.machine.cgroup).unwrap();
    assert_eq!(world.trouble("processes").verdict, Verdict::Problem);
    for name in ["kernel", "user namespaces", "control groups"] {
        assert_eq!(world.trouble(name).verdict, Verdict::Warning);
    }
}

#[test]
fn a_limit_of_open_files_that_the_server_raises_is_none() {
    let mut world = World::sound();
    world.machine.descriptors = (Some(256), Some(65_536));
    let checks = world.examine();
    let check = checks.iter().find(|check| check.name == "open files").unwrap();
    assert_eq!(check.verdict, Verdict::Ok, "{check:?}");
}

#[test]
fn a_key_for_credentials_that_is_no_good_is_a_problem() {
    let world = World::sound();
    let path = world.dir.path().join("data/credential-key");
    fs::write(&path, format!("{}\n", "ab".repeat(32))).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(world.trouble("credential key").fix.unwrap().starts_with("chmod 600 "));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let is_sound = |check: Check| check.name == "credential key" && check.verdict == Verdict::Ok;
    assert!(world.examine().into_iter().any(is_sound));
    fs::write(&path, "half").unwrap();
    assert!(world.trouble("credential key").found.contains("damaged"));
    let world = world.set("ASH_CREDENTIAL_KEY", "of-the-operator");
    assert!(world.examine().into_iter().any(is_sound));
}

#[test]
fn a_database_elsewhere_is_looked_at_there() {
    let world = World::sound();
    let dir = world.dir.path().to_owned();
    let at = |place: &str| format!("sqlite://{}/{place}", dir.display());
    let world = world.set("ASH_DATABASE_URL", &at("nowhere/ash.db"));
    let check = world.trouble("database elsewhere");
    assert_eq!(check.verdict, Verdict::Problem);
    assert!(check.found.contains("nowhere cannot be written"), "{check:?}");
    let world = world.set("ASH_DATABASE_URL", &at("data"));
    assert!(world.trouble("database elsewhere").found.ends_with("data is a directory"));
    let world = world.set("ASH_DATABASE_URL", &at("ash.db"));
    let is_sound = |check: &Check| check.name == "database elsewhere" && check.fix.is_none();
    assert!(world.examine().iter().any(is_sound));
    assert!(!dir.join("ash.db").exists());
}

#[test]
fn a_disk_is_judged_by_its_kind_its_room_and_its_syncs() {
    let ext4 = 0xef53;
    let kinds = [(ext4, Verdict::Ok), (0x6969, Verdict::Problem), (0x0102_1994, Verdict::Warning)];
    for (magic, verdict) in kinds {
        assert_eq!(disk::judge_file_system(magic).verdict, verdict, "{magic:x}");
    }
    // On some machines the number is signed, and this one negative.
    assert_eq!(disk::judge_file_system(0xffff_ffff_ff53_4d42).verdict, Verdict::Problem);
    assert_eq!(disk::judge_room(1 << 20, None).verdict, Verdict::Problem);
    assert_eq!(disk::judge_room(1 << 29, None).verdict, Verdict::Warning);
    assert_eq!(disk::judge_room(1 << 40, Some(10)).verdict, Verdict::Warning);
    assert_eq!(disk::judge_room(1 << 40, Some(1 << 20)).verdict, Verdict::Ok);
    assert_eq!(disk::judge_sync(Duration::from_micros(1500)).found, "a sync takes 1.5 ms");
    assert_eq!(disk::judge_sync(Duration::from_secs(1)).verdict, Verdict::Warning);
}

#[test]
fn it_is_said_how_much_room_is_kept_free_and_how_much_there_is() {
    let judge = |free: u64, all: u64, least| disk::judge_kept_free(free << 20, all << 20, least);
    let fine = judge(2_000, 9_000, 1_024);
    let said = "2000 of 9000 MB are free, and 1024 are to stay so (ASH_MIN_FREE_MB)";
    assert_eq!((fine.verdict, fine.found.as_str()), (Verdict::Ok, said));
    let short = judge(1_000, 9_000, 1_024);
    assert_eq!(short.verdict, Verdict::Warning);
    assert!(short.fix.unwrap().contains("new sessions are refused"));
    let never = judge(500, 900, 1_024);
    assert!(never.fix.unwrap().contains("less than the disk has"));
    let off = judge(500, 900, 0);
    assert_eq!(off.verdict, Verdict::Ok);
    assert!(off.found.contains("ASH_MIN_FREE_MB is 0: 500 MB are free"));
    let told = World::sound().set("ASH_MIN_FREE_MB", "1").examine();
    assert!(told.iter().any(|check| check.found.contains("1 are to stay so")), "{told:?}");
}
