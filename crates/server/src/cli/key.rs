//! `ash key`: API keys.

use ash_core::time::Clock as _;
use ash_engine::SystemClock;

use super::columns::fitted;
use super::connect::Context;
use super::exit::Exit;
use super::output::{Screen, note, print};
use super::{format, prefix};
use crate::api::{ApiKeys, NewApiKey};

/// Make, see and revoke API keys
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Make a key; it is shown this once
    Create {
        /// What to call it
        #[arg(default_value = "")]
        label: String,
        /// Whose it is, if not yours; a tenant that is not there yet is made
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
    },
    /// List the keys, without their secrets
    List,
    /// Revoke a key
    Revoke {
        /// Its id, or how that begins
        id: String,
    },
}

pub(super) async fn run(ctx: &Context, args: Args) -> anyhow::Result<Exit> {
    match args.command {
        Command::Create { label, tenant } => {
            let new = NewApiKey { label, tenant_id: tenant };
            let made = ctx.client.create_key(&new).await?;
            if ctx.screen.json {
                Screen::document(&made)?;
            } else {
                print(&format!("{}\n", made.key))?;
                note("keep it: it is not shown again");
            }
        }
        Command::List => {
            let keys = ctx.client.keys().await?;
            if ctx.screen.json {
                Screen::document(&ApiKeys { keys })?;
            } else {
                let now = SystemClock.now();
                let length = prefix::unique_length(keys.iter().map(|key| key.id.as_str()));
                let rows = keys.iter().map(|key| {
                    let age = if key.created_at.is_empty() {
                        String::new()
                    } else {
                        format::ago(&key.created_at, now)
                    };
                    vec![
                        prefix::short(&key.id, length).to_owned(),
                        key.label.clone(),
                        key.key_prefix.clone(),
                        age,
                    ]
                });
                let rows: Vec<_> = rows.collect();
                let heads = ["ID", "LABEL", "KEY", "AGE"];
                let room = ctx.screen.room();
                print(&fitted(&heads, &rows, room, (&["LABEL"], &["AGE", "LABEL"])))?;
            }
        }
        Command::Revoke { id } => {
            let keys = ctx.client.keys().await?;
            let ids: Vec<String> = keys.into_iter().map(|key| key.id).collect();
            let id = prefix::among("key", &ids, &id)?;
            let revoked = ctx.client.revoke_key(&id).await?;
            if ctx.screen.json {
                Screen::document(&revoked)?;
            } else {
                print(&format!("revoked {id}\n"))?;
            }
        }
    }
    Ok(Exit::Ok)
}
