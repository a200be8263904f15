//! `ash session`: conversations, and what can be done with them.

pub(super) mod attach;
mod cp;
mod create;
mod egress;
mod exec;
mod export;
mod files;
mod history;
mod import;
mod lifecycle;
pub(super) mod list;
mod permissions;
mod send;
mod show;
mod snapshots;
mod tail;

use super::connect::Context;
use super::exit::Exit;
use crate::api::SessionStatus;

/// Make sessions, talk to them, watch them, stop and resume them
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Create(create::Args),
    Send(send::Args),
    Attach(attach::Args),
    List(list::Args),
    Show(show::Args),
    Tail(tail::Args),
    /// Stop a session: its sandbox goes, its workspace and its conversation stay
    Stop(lifecycle::Which),
    Pause(lifecycle::Pause),
    Resume(lifecycle::Resume),
    /// List the snapshots of a session's files, newest first
    Snapshots(lifecycle::Which),
    Fork(history::Fork),
    Rewind(history::Rewind),
    Diff(history::Diff),
    /// End a session for ever
    End(lifecycle::Which),
    /// Cut the run that goes on
    Interrupt(lifecycle::Which),
    /// List the permission questions that wait for an answer
    Permissions(lifecycle::Which),
    Allow(permissions::Allow),
    Deny(permissions::Deny),
    Export(export::Args),
    Import(import::Args),
    /// List what a session's sandbox asked of the model and of other hosts, newest first
    Egress(lifecycle::Which),
    Exec(exec::Args),
    Files(files::Args),
    Cp(cp::Args),
}

pub(super) async fn run(ctx: &Context, args: Args) -> anyhow::Result<Exit> {
    match args.command {
        Command::Create(args) => create::run(ctx, args).await,
        Command::Send(args) => send::run(ctx, args).await,
        Command::Attach(args) => attach::run(ctx, &args).await,
        Command::List(args) => list::run(ctx, args).await,
        Command::Show(args) => show::run(ctx, &args).await,
        Command::Tail(args) => tail::run(ctx, &args).await,
        Command::Stop(which) => lifecycle::stop(ctx, &which).await,
        Command::Pause(args) => lifecycle::pause(ctx, &args).await,
        Command::Snapshots(which) => snapshots::run(ctx, &which).await,
        Command::Fork(args) => history::fork(ctx, &args).await,
        Command::Rewind(args) => history::rewind(ctx, &args).await,
        Command::Diff(args) => history::diff(ctx, &args).await,
        Command::Resume(args) => lifecycle::resume(ctx, &args).await,
        Command::End(which) => lifecycle::end(ctx, &which).await,
        Command::Interrupt(which) => lifecycle::interrupt(ctx, &which).await,
        Command::Permissions(which) => permissions::list(ctx, &which).await,
        Command::Allow(args) => permissions::allow(ctx, args).await,
        Command::Deny(args) => permissions::deny(ctx, args).await,
        Command::Export(args) => export::run(ctx, &args).await,
        Command::Import(args) => import::run(ctx, &args).await,
        Command::Egress(which) => egress::run(ctx, &which).await,
        Command::Exec(args) => exec::run(ctx, args).await,
        Command::Files(args) => files::run(ctx, args).await,
        Command::Cp(args) => cp::run(ctx, args).await,
    }
}

/// A status as people write it.
fn word(status: SessionStatus) -> &'static str {
    match status {
        SessionStatus::Starting => "starting",
        SessionStatus::Active => "active",
        SessionStatus::Paused => "paused",
        SessionStatus::Stopped => "stopped",
        SessionStatus::Ended => "ended",
        SessionStatus::Error => "error",
    }
}
