//! Bridges that stand still though nobody wants it, and what bridges leave behind.

use std::process::Command;

use ash_core::resume::Workspace;
use ash_engine::{RequireState, SandboxHost as _};

use super::{TALKS, World, text};
use crate::support::{prompt, tenant};

#[tokio::test]
async fn a_bridge_that_was_stopped_by_accident_goes_on() {
    let world = World::with(&format!("{TALKS}\nrest()")).await;
    let session = world.session().await;
    world.log(session, "session_active").await;
    let bridge = world.host.bridge_of(world.host.list().await.unwrap()[0]).unwrap();
    let stopped = Command::new("kill").args(["-STOP", &bridge.to_string()]).status().unwrap();
    assert!(stopped.success());
    world.engine.prompt(&tenant(), session, prompt(), None).await.unwrap();
    assert_eq!(text(&world.log(session, "run_ended").await), "hello");
    world.end().await;
}

/// Reports without ever reading, until nothing more can be said to it; then it takes another connection, and
/// sends what that asks for.
const READS_NOTHING: &str = r#"
greet()
run = until("deliver")["run"]
LAST = 1500
def tell(through, pause):
    global position
    while position < through:
        if position == 0:
            report(run, "begun")
        elif position == LAST - 1:
            report(run, "ended", {"how": "end_turn"})
        else:
            report(run, "text_delta", str(position) + " ")
        time.sleep(pause)
try:
    tell(LAST - 1, 0.002)
except OSError:
    pass
hello = accept()
position = hello["body"]["after"]
welcome(hello)
tell(LAST, 0)
for line in lines:
    pass
"#;

#[tokio::test]
async fn a_bridge_that_takes_nothing_is_connected_to_again_and_nothing_is_lost() {
    let world = World::with(READS_NOTHING).await;
    let (_, _, log) = world.play("run_ended").await;
    let expected: String = (1..1499).map(|number| format!("{number} ")).collect();
    assert_eq!(text(&log), expected, "every report is there, and none twice");
    world.end().await;
}

#[tokio::test]
async fn what_a_bridge_says_of_itself_is_there_when_the_next_one_has_started() {
    let says = "print(f'here is {os.getpid()}', file=sys.stderr, flush=True)\ngreet(); rest()";
    let world = World::with(says).await;
    let session = world.session().await;
    world.log(session, "session_active").await;
    let said = async || {
        let logs = world.engine.logs(&tenant(), session).await.unwrap();
        let lines = logs.lines.into_iter().filter(|line| line.level == "stderr");
        lines.map(|line| (line.index, line.text)).collect::<Vec<_>>()
    };
    let first = said().await;
    assert!(first.len() == 1 && first[0].1.starts_with("here is "), "{first:?}");
    world.engine.stop(&tenant(), session).await.unwrap();
    world.log(session, "session_stopped").await;
    assert_eq!(said().await, first);
    let back = world.engine.resume(&tenant(), session, RequireState::Yes).await.unwrap();
    assert_eq!(back.receipt.unwrap().workspace, Workspace::Kept);
    let both = said().await;
    assert_eq!((both.len(), &both[0]), (2, &first[0]), "{both:?}");
    assert!(both[1].0 > both[0].0 && both[1].1 != both[0].1, "{both:?}");
    world.end().await;
}
