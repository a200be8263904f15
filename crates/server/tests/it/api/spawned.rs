//! The real executable as a child, so that it can be killed.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use ash_server::model::{self, Model};
use tokio::net::TcpListener;

use super::client::Client;
use super::served::variables;
use crate::world::{bridge_program, can_isolate, end_sandboxes, kill, processes_mentioning};

/// A directory whose processes end with it, however the test ends.
pub(crate) struct Dir(tempfile::TempDir);

impl Dir {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let marker = self.path().as_os_str().to_owned();
        while let [first, ..] = processes_mentioning(&marker)[..] {
            // It may end by itself at this moment.
            let _status = Command::new("kill").args(["-9", &first.to_string()]).status();
        }
        end_sandboxes(&self.path().join("data"));
    }
}

pub(crate) struct Spawned {
    child: Child,
    pub(crate) client: Client,
    pub(crate) model: Model,
    variables: Vec<(String, String)>,
    program: PathBuf,
    pub(crate) dir: Dir,
}

impl Spawned {
    pub(crate) async fn start() -> Self {
        Self::with(&[]).await
    }

    /// With further settings.
    pub(crate) async fn with(settings: &[(&str, &str)]) -> Self {
        Self::of(env!("CARGO_BIN_EXE_ash").into(), Dir::new(), settings).await
    }

    /// A server whose programs are copies, in `bin` of its directory, so that others can be put in their
    /// place.
    pub(crate) async fn of_copies() -> Self {
        let dir = Dir::new();
        let bin = dir.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        std::fs::copy(bridge_program(), bin.join("ash-bridge")).unwrap();
        std::fs::copy(env!("CARGO_BIN_EXE_ash"), bin.join("ash")).unwrap();
        Self::of(bin.join("ash"), dir, &[]).await
    }

    /// A server whose data lies on a disk of its own, so many megabytes large: in a mount namespace that goes with it.
    /// Nothing, if this machine does not let it.
    pub(crate) async fn on_a_small_disk(megabytes: u32, settings: &[(&str, &str)]) -> Option<Self> {
        let dir = Dir::new();
        let (bin, data) = (dir.path().join("bin"), dir.path().join("data"));
        std::fs::create_dir(&bin).unwrap();
        std::fs::create_dir(&data).unwrap();
        let may_mount = |flags: &&str| {
            let probe = ["sh", "-c", "mount -t tmpfs tmpfs \"$1\"", "sh"];
            let mut probing = Command::new("unshare");
            let probed = probing.arg(flags).args(probe).arg(&data).output();
            probed.is_ok_and(|probed| probed.status.success())
        };
        let flags = ["-m", "-rm"].into_iter().find(may_mount)?;
        let (program, server) = (bin.join("ash"), env!("CARGO_BIN_EXE_ash"));
        let data = data.display();
        let script = format!(
            "#!/bin/sh\nPATH=\"$PATH:/usr/sbin:/usr/bin:/sbin:/bin\"\n\
             exec unshare {flags} sh -c 'mount -t tmpfs -o size={megabytes}m tmpfs \"$0\" && \
             exec \"$@\"' '{data}' '{server}' \"$@\"\n"
        );
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
        Some(Self::of(program, dir, settings).await)
    }

    /// Ends the server, and waits for that.
    pub(crate) fn stop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts a server that has ended again.
    pub(crate) fn start_again(&mut self) {
        (self.child, self.client) = spawn(&self.program, self.dir.path(), &self.variables);
    }

    /// What a server says that finds its data where nothing can be written; nothing, if that cannot be arranged.
    pub(crate) fn try_read_only(&self) -> Option<String> {
        let bound = "mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\"";
        let data = self.dir.path().join("data");
        let in_namespace = |flags: &str, then: &str| {
            let mut unshare = Command::new("unshare");
            unshare.args([flags, "sh", "-c", &format!("{bound}{then}"), "sh"]).arg(&data);
            unshare
        };
        let may = |flags: &&str| {
            in_namespace(flags, "").output().is_ok_and(|probe| probe.status.success())
        };
        let flags = ["-m", "-rm"].into_iter().find(may)?;
        let ended = in_namespace(flags, " && shift && exec \"$@\"")
            .arg(&self.program)
            .arg("serve")
            .args((!can_isolate()).then_some("--dangerously-no-sandbox"))
            .current_dir(self.dir.path())
            .envs(self.variables.iter().cloned())
            .output()
            .unwrap();
        assert!(!ended.status.success(), "it cannot serve: {ended:?}");
        Some(String::from_utf8(ended.stderr).unwrap())
    }

