//! What a sandbox is, apart from what cannot be done in it.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::process::{Command, Stdio};

use ash_sandbox::{Ended, Launcher, Limits, Spec, Step, Tier};
use rustix::io::FdFlags;

use crate::support::{Room, SECRET, can_be_full, end_of, helper, is_root, tiers, until};

#[test]
fn the_tools_of_an_agent_work() {
    let tools = [
        ("node", "node -e 'console.log(1 + 1)'", "2\n"),
        (
            "node",
            "node -e 'require(\"net\").createServer().listen(0, \"127.0.0.1\", () => process.exit(7))' || echo $?",
            "7\n",
        ),
        (
            "python3",
            "python3 -c 'import socket, ssl; print(socket.getaddrinfo(\"localhost\", 80)[0][4][0])'",
            "127.0.0.1\n",
        ),
        (
            "python3",
            "python3 -c 'import multiprocessing as m; print(m.Pool(2).map(abs, [-1, -2]))'",
            "[1, 2]\n",
        ),
        (
            "git",
            "git init -q repo && cd repo && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m one && git log --format=%s",
            "one\n",
        ),
        ("gcc", "echo 'int main(){return 3;}' > a.c && gcc a.c -o a && ./a; echo $?", "3\n"),
        ("bash", "bash -c 'cat <(echo substituted)'", "substituted\n"),
        ("script", "script -qec 'echo in a terminal' /dev/null | tr -d '\\r'", "in a terminal\n"),
        ("perl", "perl -e 'print \"perl\\n\"'", "perl\n"),
        ("id", "id -un", "agent\n"),
        ("hostname", "hostname", "ash\n"),
        ("sh", "echo more > /tmp/a && mv /tmp/a /home/agent/b && cat ~/b", "more\n"),
    ];
    for tier in tiers() {
        for (tool, script, expected) in tools {
            let places = ["/usr/local/bin", "/usr/bin", "/bin"];
            if !places.iter().any(|place| Path::new(place).join(tool).exists()) {
                println!("not tried: {tool} is not installed for everybody");
                continue;
            }
            let outcome = Room::new(tier).run(&["shell", script]);
            assert_eq!(outcome.output, expected, "{tool} in tier {}: {outcome:?}", tier.as_str());
        }
    }
}

#[test]
fn the_environment_is_what_was_given_and_nothing_else() {
    for tier in tiers() {
        let outcome = Room::new(tier).run(&["shell", "tr '\\0' '\\n' < /proc/1/environ"]);
        let mut found: Vec<&str> = outcome.output.lines().collect();
        found.sort_unstable();
        assert_eq!(found, ["HOME=/home/agent", "PATH=/usr/local/bin:/usr/bin:/bin"]);
    }
}

#[test]
fn what_is_written_inside_belongs_to_the_session_outside() {
    for tier in tiers() {
        let room = Room::new(tier);
        room.run(&["shell", "echo hello > /workspace/file"]);
        let path = room.workspace().join("file");
        assert_eq!(fs::read_to_string(&path).unwrap(), "hello\n");
        let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata(&path).unwrap());
        assert_eq!(owner, room.uid, "tier {}", tier.as_str());
    }
}

#[test]
fn directories_may_lie_where_the_session_cannot_enter() {
    if !can_be_full() {
        return;
    }
    let room = Room::new(Tier::Full);
    let mode = fs::metadata(room.dir.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "the directory above is root's alone");
    let script = format!("touch /workspace/a /home/agent/b && ls {}", room.dir.path().display());
    let outcome = room.run(&["shell", &script]);
    assert!(outcome.log.contains("No such file"), "{outcome:?}");
    assert!(room.workspace().join("a").exists());
}

#[test]
fn a_descriptor_that_the_server_leaks_is_not_inherited() {
    if !can_be_full() {
        return;
    }
    let leaked = File::open("/etc/shadow").unwrap();
    rustix::io::fcntl_setfd(&leaked, FdFlags::empty()).unwrap();
    let outcome = Room::new(Tier::Full).run(&["shell", "ls /proc/1/fd"]);
    assert_eq!(outcome.output, "0\n1\n2\n");
}

#[test]
fn a_setuid_file_sets_no_user() {
    if !can_be_full() {
        return;
    }
    let room = Room::new(Tier::Full);
    let file = room.workspace().join("id");
    fs::copy("/usr/bin/id", &file).unwrap();
    chown(&file, Some(0), Some(0)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o6755)).unwrap();
    let outcome = room.run(&["shell", "/workspace/id -u; /workspace/id -g"]);
    assert_eq!(outcome.output, "1000\n1000\n");
}

