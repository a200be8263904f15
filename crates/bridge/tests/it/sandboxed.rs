//! The bridge as it is meant to run: pid 1 of a sandbox, started by itself.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::chown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use ash_protocol::{
    Answer, Ask, Config, ExecEnd, ExecRequest, ExecResult, Frame, Hello, Limits, OURS,
};
use ash_sandbox::{Cgroup, Cgroups, Ended, Launched, Launcher, Probe, Spec, Tier, probe};
use rustix::process::Signal;

struct Sandboxed {
    launched: Launched,
    stream: UnixStream,
    lines: BufReader<UnixStream>,
    last_id: u64,
    dir: tempfile::TempDir,
    bounds: Option<Bounds>,
}

/// A cgroup of one test. It goes with everything in it.
struct Bounds {
    cgroups: Cgroups,
    cgroup: Cgroup,
}

impl Bounds {
    /// None where this machine cannot bound memory.
    fn memory(name: &str, limits: &ash_sandbox::Limits) -> Option<Self> {
        let cgroups = Cgroups::detect(&format!("test-{name}-{}", std::process::id()));
        if !cgroups.abilities().memory {
            #[expect(clippy::print_stdout, reason = "a test says that it was not tried")]
            {
                println!("not tried: memory cannot be bounded here");
            }
            return None;
        }
        let cgroup = cgroups.create("one", limits).unwrap()?;
        Some(Self { cgroups, cgroup })
    }
}

impl Drop for Bounds {
    fn drop(&mut self) {
        let _left = self.cgroup.kill().and_then(|()| self.cgroup.remove());
        let _left = self.cgroups.clone().remove();
    }
}

fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_ash-bridge"))
}

/// The tier that this user can have, with a user for the sandbox.
fn tier() -> (Tier, Option<u32>) {
    let is_root = rustix::process::geteuid().is_root();
    if is_root { (Tier::Full, Some(264_000)) } else { (Tier::Rootless, None) }
}

impl Sandboxed {
    fn start() -> Self {
        Self::start_with(&ash_sandbox::Limits::default(), None)
    }

    /// None where this machine cannot bound memory.
    fn start_small(name: &str) -> Option<Self> {
        let limits =
            ash_sandbox::Limits { memory_bytes: Some(64 << 20), ..ash_sandbox::Limits::default() };
        let bounds = Bounds::memory(name, &limits)?;
        Some(Self::start_with(&limits, Some(bounds)))
    }

    fn start_with(limits: &ash_sandbox::Limits, bounds: Option<Bounds>) -> Self {
        let (tier, uid) = tier();
        #[expect(clippy::print_stdout, reason = "a test says which tier it tried")]
        {
            println!("tier tried: {}", tier.as_str());
        }
        let dir = tempfile::tempdir().unwrap();
        let made = |name: &str| {
            let path = dir.path().join(name);
            fs::create_dir(&path).unwrap();
            chown(&path, uid, uid).unwrap();
            File::open(&path).unwrap()
        };
        let (workspace, home) = (made("workspace"), made("home"));
        let control = UnixListener::bind(dir.path().join("sock")).unwrap();
        let spool = File::create_new(dir.path().join("spool")).unwrap();
        let log = File::create_new(dir.path().join("log")).unwrap();
        let launched = Launcher::new(program(), tier)
            .start(&Spec {
                uid,
                program: File::open(program()).unwrap().as_fd(),
                workspace: workspace.as_fd(),
                home: home.as_fd(),
                control: control.as_fd(),
                spool: spool.as_fd(),
                log: log.as_fd(),
                limits,
                environment: &[("PATH", "/usr/bin:/bin"), ("HOME", "/home/agent")],
                cgroup: bounds.as_ref().map(|bounds| &bounds.cgroup),
                args: &[],
                hidden: &[dir.path()],
                claude: None,
                shared: &[],
            })
            .unwrap_or_else(|error| panic!("{error}: {} {:?}", error.source, error.hint));
        let stream = UnixStream::connect(dir.path().join("sock")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap());
        let mut this = Self { launched, stream, lines, last_id: 0, dir, bounds };
        let hello = Ask::Hello(Hello { versions: OURS, owner: 1, after: 0 });
        assert!(matches!(this.ask(&hello), Answer::Welcome(_)));
        let config = Config {
            runtime: "builtin".to_owned(),
            workspace: "/workspace".into(),
            home: "/home/agent".into(),
            env: std::collections::BTreeMap::new(),
            model: "none".to_owned(),
            limits: Limits::default(),
            system_prompt: None,
            remark: None,
            mcp_servers: None,
            allowed_tools: Vec::new(),
            disallowed_tools: Vec::new(),
            permission_mode: None,
            permission_timeout_ms: None,
            session: None,
            claude: None,
            legacy: None,
            proxied: false,
            hooked: false,
            orphan_ttl_ms: 60_000,
        };
        assert!(matches!(this.ask(&Ask::Configure(Box::new(config))), Answer::Done));
        this
    }

