//! `ash link` and `ash unlink`: which server the commands of this person talk to.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Map, Value, json};

use super::exit::{Exit, Mistake};
use super::output::{Screen, print};
use super::{Hint, ask};
use crate::client::{BearerKey, Client};

/// Where a server is that nobody named.
const DEFAULT_URL: &str = "http://127.0.0.1:4100";

/// Remember a server and its key, for every later command
///
/// They are written to ~/.ash/config.json, which only you can read. The server is asked first whether it takes the key.
#[derive(Debug, clap::Args)]
pub(super) struct Link {
    /// The server's address
    #[arg(default_value = DEFAULT_URL)]
    url: String,
    /// The key; - reads it from standard input; asked for on a terminal if it is not given
    #[arg(long, value_name = "KEY")]
    api_key: Option<String>,
    /// Do not ask the server
    #[arg(long)]
    no_check: bool,
}

/// Forget the server that was linked
#[derive(Debug, clap::Args)]
pub(super) struct Unlink;

pub(super) fn link(
    args: &Link,
    env: &BTreeMap<String, String>,
    screen: &Screen,
) -> anyhow::Result<Exit> {
    let path = path(env)?;
    let url = args.url.trim_end_matches('/').to_owned();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("could not start the runtime")?;
    runtime.block_on(async {
        let key = match args.api_key.as_deref() {
            Some("-") => Some(ask::everything()?),
            Some(key) => Some(key.to_owned()),
            None if std::io::stdin().is_terminal() && !screen.json => {
                Some(ask::secret(&format!("key of {url} (is not shown):")).await?)
            }
            None => None,
        };
        let key = key.map(|key| key.trim().to_owned()).filter(|key| !key.is_empty());
        let bearer = key.as_deref().map(BearerKey::new);
        let client = Client::new(&url, bearer.as_ref())?;
        if !args.no_check {
            client.health().await?;
            client.agents().await.map_err(anyhow::Error::from).context(Hint(
                "nothing was written; --api-key says the key, --no-check does not ask the server",
            ))?;
        }
        let mut settings = read(&path)?;
        settings.insert("server_url".to_owned(), json!(url));
        match &key {
            Some(key) => settings.insert("api_key".to_owned(), json!(key)),
            None => settings.remove("api_key"),
        };
        write(&path, &settings)?;
        if screen.json {
            Screen::document(&json!({ "serverUrl": client.url(), "hasKey": key.is_some() }))?;
        } else {
            print(&format!("linked to {}\n", client.url()))?;
        }
        Ok(Exit::Ok)
    })
}

pub(super) fn unlink(env: &BTreeMap<String, String>, screen: &Screen) -> anyhow::Result<Exit> {
    let path = path(env)?;
    let mut settings = read(&path)?;
    let was_linked = settings.remove("server_url").is_some();
    let had_key = settings.remove("api_key").is_some();
    if settings.is_empty() {
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("could not remove {}", path.display()));
            }
            Ok(()) | Err(_) => {}
        }
    } else {
        write(&path, &settings)?;
    }
    let was_linked = was_linked || had_key;
    if screen.json {
        Screen::document(&json!({ "unlinked": was_linked }))?;
    } else {
        print(if was_linked { "unlinked\n" } else { "no server was linked\n" })?;
    }
    Ok(Exit::Ok)
}

fn path(env: &BTreeMap<String, String>) -> anyhow::Result<PathBuf> {
    let home = env.get("HOME").filter(|home| !home.is_empty());
    let home = home.ok_or_else(|| Mistake::Usage("HOME is not set".to_owned()))?;
    Ok(Path::new(home).join(".ash/config.json"))
}

/// All that is written there: what is not ours stays.
fn read(path: &Path) -> anyhow::Result<Map<String, Value>> {
    match std::fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .with_context(|| format!("{} is not understood", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Map::new()),
        Err(error) => Err(error).with_context(|| format!("could not read {}", path.display())),
    }
}

/// Whole or not at all, and for its owner alone.
fn write(path: &Path, settings: &Map<String, Value>) -> anyhow::Result<()> {
    let about = || format!("could not write {}", path.display());
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).with_context(about)?;
    }
    let part = path.with_extension(format!("json.{}", std::process::id()));
    let written = (|| {
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&part)?;
        file.write_all(&serde_json::to_vec_pretty(settings)?)?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        std::fs::rename(&part, path)
    })();
    if written.is_err() {
        // It was not made, or is of no use.
        let _gone = std::fs::remove_file(&part);
    }
    written.with_context(about)
}
