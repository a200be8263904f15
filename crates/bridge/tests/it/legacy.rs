//! Programs of the original that do not come up.

use std::time::{Duration, Instant};

use ash_bridge::legacy::Legacy;
use ash_bridge::reports::Reports;
use ash_protocol::{Ending, LegacyProgram};
use serde_json::value::RawValue;
use tokio::task::LocalSet;
use tokio_util::sync::CancellationToken;

use crate::fake::Bench;
use crate::trees::{Mark, processes};

/// How a run ends whose program is a few lines of shell.
async fn outcome(script: &str, mark: &Mark) -> Ending {
    let mut settings = Bench::new(Vec::new()).await.settings.clone();
    settings.env = mark.env();
    let home = tempfile::tempdir().unwrap();
    (settings.workspace, settings.home) = (home.path().to_owned(), home.path().to_owned());
    let command = ["bash", "-c", script].map(str::to_owned).into();
    let program = LegacyProgram { command, env: [].into() };
    let patience = Duration::from_millis(400);
    let mut legacy = Legacy::open(program, None, settings, processes(), patience).unwrap();
    let prompt = RawValue::from_string(r#""hello""#.to_owned()).unwrap();
    let accepted = legacy.accept("r1", &prompt);
    let (reports, _events) = Reports::channel();
    let (ending, _) = legacy.work(accepted, &reports, CancellationToken::new()).await;
    assert_eq!(mark.alive(), Vec::<i32>::new(), "{script}: something is left");
    ending
}

#[tokio::test]
async fn a_program_that_hangs_or_dies_at_its_start_is_killed_and_said_to_be() {
    let stories = async {
        for (script, why) in [
            ("sleep 1000", "was not ready within"),
            ("trap '' TERM; printf R; while :; do sleep 1000; done", "was not ready within"),
            (
                "echo it is broken >&2; exit 4",
                "ended with code 4 before it was ready: it is broken",
            ),
            ("kill -9 $$", "ended by signal 9 before it was ready"),
            (
                "python3 -c 'import os, socket, time; s = socket.socket(socket.AF_UNIX); \
                 s.bind(os.environ[\"ASH_BRIDGE_SOCKET\"]); s.listen(); print(end=\"R\", flush=True); \
                 c = s.accept(); time.sleep(1000)'",
                "ready within",
            ),
        ] {
            let begun = Instant::now();
            let ending = outcome(script, &Mark::new()).await;
            let Ending::Failed { message } = &ending else { panic!("{script}: {ending:?}") };
            assert!(message.contains(why), "{script}: {message}");
            assert!(begun.elapsed() < Duration::from_secs(60), "{script}");
        }
    };
    LocalSet::new().run_until(stories).await;
}
