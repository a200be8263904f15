//! One bridge, started in one way or another, and asked until it answers.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ash_protocol::{Answer, Ask, Config, ExecRequest, Frame, Hello, Limits, OURS};
use ash_sandbox::{Cgroup, Launched, Launcher, Spec, Tier};
use rustix::process::Signal;

/// The user of the measured sandboxes. No session has it: the server's begin above it.
const UID: u32 = 199_998;

/// How long an answer may take on the busiest machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// What every sandbox has in its environment.
const ENVIRONMENT: [(&str, &str); 2] = [("PATH", "/usr/bin:/bin"), ("HOME", "/home/agent")];

/// The ways in which a bridge is started.
#[derive(Clone, Copy)]
pub(crate) enum Way<'a> {
    /// As a plain child.
    ForkAndExec,
    /// By our launcher, in a cgroup if there is one.
    Launcher(Option<&'a Cgroup>),
    /// By bubblewrap, with the same namespaces.
    Bubblewrap,
}

/// A place for one bridge after the other.
pub(crate) struct Room {
    dir: PathBuf,
    bridge: PathBuf,
    launcher: Launcher,
    uid: Option<u32>,
    limits: ash_sandbox::Limits,
}

/// A bridge that has answered.
pub(crate) struct Started {
    life: Life,
    stream: UnixStream,
    lines: BufReader<UnixStream>,
    last_id: u64,
}

enum Life {
    Child(Child),
    Sandbox(Launched),
}

