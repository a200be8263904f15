//! An agent's own record of the conversation that is damaged is made anew, and the agent remembers.

use std::fs;
use std::path::Path;

use ash_core::entry::Entry;
use ash_core::id::SessionId;
use ash_core::resume::{Native, Receipt};
use ash_engine::RequireState;

use crate::processes::kill;
use crate::world::{World, tenant};

const PLANT: &str = "My name is Ada.\n/tool write_file {\"path\": \"a.txt\", \"content\": \"one\"}";

/// What becomes of a record.
type Damage = fn(&Path);

const DAMAGES: [(&str, Damage); 5] = [
    ("missing", |record| fs::remove_file(record).unwrap()),
    ("truncated", |record| {
        let length = fs::metadata(record).unwrap().len();
        fs::File::options().write(true).open(record).unwrap().set_len(length / 2).unwrap();
    }),
    ("garbage in the middle", |record| {
        let mut bytes = fs::read(record).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle..middle + 10].copy_from_slice(b"\xff{nonsense");
        fs::write(record, bytes).unwrap();
    }),
    ("zeros", |record| {
        let bytes = vec![0; fs::read(record).unwrap().len()];
        fs::write(record, bytes).unwrap();
    }),
    ("another one", |record| {
        let content = fs::read_to_string(record).unwrap();
        fs::write(record, content.replace("Ada", "Bob")).unwrap();
    }),
];

fn record(world: &World, session: SessionId) -> std::path::PathBuf {
    world.host.home(session).join(".ash/conversation.jsonl")
}

async fn resume(world: &World, session: SessionId) -> Receipt {
    let back = world.engine.resume(&tenant(), session, RequireState::No).await.unwrap();
    back.receipt.unwrap()
}

/// What the model is asked next, as it is sent.
async fn asked(world: &World, session: SessionId, text: &str) -> (String, String) {
    let before = world.requests().len();
    let answer = world.say(session, text).await.text();
    let sent = world.requests();
    let last = sent[before..].last().expect("the model was asked");
    (answer, last.body.to_string())
}

async fn remembers(world: &World, session: SessionId, context: &str) {
    let (answer, sent) = asked(world, session, "Who am I?\n/recall").await;
    assert!(answer.contains("My name is Ada."), "{context}: {answer}");
    assert!(!sent.contains("Bob"), "{context}: {sent}");
}

#[tokio::test]
async fn a_record_that_is_damaged_comes_back_from_the_snapshot_that_has_it() {
    let world = World::start().await;
    let session = world.session().await;
    world.say(session, PLANT).await;
    for (turns, (damage, harm)) in (1..).zip(DAMAGES) {
        world.engine.stop(&tenant(), session).await.unwrap();
        world.captured(session).await;
        let whole = fs::read(record(&world, session)).unwrap();
        harm(&record(&world, session));
        let receipt = resume(&world, session).await;
        let told = receipt.conversation;
        assert_eq!(
            (told.native, told.turns, told.turns_in_log),
            (Native::Rebuilt, turns, turns),
            "{damage}"
        );
        assert_eq!(fs::read(record(&world, session)).unwrap(), whole, "{damage}: byte for byte");
        remembers(&world, session, damage).await;
    }
    world.end().await;
}

#[tokio::test]
async fn a_record_that_no_snapshot_has_is_made_anew_from_the_log() {
    let world = World::start().await;
    let session = world.session().await;
    world.say(session, PLANT).await;
    for (turns, (damage, harm)) in (1..).zip(DAMAGES) {
        world.engine.stop(&tenant(), session).await.unwrap();
        world.captured(session).await;
        let (place, aside) = (world.dir.join("data/snapshots"), world.dir.join("data/aside"));
        fs::rename(&place, &aside).unwrap();
        harm(&record(&world, session));
        let receipt = resume(&world, session).await;
        let _whatever_was_made_there = fs::remove_dir_all(&place);
        fs::rename(&aside, &place).unwrap();
        let told = receipt.conversation;
        assert_eq!(
            (told.native, told.turns, told.turns_in_log),
            (Native::Rebuilt, turns, turns),
            "{damage}"
        );
        let (answer, sent) = asked(&world, session, "Who am I?\n/recall").await;
        assert!(answer.contains("My name is Ada."), "{damage}: {answer}");
        // Calls and their results are there as well.
        assert!(sent.contains("tool_use") && sent.contains("tool_result"), "{damage}: {sent}");
        assert!(!sent.contains("Bob"), "{damage}: {sent}");
    }
    world.end().await;
}