    fn ask(&mut self, ask: &Ask) -> Answer {
        self.last_id += 1;
        let frame = ask.frame().unwrap().asking(self.last_id);
        self.stream.write_all(&frame.encode().unwrap()).unwrap();
        loop {
            let mut line = String::new();
            let read = self.lines.read_line(&mut line).unwrap();
            assert!(read > 0, "hung up; {:?}", fs::read_to_string(self.dir.path().join("log")));
            let frame: Frame = serde_json::from_str(&line).unwrap();
            if frame.re == Some(self.last_id) {
                return Answer::of(&frame).unwrap().unwrap();
            }
        }
    }

    fn exec(&mut self, command: &str, timeout_ms: u64) -> ExecResult {
        let request = ExecRequest {
            command: command.to_owned(),
            cwd: None,
            timeout_ms,
            max_output_bytes: 10_000,
        };
        let Answer::Executed(result) = self.ask(&Ask::Exec(request)) else { panic!("not run") };
        result
    }
}

impl Drop for Sandboxed {
    fn drop(&mut self) {
        let _ended = rustix::process::pidfd_send_signal(&self.launched.pidfd, Signal::KILL);
        while matches!(ash_sandbox::wait(self.launched.pidfd.as_fd()), Ok(None)) {
            std::thread::yield_now();
        }
        drop(self.bounds.take());
    }
}

#[test]
fn a_command_runs_under_its_keeper() {
    let mut bridge = Sandboxed::start();
    let result = bridge.exec("id -un; pwd; echo kept > file; cat /proc/1/comm", 30_000);
    assert_eq!(result.end, ExecEnd::Exited(0), "{result:?}");
    assert_eq!(result.stdout, "agent\n/workspace\nbridge\n");
    assert!(bridge.dir.path().join("workspace/file").exists());
}

#[test]
fn a_command_that_will_not_end_is_ended() {
    let mut bridge = Sandboxed::start();
    let script = "trap '' TERM; (trap '' TERM; setsid sleep 1000 &); sleep 1000";
    assert_eq!(bridge.exec(script, 200).end, ExecEnd::TimedOut);
    let left = bridge.exec("cat /proc/[0-9]*/comm | grep -c sleep", 30_000);
    assert_eq!(left.stdout, "0\n", "{left:?}");
}

#[test]
fn an_agent_reaches_neither_the_memory_nor_the_descriptors_of_its_bridge() {
    let mut bridge = Sandboxed::start();
    for attempt in [
        "cat /proc/1/environ",
        "ls /proc/1/fd/",
        "readlink /proc/1/exe",
        "cat /proc/1/fd/1",
        "head -c 1 /proc/1/mem",
        "cat /proc/1/maps",
        "readlink /proc/1/cwd",
        "ls /proc/1/root/",
        "cat /proc/1/io",
        "echo 0 > /proc/1/oom_score_adj",
        "echo x > /run/ash/bridge",
    ] {
        let result = bridge.exec(attempt, 30_000);
        assert_eq!(result.stdout, "", "{attempt}: {result:?}");
        assert_ne!(result.end, ExecEnd::Exited(0), "{attempt}: {result:?}");
    }
    // Neither the socket nor the spool has a name inside.
    let named = "find / -path /usr -prune -o -path /opt -prune -o -path /proc -prune -o \
        '(' -name sock -o -name spool ')' -print";
    let result = bridge.exec(named, 60_000);
    assert_eq!(result.stdout, "", "{result:?}");
    let result = bridge.exec("kill -9 1; kill -STOP 1; kill 1; echo still here", 30_000);
    assert_eq!(result.stdout, "still here\n");
    assert_eq!(ash_sandbox::wait(bridge.launched.pidfd.as_fd()).unwrap(), None);
}

