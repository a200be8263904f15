//! `ash upgrade`: a running server hands over to the program that lies in its place now.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::connect::Context;
use super::exit::Exit;
use super::output::{Screen, plain, print};
use crate::discovery;

/// Have a server on this machine hand over to the program that is now in its place
///
/// Put the new `ash` and `ash-bridge` where the old ones lie, then say this. Sessions and running turns go
/// on; clients are told to reconnect, and connections wait meanwhile.
#[derive(Debug, clap::Args)]
pub(super) struct Args;

/// How long the next one may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);

pub(super) async fn run(ctx: &Context) -> anyhow::Result<Exit> {
    let url = ctx.client.url().to_owned();
    let port = reqwest::Url::parse(&url).ok().and_then(|url| url.port_or_known_default());
    let home = ctx.env.get("HOME").map(PathBuf::from);
    let find = || discovery::find(home.as_deref()?, port?);
    let before = find().with_context(|| {
        format!("{url} is not a server of yours on this machine: send it SIGUSR2 where it runs")
    })?;
    let pid =
        i32::try_from(before.pid).ok().and_then(Pid::from_raw).context("it has no process")?;
    // A process that has its number by now is another one, and would be ended by this signal.
    let process =
        pidfd_open(pid, PidfdFlags::empty()).context("the server is not there any more")?;
    ctx.client.health().await.context("the server does not answer")?;
    let name = std::fs::read_to_string(format!("/proc/{}/comm", before.pid)).unwrap_or_default();
    anyhow::ensure!(name.trim() == "ash", "process {} is not a server", before.pid);
    pidfd_send_signal(process, Signal::USR2)
        .with_context(|| format!("could not tell the server (process {})", before.pid))?;
    let next = async {
        while find().is_none_or(|found| found.began == before.began) {
            tokio::time::sleep(LOOK).await;
        }
        ctx.client.health().await
    };
    let health = tokio::time::timeout(PATIENCE, next).await.context(
        "the server did not hand over; what it says about it is where its messages go",
    )??;
    if ctx.screen.json {
        Screen::document(&health)?;
        return Ok(Exit::Ok);
    }
    let (version, up) = (plain(&health.version), plain(&url));
    print(&format!("ash {version} has taken over at {up}\n"))?;
    Ok(Exit::Ok)
}
