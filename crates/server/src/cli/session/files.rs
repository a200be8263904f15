//! `ash session files`

use std::io::Write as _;

use ash_core::time::Clock as _;
use ash_engine::SystemClock;

use crate::api::{FileInfo, Files};
use crate::cli::columns::fitted;
use crate::cli::connect::Context;
use crate::cli::exit::Exit;
use crate::cli::live::Live;
use crate::cli::output::{Screen, note, plain, print, reader};
use crate::cli::{format, prefix};
use crate::client::{FileQuery, Transfer};

/// List the files of a session, or print one
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session's id, or how that begins
    id: String,
    /// A directory to list, or a file to print
    path: Option<String>,
    /// Also what is left out otherwise, such as .git and node_modules
    #[arg(long)]
    all: bool,
}

pub(super) async fn run(ctx: &Context, args: Args) -> anyhow::Result<Exit> {
    let id = prefix::session(&ctx.client, &args.id).await?;
    let query = FileQuery { path: args.path.clone(), everything: args.all.then_some(true) };
    let live = Live::new(&ctx.screen, "looking…");
    let listed = live.during(ctx.client.files(id, &query)).await?;
    if let Some(file) = args.path.as_deref().and_then(|path| alone(&listed, path)) {
        if ctx.screen.json {
            Screen::document(&ctx.client.file_text(id, file).await?)?;
            return Ok(Exit::Ok);
        }
        let content = ctx.client.file(id, file, &Transfer::default()).await?;
        return show(&ctx.screen, &content);
    }
    if ctx.screen.json {
        Screen::document(&listed)?;
        return Ok(Exit::Ok);
    }
    if listed.files.is_empty() {
        note("there are no files");
        return Ok(Exit::Ok);
    }
    let now = SystemClock.now();
    let row = |file: &FileInfo| {
        vec![format::bytes(file.size), format::ago(&file.modified_at, now), file.path.clone()]
    };
    let rows: Vec<_> = listed.files.iter().map(row).collect();
    let headings = ["SIZE", "CHANGED", "PATH"];
    print(&fitted(&headings, &rows, ctx.screen.room(), (&[], &["CHANGED", "SIZE"])))?;
    if listed.truncated {
        note("there are more: too many, too deep, or not to be read");
    }
    Ok(Exit::Ok)
}

/// The one file of a list that is asked for by its own path.
pub(super) fn alone<'a>(listed: &'a Files, path: &str) -> Option<&'a FileInfo> {
    let names = |path: &str| -> Vec<String> {
        let names = path.split('/').filter(|name| !name.is_empty() && *name != ".");
        names.map(str::to_owned).collect()
    };
    match listed.files.as_slice() {
        [file] if names(&file.path) == names(path) => Some(file),
        _ => None,
    }
}

/// Writes what is in a file to standard output; to a terminal, without what would move its cursor.
pub(super) fn show(screen: &Screen, content: &[u8]) -> anyhow::Result<Exit> {
    if screen.is_terminal {
        print(&plain(&String::from_utf8_lossy(content)))?;
        return Ok(Exit::Ok);
    }
    let mut stdout = std::io::stdout().lock();
    reader(stdout.write_all(content).and_then(|()| stdout.flush()))?;
    Ok(Exit::Ok)
}
