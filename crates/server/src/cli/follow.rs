//! A session as plain text: for pipes, programs, and terminals that know no escapes.

use std::io::IsTerminal as _;

use tokio::signal::unix::Signal;
use tokio::task::JoinSet;
use tokio::time::Instant;
use uuid::Uuid;

use super::connect::Context;
use super::output::{Reader, look_for_reader, note, plain, reader, show};
use super::questions::{Questions, Typed};
use super::render::{self, Renderer};
use super::talk::Stay;
use super::watch::{self, Watched};
use super::{ask, chat};
use crate::client::{EventStream, Incoming, ServerEvent};

/// What is followed.
pub(super) struct Following {
    pub(super) session: Uuid,
    pub(super) stream: EventStream,
    pub(super) stay: Stay,
    /// What is in the log up to here happened before.
    pub(super) past: u64,
}

/// Shows a session until one leaves, or it is over. Lines are sent only if a person types them.
pub(super) async fn follow(
    ctx: &Context,
    following: Following,
    ctrl_c: &mut Signal,
) -> anyhow::Result<Watched> {
    let Following { session, mut stream, stay, past } = following;
    let screen = &ctx.screen;
    let talks = stay == Stay::Talking && screen.is_terminal && !screen.json;
    let mut typed: Option<Typed> = (talks && std::io::stdin().is_terminal()).then(ask::lines);
    let mut questions = Questions::new(ctx, session, None);
    let mut renderer = Renderer::new(std::io::stdout(), screen.is_terminal, screen.color);
    let mut began = Instant::now();
    let mut looks = watch::looks();
    let mut sending = JoinSet::new();
    let mut is_told = false;
    loop {
        tokio::select! {
            next = stream.next() => match next? {
                Some(Incoming::Event(event)) => {
                    is_told = false;
                    if event.name == "run_started" {
                        began = Instant::now();
                    }
                    let shown = match screen.json {
                        true => show(&watch::line(&event))?,
                        false => reader(tell(&mut renderer, &event, began))?,
                    };
                    if shown == Reader::Gone {
                        return Ok(Watched::Unread);
                    }
                    let is_past = event.cursor.is_some_and(|cursor| cursor.seq <= past);
                    if !screen.json && !is_past {
                        questions.hear(&event);
                    }
                    if event.name == "session_ended" {
                        return Ok(Watched::Completed);
                    }
                }
                Some(Incoming::Reconnecting { .. }) => {
                    if !screen.json && !std::mem::replace(&mut is_told, true) {
                        note("(connection lost, trying again)");
                    }
                }
                Some(Incoming::Connected) => {}
                None => return Ok(Watched::Completed),
            },
            line = next_line(typed.as_mut()) => match line {
                Some(line) if line.trim().is_empty() => {}
                Some(line) => {
                    let client = ctx.client.clone();
                    let message = chat::message(line);
                    sending.spawn(async move { client.send_detached(session, &message).await });
                }
                None => return Ok(Watched::Completed),
            },
            Some(sent) = sending.join_next() => {
                if let Ok(Err(error)) = sent {
                    note(&format!("it was not sent: {}", plain(&error.to_string())));
                }
            }
            Some(told) = questions.next() => note(&told),
            _ = ctrl_c.recv() => {
                note(&format!("left; come back with: ash session attach {session}"));
                return Ok(Watched::Left);
            }
            _ = looks.tick(), if !screen.is_terminal => if look_for_reader() == Reader::Gone {
                return Ok(Watched::Unread);
            },
        }
    }
}

/// An event, and who asked, if a person reads along.
fn tell(
    renderer: &mut Renderer<std::io::Stdout>,
    event: &ServerEvent,
    began: Instant,
) -> std::io::Result<()> {
    match event.name.as_str() {
        "prompt" => {
            let said = event.data.get("content").map(render::text_of).unwrap_or_default();
            renderer.prompt(&said)
        }
        "error" => renderer.failure(&watch::said(event)),
        _ => renderer.show(event, began.elapsed()),
    }
}

async fn next_line(typed: Option<&mut Typed>) -> Option<String> {
    match typed {
        Some(typed) => typed.recv().await?.ok(),
        None => std::future::pending().await,
    }
}
