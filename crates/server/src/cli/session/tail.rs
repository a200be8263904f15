//! `ash session tail`

use crate::cli::connect::Context;
use crate::cli::exit::Exit;
use crate::cli::output::{Reader, Style, look_for_reader, note, one_line, show};
use crate::cli::{prefix, render, watch};
use crate::client::{Cursor, Incoming, ServerEvent, Until};

/// How much of an event is shown.
const MAX_CHARS: usize = 160;

/// Show the log of a session, and what happens from now on
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session's id, or how that begins
    id: String,
    /// Begin after this place in the log: a number, or an event's id such as 1-42
    #[arg(long, value_name = "SEQ", default_value = "0")]
    after: Cursor,
    /// Wait for what comes; the default
    #[arg(long, overrides_with = "no_follow")]
    follow: bool,
    /// Only events of this name, such as tool_use, or of this type of the list of events, such as text for whole answers, or
    /// lifecycle for all that happens to the session itself; can be repeated
    #[arg(long = "type", short = 't', value_name = "NAME")]
    kind: Vec<String>,
    /// Show what is there, and leave
    #[arg(long)]
    no_follow: bool,
}

pub(super) async fn run(ctx: &Context, args: &Args) -> anyhow::Result<Exit> {
    let id = prefix::session(&ctx.client, &args.id).await?;
    let follow = args.follow || !args.no_follow;
    let session = ctx.client.session(id).await?;
    let last = (!follow).then_some(session.last_seq);
    // Whoever stands at the end has seen all. One who stands elsewhere is told of the gap.
    let is_same_history = args.after.epoch.is_none_or(|epoch| epoch == session.log_epoch);
    if last == Some(args.after.seq) && is_same_history {
        return Ok(Exit::Ok);
    }
    let until = if follow { Until::Dropped } else { Until::Idle };
    let mut stream = ctx.client.follow(id, args.after, until);
    let mut ctrl_c = watch::ctrl_c()?;
    let mut looks = watch::looks();
    loop {
        let next = tokio::select! {
            next = stream.next() => next?,
            _ = ctrl_c.recv() => return Ok(Exit::CtrlC),
            _ = looks.tick(), if !ctx.screen.is_terminal => match look_for_reader() {
                Reader::There => continue,
                Reader::Gone => return Ok(Exit::Ok),
            },
        };
        match next {
            Some(Incoming::Event(event)) => {
                let shown = if ctx.screen.json { watch::line(&event) } else { line(ctx, &event) };
                if is_wanted(&args.kind, &event) && show(&shown)? == Reader::Gone {
                    return Ok(Exit::Ok);
                }
                if last.is_some_and(|last| place(&event) >= last) {
                    return Ok(Exit::Ok);
                }
            }
            Some(Incoming::Reconnecting { attempt, .. }) => {
                // Said once: it is tried again in silence.
                if attempt == 1 && !ctx.screen.json {
                    note(&ctx.screen.paint(Style::Dim, "(connection lost, trying again)"));
                }
            }
            Some(Incoming::Connected) => {}
            None => return Ok(Exit::Ok),
        }
    }
}

/// Whether an event is one of those that were asked for, by the name that streams have for it, or that of lists. The
/// original knows those of lists, which call several things by one name.
fn is_wanted(kinds: &[String], event: &ServerEvent) -> bool {
    let name = event.name.as_str();
    let is_it = |kind: &String| match kind.as_str() {
        "lifecycle" => name.starts_with("session_"),
        "text" => is_answer(event) && has_text(event),
        "reasoning" => name == "thinking_delta",
        "tool_start" => name == "tool_use",
        kind => kind == name,
    };
    kinds.is_empty() || kinds.iter().any(is_it)
}

/// Whether it is a whole answer of the model.
fn is_answer(event: &ServerEvent) -> bool {
    event.name == "message" && event.text("type") == Some("assistant")
}

/// Whether it says something in words, and does not only think and use tools.
fn has_text(event: &ServerEvent) -> bool {
    let blocks = event.data["message"]["content"].as_array();
    let is_text = |block: &serde_json::Value| {
        block["type"] == "text" && block["text"].as_str().is_some_and(|text| !text.is_empty())
    };
    blocks.is_some_and(|blocks| blocks.iter().any(is_text))
}

