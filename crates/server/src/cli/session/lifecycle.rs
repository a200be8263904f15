//! `ash session stop`, `pause`, `resume`, `end` and `interrupt`

use serde_json::json;

use super::word;
use crate::api::{
    Activity, PauseSession, ResumeSession, RunBody, Session, SessionBody, WhenRunning,
};
use crate::cli::connect::Context;
use crate::cli::exit::Exit;
use crate::cli::live::Live;
use crate::cli::output::{Screen, Style, note, plain, print};
use crate::cli::watch::{self, Form, OnCtrlC};
use crate::cli::{ask, format, parse, prefix};
use crate::client::{Cursor, Until};

/// A session.
#[derive(Debug, clap::Args)]
pub(super) struct Which {
    /// The session's id, or how that begins
    pub(super) id: String,
}

/// Freeze a session where it is, also in the middle of a run
#[derive(Debug, clap::Args)]
pub(super) struct Pause {
    /// The session's id, or how that begins
    id: String,
    /// What becomes of a run that goes on: freeze, interrupt or reject
    #[arg(long, value_name = "HOW", default_value = "freeze", value_parser = parse::word::<WhenRunning>)]
    if_running: WhenRunning,
}

/// Bring a session back, and say what of it came back
#[derive(Debug, clap::Args)]
pub(super) struct Resume {
    /// The session's id, or how that begins
    id: String,
    /// Rather fail than begin with a fresh workspace
    #[arg(long)]
    require_state: bool,
    /// Begin with whatever can be had now, also if its files are in the cloud and cannot be
    #[arg(long, conflicts_with = "require_state")]
    fresh: bool,
    /// Do not watch a run that goes on
    #[arg(long)]
    detach: bool,
}

pub(super) async fn stop(ctx: &Context, which: &Which) -> anyhow::Result<Exit> {
    let id = prefix::session(&ctx.client, &which.id).await?;
    let session = Live::new(&ctx.screen, "stopping…").during(ctx.client.stop(id)).await?;
    tell(ctx, session)
}

pub(super) async fn pause(ctx: &Context, args: &Pause) -> anyhow::Result<Exit> {
    let id = prefix::session(&ctx.client, &args.id).await?;
    let how = PauseSession { if_running: args.if_running };
    let session = Live::new(&ctx.screen, "pausing…").during(ctx.client.pause(id, &how)).await?;
    tell(ctx, session)
}

pub(super) async fn end(ctx: &Context, which: &Which) -> anyhow::Result<Exit> {
    let id = prefix::session(&ctx.client, &which.id).await?;
    let session = Live::new(&ctx.screen, "ending…").during(ctx.client.end(id)).await?;
    tell(ctx, session)
}

pub(super) async fn interrupt(ctx: &Context, which: &Which) -> anyhow::Result<Exit> {
    let id = prefix::session(&ctx.client, &which.id).await?;
    let run = ctx.client.interrupt(id, None).await?;
    if ctx.screen.json {
        Screen::document(&RunBody { run })?;
    } else {
        print(&format!("run {} is {}\n", run.id, plain(&run.status)))?;
    }
    Ok(Exit::Ok)
}

pub(super) async fn resume(ctx: &Context, args: &Resume) -> anyhow::Result<Exit> {
    let id = prefix::session(&ctx.client, &args.id).await?;
    let how = ResumeSession { require_state: args.require_state, allow_fresh: args.fresh };
    // How far it is, only the server knows; how much it may have to fetch, its last snapshot tells.
    let label = match ctx.screen.live {
        true => ctx.client.session(id).await.ok().and_then(|session| session.snapshot),
        false => None,
    };
    let label = label.map(|of| format!("resuming {}…", format::things(of.files, "file")));
    let live = Live::new(&ctx.screen, label.as_deref().unwrap_or("resuming…"));
    let resumed = live.during(ctx.client.resume(id, &how)).await?;
    let watches = !args.detach && resumed.session.activity == Some(Activity::Running);
    if ctx.screen.json && watches {
        // The first of the lines that follow.
        let line = json!({ "id": null, "event": "resumed", "data": &resumed });
        print(&format!("{line}\n"))?;
    } else if ctx.screen.json {
        Screen::document(&resumed)?;
    } else {
        print(&format!("{}\n", format::receipt(&resumed.resume)))?;
    }
    if let Some(loss) = format::loss(&resumed.resume).filter(|_| !ctx.screen.json) {
        note(&format!("warning: {}", ctx.screen.paint(Style::Red, &loss)));
    }
    let session = &resumed.session;
    if !watches {
        return Ok(Exit::Ok);
    }
    // A run that stood still goes on: what it says from where the log ended is shown.
    let after = Cursor { epoch: Some(session.log_epoch), seq: resumed.resume.last_seq };
    let form = if ctx.screen.json { Form::Json } else { Form::Answer };
    let mut ctrl_c = watch::ctrl_c()?;
    let stream = ctx.client.follow(id, after, Until::Idle);
    let mut typed = ask::person(ctx);
    let typed = typed.as_mut();
    Ok(watch::watch(ctx, id, stream, form, OnCtrlC::Leave, &mut ctrl_c, typed).await?.into())
}

fn tell(ctx: &Context, session: Session) -> anyhow::Result<Exit> {
    if ctx.screen.json {
        Screen::document(&SessionBody { session })?;
    } else {
        print(&format!("{} is {}\n", session.id, word(session.status)))?;
    }
    Ok(Exit::Ok)
}
