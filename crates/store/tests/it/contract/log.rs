//! The log, the history of runs, and what they consumed.

use ash_core::entry::Entry;
use ash_core::failure::{Death, FailureCode};
use ash_core::json::Json;
use ash_core::number::{Seq, Turn};
use ash_core::run::{Phase, RunStatus, Usage};
use ash_core::session::{Fact, ReportBody};
use ash_store::{MAX_PAGE_BYTES, RunRecord, Store, UsageFilter, UsageTotals};

use crate::support::{
    Conversation, add_them, agent_id, at, deploy, json, name, refusal, run_id, session_id, them, us,
};

/// Session 10 with two answered prompts: runs 1 and 2.
async fn two_turns(store: &dyn Store) -> Conversation {
    deploy(store, 1).await;
    let mut conversation = Conversation::active(store, 10).await;
    for run in [1, 2] {
        turn(store, &mut conversation, run, 100 * run).await;
    }
    conversation
}

/// A prompt and its answer, both said at `now`; it consumes as many tokens as its number.
async fn turn(store: &dyn Store, conversation: &mut Conversation, run: i64, now: i64) {
    conversation.at_time(now);
    let tokens = u64::try_from(run).unwrap();
    let usage = Usage { input_tokens: tokens, cost_micro_usd: 7, ..Usage::default() };
    for commit in [
        conversation.prompt(run, &format!("question {run}")),
        conversation.report(run, ReportBody::TextDelta("ans".to_owned())),
        conversation.message(run, &format!("answer {run}")),
        conversation.done(run, usage),
    ] {
        store.commit(&commit).await.unwrap();
    }
}

pub(super) async fn the_log_is_read_in_order_and_in_pages(store: &dyn Store) {
    let conversation = two_turns(store).await;
    let last = conversation.session.last_seq();
    let log = store.events_after(session_id(10), Seq::ZERO, 99).await.unwrap();
    let seqs: Vec<_> = log.iter().map(|entry| entry.seq.get()).collect();
    assert_eq!(seqs, (1..=last.get()).collect::<Vec<_>>());

    let page = store.events_after(session_id(10), Seq::new(3), 2).await.unwrap();
    assert_eq!(page, log[3..5]);
    assert_eq!(store.events_after(session_id(10), last, 9).await.unwrap(), []);
    let beyond = store.events_after(session_id(10), Seq::new(u64::MAX), 9).await.unwrap();
    assert_eq!(beyond, []);
}

pub(super) async fn a_page_of_large_entries_is_short(store: &dyn Store) {
    deploy(store, 1).await;
    let mut conversation = Conversation::active(store, 10).await;
    let before = conversation.session.last_seq();
    for run in 1..=5 {
        let prompt = conversation.prompt(run, &"x".repeat(MAX_PAGE_BYTES / 2));
        store.commit(&prompt).await.unwrap();
    }
    let mut read = Vec::new();
    let mut pages = 0;
    while read.last().is_none_or(|seq: &Seq| *seq < conversation.session.last_seq()) {
        let after = read.last().copied().unwrap_or(before);
        let page = store.events_after(session_id(10), after, 99).await.unwrap();
        assert!(!page.is_empty() && page.len() <= 4, "{} entries", page.len());
        read.extend(page.iter().map(|entry| entry.seq));
        pages += 1;
    }
    assert!(pages >= 3, "{pages} pages");
    let messages = store.messages_after(session_id(10), Seq::ZERO, 99).await.unwrap();
    assert_eq!(messages.len(), 2);
}

pub(super) async fn the_log_of_nothing_is_not_found(store: &dyn Store) {
    let missing = r#"NotFound("session")"#;
    let nobody = session_id(10);
    assert_eq!(refusal(store.events_after(nobody, Seq::ZERO, 9).await), missing);
    assert_eq!(refusal(store.messages_after(nobody, Seq::ZERO, 9).await), missing);
    assert_eq!(refusal(store.run(nobody, run_id(1)).await), missing);
    assert_eq!(refusal(store.runs(nobody, 9).await), missing);
    assert_eq!(refusal(store.prompt(nobody, run_id(1)).await), missing);
}

pub(super) async fn messages_are_the_prompts_and_the_whole_answers(store: &dyn Store) {
    two_turns(store).await;
    let messages = store.messages_after(session_id(10), Seq::ZERO, 99).await.unwrap();
    let kinds: Vec<_> = messages.iter().map(|message| message.entry.kind()).collect();
    assert_eq!(kinds, ["prompt", "message", "prompt", "message"]);

    let rest = store.messages_after(session_id(10), messages[0].seq, 2).await.unwrap();
    assert_eq!(rest, messages[1..3]);
    let end = store.messages_after(session_id(10), messages[3].seq, 9).await.unwrap();
    assert_eq!(end, []);
}

