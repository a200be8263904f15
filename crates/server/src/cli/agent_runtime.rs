//! `ash agent-runtime`: the programs of others that agents are run by.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use ash_engine::runtimes::{Found, Installed, RuntimeOptions, Runtimes, Version, View};
use ash_snapshot::Progress;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::bar::Bar;
use super::connect::{self, Connection};
use super::exit::{Exit, Mistake};
use super::live::{Live, TICK};
use super::output::{Screen, note, print};
use super::{Hint, format};
use crate::config::{Config, ServeFlags};
use crate::runtimes::{self, InstallError, Origin, Outcome, PATIENCE, PINNED, Stage, Wanted};

/// Install, see and remove the programs that agents are run by: Claude Code
///
/// They are kept in the data directory of a server on this machine, which may run meanwhile and notices.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Install a program from the npm registry, or from a file
    Install {
        /// `claude`, and which release: claude@2.1.325, or claude@latest
        #[arg(value_name = "RUNTIME[@VERSION]", value_parser = named)]
        runtime: Named,
        /// A package (.tgz) or a program on this machine, instead of the registry
        #[arg(long, value_name = "FILE")]
        from: Option<PathBuf>,
    },
    /// List what is installed
    List,
    /// Remove an installed program; sessions that run it keep it until their sandbox ends
    Remove {
        /// `claude`, and which release, if there are several
        #[arg(value_name = "RUNTIME[@VERSION]", value_parser = named)]
        runtime: Named,
    },
    /// Print where the program is that sessions are given now
    Path {
        /// `claude`
        #[arg(value_name = "RUNTIME", value_parser = named, default_value = "claude")]
        runtime: Named,
    },
}

/// What a person calls a program: the runtime is always `claude`.
#[derive(Clone, Debug)]
struct Named(Wanted);

fn named(text: &str) -> Result<Named, String> {
    let (name, version) = match text.split_once('@') {
        Some((name, version)) => (name, Some(version)),
        None => (text, None),
    };
    if name != "claude" {
        return Err("there is only `claude` to install".to_owned());
    }
    let is_tag = |text: &str| {
        (1..=32).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_lowercase() || c == b'-')
    };
    match version {
        None => Ok(Named(Wanted::Any)),
        Some(text) if is_tag(text) => Ok(Named(Wanted::Tag(text.to_owned()))),
        Some(text) => match text.parse() {
            Ok(version) => Ok(Named(Wanted::Version(version))),
            Err(error) => Err(format!("{error}, and `latest` is the newest")),
        },
    }
}

/// What every part of the command works with.
struct Place {
    data: PathBuf,
    config: Config,
    env: BTreeMap<String, String>,
    screen: Screen,
}

pub(super) fn run(
    args: Args,
    connection: &Connection,
    env: BTreeMap<String, String>,
    json: bool,
) -> anyhow::Result<Exit> {
    let config = Config::load(&ServeFlags::default(), &env, None)?;
    let data = connect::data_dir(connection, &env)?;
    let data = std::path::absolute(data).context("there is no current directory")?;
    let place = Place { data, config, screen: Screen::of(json, &env), env };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("could not start the runtime")?;
    runtime.block_on(async {
        match args.command {
            Command::Install { runtime: Named(wanted), from } => {
                install(&place, &wanted, from).await
            }
            Command::List => list(&place).await,
            Command::Remove { runtime: Named(wanted) } => remove(&place, wanted).await,
            Command::Path { runtime: Named(wanted) } => path(&place, wanted).await,
        }
    })
}

