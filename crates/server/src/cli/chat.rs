//! `ash chat`: a conversation, or one question.

use std::io::IsTerminal as _;

use anyhow::Context as _;
use tokio::signal::unix::Signal;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::connect::Context;
use super::exit::{Exit, Mistake};
use super::live::Live;
use super::output::{Style, note, plain, print};
use super::questions::Typed;
use super::session::attach::{self, From};
use super::talk::Stay;
use super::watch::{self, Form, OnCtrlC, Watched};
use super::{Hint, ask, prefix, suggest};
use crate::api::{Content, CreateSession, IfBusy, SendMessage, SessionStatus};
use crate::client::{ClientError, Until};

/// Talk to an agent
///
/// With a message: asks, shows the answer, and leaves. Without: a conversation, a line at a time,
/// until the end of input. Ctrl-C cuts an answer; twice, it leaves. The session stays, and can be
/// taken up again with --session.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The agent
    agent: String,
    /// What to say; - reads it from standard input
    message: Option<String>,
    /// Go on with this session: its id, or how that begins
    #[arg(long, short, value_name = "ID")]
    session: Option<String>,
    /// End the session when leaving
    #[arg(long)]
    end: bool,
}

pub(super) async fn run(ctx: &Context, args: Args) -> anyhow::Result<Exit> {
    let message = match args.message.as_deref() {
        Some("-") => Some(ask::everything()?),
        message => message.map(str::to_owned),
    };
    if message.as_ref().is_some_and(|message| message.trim().is_empty()) {
        return Err(Mistake::Usage("there is nothing to say: the message is empty".to_owned()))
            .context(Hint("without a message it is a conversation"));
    }
    let mut lines = None;
    let is_painted = ctx.screen.rich && std::io::stdin().is_terminal();
    if message.is_none() && !is_painted {
        let mut read = Lines { rest: ask::lines(), first: None };
        // Whoever has nothing to say needs no session. A person is not known to have nothing.
        if !std::io::stdin().is_terminal() && !read.has_something().await? {
            note("nothing was said");
            return Ok(Exit::Ok);
        }
        lines = Some(read);
    }
    let mut ctrl_c = watch::ctrl_c()?;
    let session = match &args.session {
        Some(text) => tokio::select! {
            known = known(ctx, text, &args.agent) => known?,
            _ = ctrl_c.recv() => return Ok(Exit::CtrlC),
        },
        None => match begin(ctx, &args.agent, &mut ctrl_c).await? {
            Some(session) => session,
            None => return Ok(Exit::CtrlC),
        },
    };
    // Whoever left was told the way back.
    let (mut has_left, mut has_ended) = (false, false);
    let mut told = |watched: anyhow::Result<Watched>| {
        has_left = matches!(watched, Ok(Watched::Left));
        watched.map(Exit::from)
    };
    let talked = match (message, lines) {
        (Some(message), _) => {
            let mut typed = ask::person(ctx).filter(|_| args.message.as_deref() != Some("-"));
            told(say(ctx, session, message, &mut ctrl_c, typed.as_mut()).await)
        }
        (None, Some(lines)) => converse(ctx, session, lines, &mut ctrl_c).await,
        (None, None) => {
            let session = ctx.client.session(session).await?;
            let stay = Stay::Talking;
            let from = From::Turn;
            let until = Until::Dropped;
            let talked = told(attach::attach(ctx, &session, from, stay, until, &mut ctrl_c).await);
            let left = ctx.client.session(session.id).await;
            has_ended = left.is_ok_and(|session| session.status == SessionStatus::Ended);
            talked
        }
    };
    // Also after a failure: the session is there, and a person wants it back or gone.
    if args.end {
        tokio::select! {
            ended = ctx.client.end(session) => { ended?; }
            _ = ctrl_c.recv() => return Ok(Exit::CtrlC),
        }
    } else if has_ended || talked.as_ref().is_err_and(is_over) {
        note("the session has ended; begin another without -s");
    } else if !ctx.screen.json && !has_left {
        note(&format!("session {session}; go on with: ash chat {} -s {session}", args.agent));
    }
    talked
}

/// A session of one's own; none, if Ctrl-C is pressed before it is there. The server makes it all the same, so it is
/// waited for and ended, for nobody would know of it.
async fn begin(ctx: &Context, agent: &str, ctrl_c: &mut Signal) -> anyhow::Result<Option<Uuid>> {
    let new = CreateSession { agent: agent.to_owned(), ..CreateSession::default() };
    let live = Live::new(&ctx.screen, "starting…");
    let mut made = Box::pin(live.during(ctx.client.create_session(&new)));
    let done = tokio::select! {
        done = &mut made => Some(done),
        _ = ctrl_c.recv() => None,
    };
    if let Some(done) = done {
        return match done {
            Ok(session) => Ok(Some(session.id)),
            Err(error) => Err(suggest::agent(&ctx.client, agent, error).await),
        };
    }
    note("\nthe session is ended as soon as it is there; Ctrl-C again leaves it as it is");
    let end = async {
        let session = made.await?.id;
        ctx.client.end(session).await.map(|_| session)
    };
    tokio::select! {
        ended = end => note(&format!("session {} has ended", ended?)),
        _ = ctrl_c.recv() => note("left; it is in: ash session list"),
    }
    Ok(None)
}