    async fn of(program: PathBuf, dir: Dir, settings: &[(&str, &str)]) -> Self {
        bridge_program();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let model = Model::start(listener, model::Options::default()).unwrap();
        let mut variables = variables(dir.path(), &model.url());
        variables.extend(settings.iter().map(|(name, value)| ((*name).into(), (*value).into())));
        let variables: Vec<_> = variables.into_iter().collect();
        let (child, client) = spawn(&program, dir.path(), &variables);
        Self { child, client, model, variables, program, dir }
    }

    /// Kills the server with -9 and starts another one over the same files.
    pub(crate) fn kill_and_restart(&mut self) {
        kill(self.child.id());
        self.restart();
    }

    /// The same, and something of its directory is gone then. No sandbox may run.
    pub(crate) fn kill_and_restart_without(&mut self, lost: &str) {
        kill(self.child.id());
        self.child.wait().unwrap();
        std::fs::remove_dir_all(self.dir.path().join(lost)).unwrap();
        (self.child, self.client) = spawn(&self.program, self.dir.path(), &self.variables);
    }

    /// The next server does not know this setting, which was so.
    pub(crate) fn forget(&mut self, name: &str) -> String {
        let at = self.variables.iter().position(|(of, _)| of == name).expect("it is set");
        self.variables.remove(at).1
    }

    /// The next server has this setting.
    pub(crate) fn remember(&mut self, name: &str, value: String) {
        self.variables.push((name.to_owned(), value));
    }

    /// Waits for the end of the server and starts another one.
    pub(crate) fn restart(&mut self) {
        self.child.wait().unwrap();
        (self.child, self.client) = spawn(&self.program, self.dir.path(), &self.variables);
    }

    /// The next one has another setting.
    pub(crate) fn set(&mut self, setting: &str, value: &str) {
        self.variables.retain(|(name, _)| name != setting);
        self.variables.push((setting.to_owned(), value.to_owned()));
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether the server has ended, and well.
    pub(crate) fn wait(&mut self) -> bool {
        self.child.wait().unwrap().success()
    }

    /// What it printed, over all its lives.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(self.log()).unwrap()
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("log.txt")
    }

    pub(crate) async fn end(mut self) {
        let _ended_already = self.child.kill();
        self.child.wait().unwrap();
        self.model.shutdown().await;
    }
}

fn spawn(program: &Path, dir: &Path, variables: &[(String, String)]) -> (Child, Client) {
    let log = || File::options().create(true).append(true).open(dir.join("log.txt")).unwrap();
    let mut child = Command::new(program)
        .args(["--verbose", "serve"])
        .args((!can_isolate()).then_some("--dangerously-no-sandbox"))
        .current_dir(dir)
        .env_clear()
        .envs(variables.iter().cloned())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.next().unwrap_or_else(|| {
        panic!("it did not start: {}", std::fs::read_to_string(dir.join("log.txt")).unwrap())
    });
    let address = line.rsplit_once("http://").expect("it says where it listens").1;
    let address = address.trim().parse().unwrap();
    // The rest of what it prints is kept, and the pipe stays open as long as it does.
    std::thread::spawn({
        let mut log = log();
        move || {
            use std::io::Write as _;
            lines.for_each(|line| writeln!(log, "{line}").unwrap());
        }
    });
    // As the server sees it: its data may lie on a disk of its own.
    let data = format!("/proc/{}/root{}/data", child.id(), dir.display());
    let key = std::fs::read_to_string(Path::new(&data).join("initial-api-key")).unwrap();
    (child, Client { address, key: key.trim().to_owned() })
}
