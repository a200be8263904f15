//! `ash session export`

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context as _;
use ash_snapshot::Progress;
use serde::Serialize;

use crate::cli::bar::Bar;
use crate::cli::connect::Context;
use crate::cli::exit::{Exit, Mistake};
use crate::cli::output::{Screen, note};
use crate::cli::{format, prefix};
use crate::client::{Download, ExportedFiles};

/// Write a session to one file: its conversation, its files and its agent
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session: its id, or the beginning of it
    id: String,
    /// Where to, or - for standard output; its agent and its id name the file if nothing is said
    #[arg(short, long, value_name = "FILE")]
    output: Option<String>,
    /// With every snapshot that is kept, and not the latest alone
    #[arg(long)]
    history: bool,
}

/// What was written.
#[derive(Serialize)]
struct Exported {
    file: String,
    bytes: u64,
}

pub(super) async fn run(ctx: &Context, args: &Args) -> anyhow::Result<Exit> {
    let id = prefix::session(&ctx.client, &args.id).await?;
    let files = if args.history { ExportedFiles::History } else { ExportedFiles::Latest };
    let (done, all) = (AtomicU64::new(0), AtomicU64::new(0));
    let work = async {
        let mut download = ctx.client.export(id, files).await?;
        all.store(download.bytes().unwrap_or(0), Ordering::Relaxed);
        if args.output.as_deref() == Some("-") {
            if ctx.screen.is_terminal {
                let message = "a bundle is not for a terminal: name a file, or redirect it";
                return Err(Mistake::Usage(message.to_owned()).into());
            }
            let bytes = copy(&mut download, &mut std::io::stdout().lock(), &done).await?;
            return anyhow::Ok(("-".to_owned(), bytes));
        }
        let named = args.output.clone().or_else(|| download.name());
        let to = named.unwrap_or_else(|| format!("{id}.tar"));
        let bytes = save(&mut download, Path::new(&to), &done).await?;
        Ok((to, bytes))
    };
    // How much it will be is not known before the server has put it together.
    let progress = || {
        let (bytes, all_bytes) = (done.load(Ordering::Relaxed), all.load(Ordering::Relaxed));
        Progress { bytes, all_bytes, ..Progress::default() }
    };
    let (file, bytes) = Bar::new(&ctx.screen, "exporting", "").during(progress, work).await?;
    if file == "-" {
        return Ok(Exit::Ok);
    }
    if ctx.screen.json {
        Screen::document(&Exported { file, bytes })?;
    } else {
        note(&format!("{file}: {}", format::bytes(bytes)));
    }
    Ok(Exit::Ok)
}

/// Writes a bundle to a file, which is there when all of it is. Only its owner can read it.
async fn save(download: &mut Download, to: &Path, done: &AtomicU64) -> anyhow::Result<u64> {
    let about = || format!("could not write {}", to.display());
    let part = Part(PathBuf::from(format!("{}.part", to.display())));
    let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&part.0);
    let mut file = file.with_context(about)?;
    let bytes = copy(download, &mut file, done).await?;
    file.sync_all().with_context(about)?;
    fs::rename(&part.0, to).with_context(about)?;
    Ok(bytes)
}

/// A file that is not whole, and goes if it never is.
struct Part(PathBuf);

impl Drop for Part {
    fn drop(&mut self) {
        // It has its name by now, or is of no use.
        let _gone = fs::remove_file(&self.0);
    }
}

async fn copy(
    download: &mut Download,
    to: &mut impl Write,
    done: &AtomicU64,
) -> anyhow::Result<u64> {
    let mut bytes = 0;
    while let Some(piece) = download.next().await? {
        to.write_all(&piece).context("could not write the bundle")?;
        bytes += piece.len() as u64;
        done.store(bytes, Ordering::Relaxed);
    }
    to.flush().context("could not write the bundle")?;
    Ok(bytes)
}