/// How far the log is known after an event. A gap has no place of its own, and says where it ends.
fn place(event: &ServerEvent) -> u64 {
    match (event.cursor, event.name.as_str()) {
        (Some(cursor), _) => cursor.seq,
        (None, "gap") => {
            let to = event.text("to").and_then(|to| to.parse::<Cursor>().ok());
            to.map_or(0, |cursor| cursor.seq)
        }
        (None, _) => 0,
    }
}

/// `  42 tool_use bash ls -la`.
fn line(ctx: &Context, event: &ServerEvent) -> String {
    let place = event.cursor.map(|cursor| cursor.seq.to_string()).unwrap_or_default();
    let place = ctx.screen.paint(Style::Dim, &format!("{place:>6}"));
    let style = match event.name.as_str() {
        "error" | "context_lost" | "gap" => Style::Red,
        _ => Style::Bold,
    };
    let name = ctx.screen.paint(style, &one_line(&event.name, 40));
    format!("{place} {name} {}\n", summary(event))
}

fn summary(event: &ServerEvent) -> String {
    let text = match event.name.as_str() {
        // Spaces count in a piece of text.
        "text_delta" | "thinking_delta" => event.data.get("delta").map(ToString::to_string),
        "tool_use" => {
            Some(render::tool(event.text("name").unwrap_or_default(), event.data.get("input")))
        }
        "tool_result" => event.data.get("content").map(render::text_of),
        "message" if is_answer(event) => {
            let content = event.data.get("message").and_then(|message| message.get("content"));
            content.map(render::text_of).filter(|text| !text.is_empty())
        }
        "error" => Some(watch::said(event)),
        _ => None,
    };
    one_line(&text.unwrap_or_else(|| event.data.to_string()), MAX_CHARS)
}

#[cfg(test)]
mod test {
    use serde_json::json;

    use super::*;

    fn event(name: &str, data: serde_json::Value) -> ServerEvent {
        ServerEvent { cursor: None, name: name.to_owned(), data }
    }

    #[test]
    fn an_event_is_wanted_by_its_name_or_by_that_of_its_kind() {
        let kinds =
            |kinds: &[&str]| kinds.iter().map(|kind| (*kind).to_owned()).collect::<Vec<_>>();
        let named = |name: &str| event(name, json!({}));
        assert!(is_wanted(&[], &named("tool_use")));
        assert!(is_wanted(&kinds(&["done", "tool_use"]), &named("tool_use")));
        assert!(!is_wanted(&kinds(&["done"]), &named("tool_use")));
        for name in ["session_created", "session_paused", "session_resumed"] {
            assert!(is_wanted(&kinds(&["lifecycle"]), &named(name)), "{name}");
        }
        assert!(!is_wanted(&kinds(&["lifecycle"]), &named("run_started")));
    }

    #[test]
    fn an_event_is_wanted_by_its_type_in_lists() {
        let content = json!([{ "type": "text", "text": "It is\ndone." }]);
        let answer = json!({ "type": "assistant", "message": { "content": content } });
        for (kind, event) in [
            ("text", event("message", answer.clone())),
            ("reasoning", event("thinking_delta", json!({ "delta": "so" }))),
            ("tool_start", event("tool_use", json!({ "name": "bash" }))),
            ("tool_result", event("tool_result", json!({ "content": "x" }))),
            ("turn_complete", event("turn_complete", json!({ "numTurns": 1 }))),
            ("error", event("error", json!({ "error": "no" }))),
        ] {
            assert!(is_wanted(&[kind.to_owned()], &event), "{kind}");
        }
        let result = event("message", json!({ "type": "result" }));
        assert!(!is_wanted(&["text".to_owned()], &result));
        for content in [json!([{ "type": "tool_use", "name": "bash" }]), json!([]), json!(null)] {
            let wordless = json!({ "type": "assistant", "message": { "content": content } });
            assert!(!is_wanted(&["text".to_owned()], &event("message", wordless)), "{content}");
        }
        assert_eq!(summary(&event("message", answer)), "It is done.");
    }
}