pub(super) async fn json_is_kept_exactly_as_it_came(store: &dyn Store) {
    deploy(store, 1).await;
    let mut conversation = Conversation::active(store, 10).await;
    let odd = r#"{ "b":1.10,"a" : [1e400,"\u00e4ä",null],  "b":2 }"#;
    store.commit(&conversation.prompt(1, "question")).await.unwrap();
    let body = Json::parse(odd.to_owned()).unwrap();
    store.commit(&conversation.report(1, ReportBody::Message(body))).await.unwrap();
    let log = store.events_after(session_id(10), Seq::ZERO, 99).await.unwrap();
    let Entry::Message { body, .. } = &log.last().unwrap().entry else { panic!("{log:?}") };
    assert_eq!(body.get(), odd);
}

pub(super) async fn a_run_is_followed_from_accepted_to_ended(store: &dyn Store) {
    deploy(store, 1).await;
    let mut conversation = Conversation::begin(store, 10).await;
    store.commit(&conversation.at_time(100).prompt(1, "hello")).await.unwrap();
    let queued = RunRecord {
        id: run_id(1),
        session: session_id(10),
        status: RunStatus::Queued,
        prompt_seq: Seq::new(2),
        turn: None,
        parent_turn: None,
        phase: None,
        round: 0,
        stop_reason: None,
        failure: None,
        usage: Usage::default(),
        accepted_at: at(100),
        started_at: None,
        ended_at: None,
    };
    assert_eq!(store.run(session_id(10), run_id(1)).await.unwrap(), queued);

    store.commit(&conversation.at_time(200).started()).await.unwrap();
    let running = RunRecord {
        status: RunStatus::Running,
        turn: Some(Turn::new(1)),
        parent_turn: Some(Turn::ZERO),
        started_at: Some(at(200)),
        ..queued
    };
    assert_eq!(store.run(session_id(10), run_id(1)).await.unwrap(), running);

    let phase = ReportBody::Phase { phase: Phase::ExecutingTools, round: 3 };
    store.commit(&conversation.report(1, phase)).await.unwrap();
    let progressed = RunRecord { phase: Some(Phase::ExecutingTools), round: 3, ..running };
    assert_eq!(store.run(session_id(10), run_id(1)).await.unwrap(), progressed);

    let usage = Usage {
        input_tokens: 1,
        output_tokens: 2,
        cache_creation_tokens: 3,
        cache_read_tokens: 4,
        tool_calls: 5,
        cost_micro_usd: 6,
    };
    store.commit(&conversation.at_time(300).done(1, usage)).await.unwrap();
    let ended = RunRecord {
        status: RunStatus::Completed,
        stop_reason: Some("end_turn".to_owned()),
        usage,
        ended_at: Some(at(300)),
        ..progressed
    };
    assert_eq!(store.run(session_id(10), run_id(1)).await.unwrap(), ended);
    assert_eq!(store.runs(session_id(10), 9).await.unwrap(), [ended]);
}

pub(super) async fn a_cut_run_keeps_its_failure(store: &dyn Store) {
    deploy(store, 1).await;
    let mut conversation = Conversation::active(store, 10).await;
    store.commit(&conversation.prompt(1, "hello")).await.unwrap();
    let incarnation = conversation.session.incarnation();
    let death = Fact::SandboxGone { incarnation, death: Death::OutOfMemory };
    store.commit(&conversation.observe(death)).await.unwrap();
    let run = store.run(session_id(10), run_id(1)).await.unwrap();
    assert_eq!(run.status, RunStatus::Interrupted);
    assert_eq!(run.stop_reason.as_deref(), Some("error"));
    assert_eq!(run.failure, Some(Death::OutOfMemory.failure()));
    assert_eq!(run.failure.unwrap().code, FailureCode::SandboxOutOfMemory);
}

pub(super) async fn runs_are_listed_newest_first(store: &dyn Store) {
    two_turns(store).await;
    let ids = |runs: Vec<RunRecord>| runs.into_iter().map(|run| run.id).collect::<Vec<_>>();
    assert_eq!(ids(store.runs(session_id(10), 9).await.unwrap()), [run_id(2), run_id(1)]);
    assert_eq!(ids(store.runs(session_id(10), 1).await.unwrap()), [run_id(2)]);
    Conversation::begin(store, 20).await;
    assert_eq!(store.runs(session_id(20), 9).await.unwrap(), []);
}

