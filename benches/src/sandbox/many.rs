//! Five hundred sandboxes at once, and what becomes of them when their server is killed.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::memory::Memory;
use super::{Server, create, exec};
use crate::figures::heading;
use crate::server::client::Client;

const SANDBOXES: usize = 500;
/// So many are made, or asked, at a time.
const AT_A_TIME: usize = 8;
/// Of these it is wanted that they are adopted within two seconds.
const WANTED: usize = 200;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) async fn measure(directory: &Path) {
    heading("Five hundred sandboxes at once");
    let server = Server::start(directory).await;
    let before = Memory::now(&server);
    let begin = Instant::now();
    let sessions = Arc::new(make(&server).await);
    let took = begin.elapsed().as_secs_f64();
    let rate = SANDBOXES as f64 / took;
    println!("{SANDBOXES} made in {took:.1} s: {rate:.0}/s; 30/s are wanted");
    Memory::now(&server).print_more_than(&before, SANDBOXES);
    let asked = Instant::now();
    print(asked, "answered a command", &answers(&server, &sessions).await);

    heading("The server is killed with -9, and another one started");
    let killed = Instant::now();
    let server = server.replace();
    println!("listens after {:.2} s", killed.elapsed().as_secs_f64());
    print(killed, "answered a command again", &answers(&server, &sessions).await);
    println!("the server is at {:.1} MB", server.process.resident());
}

async fn make(server: &Server) -> Vec<String> {
    let mut making = JoinSet::new();
    for first in 0..AT_A_TIME {
        let mut client = server.client().await;
        let share = (first..SANDBOXES).step_by(AT_A_TIME).count();
        making.spawn(async move {
            let mut made = Vec::new();
            for _ in 0..share {
                made.push(create(&mut client, "bench").await);
            }
            made
        });
    }
    making.join_all().await.into_iter().flatten().collect()
}

/// When each had answered, in order. One that does not yet is asked again.
async fn answers(server: &Server, sessions: &Arc<Vec<String>>) -> Vec<Instant> {
    let mut asking = JoinSet::new();
    for first in 0..AT_A_TIME {
        let mut client = server.client().await;
        let sessions = Arc::clone(sessions);
        asking.spawn(async move {
            let mut answered = Vec::new();
            for session in sessions.iter().skip(first).step_by(AT_A_TIME) {
                until_it_answers(&mut client, session).await;
                answered.push(Instant::now());
            }
            answered
        });
    }
    let mut all: Vec<Instant> = asking.join_all().await.into_iter().flatten().collect();
    all.sort_unstable();
    all
}

async fn until_it_answers(client: &mut Client, session: &str) {
    let request = exec(session, ":", Duration::from_secs(30));
    let begin = Instant::now();
    while !client.is_granted(&request).await {
        assert!(begin.elapsed() < PATIENCE, "{session} never answered");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn print(begin: Instant, what: &str, answered: &[Instant]) {
    let after = |count: usize| (answered[count - 1] - begin).as_secs_f64();
    println!(
        "{what}: the first after {:.2} s, {WANTED} after {:.2} s, all {} after {:.2} s",
        after(1),
        after(WANTED),
        answered.len(),
        after(answered.len()),
    );
}
