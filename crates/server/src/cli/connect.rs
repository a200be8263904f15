//! Which server, and with which key. On the machine of the server nothing has to be said.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use reqwest::Url;
use serde::Deserialize;

use super::exit::Mistake;
use super::output::Screen;
use crate::client::{BearerKey, Client, ClientError, is_loopback};
use crate::discovery;
use crate::secret::INITIAL_KEY_FILE;

/// The port of a server that was told nothing else.
const DEFAULT_PORT: u16 = 4100;

/// The data directory of a server that was told nothing else.
const DEFAULT_DATA_DIR: &str = "data";

/// How a server is found.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Connection {
    /// The address of the server to talk to [default: the one on this machine]
    #[arg(long, value_name = "URL", global = true, display_order = 90)]
    server: Option<String>,
    /// The data directory of a server on this machine, where its first key is
    // A text, and under the same name as the setting of `ash serve`: before the command it may be
    // either of the two.
    #[arg(long, value_name = "DIRECTORY", global = true, display_order = 91)]
    data_dir: Option<String>,
}

impl Connection {
    /// Refuses what a command that talks to no server has no use for.
    pub(super) fn is_not_for(&self, command: &str) -> Result<(), Mistake> {
        // With `serve`, `config` and `doctor` it is a setting, and `agent-runtime` works in it.
        let takes_data_dir = matches!(command, "serve" | "config" | "doctor" | "agent-runtime");
        let useless = match (&self.server, &self.data_dir) {
            (Some(_), _) => "--server",
            (None, Some(_)) if !takes_data_dir => "--data-dir",
            (None, _) => return Ok(()),
        };
        Err(Mistake::Usage(format!("ash {command} talks to no server, and takes no {useless}")))
    }
}

/// What every command that talks to a server has.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) client: Client,
    pub(super) screen: Screen,
    pub(super) env: BTreeMap<String, String>,
}

/// A server and what opens it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    url: String,
    key: Option<BearerKey>,
}

impl Found {
    pub(super) fn client(&self) -> Result<Client, ClientError> {
        Client::new(&self.url, self.key.as_ref())
    }
}

/// The file that a person keeps: `~/.ash/config.json`.
#[derive(Debug, Default, Deserialize)]
struct Settings {
    server_url: Option<String>,
    api_key: Option<String>,
}

/// The data directory of the server on this machine: the one that was said, that of the server that runs on
/// the port that this one would have, or the one that a server would begin with.
pub(super) fn data_dir(
    connection: &Connection,
    env: &BTreeMap<String, String>,
) -> Result<PathBuf, Mistake> {
    let set = |name: &str| env.get(name).filter(|value| !value.is_empty());
    if let Some(said) = connection.data_dir.as_ref().or_else(|| set("ASH_DATA_DIR")) {
        return Ok(said.into());
    }
    let url = format!("http://localhost:{}", own_port(env)?);
    let url = Url::parse(&url).expect("it is one");
    let running = announced(set("HOME").map(Path::new), &url);
    Ok(running.unwrap_or_else(|| DEFAULT_DATA_DIR.into()))
}

/// The port of the server that this machine would have.
fn own_port(env: &BTreeMap<String, String>) -> Result<u16, Mistake> {
    match env.get("ASH_PORT").filter(|value| !value.is_empty()) {
        Some(port) => port.parse().map_err(|_| {
            Mistake::Usage(format!("ASH_PORT is `{port}`, which is not the number of a port"))
        }),
        None => Ok(DEFAULT_PORT),
    }
}

