//! `ash-bridge guard`: does for a server that was killed what that cannot do any more.
//!
//! A sandbox stands still for a fraction of a second while its files are looked at. If the server is killed in that moment,
//! nobody is left to let it go, and whatever it was doing would never end. And one that is paused stands still for as long
//! as somebody wants it to, but cannot count how long no server has come for it. So the server tells a process beside
//! it, through its standard input:
//!
//! ```text
//! hold <file> <word>                        write this word to this file to let go
//! free <file>                               it was let go
//! wait <milliseconds> <directory>           how long one that is paused lives without a server; whoever serves has a lock
//!                                           on the directory
//! pause <pid> <began> [<file> <word>]       it is paused, until somebody lets it go
//! go <pid>                                  it was let go, or is gone
//! end                                       another program takes the server's place at once: it has a guard of its own
//! ```
//!
//! When the input ends, the server is gone: everything that is held is let go. So is what is held for much longer than
//! anything should be. What is paused is killed after its time, unless there is another server by then. Fields are
//! separated by tabs, and none of them has one in it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process, setsid};

/// How often it is looked whether there is another server.
const LOOK: Duration = Duration::from_millis(500);

/// For how long there has to be one: it says to its own what is paused when it has begun.
const SERVED_FOR: Duration = Duration::from_secs(10);

/// How long something may be held. A server lets go after a quarter of a second.
const LONGEST: Duration = Duration::from_secs(5);

/// How many lines may wait to be obeyed.
const WAITING: usize = 64;

/// The line that says what is about to be held; nothing, if it could not be told from others.
pub fn hold_line(file: &str, word: &str) -> Option<String> {
    let is_plain = |text: &str| !text.contains(['\t', '\n']);
    (is_plain(file) && is_plain(word)).then(|| format!("hold\t{file}\t{word}\n"))
}

/// The line that says what was let go.
pub fn free_line(file: &str) -> String {
    format!("free\t{file}\n")
}

/// The line that says how long what is paused lives without a server, and where that would have a lock.
pub fn wait_line(patience: Duration, directory: &str) -> Option<String> {
    let is_plain = !directory.contains(['\t', '\n']);
    is_plain.then(|| format!("wait\t{}\t{directory}\n", patience.as_millis()))
}

/// The line that says what is paused: its first process, when that began, and what lets it go.
pub fn pause_line(pid: u32, began: u64, thawing: Option<(&str, &str)>) -> Option<String> {
    let is_plain = |text: &str| !text.contains(['\t', '\n']);
    match thawing {
        Some((file, word)) if is_plain(file) && is_plain(word) => {
            Some(format!("pause\t{pid}\t{began}\t{file}\t{word}\n"))
        }
        Some(_) => None,
        None => Some(format!("pause\t{pid}\t{began}\n")),
    }
}

/// The line that says what is not paused any more.
pub fn go_line(pid: u32) -> String {
    format!("go\t{pid}\n")
}

/// The line that says that another program takes the server's place at once.
pub const END_LINE: &str = "end\n";

/// The guard itself. Returns when the server is gone, nothing is held any more, and what was paused is somebody else's or
/// was given its time.
pub fn guard() -> ExitCode {
    // What ends the server's terminal does not end this.
    let _leader_already = setsid();
    let (sender, lines) = mpsc::sync_channel(WAITING);
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let left = watch(&lines, &mut |file, word| {
        // One that is gone needs nobody.
        let _gone = fs::write(file, word);
    });
    if let Some(left) = left {
        left.outlast(LOOK, SERVED_FOR);
    }
    ExitCode::SUCCESS
}

/// What a server that was killed has left paused.
#[derive(Debug, PartialEq, Eq)]
struct Left {
    patience: Duration,
    directory: String,
    paused: Vec<Paused>,
}

