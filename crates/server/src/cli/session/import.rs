//! `ash session import`

use std::fs::File;
use std::os::fd::AsFd as _;

use anyhow::Context as _;
use ash_core::time::Clock as _;
use ash_engine::SystemClock;
use ash_snapshot::Progress;
use uuid::Uuid;

use super::word;
use crate::api::{CloudSession, ImportedSession, Session, SessionBody};
use crate::cli::bar::Bar;
use crate::cli::columns::fitted;
use crate::cli::connect::Context;
use crate::cli::exit::{Exit, Mistake};
use crate::cli::live::Live;
use crate::cli::output::{Screen, note, print};
use crate::cli::{Hint, format};
use crate::client::{ClientError, Upload};

/// Make a session from a file, or from the server's bucket, one of the server
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A file that was exported, - for standard input, an id in the server's bucket, or that behind the bucket's address:
    /// s3://bucket/prefix/ID, gs://bucket/prefix/ID, file:///directory/ID
    #[arg(required_unless_present = "list")]
    from: Option<String>,
    /// Say what is there, and import nothing
    #[arg(long, conflicts_with = "from")]
    list: bool,
}

pub(super) async fn run(ctx: &Context, args: &Args) -> anyhow::Result<Exit> {
    let Some(from) = &args.from else { return list(ctx).await };
    if is_file(from) {
        let bundle = open(from)?;
        let transfer = bundle.transfer().clone();
        let progress = || {
            let (bytes, all_bytes) = transfer.so_far();
            Progress { bytes, all_bytes, ..Progress::default() }
        };
        let work = ctx.client.import_bundle(&bundle);
        return told(ctx, Bar::new(&ctx.screen, "importing", "").during(progress, work).await?);
    }
    let (bucket, id) = split(from)?;
    if let Some(bucket) = bucket {
        let there = ctx.client.cloud_sessions().await?;
        if there.url.trim_end_matches('/') != bucket {
            let url = &there.url;
            let wrong = format!(
                "the server imports from its own bucket alone: {url}/{id}, or the id without the bucket"
            );
            return Err(Mistake::Usage(wrong).into());
        }
    }
    let live = Live::new(&ctx.screen, "importing…");
    let imported = live.during(ctx.client.import_cloud_session(id)).await.map_err(not_there)?;
    for warning in &imported.warnings {
        note(&format!("warning: {warning}"));
    }
    if ctx.screen.json {
        Screen::document(&imported)?;
        return Ok(Exit::Ok);
    }
    let ImportedSession { session, .. } = imported;
    if session.id != id {
        note(&format!("there is a session {id} already: this one has another id"));
    }
    told(ctx, session)
}

fn told(ctx: &Context, session: Session) -> anyhow::Result<Exit> {
    if ctx.screen.json {
        Screen::document(&SessionBody { session })?;
    } else {
        print(&format!("{} is {}\n", session.id, word(session.status)))?;
    }
    Ok(Exit::Ok)
}

/// What to do about a session that cannot be had from the bucket.
fn not_there(error: ClientError) -> anyhow::Error {
    let ClientError::Problem(problem) = &error else { return error.into() };
    let hint = match problem.code.as_str() {
        "not_found" => "ash session import --list shows what is in the bucket",
        "cloud_unavailable" => {
            "the server could not reach the bucket; its log says why. Try again when it can"
        }
        "import_damaged" => {
            "the copy in the bucket cannot be read; a server that still has the session makes another with its next message"
        }
        _ => return error.into(),
    };
    anyhow::Error::from(error).context(Hint(hint))
}

/// Whether a file of this machine is meant. One that looks like something else is written with its directory.
fn is_file(from: &str) -> bool {
    from == "-" || (!from.contains("://") && from.parse::<Uuid>().is_err())
}

fn open(from: &str) -> anyhow::Result<Upload> {
    let about = || format!("could not open {from}");
    let file = match from {
        "-" => std::io::stdin().as_fd().try_clone_to_owned().map(File::from),
        path => File::open(path),
    };
    let file = file.with_context(about)?;
    if file.metadata().with_context(about)?.is_dir() {
        return Err(Mistake::Usage(format!("{from} is a directory")).into());
    }
    Upload::of(file).with_context(about)
}

/// A bucket, if one is named, and a session.
fn split(from: &str) -> Result<(Option<&str>, Uuid), Mistake> {
    let (bucket, id) = match from.trim_end_matches('/').rsplit_once(['/', '#']) {
        Some((bucket, id)) => (Some(bucket.trim_end_matches('/')), id),
        None => (None, from),
    };
    let id = id.parse().map_err(|_| {
        Mistake::Usage(format!("{from} ends with no id of a session: --list says what there is"))
    })?;
    Ok((bucket, id))
}

async fn list(ctx: &Context) -> anyhow::Result<Exit> {
    let there = ctx.client.cloud_sessions().await?;
    if ctx.screen.json {
        Screen::document(&there)?;
        return Ok(Exit::Ok);
    }
    for session in &there.unreadable {
        note(&format!(
            "{session} is in {} and cannot be read: ash session import {session} says why",
            there.url
        ));
    }
    if there.sessions.is_empty() {
        if there.unreadable.is_empty() {
            note(&format!("there are none in {}", there.url));
        }
        return Ok(Exit::Ok);
    }
    let now = SystemClock.now();
    let row = |session: &CloudSession| {
        vec![
            session.session_id.to_string(),
            session.agent_name.clone(),
            session.status.clone().unwrap_or_default(),
            session.turns.to_string(),
            format::ago(&session.at, now),
            session.title.clone().unwrap_or_default(),
        ]
    };
    let rows: Vec<_> = there.sessions.iter().map(row).collect();
    let headings = ["ID", "AGENT", "STATUS", "TURNS", "AGE", "TITLE"];
    let gives_way = (&["TITLE", "AGENT"][..], &["TITLE", "AGENT", "TURNS", "AGE", "STATUS"][..]);
    print(&fitted(&headings, &rows, ctx.screen.room(), gives_way))?;
    Ok(Exit::Ok)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_session_is_named_with_its_bucket_or_alone() {
        let id = "01890a5d-ac96-774b-bcce-b302099a8057";
        let uuid: Uuid = id.parse().unwrap();
        for (from, bucket) in [
            (id.to_owned(), None),
            (format!("s3://b/p/{id}"), Some("s3://b/p")),
            (format!("s3://b/p/{id}/"), Some("s3://b/p")),
            (format!("gs://b#{id}"), Some("gs://b")),
        ] {
            assert_eq!(split(&from).unwrap(), (bucket, uuid), "{from}");
        }
        assert!(split("s3://b/p").is_err());
        for from in [id.to_owned(), format!("s3://b/p/{id}"), format!("gs://b#{id}")] {
            assert!(!is_file(&from), "{from}");
        }
        for from in ["-", "a.tar", "./0192", "/tmp/b/c.tar", &format!("./{id}")] {
            assert!(is_file(from), "{from}");
        }
    }
}
