//! `ash queue`: prompts that are worked on when there is room.

use ash_core::time::Clock as _;
use ash_engine::SystemClock;

use super::columns::fitted;
use super::connect::Context;
use super::exit::Exit;
use super::output::{Screen, note, one_line, plain, print};
use super::{format, prefix, suggest};
use crate::api::{NewQueueItem, QueueItem, QueueItemBody, QueueItemStatus, QueueItems};

/// How much of a prompt a list shows.
const SHOWN: usize = 48;

/// Add prompts to the queue, and see what became of them
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Add a prompt; prints the id of its item
    Add {
        /// The agent that is to work on it
        agent: String,
        /// What to say
        prompt: String,
        /// The session that it is for; by itself a new one
        #[arg(long, value_name = "ID")]
        session: Option<String>,
        /// What has more comes first
        #[arg(long, default_value_t = 0)]
        priority: u32,
        /// How often it is tried again after a failure
        #[arg(long, value_name = "COUNT", default_value_t = 3)]
        max_retries: u32,
    },
    /// List the items, newest first
    List {
        /// Only those that are pending, processing, completed, failed or cancelled
        #[arg(long, value_parser = super::parse::word::<QueueItemStatus>)]
        status: Option<QueueItemStatus>,
        /// How many
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
        limit: u32,
    },
    /// Show an item, and what the agent said
    Show {
        /// Its id, or how that begins
        id: String,
    },
    /// Withdraw an item that waits
    Cancel {
        /// Its id, or how that begins
        id: String,
    },
}

pub(super) async fn run(ctx: &Context, args: Args) -> anyhow::Result<Exit> {
    match args.command {
        Command::Add { agent, prompt, session, priority, max_retries } => {
            let session_id = match session {
                Some(id) => Some(prefix::session(&ctx.client, &id).await?),
                None => None,
            };
            let (priority, max_retries) = (Some(priority), Some(max_retries));
            let new = NewQueueItem { agent_name: agent, prompt, session_id, priority, max_retries };
            let item = match ctx.client.enqueue(&new).await {
                Ok(item) => item,
                Err(error) => {
                    return Err(suggest::agent(&ctx.client, &new.agent_name, error).await);
                }
            };
            if ctx.screen.json {
                Screen::document(&QueueItemBody { item })?;
            } else {
                print(&format!("{}\n", item.id))?;
            }
        }
        Command::List { status, limit } => {
            let page = ctx.client.queue_items(status, limit).await?;
            if ctx.screen.json {
                Screen::document(&page)?;
            } else if page.items.is_empty() {
                note("nothing is in the queue; add a prompt with: ash queue add");
            } else {
                list(&page, ctx.screen.room())?;
            }
        }
        Command::Show { id } => {
            let id = prefix::queue_item(&ctx.client, &id).await?;
            let item = ctx.client.queue_item(&id).await?;
            if ctx.screen.json {
                Screen::document(&QueueItemBody { item })?;
            } else {
                show(&item)?;
            }
        }
        Command::Cancel { id } => {
            let id = prefix::queue_item(&ctx.client, &id).await?;
            let item = ctx.client.cancel_queue_item(&id).await?;
            if ctx.screen.json {
                Screen::document(&QueueItemBody { item })?;
            } else {
                print(&format!("cancelled {id}\n"))?;
            }
        }
    }
    Ok(Exit::Ok)
}

fn list(page: &QueueItems, room: Option<usize>) -> anyhow::Result<()> {
    let now = SystemClock.now();
    let ids: Vec<String> = page.items.iter().map(|item| item.id.to_string()).collect();
    let length = prefix::unique_length(ids.iter().map(String::as_str));
    let rows = page.items.iter().zip(&ids).map(|(item, id)| {
        vec![
            prefix::short(id, length).to_owned(),
            item.status.as_str().to_owned(),
            item.agent_name.clone(),
            item.priority.to_string(),
            format!("{}/{}", item.retry_count, item.max_retries),
            format::ago(&item.created_at, now),
            one_line(&item.prompt, SHOWN),
        ]
    });
    let rows: Vec<_> = rows.collect();
    let heads = ["ID", "STATUS", "AGENT", "PRIORITY", "RETRIES", "AGE", "PROMPT"];
    let gives_way =
        (["PROMPT", "AGENT"].as_slice(), ["PRIORITY", "RETRIES", "AGE", "AGENT"].as_slice());
    print(&fitted(&heads, &rows, room, gives_way))?;
    if page.next_cursor.is_some() {
        note("there are more; --limit shows up to 500");
    }
    Ok(())
}

fn show(item: &QueueItem) -> anyhow::Result<()> {
    let now = SystemClock.now();
    let id = |id: Option<uuid::Uuid>| id.map_or_else(|| "none yet".to_owned(), |id| id.to_string());
    let mut lines = vec![
        format!("item      {}", item.id),
        format!("status    {}", item.status.as_str()),
        format!("agent     {}", item.agent_name),
        format!("session   {}", id(item.session_id)),
        format!("run       {}", id(item.run_id)),
        format!("retries   {} of {}", item.retry_count, item.max_retries),
        format!("added     {} ago", format::ago(&item.created_at, now)),
    ];
    if let Some(at) = &item.completed_at {
        lines.push(format!("over      {} ago", format::ago(at, now)));
    }
    if let Some(error) = &item.error {
        let code = item.error_code.as_deref().unwrap_or_default();
        lines.push(format!("error     {} ({})", plain(error), plain(code)));
    }
    lines.push(format!("\n{}", plain(&item.prompt)));
    if let Some(result) = &item.result {
        lines.push(format!("\n{}", plain(result)));
    }
    print(&format!("{}\n", lines.join("\n")))
}