impl Left {
    /// Waits until there is another server, which has a guard of its own by then, or nothing is paused any more. If neither
    /// comes to be for long enough, what is paused is killed.
    ///
    /// Somebody who has the lock for a moment is no server: the one that was killed lets go of it a little later than of
    /// this one's input, and another guard looks, too.
    fn outlast(&self, look: Duration, served_for: Duration) {
        let mut alone_since = Instant::now();
        let mut served_since = None;
        loop {
            let stands_still = self.paused.iter().any(Paused::is_still_so);
            let Ok(directory) = fs::File::open(&self.directory) else { return };
            if !stands_still {
                return;
            }
            if flock(&directory, FlockOperation::NonBlockingLockExclusive).is_err() {
                let since = *served_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= served_for {
                    return;
                }
                if since.elapsed() >= look {
                    alone_since = Instant::now();
                }
            } else if alone_since.elapsed() >= self.patience {
                // Until all of them are killed: a server that comes now waits for it.
                let _alone = directory;
                self.paused.iter().filter(|paused| paused.is_still_so()).for_each(Paused::kill);
                return;
            } else {
                served_since = None;
            }
            drop(directory);
            let left = self.patience.saturating_sub(alone_since.elapsed());
            std::thread::sleep(left.clamp(Duration::from_millis(1), look));
        }
    }
}

/// Something that is paused.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Paused {
    pid: i32,
    /// When it began: another process with its number is not it.
    began: u64,
    /// What lets it go, if it is not a signal.
    thawing: Option<(String, String)>,
}

impl Paused {
    fn is_still_so(&self) -> bool {
        let Some((state, began)) = looks(self.pid) else { return false };
        let is_stopped = match &self.thawing {
            Some((file, word)) => fs::read_to_string(file).is_ok_and(|is| is.trim() != word),
            None => state == 'T',
        };
        began == self.began && is_stopped
    }

    fn kill(&self) {
        if let Some(pid) = Pid::from_raw(self.pid) {
            let _gone = kill_process(pid, Signal::KILL);
        }
        if let Some((file, word)) = &self.thawing {
            // It dies when it moves.
            let _gone = fs::write(Path::new(file), word);
        }
    }
}