#[test]
fn an_agent_reaches_neither_the_memory_nor_the_descriptors_of_a_keeper() {
    let mut bridge = Sandboxed::start();
    // The keeper of a command is its parent.
    let keeper = bridge.exec("cat /proc/$PPID/comm; ps -o args= -p $PPID", 30_000);
    assert!(keeper.stdout.contains("keep"), "{keeper:?}");
    for attempt in [
        "cat /proc/$PPID/environ",
        "ls /proc/$PPID/fd/",
        "cat /proc/$PPID/fd/0",
        "readlink /proc/$PPID/exe",
        "head -c 1 /proc/$PPID/mem",
        "cat /proc/$PPID/maps",
        "readlink /proc/$PPID/cwd",
        "ls /proc/$PPID/root/",
        "cat /proc/$PPID/io",
        "echo 0 > /proc/$PPID/oom_score_adj",
    ] {
        let result = bridge.exec(attempt, 30_000);
        assert_eq!(result.stdout, "", "{attempt}: {result:?}");
        assert_ne!(result.end, ExecEnd::Exited(0), "{attempt}: {result:?}");
    }
    // What it has started is its own again, and the keeper has its place before the bridge.
    let own = "readlink /proc/self/exe; head -c 1 /proc/self/environ > /dev/null && echo mine; \
        cat /proc/self/oom_score_adj /proc/$PPID/oom_score_adj";
    let result = bridge.exec(own, 30_000);
    assert!(result.stdout.ends_with("\nmine\n500\n400\n"), "{result:?}");
}

/// What is said of a command during which memory ran out.
const SENTENCE: &str =
    "[a process was killed while this command ran, because the sandbox ran out of memory]\n";

/// A line that is too long for the sandbox, held by a child of the shell.
const HOG: &str = "head -c 100000000 /dev/zero | tail -n 1";

#[test]
fn a_command_that_ran_out_of_memory_says_so_even_if_its_shell_lives_on() {
    let Some(mut bridge) = Sandboxed::start_small("says") else { return };
    let result = bridge.exec(&format!("{HOG} | wc -c; echo after"), 60_000);
    assert_eq!(result.end, ExecEnd::Exited(0), "{result:?}");
    assert!(result.stdout.ends_with("after\n"), "{result:?}");
    assert!(result.stderr.ends_with(SENTENCE), "{result:?}");
    // Whoever was killed by anybody else did not run out of memory.
    let result = bridge.exec("printf unfinished >&2; kill -9 $$", 60_000);
    assert_eq!(result.end, ExecEnd::Killed(9), "{result:?}");
    assert_eq!(result.stderr, "unfinished");
    let result = bridge.exec("echo last >&2; exec tail -n 1 /dev/zero", 60_000);
    assert_eq!(result.end, ExecEnd::Killed(9), "{result:?}");
    assert_eq!(result.stderr, format!("last\n{SENTENCE}"));
}

#[test]
fn a_bridge_survives_a_bomb_of_many_processes() {
    let Some(mut bridge) = Sandboxed::start_small("bomb") else { return };
    let bomb = format!("for i in $(seq 16); do ({HOG} > /dev/null) & done; wait; echo after");
    let result = bridge.exec(&bomb, 120_000);
    assert!(result.stderr.ends_with(SENTENCE), "{result:?}");
    let result = bridge.exec("cat /proc/self/oom_score_adj; echo still here", 60_000);
    assert_eq!(result.stdout, "500\nstill here\n", "{result:?}");
    assert_eq!(ash_sandbox::wait(bridge.launched.pidfd.as_fd()).unwrap(), None);
}

#[test]
fn a_bridge_that_is_told_to_ends_with_everything() {
    let mut bridge = Sandboxed::start();
    bridge.exec("sleep 1000 &", 30_000);
    assert!(matches!(bridge.ask(&Ask::Shutdown), Answer::Done));
    let ended = loop {
        if let Some(ended) = ash_sandbox::wait(bridge.launched.pidfd.as_fd()).unwrap() {
            break ended;
        }
        std::thread::yield_now();
    };
    assert_eq!(ended, Ended::Exited(0));
}

#[test]
fn the_bridge_probes_its_own_sandbox() {
    let (tier, uid) = tier();
    let scratch = tempfile::tempdir().unwrap();
    let probed = probe(&Probe {
        helper: &program(),
        uid: uid.map(|uid| uid + 1),
        cgroups: &Cgroups::none(),
        scratch: scratch.path(),
        hidden: &[],
    });
    assert_eq!(probed.tier, Some(tier), "{:?} {:?}", probed.why_not, probed.hint);
}
