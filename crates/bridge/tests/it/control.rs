//! The bridge as a server meets it: a socket to connect to, and a spool to read.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ash_protocol::{
    Answer, Ask, Config, Event, ExecEnd, ExecRequest, Frame, Hello, OURS, Reported, Versions,
};

pub(crate) struct Bridge {
    child: Child,
    pub(crate) dir: tempfile::TempDir,
}

impl Bridge {
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let control = UnixListener::bind(dir.path().join("sock")).unwrap();
        let spool = File::options();
        let spool = spool.clone().read(true).write(true).create(true).clone();
        let spool = spool.open(dir.path().join("spool")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_ash-bridge"))
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(control)))
            .stdout(Stdio::from(spool))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, dir }
    }

    fn connect(&self) -> Client {
        let stream = UnixStream::connect(self.dir.path().join("sock")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Client { lines: BufReader::new(stream.try_clone().unwrap()), stream, last_id: 0 }
    }

    /// A server of this life that has this much.
    pub(crate) fn greeted(&self, owner: u64, after: u64) -> Client {
        let mut client = self.connect();
        let answer = client.ask(&Ask::Hello(Hello { versions: OURS, owner, after }));
        assert!(matches!(answer, Answer::Welcome(_)), "{answer:?}");
        client
    }

    fn config(&self, orphan_ttl_ms: u64) -> Ask {
        Ask::Configure(Box::new(self.configuration(orphan_ttl_ms)))
    }

    pub(crate) fn configuration(&self, orphan_ttl_ms: u64) -> Config {
        Config {
            runtime: "builtin".to_owned(),
            workspace: self.dir.path().to_owned(),
            home: self.dir.path().join("home"),
            env: std::collections::BTreeMap::new(),
            model: "none".to_owned(),
            limits: ash_protocol::Limits::default(),
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
            orphan_ttl_ms,
        }
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

pub(crate) struct Client {
    stream: UnixStream,
    lines: BufReader<UnixStream>,
    last_id: u64,
}

impl Client {
    pub(crate) fn send(&mut self, frame: &Frame) {
        self.stream.write_all(&frame.encode().unwrap()).unwrap();
    }

    /// The next frame; nothing when the bridge hung up.
    fn next(&mut self) -> Option<Frame> {
        let mut line = String::new();
        match self.lines.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) => Some(serde_json::from_str(&line).unwrap()),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Asks, and passes over what comes before the answer.
    pub(crate) fn ask(&mut self, ask: &Ask) -> Answer {
        self.last_id += 1;
        self.send(&ask.frame().unwrap().asking(self.last_id));
        loop {
            let frame = self.next().expect("the bridge answers");
            if frame.re == Some(self.last_id) {
                return Answer::of(&frame).unwrap().unwrap();
            }
        }
    }

    fn report(&mut self) -> Reported {
        loop {
            let frame = self.next().expect("the bridge reports");
            if frame.kind == ash_protocol::REPORT {
                return frame.read().unwrap();
            }
        }
    }

    /// The kinds of what is reported, through the end of a run.
    pub(crate) fn run_to_its_end(&mut self) -> Vec<(u64, String)> {
        let mut seen = Vec::new();
        loop {
            let reported = self.report();
            seen.push((reported.position, reported.kind.clone()));
            if let Event::Ended { .. } = reported.event().unwrap() {
                return seen;
            }
        }
    }
}

/// A prompt that no agent takes: its run ends at once, without a model.
pub(crate) fn senseless(run: &str) -> Ask {
    Ask::Deliver { run: run.to_owned(), prompt: serde_json::from_str("17").unwrap() }
}

#[test]
fn reports_are_sent_again_until_they_are_acknowledged() {
    let bridge = Bridge::start();
    let mut first = bridge.greeted(1, 0);
    assert!(matches!(first.ask(&bridge.config(60_000)), Answer::Done));
    assert!(matches!(first.ask(&senseless("a")), Answer::Done));
    let seen = first.run_to_its_end();
    assert_eq!(seen.first().unwrap(), &(1, "begun".to_owned()));
    let last = seen.last().unwrap().0;
    assert_eq!(last, seen.len() as u64, "numbered without holes");
    drop(first);

    let mut again = bridge.greeted(2, 0);
    assert_eq!(again.run_to_its_end(), seen, "nothing was acknowledged");
    drop(again);
    let mut rest = bridge.greeted(3, 1);
    assert_eq!(rest.run_to_its_end(), seen[1..], "the rest, for who has the first");
    rest.send(&Ask::Acknowledge { through: last }.frame().unwrap());
    assert!(matches!(rest.ask(&senseless("a")), Answer::Done), "it has this prompt");
    assert!(matches!(rest.ask(&senseless("b")), Answer::Done));
    assert_eq!(rest.report().position, last + 1, "nothing was begun twice");
}

#[test]
fn a_run_that_was_interrupted_before_it_came_ends_as_it_comes() {
    let bridge = Bridge::start();
    let mut server = bridge.greeted(1, 0);
    server.ask(&bridge.config(60_000));
    assert!(matches!(server.ask(&Ask::Interrupt { run: "a".to_owned() }), Answer::Done));
    server.ask(&Ask::Deliver {
        run: "a".to_owned(),
        prompt: serde_json::from_str("\"hi\"").unwrap(),
    });
    // It is in the conversation all the same: what was said is not forgotten.
    assert!(matches!(server.report().event(), Ok(Event::Begun)));
    let mut next = server.report().event().unwrap();
    if matches!(&next, Event::Output { name, .. } if name == "transcript") {
        next = server.report().event().unwrap();
    }
    let Event::Ended { how, .. } = next else { panic!("{next:?}") };
    assert_eq!(how, ash_protocol::Ending::Interrupted);
}

#[test]
fn the_last_to_say_hello_is_listened_to_unless_an_earlier_server_says_it() {
    let bridge = Bridge::start();
    let mut first = bridge.greeted(5, 0);
    let mut second = bridge.greeted(5, 0);
    let farewell = first.next().expect("it is told");
    assert_eq!(farewell.kind, ash_protocol::REPLACED);
    assert!(first.next().is_none(), "and then hung up on");
    let mut stale = bridge.connect();
    let hello = Ask::Hello(Hello { versions: OURS, owner: 4, after: 0 });
    stale.send(&hello.frame().unwrap().asking(1));
    assert_eq!(stale.next().expect("it is told").kind, ash_protocol::REPLACED);
    assert!(matches!(second.ask(&bridge.config(60_000)), Answer::Done), "it is still there");
}

#[test]
fn who_speaks_another_version_is_told_which_would_do() {
    let bridge = Bridge::start();
    let mut client = bridge.connect();
    let versions = Versions { oldest: 90, newest: 91 };
    let answer = client.ask(&Ask::Hello(Hello { versions, owner: 1, after: 0 }));
    let Answer::Refused { message } = answer else { panic!("{answer:?}") };
    assert!(message.contains("90"), "{message}");
    assert!(client.next().is_none());
}

#[test]
fn what_is_not_known_is_refused_and_what_is_no_frame_ends_the_connection() {
    let bridge = Bridge::start();
    let mut server = bridge.greeted(1, 0);
    server.send(&Frame::new("dance", &1).unwrap().asking(77));
    let frame = server.next().unwrap();
    assert_eq!((frame.re, frame.kind.as_str()), (Some(77), "refused"));
    server.stream.write_all(b"what is JSON?\n").unwrap();
    assert!(server.next().is_none());
    // Nobody else suffers from it.
    assert!(matches!(bridge.greeted(1, 0).ask(&bridge.config(60_000)), Answer::Done));
}

#[test]
fn the_silent_do_not_count_and_an_abandoned_bridge_ends() {
    let mut bridge = Bridge::start();
    let silent: Vec<Client> = (0..20).map(|_| bridge.connect()).collect();
    let mut server = bridge.greeted(1, 0);
    assert!(matches!(server.ask(&bridge.config(1)), Answer::Done));
    drop(server);
    // Neither the hello that never comes nor its deadline is waited for.
    assert!(bridge.child.wait().unwrap().success());
    drop(silent);
}

#[test]
fn output_that_grows_when_it_is_escaped_still_comes() {
    let bridge = Bridge::start();
    let mut server = bridge.greeted(1, 0);
    server.ask(&bridge.config(60_000));
    let request = ExecRequest {
        command: "head -c 6000000 /dev/zero".to_owned(),
        cwd: None,
        timeout_ms: 60_000,
        max_output_bytes: 6_000_000,
    };
    let Answer::Executed(result) = server.ask(&Ask::Exec(request)) else { panic!() };
    assert!(result.omitted_bytes > 4_000_000, "{}", result.omitted_bytes);
}

#[test]
fn a_shutdown_ends_it_with_everything_it_runs() {
    let mut bridge = Bridge::start();
    let mut server = bridge.greeted(1, 0);
    server.ask(&bridge.config(60_000));
    assert!(matches!(server.ask(&Ask::Shutdown), Answer::Done));
    assert!(bridge.child.wait().unwrap().success());
}

fn command(command: String) -> Ask {
    Ask::Exec(ExecRequest { command, cwd: None, timeout_ms: 60_000, max_output_bytes: 1_000 })
}

/// A prompt is being worked on: nobody accepts the model's requests, so it stays so.
fn at_work(bridge: &Bridge) -> Client {
    let mut server = bridge.greeted(1, 0);
    server.ask(&bridge.config(60_000));
    let prompt = serde_json::from_str("\"hi\"").unwrap();
    server.ask(&Ask::Deliver { run: "a".to_owned(), prompt });
    while server.report().kind != "phase" {}
    server
}

#[test]
fn a_command_is_run_and_answered_while_a_turn_goes_on() {
    let bridge = Bridge::start();
    let mut server = at_work(&bridge);
    let answer = server.ask(&command("echo beside".to_owned()));
    let Answer::Executed(result) = answer else { panic!("{answer:?}") };
    assert_eq!((result.end, result.stdout.as_str()), (ExecEnd::Exited(0), "beside\n"));
    // The turn has not noticed: it ends when it is told to, and in no other way.
    server.ask(&Ask::Interrupt { run: "a".to_owned() });
    loop {
        if let Event::Ended { how, .. } = server.report().event().unwrap() {
            assert_eq!(how, ash_protocol::Ending::Interrupted);
            return;
        }
    }
}

#[test]
fn commands_at_the_same_time_each_get_their_own_answer() {
    let bridge = Bridge::start();
    let mut server = at_work(&bridge);
    let pipe = |number: usize| bridge.dir.path().join(format!("pipe-{number}"));
    // Each waits for the one that was asked later, so they end in the opposite order, and none of
    // them would if they ran one after the other.
    const LAST: usize = 7;
    for number in 0..=LAST {
        assert!(Command::new("mkfifo").arg(pipe(number)).status().unwrap().success());
    }
    for number in 0..=LAST {
        let wait = if number == LAST {
            String::new()
        } else {
            format!("read -r said < {}; ", pipe(number + 1).display())
        };
        let tell = if number == 0 {
            String::new()
        } else {
            format!("echo done > {}", pipe(number).display())
        };
        let script =
            format!("{wait}echo out-{number}; echo err-{number} >&2; {tell}; exit {number}");
        let script = script.replace("; ;", ";");
        let id = 100 + u64::try_from(number).unwrap();
        server.send(&command(script).frame().unwrap().asking(id));
    }
    let mut answered = Vec::new();
    while answered.len() <= LAST {
        let frame = server.next().expect("the bridge answers");
        let Some(id) = frame.re.filter(|id| *id >= 100) else { continue };
        let Some(Answer::Executed(result)) = Answer::of(&frame).unwrap() else {
            panic!("{frame:?}")
        };
        let number = id - 100;
        assert_eq!(result.end, ExecEnd::Exited(i32::try_from(number).unwrap()));
        assert_eq!(result.stdout, format!("out-{number}\n"));
        assert_eq!(result.stderr, format!("err-{number}\n"));
        answered.push(number);
    }
    answered.sort_unstable();
    assert_eq!(answered, (0..=LAST as u64).collect::<Vec<_>>());
}
