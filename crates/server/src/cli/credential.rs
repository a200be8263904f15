//! `ash credential`: secrets that agents work with.

use ash_core::time::Clock as _;
use ash_engine::SystemClock;

use super::columns::fitted;
use super::connect::Context;
use super::exit::Exit;
use super::output::{Screen, note, print};
use super::{ask, format, parse, prefix};
use crate::api::{CredentialBody, CredentialType, Credentials, NewCredential};

/// Add, see and remove credentials
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Add a credential; the secret is read from standard input, or asked for
    Add {
        /// Which service it is for: anthropic, openai, bedrock or custom
        #[arg(value_name = "TYPE", value_parser = parse::word::<CredentialType>)]
        kind: CredentialType,
        /// What to call it
        #[arg(long)]
        label: Option<String>,
        /// The header that carries a custom one; the secret is its whole value
        #[arg(long, value_name = "NAME", requires = "host")]
        header: Option<String>,
        /// The only host that a custom one is sent to, with a port if that is not 443
        #[arg(long, value_name = "HOST[:PORT]", requires = "header")]
        host: Option<String>,
    },
    /// List the credentials, without their secrets
    List,
    /// Remove a credential
    Remove {
        /// Its id, or how that begins
        id: String,
    },
}

pub(super) async fn run(ctx: &Context, args: Args) -> anyhow::Result<Exit> {
    match args.command {
        Command::Add { kind, label, header, host } => {
            let key = ask::secret("the secret, which is not shown:").await?;
            let new = NewCredential { kind, key, label, header, host };
            let credential = ctx.client.add_credential(&new).await?;
            if ctx.screen.json {
                Screen::document(&CredentialBody { credential })?;
            } else {
                print(&format!("{}\n", credential.id))?;
                if let Some(why) = &credential.unusable {
                    note(&format!("no session can use it. {why}"));
                }
            }
        }
        Command::List => {
            let credentials = ctx.client.credentials().await?;
            if ctx.screen.json {
                Screen::document(&Credentials { credentials })?;
            } else if credentials.is_empty() {
                note("there are no credentials; add one with: ash credential add");
            } else {
                list(&credentials, ctx.screen.room())?;
            }
        }
        Command::Remove { id } => {
            let id = prefix::credential(&ctx.client, &id).await?;
            let removed = ctx.client.remove_credential(&id).await?;
            if ctx.screen.json {
                Screen::document(&removed)?;
            } else {
                print(&format!("removed {id}\n"))?;
            }
        }
    }
    Ok(Exit::Ok)
}

fn list(credentials: &[crate::api::Credential], room: Option<usize>) -> anyhow::Result<()> {
    let now = SystemClock.now();
    let ids: Vec<String> = credentials.iter().map(|of| of.id.to_string()).collect();
    let length = prefix::unique_length(ids.iter().map(String::as_str));
    let rows = credentials.iter().zip(&ids).map(|(credential, id)| {
        let used = credential.last_used_at.as_ref().map(|at| format::ago(at, now));
        vec![
            prefix::short(id, length).to_owned(),
            credential.host.clone().unwrap_or_else(|| service(credential.kind).to_owned()),
            credential.label.clone(),
            if credential.unusable.is_none() { "active" } else { "unusable" }.to_owned(),
            format::ago(&credential.created_at, now),
            used.unwrap_or_else(|| "never".to_owned()),
        ]
    });
    let rows: Vec<_> = rows.collect();
    let headings = ["ID", "FOR", "LABEL", "STATE", "AGE", "USED"];
    print(&fitted(&headings, &rows, room, (&["LABEL", "FOR"], &["AGE", "USED", "LABEL"])))
}

fn service(kind: CredentialType) -> &'static str {
    match kind {
        CredentialType::Anthropic => "anthropic",
        CredentialType::Openai => "openai",
        CredentialType::Bedrock => "bedrock",
        CredentialType::Custom => "custom",
    }
}
