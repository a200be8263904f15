//! A transcript that is not what it was, and files that come from elsewhere.

use std::fs;

use super::*;

type Damage = fn(&Path);

const DAMAGES: [(&str, Damage); 14] = [
    ("missing", |file| fs::remove_file(file).unwrap()),
    ("empty", |file| fs::write(file, "").unwrap()),
    ("half a line at the end", |file| {
        let length = fs::metadata(file).unwrap().len();
        fs::File::options().write(true).open(file).unwrap().set_len(length - 20).unwrap();
    }),
    ("cut in the middle", |file| {
        let length = fs::metadata(file).unwrap().len();
        fs::File::options().write(true).open(file).unwrap().set_len(length / 2).unwrap();
    }),
    ("zeros at the end", |file| {
        let mut content = fs::read(file).unwrap();
        content.extend([0; 512]);
        fs::write(file, content).unwrap();
    }),
    // The program itself forgets everything before such a line, and says nothing.
    ("a message that is none", |file| {
        let content = fs::read_to_string(file).unwrap();
        fs::write(file, content.replace(r#""type":"assistant""#, r#""type":"assist"#)).unwrap();
    }),
    ("messages that are glued together", |file| {
        let content = fs::read_to_string(file).unwrap();
        fs::write(file, content.replace("}\n{\"parentUuid\"", "}{\"parentUuid\"")).unwrap();
    }),
    // What nobody notices who only looks whether all of it is there: the program begins where the last message leads.
    ("an answer that follows nothing", |file| {
        change(file, |lines| {
            let last = lines.iter_mut().rfind(|line| line["type"] == "assistant").unwrap();
            last["parentUuid"] = serde_json::Value::Null;
        });
    }),
    ("words that were not said", |file| {
        let content = fs::read_to_string(file).unwrap();
        fs::write(file, content.replace("PLUM", "PEAR")).unwrap();
    }),
    ("its beginning once more", |file| {
        change(file, |lines| lines.extend_from_within(..lines.len() / 2));
    }),
    ("gone on with by another from the beginning", |file| {
        change(file, |lines| {
            let first = lines.iter().find(|line| line["type"] == "user").unwrap().clone();
            let mut stray = lines.iter().rfind(|line| line["type"] == "assistant").unwrap().clone();
            stray["uuid"] = "11111111-2222-4333-8444-555555555555".into();
            stray["parentUuid"] = first["uuid"].clone();
            lines.push(stray);
        });
    }),
    // The last answer is left out of what the last message leads to.
    ("gone on with by another before the last answer", |file| {
        change(file, |lines| {
            let mut stray = lines.iter().rfind(|line| line["type"] == "user").unwrap().clone();
            stray["parentUuid"] = stray["uuid"].clone();
            stray["uuid"] = "11111111-2222-4333-8444-555555555556".into();
            lines.push(stray);
        });
    }),
    ("what another has said in the middle", |file| {
        change(file, |lines| {
            let at = lines.iter().rposition(|line| line["type"] == "user").unwrap();
            let mut stray = lines[at].clone();
            stray["uuid"] = "11111111-2222-4333-8444-555555555557".into();
            lines.insert(at + 1, stray);
        });
    }),
    ("a directory", |file| {
        fs::remove_file(file).unwrap();
        fs::create_dir(file).unwrap();
    }),
];

/// Changes the lines of a transcript.
fn change(file: &Path, change: impl FnOnce(&mut Vec<serde_json::Value>)) {
    let content = fs::read_to_string(file).unwrap();
    let mut lines = content.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    change(&mut lines);
    fs::write(file, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
}

#[tokio::test]
async fn a_damaged_transcript_is_made_anew_from_the_record() {
    let Some(world) = start().await else { return };
    let session = planted(&world).await;
    for (turns, (damage, harm)) in (1..).zip(DAMAGES) {
        stop(&world, session).await;
        harm(&transcript(&world, session));
        assert_eq!(
            told(&resume(&world, session).await),
            (Native::Intact, turns, turns),
            "{damage}"
        );
        let turn = remembers(&world, session, damage).await;
        let notices = turn.outputs("notice");
        let anew = notices.iter().any(|notice| notice.to_string().contains("made anew"));
        assert!(anew, "{damage}: {notices:?}");
    }
    world.end().await;
}

#[tokio::test]
async fn without_any_file_it_is_made_anew_from_the_log() {
    let Some(world) = start().await else { return };
    let session = planted(&world).await;
    world.say(session, "Work.\n/bash echo hi > a.txt\n/say done").await;
    stop(&world, session).await;
    fs::remove_dir_all(world.host.home(session).join(".claude")).unwrap();
    fs::remove_dir_all(world.host.home(session).join(".ash")).unwrap();
    let (place, aside) = (world.dir.join("data/snapshots"), world.dir.join("data/aside"));
    fs::rename(&place, &aside).unwrap();
    let receipt = resume(&world, session).await;
    let _whatever_was_made_there = fs::remove_dir_all(&place);
    fs::rename(&aside, &place).unwrap();
    assert_eq!(told(&receipt), (Native::Rebuilt, 2, 2));
    let turn = remembers(&world, session, "from the log").await;
    assert!(turn.text().contains("echo hi > a.txt"), "{}", turn.text());
    // Once more, from what was made of it.
    stop(&world, session).await;
    assert_eq!(told(&resume(&world, session).await), (Native::Intact, 3, 3));
    remembers(&world, session, "from the record that was made").await;
    world.end().await;
}

#[tokio::test]
async fn files_that_are_gone_come_back_with_the_conversation() {
    let Some(mut world) = start().await else { return };
    let session = planted(&world).await;
    stop(&world, session).await;
    fs::remove_dir_all(world.host.workspace(session)).unwrap();
    fs::remove_dir_all(world.host.home(session)).unwrap();
    assert_eq!(told(&resume(&world, session).await), (Native::Intact, 1, 1));
    remembers(&world, session, "from a snapshot").await;
    world.captured(session).await;
    // A power cut tears what the program never syncs.
    world
        .reboot(|world| {
            let file = transcript(world, session);
            let length = fs::metadata(&file).unwrap().len();
            fs::File::options().write(true).open(&file).unwrap().set_len(length / 3).unwrap();
        })
        .await;
    resume(&world, session).await;
    remembers(&world, session, "after a power cut").await;
    world.end().await;
}

#[tokio::test]
async fn a_session_goes_on_in_another_data_directory() {
    let Some(world) = start().await else { return };
    let session = planted(&world).await;
    stop(&world, session).await;
    world.engine.abort().await;
    world.host.abandon().await;
    let elsewhere = tempfile::tempdir().unwrap();
    let copied = std::process::Command::new("cp")
        .args(["-a", "--reflink=auto"])
        .arg(format!("{}/.", world.dir.display()))
        .arg(elsewhere.path())
        .status();
    assert!(copied.unwrap().success());
    let mut moved = World::over(elsewhere.path(), world.url()).await;
    moved.claude = Some(found(&elsewhere.path().join("data"), &moved.enclosure).await);
    moved.kill_engine().await;
    assert_eq!(told(&resume(&moved, session).await), (Native::Intact, 1, 1));
    remembers(&moved, session, "elsewhere").await;
    moved.end().await;
    world.end().await;
}

#[tokio::test]
async fn a_transcript_is_proven_also_when_only_the_program_is_started_again() {
    let Some(world) = start().await else { return };
    let session = planted(&world).await;
    world.say(session, "The second is FIG.\n/say I keep that as well.").await;
    let file = transcript(&world, session);
    let content = fs::read_to_string(&file).unwrap();
    let damaged = content.replace(r#""content":"The second is FIG."#, r#""content":"The second i"#);
    assert_ne!(damaged, content);
    fs::write(&file, damaged.replace("/say I keep that as well.\"", "/say I keep that as well."))
        .unwrap();
    let [pid] = programs(&world, session)[..] else { panic!("one program") };
    crate::world::kill(pid);
    let turn = remembers(&world, session, "after the program alone").await;
    assert!(turn.text().contains("The second is FIG."), "{}", said(&turn));
    world.end().await;
}

#[tokio::test]
async fn what_was_cleared_does_not_come_back_and_what_came_after_does() {
    let Some(world) = start().await else { return };
    let session = planted(&world).await;
    world.say(session, "/clear").await;
    world.say(session, "The word is EGRET.\n/say I keep it.").await;
    stop(&world, session).await;
    resume(&world, session).await;
    let turn = world.say(session, ASK).await;
    let sent = world.requests().last().unwrap().body["messages"].to_string();
    assert!(sent.contains("EGRET") && !sent.contains("PLUM"), "{sent}\n{}", said(&turn));
    world.end().await;
}

/// Both files of a conversation.
fn both(world: &World, session: SessionId) -> (PathBuf, PathBuf) {
    (world.host.home(session).join(".ash/conversation.jsonl"), transcript(world, session))
}

#[tokio::test]
async fn a_record_that_is_damaged_while_the_sandbox_lives_is_made_anew_from_the_log() {
    let Some(world) = start().await else { return };
    let session = planted(&world).await;
    let damages: [fn(&World, SessionId); 3] = [
        |world, session| {
            let (record, transcript) = both(world, session);
            let half = |file: &Path| {
                let content = fs::read(file).unwrap();
                fs::write(file, &content[..content.len() / 2]).unwrap();
            };
            half(&transcript);
            half(&record);
        },
        |world, session| {
            fs::remove_dir_all(world.host.home(session).join(".ash")).unwrap();
            fs::remove_dir_all(world.host.home(session).join(".claude")).unwrap();
        },
        |world, session| fs::remove_file(both(world, session).0).unwrap(),
    ];
    let mut turns = 1;
    for (number, damage) in (1..).zip(damages) {
        let turn =
            world.say(session, &format!("Fact {number}.\n/bash echo {number}\n/say noted")).await;
        assert_eq!(turn.status, RunStatus::Completed);
        let [pid] = programs(&world, session)[..] else { panic!("one program") };
        crate::world::kill(pid);
        crate::world::until("it is gone", || programs(&world, session).is_empty()).await;
        damage(&world, session);
        // Whoever speaks to it now has it made anew, and is told so.
        let cut = world.prompt(session, &format!("Lost {number}.")).await.run;
        let record = world.ended(session, cut).await;
        assert_eq!(record.status, RunStatus::Interrupted, "{:?}", record.failure);
        assert!(format!("{:?}", record.failure).contains("record of the conversation"));
        turns += 2;
        assert_eq!(told(&resume(&world, session).await), (Native::Rebuilt, turns, turns));
        let turn = remembers(&world, session, &format!("damage {number}")).await;
        turns += 1;
        let sent = world.requests().last().unwrap().body["messages"].to_string();
        for known in 1..=number {
            assert!(sent.contains(&format!("Fact {known}.")), "{number}: {sent}");
        }
        assert!(sent.contains(&format!("> Lost {number}.")), "{sent} {}", turn.text());
    }
    world.end().await;
}

#[tokio::test]
async fn a_second_program_on_the_same_conversation_takes_nothing_of_it_away() {
    let Some(world) = start().await else { return };
    let session = planted(&world).await;
    let nested = "cd /workspace; env -u CLAUDECODE timeout 40 \"$(readlink /proc/$PPID/exe)\" -p --resume \
        $CLAUDE_CODE_SESSION_ID 'nested hello' < /dev/null";
    let call =
        serde_json::json!({ "command": nested, "timeout": 60_000, "description": "Ask another" });
    let turn = world.say(session, &format!("Two.\n/tool Bash {call}\n/say the main answer")).await;
    assert_eq!(turn.status, RunStatus::Completed, "{}", said(&turn));
    let content = fs::read_to_string(transcript(&world, session)).unwrap();
    assert!(content.contains("nested hello"), "it was there: {}", said(&turn));
    world.say(session, "Three: it is plum.\n/say the third answer").await;
    let [pid] = programs(&world, session)[..] else { panic!("one program") };
    crate::world::kill(pid);
    for context in ["killed", "stopped"] {
        if context == "stopped" {
            stop(&world, session).await;
            resume(&world, session).await;
        }
        remembers(&world, session, context).await;
        let sent = world.requests().last().unwrap().body["messages"].to_string();
        for known in ["the main answer", "Three: it is plum.", "the third answer"] {
            assert!(sent.contains(known), "{context}: {known}: {sent}");
        }
    }
    world.end().await;
}