#[test]
fn pid_1_cannot_be_signalled_from_inside() {
    for tier in tiers() {
        let script = "kill -9 1; kill -STOP 1; kill -TERM 1; kill -SEGV 1; echo still here";
        let outcome = Room::new(tier).run(&["shell", script]);
        assert_eq!(
            (outcome.ended.as_str(), outcome.output.as_str()),
            ("Exited(0)", "still here\n")
        );
    }
}

#[test]
fn calls_of_another_architecture_end_the_process() {
    for tier in tiers() {
        let outcome = Room::new(tier).run(&["shell", "/run/ash/bridge other-calls; echo $?"]);
        // SIGSYS by the filter, SIGSEGV by a kernel without them, 254 where there are none.
        let code: i32 = outcome.output.trim().parse().unwrap_or_else(|_| panic!("{outcome:?}"));
        assert!([128 + 31, 128 + 11, 254].contains(&code), "{outcome:?}");
    }
}

#[test]
fn what_ends_with_pid_1_is_everything() {
    for tier in tiers() {
        let script = "(trap '' TERM HUP; setsid sh -c 'sleep 1; echo outlived >> /workspace/late' &) ; echo done";
        let room = Room::new(tier);
        let outcome = room.run(&["shell", script]);
        assert_eq!(outcome.output, "done\n");
        // The namespace of processes is gone when its pid 1 is, so there is nothing to wait for.
        assert!(!room.workspace().join("late").exists());
    }
}

#[test]
fn what_is_the_servers_own_is_covered_where_it_lies_among_shared_trees() {
    if !can_be_full() {
        return;
    }
    let own = tempfile::Builder::new().prefix("ash-own-").tempdir_in("/usr/local").unwrap();
    fs::set_permissions(own.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(own.path().join("key"), "secret").unwrap();
    let room = Room::new(Tier::Full);
    let script = format!("ls -A {0}; touch {0}/x", own.path().display());
    let outcome = start_hiding(&room, own.path(), &["shell", &script]);
    assert_eq!(room.output(), "", "{outcome:?}");
    assert!(own.path().join("key").exists());
}

#[test]
fn what_all_sandboxes_share_can_be_run_and_not_changed() {
    for tier in tiers() {
        let room = Room::new(tier);
        let shared = room.dir.path().join("claude");
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o755)).unwrap();
        chown(&shared, Some(room.uid), Some(room.uid)).unwrap();
        let program = shared.join("program");
        fs::copy("/usr/bin/id", &program).unwrap();
        chown(&program, Some(room.uid), Some(room.uid)).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o6755)).unwrap();
        let script = "/run/ash/claude/program -u; touch /run/ash/claude/more; \
                      echo x >> /run/ash/claude/program; rm /run/ash/claude/program; \
                      grep ' /run/ash/claude ' /proc/mounts | tr ',' '\n' | grep -c -x -E 'nosuid|nodev'";
        let outcome = room.run(&["shell", script]);
        assert_eq!(outcome.output, "1000\n2\n", "tier {}: {outcome:?}", tier.as_str());
        let refusals = outcome.log.matches("Read-only file system").count();
        assert_eq!(refusals, 3, "tier {}: {outcome:?}", tier.as_str());
        assert_eq!(fs::read_dir(&shared).unwrap().count(), 1);
    }
}

#[test]
fn a_directory_of_the_machine_can_be_shown_without_what_is_the_server_s_in_it() {
    for tier in tiers() {
        let room = Room::new(tier);
        let shared = room.dir.path().join("shared");
        let program = shared.join("node_modules/a/index.js");
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        fs::create_dir(shared.join("secret")).unwrap();
        fs::write(&program, "program").unwrap();
        fs::write(shared.join("secret/key"), SECRET).unwrap();
        for path in [&shared, &shared.join("secret")] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
            chown(path, Some(room.uid), Some(room.uid)).unwrap();
        }
        let script = "cd /run/ash/shared/a/tree; cat node_modules/a/index.js; echo; ls secret; cat secret/key; \
                      touch more; touch secret/more; rm -r node_modules";
        let outcome = room.run(&["shell", script]);
        assert_eq!(outcome.output, "program\n", "tier {}: {outcome:?}", tier.as_str());
        let refusals = outcome.log.matches("Read-only file system").count();
        assert!(refusals >= 3, "tier {}: {outcome:?}", tier.as_str());
        assert!(program.exists() && shared.join("secret/key").exists());
    }
}