/// A session that exists, and is with that agent.
async fn known(ctx: &Context, text: &str, agent: &str) -> anyhow::Result<Uuid> {
    let id = prefix::session(&ctx.client, text).await?;
    let session = ctx.client.session(id).await?;
    if session.agent_name != agent {
        let of = plain(&session.agent_name);
        return Err(Mistake::Usage(format!("session {id} is with {of}, not with {agent}")).into());
    }
    Ok(id)
}

/// One message and its answer.
async fn say(
    ctx: &Context,
    session: Uuid,
    text: String,
    ctrl_c: &mut Signal,
    typed: Option<&mut Typed>,
) -> anyhow::Result<Watched> {
    let message = message(text);
    let stream = ctx.client.send(session, &message);
    let form = if ctx.screen.json { Form::Json } else { Form::Answer };
    watch::watch(ctx, session, stream, form, OnCtrlC::CutTheRun, ctrl_c, typed).await
}

/// Whoever talks to a session wants it awake.
pub(super) fn message(text: String) -> SendMessage {
    SendMessage {
        content: Content::Text(text),
        include_partial_messages: None,
        model: None,
        max_turns: None,
        max_budget_usd: None,
        effort: None,
        thinking: None,
        output_format: None,
        permission_mode: None,
        permission_timeout_ms: None,
        allowed_tools: None,
        disallowed_tools: None,
        detach: false,
        if_busy: IfBusy::Queue,
        wake: true,
        timeout_ms: None,
    }
}

/// What is typed, a line at a time.
struct Lines {
    /// Read already.
    first: Option<String>,
    rest: mpsc::Receiver<std::io::Result<String>>,
}

impl Lines {
    async fn next(&mut self) -> std::io::Result<Option<String>> {
        match self.first.take() {
            Some(first) => Ok(Some(first)),
            None => self.rest.recv().await.transpose(),
        }
    }

    /// Waits until something is said, and keeps it. There may be nothing.
    async fn has_something(&mut self) -> std::io::Result<bool> {
        while let Some(line) = self.next().await? {
            match line.trim() {
                "" => {}
                "/exit" | "/quit" => return Ok(false),
                _ => {
                    self.first = Some(line);
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

async fn converse(
    ctx: &Context,
    session: Uuid,
    mut lines: Lines,
    ctrl_c: &mut Signal,
) -> anyhow::Result<Exit> {
    let mut was_warned = false;
    // A script wants to know how it went; a person has seen it.
    let is_script = !std::io::stdin().is_terminal();
    let mut last = Exit::Ok;
    loop {
        if ctx.screen.is_terminal && !ctx.screen.json {
            print(&ctx.screen.paint(Style::Bold, "> "))?;
        }
        let line = tokio::select! {
            line = lines.next() => line?,
            _ = ctrl_c.recv() => {
                if was_warned {
                    return Ok(Exit::CtrlC);
                }
                was_warned = true;
                note("\nCtrl-C again, or Ctrl-D, leaves");
                continue;
            }
        };
        was_warned = false;
        let Some(line) = line else {
            return Ok(if is_script { last } else { Exit::Ok });
        };
        match line.trim() {
            "" => continue,
            "/exit" | "/quit" => return Ok(if is_script { last } else { Exit::Ok }),
            _ => {}
        }
        // A script that talks does not answer questions: what it says next is the next message.
        let typed = (!is_script && ctx.screen.is_terminal).then_some(&mut lines.rest);
        last = match say(ctx, session, line, ctrl_c, typed).await {
            Ok(watched @ (Watched::Left | Watched::Unread)) => return Ok(watched.into()),
            Ok(watched @ (Watched::Completed | Watched::Failed | Watched::Cut)) => watched.into(),
            // The next message may go better; without a server or a session there is none.
            Err(error) if is_passing(&error) => {
                super::exit::report(&error, ctx.screen.json);
                super::exit::of(&error)
            }
            Err(error) => return Err(error),
        };
    }
}

/// Whether the session is gone for good.
fn is_over(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<ClientError>(),
        Some(ClientError::Problem(problem)) if super::exit::says_ended(problem))
}

fn is_passing(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<ClientError>(),
        Some(ClientError::Problem(problem)) if problem.retryable || problem.status_code == 413)
}