impl Room {
    pub(crate) fn new(dir: PathBuf, bridge: PathBuf) -> Self {
        let is_root = rustix::process::geteuid().is_root();
        let (tier, uid) = if is_root { (Tier::Full, Some(UID)) } else { (Tier::Rootless, None) };
        fs::create_dir(&dir).expect("there is room");
        // Whoever is the user in bubblewrap enters it by its path.
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).expect("it is ours");
        for name in ["workspace", "home"] {
            fs::create_dir(dir.join(name)).expect("there is room");
            chown(dir.join(name), uid, uid).expect("users can be given");
        }
        let launcher = Launcher::new(bridge.clone(), tier);
        Self { dir, bridge, launcher, uid, limits: ash_sandbox::Limits::default() }
    }

    pub(crate) fn limits(&self) -> &ash_sandbox::Limits {
        &self.limits
    }

    pub(crate) fn tier(&self) -> &'static str {
        self.launcher.tier().as_str()
    }

    /// Starts a bridge, and says how long it took until that had answered.
    pub(crate) fn start(&self, way: Way<'_>) -> (Duration, Started) {
        let path = |name: &str| self.dir.join(name);
        for name in ["sock", "spool"] {
            let _not_there = fs::remove_file(path(name));
        }
        let control = UnixListener::bind(path("sock")).expect("it is free");
        let spool = File::create_new(path("spool")).expect("there is room");
        let log = File::options().create(true).append(true).open(path("log"));
        let log = log.expect("there is room");
        let begin = Instant::now();
        let life = match way {
            Way::ForkAndExec => Life::Child(spawn(Command::new(&self.bridge), control, spool, log)),
            Way::Bubblewrap => Life::Child(spawn(self.bubblewrap(), control, spool, log)),
            Way::Launcher(cgroup) => Life::Sandbox(self.launch(cgroup, &control, &spool, &log)),
        };
        let stream = UnixStream::connect(path("sock")).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("it is a socket");
        let lines = BufReader::new(stream.try_clone().expect("there are descriptors"));
        let mut started = Started { life, stream, lines, last_id: 0 };
        let hello = Ask::Hello(Hello { versions: OURS, owner: 1, after: 0 });
        assert!(matches!(started.ask(&hello), Answer::Welcome(_)), "it welcomes us");
        (begin.elapsed(), started)
    }

    fn launch(
        &self,
        cgroup: Option<&Cgroup>,
        control: &UnixListener,
        spool: &File,
        log: &File,
    ) -> Launched {
        let open = |path: &Path| File::open(path).expect("it is there");
        let launched = self.launcher.start(&Spec {
            uid: self.uid,
            program: open(&self.bridge).as_fd(),
            workspace: open(&self.dir.join("workspace")).as_fd(),
            home: open(&self.dir.join("home")).as_fd(),
            control: control.as_fd(),
            spool: spool.as_fd(),
            log: log.as_fd(),
            limits: &self.limits,
            environment: &ENVIRONMENT,
            cgroup,
            shared: &[],
            args: &[],
            hidden: &[],
            claude: None,
        });
        launched.unwrap_or_else(|error| panic!("{error}: {} {:?}", error.source, error.hint))
    }

    /// The same namespaces, places and program; no limits, no filter of system calls.
    fn bubblewrap(&self) -> Command {
        let mut command = Command::new("bwrap");
        command.args(["--unshare-all", "--unshare-user", "--die-with-parent", "--as-pid-1"]);
        command.args(["--uid", "1000", "--gid", "1000", "--hostname", "ash", "--cap-drop", "ALL"]);
        command.args(["--ro-bind", "/usr", "/usr", "--ro-bind-try", "/opt", "/opt"]);
        for name in ["bin", "sbin", "lib", "lib64"] {
            let target = format!("/{name}");
            match fs::read_link(&target) {
                Ok(link) => command.arg("--symlink").arg(link).arg(&target),
                Err(_) => command.args(["--ro-bind-try", &target, &target]),
            };
        }
        for name in ["alternatives", "ld.so.cache", "localtime", "os-release", "ssl/certs"] {
            let target = format!("/etc/{name}");
            command.args(["--ro-bind-try", &target, &target]);
        }
        command.args(["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]);
        command.arg("--bind").arg(self.dir.join("workspace")).arg("/workspace");
        command.arg("--bind").arg(self.dir.join("home")).arg("/home/agent");
        command.arg("--ro-bind").arg(&self.bridge).arg("/run/ash/bridge");
        command.args(["--remount-ro", "/", "--chdir", "/", "/run/ash/bridge"]);
        command
    }
}

fn spawn(mut command: Command, control: UnixListener, spool: File, log: File) -> Child {
    command.env_clear().envs(ENVIRONMENT).current_dir("/");
    command.stdin(Stdio::from(OwnedFd::from(control))).stdout(spool).stderr(log);
    command.spawn().expect("it can be run")
}

impl Started {
    /// Makes it ready for commands.
    pub(super) fn configure(&mut self) {
        let config = Config {
            runtime: "builtin".to_owned(),
            workspace: "/workspace".into(),
            home: "/home/agent".into(),
            env: BTreeMap::new(),
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
            orphan_ttl_ms: 10_000,
        };
        assert!(matches!(self.ask(&Ask::Configure(Box::new(config))), Answer::Done));
    }

    pub(super) fn exec(&mut self, command: &str) {
        let request = ExecRequest {
            command: command.to_owned(),
            cwd: None,
            timeout_ms: 10_000,
            max_output_bytes: 1_000,
        };
        assert!(matches!(self.ask(&Ask::Exec(request)), Answer::Executed(_)));
    }

    fn ask(&mut self, ask: &Ask) -> Answer {
        self.last_id += 1;
        let frame = ask.frame().expect("it is small").asking(self.last_id);
        self.stream.write_all(&frame.encode().expect("it is small")).expect("it listens");
        loop {
            let mut line = String::new();
            let read = self.lines.read_line(&mut line).expect("it answers in time");
            assert!(read > 0, "the bridge hung up; see the log in its directory");
            let frame: Frame = serde_json::from_str(&line).expect("it speaks our language");
            if frame.re == Some(self.last_id) {
                return Answer::of(&frame).expect("it is known").expect("it is an answer");
            }
        }
    }
}

impl Drop for Started {
    /// Kills it, and waits until it is gone: the next one shall not compete with it.
    fn drop(&mut self) {
        match &mut self.life {
            Life::Child(child) => {
                let _dead_already = child.kill();
                let _reaped = child.wait();
            }
            Life::Sandbox(launched) => {
                let pidfd = &launched.pidfd;
                let _dead_already = rustix::process::pidfd_send_signal(pidfd, Signal::KILL);
                while matches!(ash_sandbox::wait(pidfd.as_fd()), Ok(None)) {
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
        }
    }
}