#[tokio::test]
async fn a_rebuilt_record_is_known_again_and_a_cut_turn_is_in_it() {
    let world = World::start().await;
    let session = world.session().await;
    world.say(session, PLANT).await;
    let cut = world.prompt(session, "Remember the number 42.\n/bash sleep 60").await.run;
    let runs = |entry: &Entry| matches!(entry, Entry::Output { run, .. } if *run == cut);
    world.log_until(session, runs).await;
    world.kill_bridge(session).await;
    world.ended(session, cut).await;
    world.captured(session).await;
    fs::remove_dir_all(world.dir.join("data/snapshots")).unwrap();
    fs::remove_file(record(&world, session)).unwrap();
    let receipt = resume(&world, session).await;
    assert_eq!(receipt.interrupted_run, Some(cut));
    assert_eq!((receipt.conversation.native, receipt.conversation.turns), (Native::Rebuilt, 2));
    let made = fs::read(record(&world, session)).unwrap();
    // Nothing is made anew that is as it was made anew.
    world.engine.stop(&tenant(), session).await.unwrap();
    let receipt = resume(&world, session).await;
    // What the log tells is, to the byte, what was proven: nobody can tell the two apart.
    assert_eq!((receipt.conversation.native, receipt.conversation.turns), (Native::Intact, 2));
    assert_eq!(fs::read(record(&world, session)).unwrap(), made);
    let (_, sent) = asked(&world, session, "Which number?\n/recall").await;
    assert!(sent.contains("number 42") && sent.contains("outcome unknown"), "{sent}");
    // From here on it is proven as any other.
    world.engine.stop(&tenant(), session).await.unwrap();
    assert_eq!(resume(&world, session).await.conversation.native, Native::Intact);
    world.end().await;
}

#[tokio::test]
async fn what_cannot_be_made_anew_is_lost_and_everybody_is_told() {
    let world = World::start().await;
    let session = world.session().await;
    world.say(session, PLANT).await;
    world.engine.stop(&tenant(), session).await.unwrap();
    world.captured(session).await;
    // The agent has put something where another one would be made.
    let whole = record(&world, session);
    fs::remove_file(&whole).unwrap();
    fs::create_dir(whole.with_file_name("conversation.new")).unwrap();
    let receipt = resume(&world, session).await;
    assert_eq!((receipt.conversation.native, receipt.conversation.turns), (Native::Lost, 0));
    world.log_until(session, |entry| matches!(entry, Entry::ContextLost { .. })).await;
    world.end().await;
}

#[tokio::test]
async fn killed_while_it_is_made_anew_it_is_made_by_the_next_start() {
    let mut world = World::start().await;
    let session = world.session().await;
    world.say(session, PLANT).await;
    world.engine.stop(&tenant(), session).await.unwrap();
    world.captured(session).await;
    fs::remove_dir_all(world.dir.join("data/snapshots")).unwrap();
    // What a server that is killed in the middle leaves: the old one aside, and half of the new one.
    let whole = record(&world, session);
    fs::rename(&whole, whole.with_file_name("conversation.lost-2.jsonl")).unwrap();
    fs::write(whole.with_file_name("conversation.new"), "{\"v\":1,\"ru").unwrap();
    world.kill_engine().await;
    let receipt = resume(&world, session).await;
    assert_eq!((receipt.conversation.native, receipt.conversation.turns), (Native::Rebuilt, 1));
    assert!(!whole.with_file_name("conversation.new").exists());
    remembers(&world, session, "killed").await;
    let bridge = world.host.bridge_of(world.sandbox(session).await).unwrap();
    kill(bridge);
    world.log_until(session, |entry| matches!(entry, Entry::SessionFailed { .. })).await;
    assert_eq!(resume(&world, session).await.conversation.native, Native::Intact);
    world.end().await;
}