/// Finds the server and the key. A key of this machine is never sent to another one, the key of
/// the settings only to the server of the settings, and the key of a data directory only to the
/// server whose it is.
pub(super) fn find(
    connection: &Connection,
    env: &BTreeMap<String, String>,
) -> anyhow::Result<Found> {
    let set = |name: &str| env.get(name).filter(|value| !value.is_empty()).cloned();
    let home = set("HOME").map(PathBuf::from);
    let settings = match &home {
        Some(home) => settings(&home.join(".ash/config.json"))?,
        None => Settings::default(),
    };
    let own_port = own_port(env)?;
    let named = connection
        .server
        .clone()
        .or_else(|| set("ASH_SERVER_URL"))
        .or_else(|| settings.server_url.clone());
    let is_named = named.is_some();
    let url = named.unwrap_or_else(|| format!("http://127.0.0.1:{own_port}"));
    let url = url.trim_end_matches('/').to_owned();
    let local = Url::parse(&url).ok().filter(is_loopback);
    let is_of_settings = match &settings.server_url {
        Some(of_settings) => of_settings.trim_end_matches('/') == url,
        None => local.is_some(),
    };
    if let (Some(dir), Some(local)) = (&connection.data_dir, &local) {
        is_of_server(Path::new(dir), home.as_deref(), local)?;
    }
    let key = set("ASH_API_KEY").or_else(|| settings.api_key.clone().filter(|_| is_of_settings));
    let key = match (key, &connection.data_dir, &local) {
        (Some(key), _, _) => Some(key),
        (None, Some(dir), Some(_)) => Some(said_key(Path::new(dir))?),
        (None, Some(_), None) => {
            let message = "--data-dir is for a server on this machine, and this one is not";
            return Err(Mistake::Usage(message.to_owned()).into());
        }
        (None, None, Some(local)) => match announced(home.as_deref(), local) {
            Some(data_dir) => first_key(&data_dir),
            // Nobody says whose port it is. It is believed to be that of our own server only if
            // it is the port that this one would have.
            None if local.port_or_known_default() != Some(own_port) => None,
            None => set("ASH_DATA_DIR")
                .or_else(|| (!is_named).then(|| DEFAULT_DATA_DIR.to_owned()))
                .and_then(|dir| first_key(Path::new(&dir))),
        },
        (None, None, None) => None,
    };
    Ok(Found { url, key: key.map(|key| BearerKey::new(&key)) })
}

fn settings(path: &Path) -> anyhow::Result<Settings> {
    match std::fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .with_context(|| format!("{} is not understood", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Settings::default()),
        Err(error) => Err(error).with_context(|| format!("could not read {}", path.display())),
    }
}

/// The data directory of the server at an address of this machine, if that says so and is alive. A
/// server that was killed leaves its file behind, and anybody may have its port now.
fn announced(home: Option<&Path>, url: &Url) -> Option<PathBuf> {
    let found = discovery::find(home?, url.port_or_known_default()?)?;
    let is_alive = Path::new("/proc").join(found.pid.to_string()).exists();
    let host = Url::parse(&found.url).ok()?;
    let is_same = url.host_str() == Some("localhost") || url.host_str() == host.host_str();
    (is_alive && is_same).then_some(found.data_dir)
}

/// Whether the server at an address of this machine has its data in the directory that a person named, as
/// far as that server says where it is.
fn is_of_server(data_dir: &Path, home: Option<&Path>, url: &Url) -> Result<(), Mistake> {
    let Some(its_own) = announced(home, url) else { return Ok(()) };
    let real = |dir: &Path| {
        dir.canonicalize().or_else(|_| std::path::absolute(dir)).unwrap_or_else(|_| dir.to_owned())
    };
    if real(&its_own) == real(data_dir) {
        return Ok(());
    }
    Err(Mistake::Usage(format!(
        "the server at {} has its data in {}, not in {}: say which one is meant with --server or ASH_PORT",
        url.as_str().trim_end_matches('/'),
        its_own.display(),
        data_dir.display(),
    )))
}

