//! `ash-bridge guard`: lets go what a server holds still, if that server cannot.
//!
//! A sandbox stands still for a fraction of a second while its files are looked at. If the server is killed in that moment,
//! nobody is left to let it go, and whatever it was doing would never end. So the server tells a process beside it, through
//! its standard input, a line before it holds something and a line after it has let go:
//!
//! ```text
//! hold <file> <word>      write this word to this file to let go
//! free <file>
//! ```
//!
//! When the input ends, the server is gone: everything that is held is let go. So is what is held for much longer than
//! anything should be. Fields are separated by tabs, and none of them has one in it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead as _};
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::process::setsid;

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

/// The guard itself. Returns when the server is gone, and nothing is held any more.
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
    watch(&lines, &mut |file, word| {
        // One that is gone needs nobody.
        let _gone = fs::write(file, word);
    });
    ExitCode::SUCCESS
}

/// Something that is held: how to let it go, and since when.
struct Held {
    word: String,
    since: Instant,
}

fn watch(lines: &mpsc::Receiver<String>, let_go: &mut dyn FnMut(&str, &str)) {
    let mut held: BTreeMap<String, Held> = BTreeMap::new();
    loop {
        let oldest = held.values().map(|held| held.since).min();
        let patience = oldest.map_or(LONGEST, |since| LONGEST.saturating_sub(since.elapsed()));
        match lines.recv_timeout(patience) {
            Ok(line) => obey(&mut held, &line),
            Err(RecvTimeoutError::Timeout) => {
                let late = held.extract_if(.., |_, held| held.since.elapsed() >= LONGEST);
                late.for_each(|(file, held)| let_go(&file, &held.word));
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    for (file, held) in held {
        let_go(&file, &held.word);
    }
}

fn obey(held: &mut BTreeMap<String, Held>, line: &str) {
    let mut fields = line.split('\t');
    match (fields.next(), fields.next(), fields.next()) {
        (Some("hold"), Some(file), Some(word)) => {
            let hold = Held { word: word.to_owned(), since: Instant::now() };
            held.insert(file.to_owned(), hold);
        }
        (Some("free"), Some(file), None) => {
            held.remove(file);
        }
        // A newer server's.
        _ => {}
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
    fn a_name_that_would_be_read_as_two_is_not_told() {
        assert_eq!(hold_line("/a\tb", "0"), None);
        assert_eq!(hold_line("/a\nfree\t/b", "0"), None);
    }
}
