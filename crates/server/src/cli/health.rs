//! `ash health`: whether a server answers, and how it is.

use std::time::Duration;

use super::connect::Context;
use super::exit::Exit;
use super::format;
use super::output::{Screen, Style, note, plain, print};

/// Ask the server how it is
#[derive(Debug, clap::Args)]
pub(super) struct Args;

pub(super) async fn run(ctx: &Context) -> anyhow::Result<Exit> {
    let health = ctx.client.health().await?;
    if ctx.screen.json {
        Screen::document(&health)?;
        return Ok(Exit::Ok);
    }
    let status = ctx.screen.paint(Style::Green, &plain(&health.status));
    let up = Duration::try_from_secs_f64(health.uptime).unwrap_or_default();
    let (version, url, up) = (plain(&health.version), ctx.client.url(), format::age(up));
    let isolation = plain(&health.isolation);
    print(&format!("{status}: ash {version} at {url}, up {up}, isolation {isolation}\n"))?;
    if !health.disk.is_empty() {
        print(&format!("disk: {}\n", plain(&health.disk)))?;
    }
    if !health.can_record {
        note("nothing can be recorded: is the disk of the server full?");
        return Ok(Exit::Failure);
    }
    Ok(Exit::Ok)
}