async fn install(place: &Place, wanted: &Wanted, from: Option<PathBuf>) -> anyhow::Result<Exit> {
    let origin = match from {
        Some(path) => {
            if let Wanted::Tag(tag) = wanted {
                let message = format!("a file has no {tag}: leave @{tag} out");
                return Err(Mistake::Usage(message).into());
            }
            Origin::File(path)
        }
        None => {
            let setting = place.config.npm_registry.as_ref().map(|url| url.as_str());
            let address = runtimes::registry_address(setting, &place.env).map_err(mistake)?;
            Origin::Registry(address, PATIENCE)
        }
    };
    let (progress, mut stage) = watch::channel(Stage::Waiting);
    let mut live = Live::new(&place.screen, told(Stage::Waiting));
    let mut bar = Bar::new(&place.screen, "downloading", "");
    let mut ticks = tokio::time::interval(TICK);
    let work = runtimes::install(&place.data, wanted, &origin, &progress);
    let mut work = std::pin::pin!(work);
    let done = loop {
        tokio::select! {
            done = &mut work => break done,
            _ = ticks.tick() => {
                let stage = *stage.borrow_and_update();
                if let Stage::Fetching { done, total } = stage {
                    live.wipe();
                    let (bytes, all_bytes) = (done, total.unwrap_or(0));
                    bar.update(Progress { bytes, all_bytes, ..Progress::default() });
                } else {
                    bar.wipe();
                    live.go_on(told(stage));
                    live.tick();
                }
            }
        }
    };
    bar.wipe();
    live.wipe();
    let Outcome { installed, was_there } = done.map_err(mistake)?;
    if place.screen.json {
        let mut shown = shown(&installed);
        shown["alreadyThere"] = was_there.into();
        Screen::document(&shown)?;
        return Ok(Exit::Ok);
    }
    let (version, path) = (&installed.version, installed.path.display());
    let what = if was_there { "is there already" } else { "is installed" };
    print(&format!("claude {version} {what}: {path}\n"))?;
    Ok(Exit::Ok)
}

/// What goes on, in a few words.
fn told(stage: Stage) -> &'static str {
    match stage {
        Stage::Waiting => "waiting for another installation…",
        Stage::Asking => "asking the registry…",
        Stage::Fetching { .. } => "downloading…",
        Stage::Unpacking => "unpacking…",
        Stage::Checking => "checking…",
    }
}

async fn list(place: &Place) -> anyhow::Result<Exit> {
    let runtimes = place.runtimes();
    let installed = place.installed(&runtimes)?;
    let used = runtimes.claude().await;
    if place.screen.json {
        let used = match &used {
            Ok(found) => found_json(found),
            Err(why) => json!({ "problem": why.to_string() }),
        };
        let installed: Vec<Value> = installed.iter().map(shown).collect();
        Screen::document(&json!({ "installed": installed, "used": used, "pinned": PINNED }))?;
        return Ok(Exit::Ok);
    }
    let row = |version: String, used: bool, bytes: String, path: &Path| {
        let used = if used { "used" } else { "" };
        vec!["claude".to_owned(), version, used.to_owned(), bytes, path.display().to_string()]
    };
    let is_used = |path: &Path| used.as_ref().is_ok_and(|found| found.host_path == path);
    let mut rows: Vec<Vec<String>> = installed
        .iter()
        .map(|of| {
            let version = of.version.to_string();
            row(version, is_used(&of.path), format::bytes(of.record.bytes), &of.path)
        })
        .collect();
    match &used {
        Ok(found) if !installed.iter().any(|of| of.path == found.host_path) => {
            rows.push(row(found.version.to_string(), true, String::new(), &found.host_path));
        }
        Ok(_) => {}
        Err(why) => note(&why.to_string()),
    }
    if !rows.is_empty() {
        print(&format::table(&["RUNTIME", "VERSION", "", "SIZE", "PATH"], &rows))?;
    }
    Ok(Exit::Ok)
}

