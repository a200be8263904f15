//! What a sandbox feels of another one that takes all it can get.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::{Server, create, exec};
use crate::figures::{Figures, heading};
use crate::server::client::Client;

/// How often the neighbour is asked.
const ASKED: usize = 200;

/// How long a bomb goes on at most.
const BOMB: Duration = Duration::from_secs(20);

/// What the bombs are. Each is stopped by the limits of its own sandbox, again and again.
const BOMBS: [(&str, &str); 2] = [
    ("a fork bomb", "for i in $(seq 1000); do (while :; do /bin/true; done) & done; wait"),
    ("a memory bomb", "while :; do head -c 2000000000 /dev/zero | tail -n 1; done"),
];

pub(super) async fn measure(server: &Server) {
    heading("A command in a sandbox, over HTTP, beside a bomb in another");
    let mut client = server.client().await;
    let neighbour = create(&mut client, "bench").await;
    ask(&mut client, &neighbour, BOMB).await.print_least("alone");
    for (what, bomb) in BOMBS {
        let bomber = create(&mut client, "bomb").await;
        let mut other = server.client().await;
        let request = exec(&bomber, bomb, BOMB);
        let mut bombing = JoinSet::new();
        bombing.spawn(async move { other.is_granted(&request).await });
        // Until it is under way.
        tokio::time::sleep(Duration::from_secs(1)).await;
        ask(&mut client, &neighbour, BOMB - Duration::from_secs(2)).await.print_least(what);
        let survived = matches!(bombing.join_next().await, Some(Ok(true)));
        println!("  the bomb's own session {}", if survived { "goes on" } else { "is over" });
    }
}

/// Asks until it is enough, or the time is over.
async fn ask(client: &mut Client, session: &str, most: Duration) -> Figures {
    let request = exec(session, ":", Duration::from_secs(30));
    let begin = Instant::now();
    let mut took = Vec::new();
    while took.len() < ASKED && begin.elapsed() < most {
        let begin = Instant::now();
        client.ask(&request).await;
        took.push(begin.elapsed());
    }
    Figures::one_by_one(took)
}