/// In which state a process is, and when it began, in the clock of the machine.
fn looks(pid: i32) -> Option<(char, u64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Its name stands in brackets, and may have anything in it.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

/// Something that is held: how to let it go, and since when.
struct Held {
    word: String,
    since: Instant,
}

/// What was said so far.
#[derive(Default)]
struct Told {
    held: BTreeMap<String, Held>,
    wait: Option<(Duration, String)>,
    paused: BTreeMap<i32, Paused>,
    has_ended: bool,
}

/// Obeys until the input ends; returns what is left to be waited for.
fn watch(lines: &mpsc::Receiver<String>, let_go: &mut dyn FnMut(&str, &str)) -> Option<Left> {
    let mut told = Told::default();
    loop {
        let oldest = told.held.values().map(|held| held.since).min();
        let patience = oldest.map_or(LONGEST, |since| LONGEST.saturating_sub(since.elapsed()));
        match lines.recv_timeout(patience) {
            Ok(line) => {
                // What is not understood is a newer server's.
                let _unknown = told.obey(&line);
            }
            Err(RecvTimeoutError::Timeout) => {
                let late = told.held.extract_if(.., |_, held| held.since.elapsed() >= LONGEST);
                late.for_each(|(file, held)| let_go(&file, &held.word));
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    for (file, held) in told.held {
        let_go(&file, &held.word);
    }
    let (patience, directory) = told.wait.filter(|_| !told.has_ended)?;
    let paused: Vec<Paused> = told.paused.into_values().collect();
    (!paused.is_empty()).then_some(Left { patience, directory, paused })
}

impl Told {
    fn obey(&mut self, line: &str) -> Option<()> {
        let fields: Vec<&str> = line.split('\t').collect();
        match fields[..] {
            ["hold", file, word] => {
                let hold = Held { word: word.to_owned(), since: Instant::now() };
                self.held.insert(file.to_owned(), hold);
            }
            ["free", file] => {
                self.held.remove(file);
            }
            ["wait", milliseconds, directory] => {
                let patience = Duration::from_millis(milliseconds.parse().ok()?);
                self.wait = Some((patience, directory.to_owned()));
            }
            ["pause", pid, began, ref thawing @ ..] => {
                let thawing = match *thawing {
                    [] => None,
                    [file, word] => Some((file.to_owned(), word.to_owned())),
                    _ => return None,
                };
                let (pid, began) = (pid.parse().ok()?, began.parse().ok()?);
                self.paused.insert(pid, Paused { pid, began, thawing });
            }
            ["go", pid] => {
                self.paused.remove(&pid.parse().ok()?);
            }
            ["end"] => self.has_ended = true,
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_is_held_when_the_server_goes_is_let_go_and_nothing_else() {
        let (sender, lines) = mpsc::sync_channel(WAITING);
        for line in [
            hold_line("/one", "0"),
            hold_line("/two", "THAWED"),
            Some("nonsense\n".to_owned()),
            Some(free_line("/one")),
            hold_line("/three", "0"),
        ] {
            sender.send(line.unwrap().trim_end().to_owned()).unwrap();
        }
        drop(sender);
        let mut gone = Vec::new();
        watch(&lines, &mut |file, word| gone.push(format!("{file} {word}")));
        assert_eq!(gone, ["/three 0", "/two THAWED"]);
    }

    #[test]
    fn what_is_paused_is_left_to_be_waited_for() {
        let said = |more: &[String]| {
            let (sender, lines) = mpsc::sync_channel(WAITING);
            let first = [
                wait_line(Duration::from_secs(9), "/run").unwrap(),
                pause_line(7, 70, Some(("/freeze", "0"))).unwrap(),
                pause_line(8, 80, None).unwrap(),
                pause_line(9, 90, None).unwrap(),
                go_line(8),
            ];
            for line in first.iter().chain(more) {
                sender.send(line.trim_end().to_owned()).unwrap();
            }
            drop(sender);
            watch(&lines, &mut |_, _| panic!("nothing is held"))
        };
        let frozen = Some(("/freeze".to_owned(), "0".to_owned()));
        let left = Left {
            patience: Duration::from_secs(9),
            directory: "/run".to_owned(),
            paused: vec![
                Paused { pid: 7, began: 70, thawing: frozen },
                Paused { pid: 9, began: 90, thawing: None },
            ],
        };
        assert_eq!(said(&[]), Some(left));
        assert_eq!(said(&[go_line(7), go_line(9)]), None);
        assert_eq!(said(&[END_LINE.to_owned()]), None);
        assert_eq!(said(&["wait\tsoon\t/run".to_owned()]).map(|left| left.paused.len()), Some(2));
    }

    #[test]
    fn a_process_is_known_by_when_it_began_and_killed_only_if_it_stands_still() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let (_, began) = looks(pid).unwrap();
        let paused = Paused { pid, began, thawing: None };
        assert!(!paused.is_still_so(), "it moves");
        kill_process(Pid::from_raw(pid).unwrap(), Signal::STOP).unwrap();
        while looks(pid).is_some_and(|(state, _)| state != 'T') {
            std::thread::yield_now();
        }
        assert!(paused.is_still_so());
        assert!(!Paused { began: began + 1, ..paused.clone() }.is_still_so(), "another one");
        paused.kill();
        assert_eq!(child.wait().unwrap().code(), None, "it was killed");
        assert!(!paused.is_still_so());
    }

    #[test]
    fn what_is_paused_is_killed_in_its_time_unless_there_is_another_server() {
        let directory = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::STOP).unwrap();
        while looks(pid).is_some_and(|(state, _)| state != 'T') {
            std::thread::yield_now();
        }
        let (_, began) = looks(pid).unwrap();
        let left = |patience| Left {
            patience,
            directory: directory.path().to_str().unwrap().to_owned(),
            paused: vec![Paused { pid, began, thawing: None }],
        };
        let look = Duration::from_millis(1);
        // Whoever serves has a lock: this one has nothing to wait for.
        let serves = fs::File::open(directory.path()).unwrap();
        flock(&serves, FlockOperation::LockShared).unwrap();
        let served_for = Duration::from_millis(10);
        left(Duration::ZERO).outlast(look, served_for);
        left(Duration::from_secs(3_600)).outlast(look, served_for);
        assert!(child.try_wait().unwrap().is_none());
        drop(serves);
        // One that is on its way out is none.
        let going = fs::File::open(directory.path()).unwrap();
        flock(&going, FlockOperation::LockShared).unwrap();
        let gone = std::thread::spawn(move || {
            std::thread::yield_now();
            drop(going);
        });
        left(Duration::from_millis(20)).outlast(look, Duration::from_secs(3_600));
        gone.join().unwrap();
        assert_eq!(child.wait().unwrap().code(), None, "it was killed");
        // Nothing is paused any more.
        left(Duration::from_secs(3_600)).outlast(look, served_for);
    }

    #[test]
    fn a_name_that_would_be_read_as_two_is_not_told() {
        assert_eq!(hold_line("/a\tb", "0"), None);
        assert_eq!(hold_line("/a\nfree\t/b", "0"), None);
    }
}