async fn remove(place: &Place, wanted: Wanted) -> anyhow::Result<Exit> {
    let installed = place.installed(&place.runtimes())?;
    let version = match (wanted, installed.as_slice()) {
        (Wanted::Version(version), _) => version,
        (Wanted::Tag(tag), _) => {
            return Err(Mistake::Usage(format!("`{tag}` is no version that is installed")).into());
        }
        (Wanted::Any, [only]) => only.version.clone(),
        (Wanted::Any, []) => {
            return Err(Mistake::NotFound("claude is not installed".to_owned()).into());
        }
        (Wanted::Any, several) => {
            let versions: Vec<&str> = several.iter().map(|of| of.version.as_str()).collect();
            let message = format!("several are installed: {}", versions.join(", "));
            return Err(Mistake::Usage(message))
                .context(Hint("say which one: ash agent-runtime remove claude@VERSION"));
        }
    };
    if !runtimes::remove(&place.data, &version).await.map_err(mistake)? {
        return Err(Mistake::NotFound(format!("claude {version} is not installed")).into());
    }
    if place.screen.json {
        Screen::document(&json!({ "removed": version.as_str() }))?;
    } else {
        print(&format!("removed claude {version}\n"))?;
    }
    Ok(Exit::Ok)
}

async fn path(place: &Place, wanted: Wanted) -> anyhow::Result<Exit> {
    let runtimes = match wanted {
        Wanted::Any => place.runtimes(),
        Wanted::Version(version) => place.runtimes_of(None, Some(version)),
        Wanted::Tag(tag) => {
            return Err(Mistake::Usage(format!("`{tag}` is no version that is installed")).into());
        }
    };
    let found = runtimes.claude().await.map_err(|why| Mistake::NotFound(why.to_string()))?;
    if place.screen.json {
        Screen::document(&found_json(&found))?;
    } else {
        print(&format!("{}\n", found.host_path.display()))?;
    }
    Ok(Exit::Ok)
}

impl Place {
    fn runtimes(&self) -> Runtimes {
        self.runtimes_of(self.config.claude_path.clone(), self.config.claude_version.clone())
    }

    fn runtimes_of(&self, path: Option<PathBuf>, version: Option<Version>) -> Runtimes {
        let (data, view) = (self.data.clone(), View::Sandboxes);
        Runtimes::look(RuntimeOptions { data, view, path, version })
    }

    fn installed(&self, runtimes: &Runtimes) -> anyhow::Result<Vec<Installed>> {
        let place = self.data.display();
        runtimes.installed().with_context(|| format!("could not read what is installed in {place}"))
    }
}

fn shown(installed: &Installed) -> Value {
    json!({
        "runtime": "claude",
        "version": installed.version.as_str(),
        "path": installed.path,
        "package": installed.record.package,
        "integrity": installed.record.integrity,
        "bytes": installed.record.bytes,
        "blake3": installed.record.blake3,
    })
}

fn found_json(found: &Found) -> Value {
    json!({
        "runtime": "claude",
        "version": found.version.as_str(),
        "path": found.host_path,
        "inside": found.inside_path,
        "source": found.source.as_str(),
    })
}

/// With the exit code that the reason has.
fn mistake(error: InstallError) -> anyhow::Error {
    match error {
        InstallError::Unreachable(why) => {
            let hint = "ASH_NPM_REGISTRY names another registry; --from installs a file";
            anyhow::Error::from(Mistake::Unreachable(why)).context(Hint(hint))
        }
        InstallError::NotFound(why) => Mistake::NotFound(why).into(),
        error @ (InstallError::Unsupported(_)
        | InstallError::Refused(_)
        | InstallError::DiskFull { .. }
        | InstallError::File { .. }) => error.into(),
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_program_is_named_with_or_without_a_release() {
        let wanted = |text: &str| named(text).map(|Named(wanted)| wanted);
        assert_eq!(wanted("claude"), Ok(Wanted::Any));
        assert_eq!(wanted("claude@latest"), Ok(Wanted::Tag("latest".to_owned())));
        let version = Wanted::Version("2.1.325".parse().unwrap());
        assert_eq!(wanted("claude@2.1.325"), Ok(version));
        for odd in ["", "codex", "claude@", "claude@2", "claude@../x", "claude@^2.1.0"] {
            assert!(wanted(odd).is_err(), "{odd}");
        }
    }
}