/// The key in the directory that a person named. It has to be there.
fn said_key(data_dir: &Path) -> anyhow::Result<String> {
    let path = data_dir.join(INITIAL_KEY_FILE);
    match std::fs::read_to_string(&path) {
        Ok(key) if !key.trim().is_empty() => Ok(key),
        Ok(_) => Err(Mistake::NotFound(format!("{} is empty", path.display())).into()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(Mistake::NotFound(format!("there is no key at {}", path.display())).into())
        }
        Err(error) => Err(error).with_context(|| format!("could not read {}", path.display())),
    }
}

fn first_key(data_dir: &Path) -> Option<String> {
    let key = std::fs::read_to_string(data_dir.join(INITIAL_KEY_FILE)).ok()?;
    (!key.trim().is_empty()).then_some(key)
}

#[cfg(test)]
mod test {
    use super::*;

    struct Machine {
        dir: tempfile::TempDir,
        env: BTreeMap<String, String>,
    }

    impl Machine {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let home = dir.path().to_str().unwrap().to_owned();
            Self { dir, env: [("HOME".to_owned(), home)].into() }
        }

        fn file(self, path: &str, text: &str) -> Self {
            let path = self.dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
            self
        }

        fn set(mut self, name: &str, value: &str) -> Self {
            self.env.insert(name.to_owned(), value.to_owned());
            self
        }

        fn running(self, port: u16, dir: &str) -> Self {
            self.announced(port, dir, std::process::id())
        }

        fn announced(self, port: u16, dir: &str, pid: u32) -> Self {
            let data = self.dir.path().join(dir);
            let url = format!("http://127.0.0.1:{port}");
            let running = serde_json::json!({ "url": url, "dataDir": data, "pid": pid });
            let text = running.to_string();
            self.file(&format!(".ash/servers/{port}.json"), &text)
                .file(&format!("{dir}/initial-api-key"), &format!("key-of-{dir}\n"))
        }

