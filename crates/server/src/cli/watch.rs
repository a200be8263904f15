//! Watches a run to its end.

use std::time::Duration;

use anyhow::Context as _;
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use uuid::Uuid;

use super::connect::Context;
use super::exit::Exit;
use super::live::{Live, TICK};
use super::output::{Reader, look_for_reader, note, plain, reader, show};
use super::questions::{Questions, Typed};
use super::render::{Ending, Renderer, activity, cut_by, ending};
use super::talk::{self, Beginning, Stay};
use super::transcript::status::Status;
use crate::api::Run;
use crate::client::{ClientError, EventStream, Incoming, ServerEvent};

/// What Ctrl-C does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnCtrlC {
    /// Leaves. The run goes on.
    Leave,
    /// Cuts the run; a second one leaves.
    CutTheRun,
}

/// How the events are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// As an answer.
    Answer,
    /// As lines of JSON.
    Json,
    /// As they came over the wire.
    Raw,
}

/// How watching ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watched {
    /// The run was completed.
    Completed,
    /// The run failed, or was cut by a limit or by somebody else.
    Failed,
    /// The run was cut by Ctrl-C.
    Cut,
    /// The person left; the run goes on.
    Left,
    /// Nobody reads the answer any more; the run goes on.
    Unread,
}

impl From<Watched> for Exit {
    fn from(watched: Watched) -> Self {
        match watched {
            Watched::Completed | Watched::Unread => Self::Ok,
            Watched::Failed => Self::RunFailed,
            Watched::Cut | Watched::Left => Self::CtrlC,
        }
    }
}

/// Hears Ctrl-C from now on.
pub(super) fn ctrl_c() -> anyhow::Result<Signal> {
    signal(SignalKind::interrupt()).context("could not listen for signals")
}

/// How often it is looked whether somebody still reads.
const LOOK: Duration = Duration::from_millis(500);

/// When to look whether somebody still reads. Without it, `… | head -1` would end only with the next
/// event, which may be hours away.
pub(super) fn looks() -> Interval {
    let mut looks = tokio::time::interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    looks
}

/// Shows a run until it is over.
pub(super) async fn watch(
    ctx: &Context,
    session: Uuid,
    mut stream: EventStream,
    form: Form,
    on_ctrl_c: OnCtrlC,
    ctrl_c: &mut Signal,
    typed: Option<&mut Typed>,
) -> anyhow::Result<Watched> {
    let screen = &ctx.screen;
    if screen.rich && form == Form::Answer {
        let status = Status::new(Instant::now());
        let (past, stay) = (0, Stay::Once);
        let beginning = Beginning { session, stream, status, past, stay, on_ctrl_c };
        return talk::talk(ctx, beginning, ctrl_c).await;
    }
    let began = Instant::now();
    let mut live = Live::new(screen, "starting…");
    let mut renderer = Renderer::new(std::io::stdout(), screen.is_terminal, screen.color);
    let mut ticks = tokio::time::interval(TICK);
    let mut looks = looks();
    let mut failure = None;
    let mut reason = None;
    let mut cuts = 0;
    // Another one may go on meanwhile: nothing is cut before it is known which.
    let mut run = None;
    let mut cutting = JoinSet::new();
    let mut is_told = false;
    let mut ended = None;
    let mut questions = Questions::new(ctx, session, typed.filter(|_| form == Form::Answer));
    let outcome = loop {
        tokio::select! {
            next = stream.next() => match next {
                Ok(Some(Incoming::Event(event))) => {
                    live.wipe();
                    let reader = match form {
                        Form::Answer => reader(renderer.show(&event, began.elapsed()))?,
                        Form::Json => show(&line(&event))?,
                        Form::Raw => show(&raw(&event))?,
                    };
                    if reader == Reader::Gone {
                        break Watched::Unread;
                    }
                    if let Some(label) = activity(&event) {
                        live.say(&label);
                    }
                    if form == Form::Answer {
                        questions.hear(&event);
                    }
                    if event.name == "error" {
                        failure = Some(said(&event));
                    }
                    if event.name == "done" {
                        ended = Some(ending(&event));
                        reason = cut_by(&event, cuts);
                    }
                    if run.is_none() && event.run().is_some() {
                        run = event.run();
                        if cuts > 0 {
                            cut(&mut cutting, ctx, session, run);
                        }
                    }
                }
                Ok(Some(Incoming::Reconnecting { .. })) => {
                    live.say("connection lost, trying again…");
                    // Where there is no live line, it is said once.
                    if !screen.live && form != Form::Json && !std::mem::replace(&mut is_told, true) {
                        note("(connection lost, trying again)");
                    }
                }
                Ok(Some(Incoming::Connected)) => {}
                Ok(None) => break match ended {
                    Some(Ending::Completed) => Watched::Completed,
                    Some(Ending::Failed) | None if cuts > 0 => Watched::Cut,
                    Some(Ending::Failed) | None => Watched::Failed,
                },
                Err(error) => {
                    live.wipe();
                    return Err(error.into());
                }
            },
            _ = ctrl_c.recv() => {
                live.wipe();
                cuts += 1;
                if on_ctrl_c == OnCtrlC::Leave || cuts > 1 {
                    note(&format!(
                        "\nleft; the run goes on; come back with: ash session attach {session}"
                    ));
                    break Watched::Left;
                }
                note("\ncutting the run; Ctrl-C again leaves");
                if run.is_some() {
                    cut(&mut cutting, ctx, session, run);
                }
            }
            Some(told) = questions.next() => {
                live.wipe();
                note(&told);
            }
            Some(cut) = cutting.join_next() => {
                // It may be over already.
                if let Ok(Err(error)) = cut {
                    live.wipe();
                    note(&format!("it was not cut: {}", plain(&error.to_string())));
                }
            }
            _ = looks.tick(), if !screen.is_terminal => if look_for_reader() == Reader::Gone {
                break Watched::Unread;
            },
            _ = ticks.tick(), if renderer.is_at_start() && ended.is_none() && !questions.asks() => {
                live.tick();
            }
        }
    };
    live.wipe();
    if form == Form::Answer && outcome != Watched::Unread {
        match (failure, reason) {
            (Some(failure), _) => note(&format!("error: {failure}")),
            (None, Some(reason)) => note(&reason),
            (None, None) => {}
        }
    }
    Ok(outcome)
}

/// Has a run cut. Beside: whoever presses Ctrl-C again does not wait for the server.
fn cut(
    cutting: &mut JoinSet<Result<Run, ClientError>>,
    ctx: &Context,
    session: Uuid,
    run: Option<Uuid>,
) {
    let client = ctx.client.clone();
    cutting.spawn(async move { client.interrupt(session, run).await });
}

/// An event as a line of JSON.
pub(super) fn line(event: &ServerEvent) -> String {
    let id = event.cursor.map(|cursor| cursor.to_string());
    format!("{}\n", json!({ "id": id, "event": event.name, "data": event.data }))
}

fn raw(event: &ServerEvent) -> String {
    let id = event.cursor.map(|cursor| format!("id: {cursor}\n")).unwrap_or_default();
    format!("{id}event: {}\ndata: {}\n\n", event.name, event.data)
}

/// What an `error` event says.
pub(super) fn said(event: &ServerEvent) -> String {
    let text = plain(event.text("error").unwrap_or("the run failed"));
    match event.text("code") {
        Some(code) => format!("{text} ({})", plain(code)),
        None => text,
    }
}
