//! What the program's tools started, when the program is killed, and when it is not.

use std::fs;

use super::*;
use crate::processes::processes_of;
use crate::world::{kill, until};

/// Writes into a file again and again: in the tool, in a session of its own, and without a parent.
const BUSY: &str = "echo 'import time\nwhile True:\n  open(\"busy\", \"a\").write(\"x\")\n  time.sleep(0.02)' > busy.py; \
    (setsid python3 busy.py > /dev/null 2>&1 &); nohup setsid sh -c 'python3 busy.py & wait' > /dev/null 2>&1 & \
    python3 busy.py";

/// What runs of a session besides its bridge and its keepers.
fn others(world: &World, session: SessionId) -> Vec<String> {
    let names = processes_of(&world.host.home(session)).into_iter().filter_map(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let is_zombie = stat.rsplit(')').next()?.trim_start().starts_with('Z');
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim().to_owned();
        (!is_zombie && !name.ends_with("bridge")).then_some(name)
    });
    names.collect()
}

fn parent_of(pid: u32) -> u32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn busy(world: &World, session: SessionId) -> usize {
    others(world, session).iter().filter(|name| name.starts_with("python3")).count()
}

#[tokio::test]
async fn nothing_that_a_killed_program_started_runs_on() {
    let Some(world) = start().await else { return };
    let session = planted(&world).await;
    // Once more when it is not the program that is killed, but who keeps it.
    for is_keeper in [false, true] {
        let call = serde_json::json!({ "command": BUSY, "description": "Work" });
        let run = world.prompt(session, &format!("Work.\n/tool Bash {call}")).await.run;
        until("all three are busy", || busy(&world, session) >= 3).await;
        let [pid] = programs(&world, session)[..] else { panic!("one program") };
        kill(if is_keeper { parent_of(pid) } else { pid });
        assert_eq!(ended(&world, session, run).await, RunStatus::Failed);
        // At once: the run is over.
        assert_eq!(others(&world, session), Vec::<String>::new());
        remembers(&world, session, "killed in a tool").await;
    }
    world.end().await;
}

#[tokio::test]
async fn what_an_agent_left_behind_lives_until_its_program_is_killed() {
    let Some(world) = start().await else { return };
    let session = planted(&world).await;
    let command = "echo 'import time\nwhile True: time.sleep(0.1)' > busy.py; nohup setsid python3 busy.py > /dev/null 2>&1 &";
    let call = serde_json::json!({ "command": command, "description": "Serve" });
    let turn = world.say(session, &format!("Serve.\n/tool Bash {call}\n/say it is up")).await;
    assert_eq!(turn.status, RunStatus::Completed, "{}", said(&turn));
    until("it is up", || busy(&world, session) == 1).await;
    // Another setting, for which the program is started again.
    let [before] = programs(&world, session)[..] else { panic!("one program") };
    let prompt = serde_json::json!({ "content": "More.\n/say more", "maxTurns": 5 });
    let accepted = world.prompt_json(session, ash_core::json::Json::of(&prompt).unwrap()).await;
    assert_eq!(world.turn(session, accepted).await.status, RunStatus::Completed);
    let [after] = programs(&world, session)[..] else { panic!("one program") };
    assert_ne!(before, after);
    assert_eq!(busy(&world, session), 1, "it was left behind on purpose");
    // What that one starts goes with it, also when it does nothing.
    let turn = world.say(session, &format!("Serve.\n/tool Bash {call}\n/say it is up")).await;
    assert_eq!(turn.status, RunStatus::Completed, "{}", said(&turn));
    until("both are up", || busy(&world, session) == 2).await;
    let [pid] = programs(&world, session)[..] else { panic!("one program") };
    kill(pid);
    until("what it had started is gone", || busy(&world, session) == 1).await;
    remembers(&world, session, "killed while it did nothing").await;
    world.end().await;
}