fn start_hiding(room: &Room, hidden: &Path, args: &[&str]) -> Ended {
    let file = |path: &Path| File::open(path).unwrap();
    let output = File::create(room.dir.path().join("output")).unwrap();
    let null = File::options().read(true).write(true).open("/dev/null").unwrap();
    let launched = Launcher::new(helper(), Tier::Full)
        .start(&Spec {
            uid: Some(room.uid),
            program: file(&helper()).as_fd(),
            workspace: file(&room.workspace()).as_fd(),
            home: file(&room.dir.path().join("home")).as_fd(),
            control: null.as_fd(),
            spool: output.as_fd(),
            log: null.as_fd(),
            limits: &Limits::default(),
            environment: &[("PATH", "/usr/bin:/bin")],
            cgroup: None,
            args,
            hidden: &[hidden],
            claude: None,
            shared: &[],
        })
        .unwrap();
    end_of(&launched)
}

#[test]
fn root_never_enters() {
    if !can_be_full() {
        return;
    }
    let mut room = Room::new(Tier::Full);
    room.uid = 0;
    let error = room.start(None, &["sleep"]).unwrap_err();
    assert_eq!(error.step, Step::Spec, "{error}");
}

#[test]
fn a_program_that_cannot_be_executed_is_an_error_with_a_hint() {
    if !is_root() {
        return;
    }
    let room = Room::new(Tier::Full);
    let secret = room.dir.path().join("program");
    fs::copy(helper(), &secret).unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o700)).unwrap();
    let null = File::options().read(true).write(true).open("/dev/null").unwrap();
    let program = File::open(&secret).unwrap();
    let dir = File::open(room.workspace()).unwrap();
    let error = Launcher::new(helper(), Tier::Full)
        .start(&Spec {
            uid: Some(room.uid),
            program: program.as_fd(),
            workspace: dir.as_fd(),
            home: dir.as_fd(),
            control: null.as_fd(),
            spool: null.as_fd(),
            log: null.as_fd(),
            limits: &room.limits,
            environment: &[],
            cgroup: None,
            args: &[],
            hidden: &[],
            claude: None,
            shared: &[],
        })
        .unwrap_err();
    assert_eq!(error.step, Step::Exec, "{error}");
    assert!(error.hint.as_deref().unwrap_or_default().contains("chmod 0755"), "{error:?}");
    // Nothing of it is left, not even to be reaped.
    let uid = format!("Uid:\t{}\t", room.uid);
    let left = fs::read_dir("/proc").unwrap().flatten().find(|entry| {
        fs::read_to_string(entry.path().join("status")).is_ok_and(|status| status.contains(&uid))
    });
    assert!(left.is_none(), "{left:?}");
}

#[test]
fn a_helper_that_is_not_there_is_an_error_that_names_it() {
    let null = File::open("/dev/null").unwrap();
    let (tier, uid) = if is_root() { (Tier::Full, Some(200_001)) } else { (Tier::Rootless, None) };
    let error = Launcher::new("/nowhere/helper".into(), tier)
        .start(&Spec {
            uid,
            program: null.as_fd(),
            workspace: null.as_fd(),
            home: null.as_fd(),
            control: null.as_fd(),
            spool: null.as_fd(),
            log: null.as_fd(),
            limits: &Limits::default(),
            environment: &[],
            cgroup: None,
            args: &[],
            hidden: &[],
            claude: None,
            shared: &[],
        })
        .unwrap_err();
    assert_eq!(error.step, Step::Helper);
    assert!(error.to_string().contains("/nowhere/helper"), "{error}");
}

#[test]
fn of_anothers_child_only_the_end_is_known() {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "sleep 1000 & echo $!; wait"]).stdout(Stdio::piped());
    let mut shell = shell.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let pid = rustix::process::Pid::from_raw(line.trim().parse().unwrap()).unwrap();
    let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
    assert_eq!(ash_sandbox::wait(pidfd.as_fd()).unwrap(), None);
    rustix::process::pidfd_send_signal(&pidfd, rustix::process::Signal::KILL).unwrap();
    until("the end of the other's child", || {
        ash_sandbox::wait(pidfd.as_fd()).unwrap() == Some(Ended::Gone)
    });
    shell.wait().unwrap();
}