        fn find(&self, server: Option<&str>) -> (String, Option<BearerKey>) {
            let connection = Connection { server: server.map(str::to_owned), data_dir: None };
            let found = find(&connection, &self.env).unwrap();
            (found.url, found.key)
        }
    }

    fn key(text: &str) -> Option<BearerKey> {
        Some(BearerKey::new(text))
    }

    #[test]
    fn on_the_machine_of_the_server_nothing_has_to_be_said() {
        let machine = Machine::new().running(4100, "one").running(4200, "two");
        let url = "http://127.0.0.1:4100".to_owned();
        assert_eq!(machine.find(None), (url, key("key-of-one")));
        let machine = machine.set("ASH_PORT", "4200");
        assert_eq!(machine.find(None), ("http://127.0.0.1:4200".to_owned(), key("key-of-two")));
    }

    #[test]
    fn what_is_said_closer_goes_first() {
        let config = r#"{"server_url": "https://a.example/", "api_key": "of-a", "more": 1}"#;
        let machine = Machine::new().running(4100, "one").file(".ash/config.json", config);
        assert_eq!(machine.find(None), ("https://a.example".to_owned(), key("of-a")));
        let machine = machine.set("ASH_SERVER_URL", "http://localhost:4100");
        assert_eq!(machine.find(None), ("http://localhost:4100".to_owned(), key("key-of-one")));
        let machine = machine.set("ASH_API_KEY", "said");
        assert_eq!(machine.find(Some("http://b")), ("http://b".to_owned(), key("said")));
    }

    #[test]
    fn a_key_goes_only_where_it_belongs() {
        let config = r#"{"server_url": "https://a.example", "api_key": "of-a"}"#;
        let machine = Machine::new().running(4100, "one").file(".ash/config.json", config);
        assert_eq!(machine.find(Some("https://evil.example")).1, None);
        let machine = Machine::new().file(".ash/config.json", r#"{"api_key": "mine"}"#);
        assert_eq!(machine.find(None).1, key("mine"));
        assert_eq!(machine.find(Some("https://evil.example")).1, None);
    }

    #[test]
    fn the_key_of_a_server_goes_to_no_other_program_on_this_machine() {
        // Nobody has this number: the kernel gives out at most 2^22.
        let dead = u32::MAX;
        let machine = Machine::new().announced(4100, "one", dead);
        assert_eq!(machine.find(None).1, None, "whoever was there is gone");
        let machine = Machine::new().running(4100, "one");
        assert_eq!(machine.find(Some("http://[::1]:4100")).1, None, "another address");
        assert_eq!(machine.find(Some("http://127.0.0.1:9999")).1, None, "another port");
        let dir = machine.dir.path().join("one");
        let machine = Machine::new().set("ASH_DATA_DIR", dir.to_str().unwrap());
        assert_eq!(machine.find(None).1, key("key-of-one"));
        assert_eq!(machine.find(Some("http://127.0.0.1:9999")).1, None);
        let machine = machine.running(4100, "two");
        assert_eq!(machine.find(None).1, key("key-of-two"), "the server knows best");
    }

    #[test]
    fn a_directory_that_a_person_names_has_a_key() {
        let machine = Machine::new().file("data/initial-api-key", "k\n");
        let find = |dir: &str, server: Option<&str>| {
            let data_dir = Some(machine.dir.path().join(dir).to_str().unwrap().to_owned());
            let connection = Connection { server: server.map(str::to_owned), data_dir };
            find(&connection, &machine.env)
        };
        assert_eq!(find("data", Some("http://127.0.0.1:9999")).unwrap().key, key("k"));
        let missing = find("other", None).unwrap_err().to_string();
        assert!(missing.starts_with("there is no key at ") && missing.contains("other/initial"));
        assert!(find("data", Some("https://a.example")).is_err());
    }

    #[test]
    fn a_directory_that_a_person_names_is_that_of_the_server() {
        let machine = Machine::new().running(4100, "one").running(4200, "two");
        let machine = machine.set("ASH_API_KEY", "said");
        let find = |dir: &str, port: u16| {
            let data_dir = Some(machine.dir.path().join(dir).to_str().unwrap().to_owned());
            let server = Some(format!("http://127.0.0.1:{port}"));
            find(&Connection { server, data_dir }, &machine.env)
        };
        assert!(find("one", 4100).is_ok() && find("two/../two", 4200).is_ok());
        let other = find("two", 4100).unwrap_err().to_string();
        assert!(other.contains("has its data in ") && other.contains("/one, not in "), "{other}");
        assert!(find("two", 4300).is_ok(), "nobody says whose port it is");
    }

    #[test]
    fn the_data_directory_is_that_of_the_server_that_runs_unless_it_is_said() {
        let said = Connection { server: None, data_dir: Some("said".to_owned()) };
        let find = |machine: &Machine| data_dir(&Connection::default(), &machine.env).unwrap();
        let machine = Machine::new();
        assert_eq!(find(&machine), Path::new("data"));
        let machine = machine.running(4100, "one").running(4200, "two");
        assert_eq!(find(&machine), machine.dir.path().join("one"));
        let machine = machine.set("ASH_PORT", "4200");
        assert_eq!(find(&machine), machine.dir.path().join("two"));
        let machine = machine.set("ASH_DATA_DIR", "set");
        assert_eq!(find(&machine), Path::new("set"));
        assert_eq!(data_dir(&said, &machine.env).unwrap(), Path::new("said"));
    }

    #[test]
    fn settings_that_are_not_understood_are_named() {
        let machine = Machine::new().file(".ash/config.json", "{");
        let error = find(&Connection::default(), &machine.env).unwrap_err();
        assert!(error.to_string().ends_with(".ash/config.json is not understood"), "{error}");
        let machine = Machine::new().set("ASH_PORT", "x");
        let error = find(&Connection::default(), &machine.env).unwrap_err();
        assert_eq!(error.to_string(), "ASH_PORT is `x`, which is not the number of a port");
    }
}
