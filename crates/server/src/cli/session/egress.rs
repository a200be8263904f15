//! `ash session egress`

use ash_core::time::Clock as _;
use ash_engine::SystemClock;

use super::lifecycle::Which;
use crate::api::EgressRequest;
use crate::cli::columns::fitted;
use crate::cli::connect::Context;
use crate::cli::exit::Exit;
use crate::cli::output::{Screen, note, print};
use crate::cli::{format, prefix};

pub(super) async fn run(ctx: &Context, which: &Which) -> anyhow::Result<Exit> {
    let id = prefix::session(&ctx.client, &which.id).await?;
    let egress = ctx.client.egress(id).await?;
    if ctx.screen.json {
        Screen::document(&egress)?;
        return Ok(Exit::Ok);
    }
    note(&format!(
        "spent: {:.4} US dollars, {} tokens",
        egress.spent.cost_usd,
        format::count(egress.spent.tokens)
    ));
    if egress.requests.is_empty() {
        note("it has asked for nothing since the server started");
        return Ok(Exit::Ok);
    }
    let now = SystemClock.now();
    let row = |request: &EgressRequest| {
        let result = match (&request.refusal, request.status) {
            (Some(refusal), _) => refusal.clone(),
            (None, Some(status)) => status.to_string(),
            (None, None) => "cut".to_owned(),
        };
        let first = request.first_byte_ms.map(|ms| format!("{ms:.0} ms"));
        vec![
            format::ago(&request.at, now),
            format!("{} {}", request.method, request.host),
            request.path.clone().unwrap_or_default(),
            result,
            format::bytes(request.bytes_up),
            format::bytes(request.bytes_down),
            first.unwrap_or_default(),
            format!("{:.0} ms", request.total_ms),
        ]
    };
    let rows: Vec<_> = egress.requests.iter().map(row).collect();
    let headings = ["AGE", "REQUEST", "PATH", "RESULT", "UP", "DOWN", "FIRST", "TOTAL"];
    let gives_way = (&["REQUEST", "PATH"][..], &["FIRST", "UP", "DOWN", "PATH", "AGE"][..]);
    print(&fitted(&headings, &rows, ctx.screen.room(), gives_way))?;
    Ok(Exit::Ok)
}