pub(super) async fn a_run_of_another_session_is_not_found(store: &dyn Store) {
    two_turns(store).await;
    Conversation::begin(store, 20).await;
    let other = store.run(session_id(20), run_id(1)).await;
    assert_eq!(refusal(other), r#"NotFound("run")"#);
    let other = store.prompt(session_id(20), run_id(1)).await;
    assert_eq!(refusal(other), r#"NotFound("run")"#);
}

pub(super) async fn the_prompt_of_a_run_is_what_was_written(store: &dyn Store) {
    two_turns(store).await;
    for run in [1, 2] {
        let prompt = store.prompt(session_id(10), run_id(run)).await.unwrap();
        assert_eq!(prompt, json(&format!("question {run}")));
    }
    let unknown = store.prompt(session_id(10), run_id(3)).await;
    assert_eq!(refusal(unknown), r#"NotFound("run")"#);
}

fn totals(runs: u64, input_tokens: u64) -> UsageTotals {
    let usage = Usage { input_tokens, cost_micro_usd: 7 * runs, ..Usage::default() };
    UsageTotals { runs, usage, compute_millis: 0 }
}

pub(super) async fn usage_is_summed_over_runs_that_ended(store: &dyn Store) {
    let nothing = store.usage(&us(), &UsageFilter::default()).await.unwrap();
    assert_eq!(nothing, UsageTotals::default());
    let mut conversation = two_turns(store).await;
    store.commit(&conversation.prompt(3, "goes on")).await.unwrap();
    let summed = store.usage(&us(), &UsageFilter::default()).await.unwrap();
    assert_eq!(summed, totals(2, 3));
    add_them(store).await;
    let theirs = store.usage(&them(), &UsageFilter::default()).await.unwrap();
    assert_eq!(theirs, UsageTotals::default());
}

pub(super) async fn usage_is_filtered_by_session_agent_and_time(store: &dyn Store) {
    two_turns(store).await; // run 1 ends at 100, run 2 at 200
    deploy(store, 2).await;
    let (mut other, mut new) = Conversation::draft(20);
    new.record.agent = agent_id(2);
    new.record.agent_name = name("agent-2");
    store.create_session(&new).await.unwrap();
    store.commit(&other.started()).await.unwrap();
    turn(store, &mut other, 4, 150).await;

    let all = UsageFilter::default();
    let cases = [
        (UsageFilter { session: Some(session_id(10)), ..all.clone() }, totals(2, 3)),
        (UsageFilter { agent: Some(name("agent-2")), ..all.clone() }, totals(1, 4)),
        (UsageFilter { from: Some(at(150)), ..all.clone() }, totals(2, 6)),
        (UsageFilter { until: Some(at(150)), ..all.clone() }, totals(1, 1)),
        (UsageFilter { from: Some(at(100)), until: Some(at(200)), ..all.clone() }, totals(2, 5)),
        (
            UsageFilter { session: Some(session_id(10)), agent: Some(name("agent-2")), ..all },
            totals(0, 0),
        ),
    ];
    for (filter, expected) in cases {
        assert_eq!(store.usage(&us(), &filter).await.unwrap(), expected, "{filter:?}");
    }
}

pub(super) async fn runs_that_ended_are_listed_with_their_agents_the_last_one_first(
    store: &dyn Store,
) {
    let mut conversation = two_turns(store).await;
    store.commit(&conversation.prompt(3, "goes on")).await.unwrap();
    let all = UsageFilter::default();
    let records = store.usage_records(&us(), &all, 9).await.unwrap();
    let seen: Vec<_> = records.iter().map(|record| (record.run.id, &record.agent_name)).collect();
    let agent = name("agent-1");
    assert_eq!(seen, [(run_id(2), &agent), (run_id(1), &agent)]);
    assert_eq!(records[0].run, store.run(session_id(10), run_id(2)).await.unwrap());
    assert_eq!(store.usage_records(&us(), &all, 1).await.unwrap(), records[..1]);
    let early = UsageFilter { until: Some(at(200)), ..all.clone() };
    assert_eq!(store.usage_records(&us(), &early, 9).await.unwrap(), records[1..]);

    store.commit(&conversation.at_time(5_250).done(3, Usage::default())).await.unwrap();
    assert_eq!(store.usage(&us(), &all).await.unwrap().compute_millis, 5_050);
    add_them(store).await;
    assert_eq!(store.usage_records(&them(), &all, 9).await.unwrap(), []);
}

pub(super) async fn usage_of_a_deleted_agent_still_counts(store: &dyn Store) {
    two_turns(store).await;
    store.delete_agent(&us(), &name("agent-1")).await.unwrap();
    let summed = store.usage(&us(), &UsageFilter::default()).await.unwrap();
    assert_eq!(summed, totals(2, 3));
}

pub(super) async fn an_absurd_usage_does_not_spoil_the_sum(store: &dyn Store) {
    deploy(store, 1).await;
    let mut conversation = Conversation::active(store, 10).await;
    let absurd = Usage { input_tokens: u64::MAX, tool_calls: 1, ..Usage::default() };
    for run in [1, 2, 3] {
        store.commit(&conversation.prompt(run, "hello")).await.unwrap();
        store.commit(&conversation.done(run, absurd)).await.unwrap();
    }
    let summed = store.usage(&us(), &UsageFilter::default()).await.unwrap();
    assert_eq!((summed.runs, summed.usage.tool_calls), (3, 3));
    let run = store.run(session_id(10), run_id(1)).await.unwrap();
    assert_eq!(summed.usage.input_tokens, 3 * run.usage.input_tokens);
}
