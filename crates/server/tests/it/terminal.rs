//! A person at a terminal, who is asked and answers.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::json;

use crate::api::served::{Served, agent};

/// A program at a terminal of its own.
struct Terminal {
    child: Child,
    keyboard: File,
    screen: Receiver<Vec<u8>>,
    seen: String,
    /// How much of it was looked at.
    looked: usize,
}

impl Terminal {
    fn start(mut command: Command) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = File::from(rustix::fs::open(name, flags, Mode::empty()).unwrap());
        command.stdin(slave.try_clone().unwrap()).stdout(slave.try_clone().unwrap()).stderr(slave);
        let child = command.spawn().unwrap();
        // Whoever holds the other end open would never see it close.
        drop(command);
        let keyboard = File::from(master);
        let mut reads = keyboard.try_clone().unwrap();
        let (shown, screen) = mpsc::channel();
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            // The end of a terminal is an error.
            while let Ok(count @ 1..) = reads.read(&mut piece) {
                if shown.send(piece[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, keyboard, screen, seen: String::new(), looked: 0 }
    }

    /// Waits until something stands on the screen, behind what was waited for before.
    fn until(&mut self, wanted: &str) {
        loop {
            if let Some(at) = self.seen[self.looked..].find(wanted) {
                self.looked += at + wanted.len();
                return;
            }
            let more = self.screen.recv_timeout(Duration::from_secs(60));
            let more = more.unwrap_or_else(|_| panic!("no {wanted:?} in {:?}", self.seen));
            self.seen.push_str(&String::from_utf8_lossy(&more));
        }
    }

    fn types(&mut self, line: &str) {
        self.keyboard.write_all(format!("{line}\r").as_bytes()).unwrap();
    }

    /// Waits for the end, and says whether it was a good one and what was shown.
    fn end(mut self) -> (bool, String) {
        while let Ok(more) = self.screen.recv_timeout(Duration::from_secs(60)) {
            self.seen.push_str(&String::from_utf8_lossy(&more));
        }
        (self.child.wait().unwrap().success(), self.seen.clone())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_at_a_terminal_is_asked_and_a_yes_is_a_yes() {
    let served = Served::start().await;
    agent(&served.client, "coder").await;
    let create = json!({ "agent": "coder", "permissionMode": "default" });
    let made = served.client.post("/api/sessions", &create).await.ok();
    let session = made["session"]["id"].as_str().unwrap().to_owned();
    let files = async || {
        let files = served.client.get(&format!("/api/sessions/{session}/files")).await.ok();
        files["files"].to_string()
    };
    let home = tempfile::tempdir().unwrap();
    let chat = |said: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ash"));
        command.args(["chat", "coder", "-s", &session, said]).env_clear();
        command.env("HOME", home.path()).env("TERM", "xterm").current_dir(home.path());
        command.env("ASH_SERVER_URL", format!("http://{}", served.client.address));
        command.env("ASH_API_KEY", &served.client.key);
        Terminal::start(command)
    };

    let (ended, shown) = tokio::task::block_in_place(|| {
        let mut terminal = chat("/bash touch refused\n/results");
        terminal.until("? bash");
        terminal.until("touch refused");
        terminal.until("[y/n]");
        // What is neither is asked again.
        terminal.types("perhaps");
        terminal.until("y or n?");
        terminal.types("n");
        terminal.end()
    });
    assert!(ended, "{shown}");
    assert!(!files().await.contains("refused"), "{shown}");

    let (ended, shown) = tokio::task::block_in_place(|| {
        let mut terminal = chat("/bash touch first\n/bash touch second\n/say all done");
        terminal.until("? bash");
        terminal.types("yes");
        terminal.until("? bash");
        terminal.types("Y");
        terminal.until("all done");
        terminal.end()
    });
    assert!(ended, "{shown}");
    let files = files().await;
    assert!(files.contains("first") && files.contains("second"), "{files}\n{shown}");
    served.end().await;
}
