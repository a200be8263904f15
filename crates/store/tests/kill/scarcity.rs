//! What a store does when the disk says no: full, or a file that may not grow.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use ash_store::sqlite::SqliteStore;
use ash_store::{Store as _, StoreError};

use crate::check::{Findings, Ledger};
use crate::kills::grouped;
use crate::workload::{Acknowledged, Writer, deploy, print};
use crate::{Fallible, database, say};

/// How much is set aside, to be freed when the disk is full.
const BALLAST_BYTES: usize = 1024 * 1024;
/// How many errors in a row mean that it will not get better by itself.
const ENOUGH_ERRORS: u32 = 40;
/// How many writes must succeed again once there is room.
const WRITES_AFTERWARDS: u32 = 60;
/// The largest file, in the 512-byte blocks that `ulimit -f` counts.
const FILE_LIMIT_BLOCKS: u32 = 10_000;
/// The most a full disk is worth waiting for.
const MAX_WRITES: u32 = 2_000_000;

/// Errors by what they mean.
#[derive(Default)]
struct Refused {
    full: u64,
    unavailable: u64,
}

impl Refused {
    /// Counts an error that leaves the outcome open; any other is a fault.
    fn count(&mut self, error: StoreError) -> Fallible<()> {
        match error {
            StoreError::Full(_) => self.full += 1,
            StoreError::Unavailable(_) => self.unavailable += 1,
            other @ (StoreError::NotFound(_)
            | StoreError::Exists(_)
            | StoreError::InUse(_)
            | StoreError::Fenced { .. }
            | StoreError::Superseded(_)
            | StoreError::Conflict { .. }
            | StoreError::TooLarge { .. }
            | StoreError::Damaged { .. }
            | StoreError::TooNew { .. }) => {
                return Err(format!("a full disk must look transient, and gave {other:?}").into());
            }
        }
        Ok(())
    }
}

/// Fills the file system of `directory`, frees some of it, and goes on with the same store.
pub(crate) async fn fill(directory: &Path) -> Fallible<()> {
    let ballast = directory.join("ballast");
    fs::write(&ballast, vec![1; BALLAST_BYTES])?;
    let store = SqliteStore::open(&database(directory))?;
    deploy(&store).await?;
    let mut writer = Writer::new(store.next_owner().await?, 1);
    let mut ledger = Ledger::default();
    let (refused, _) = write_until_refused(&store, &mut writer, |commit| {
        ledger.expect(commit);
        Ok(())
    })
    .await?;
    if refused.full == 0 {
        return Err("the disk was full and no error said so".into());
    }
    let findings = ledger.check(&store).await?;
    sound(&findings)?;
    say(&format!(
        "The disk is full: {} writes were refused as such, {} as unavailable. All {} commits \
         that were acknowledged are there.",
        refused.full,
        refused.unavailable,
        grouped(findings.kept)
    ))?;

    fs::remove_file(&ballast)?;
    let mut written = 0;
    let mut refused = Refused::default();
    while written < WRITES_AFTERWARDS {
        match writer.write(&store).await {
            Ok(Some(commit)) => ledger.expect(commit),
            Ok(None) => {}
            // The first may still find no room: it is what makes the store clear up.
            Err(error) if refused.full < u64::from(ENOUGH_ERRORS) => {
                refused.count(error)?;
                continue;
            }
            Err(error) => return Err(format!("there is room again, and yet: {error:?}").into()),
        }
        written += 1;
    }
    sound(&ledger.check(&store).await?)?;
    store.close().await;
    let reopened = Ledger::check_reopened(&mut ledger, directory).await?;
    sound(&reopened)?;
    say(&format!("There is room again: {WRITES_AFTERWARDS} writes by the same store, all there."))?;
    Ok(())
}

/// Has a writer run into a file size limit, then checks its store without one.
pub(crate) async fn limit(directory: &Path) -> Fallible<()> {
    // The shell ignores the signal that would end the writer, so that its writes fail instead.
    let script = format!("trap '' XFSZ; ulimit -f {FILE_LIMIT_BLOCKS}; exec \"$@\"");
    let mut child = Command::new("sh")
        .args(["-c", &script, "sh"])
        .arg(std::env::current_exe()?)
        .arg("write-limited")
        .arg(directory)
        .arg("1")
        .stdout(Stdio::piped())
        .spawn()?;
    let output = child.stdout.take().ok_or("the writer has no output")?;
    let mut ledger = Ledger::default();
    for line in BufReader::new(output).lines() {
        ledger.expect(serde_json::from_str::<Acknowledged>(&line?)?);
    }
    let status = child.wait()?;
    if !status.success() {
        return Err(format!("the writer ended with {status}").into());
    }
    let findings = ledger.check_reopened(directory).await?;
    sound(&findings)?;
    say(&format!(
        "Writes failed beyond {} bytes: all {} commits that were acknowledged are there, and {} \
         more whose outcome was left open.",
        grouped(u64::from(FILE_LIMIT_BLOCKS) * 512),
        grouped(findings.kept),
        findings.unacknowledged,
    ))?;
    Ok(())
}

/// Writes until writing fails for good, and prints what was acknowledged.
pub(crate) async fn write_until_it_fails(directory: &Path, seed: u64) -> Fallible<()> {
    let store = SqliteStore::open(&database(directory))?;
    deploy(&store).await?;
    let mut writer = Writer::new(store.next_owner().await?, seed);
    let (_, acknowledged) =
        write_until_refused(&store, &mut writer, |commit| print(&commit)).await?;
    if acknowledged == 0 {
        return Err("not a single commit before the first error".into());
    }
    Ok(())
}

async fn write_until_refused(
    store: &SqliteStore,
    writer: &mut Writer,
    mut acknowledge: impl FnMut(Acknowledged) -> Fallible<()>,
) -> Fallible<(Refused, u64)> {
    let mut refused = Refused::default();
    let mut acknowledged = 0;
    let mut in_a_row = 0;
    for _ in 0..MAX_WRITES {
        match writer.write(store).await {
            Ok(commit) => {
                in_a_row = 0;
                if let Some(commit) = commit {
                    acknowledged += 1;
                    acknowledge(commit)?;
                }
            }
            Err(error) => {
                in_a_row += 1;
                refused.count(error)?;
            }
        }
        if in_a_row >= ENOUGH_ERRORS {
            return Ok((refused, acknowledged));
        }
    }
    Err("no write was ever refused".into())
}

fn sound(findings: &Findings) -> Fallible<()> {
    if findings.faults.is_empty() { Ok(()) } else { Err(findings.faults.join("\n").into()) }
}
