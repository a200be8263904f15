//! What a sandbox can reach of the world, what it costs, and who knows about it.

mod mcp;
mod outside;
mod reach;
mod search;
mod secret;
mod spend;
mod steered;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::client::{Answer, Client};
use super::served::{Served, With};

/// Lets sandboxes reach what tests serve.
const ALLOW_LOOPBACK: (&str, &str) = ("ASH_EGRESS_ALLOW_PRIVATE", "127.0.0.0/8,::1");

/// Sends what it is told to the proxy, byte for byte, and tells what came back. It is in the workspace.
const PROBE: &str = r#"
import json, os, socket, sys
host, port = os.environ["http_proxy"].removeprefix("http://").split(":")
def ask(said):
    s = socket.create_connection((host, int(port)), 25)
    s.settimeout(25)
    head, _, body = said.partition("\n\n")
    got = b""
    s.sendall((head.replace("\n", "\r\n") + "\r\n\r\n").encode("latin-1"))
    if head.startswith("CONNECT") and body:
        while not got.endswith(b"\r\n\r\n"): got += s.recv(1) or b"\r\n\r\n"
    s.sendall(body.encode("latin-1"))
    if head.startswith("CONNECT") and body: s.shutdown(socket.SHUT_WR)
    try:
        while piece := s.recv(65536): got += piece
    except OSError as error: got += str(error).encode()
    return got.decode("latin-1")
print(json.dumps([ask(said) for said in json.loads(sys.argv[1])]))
"#;

/// Somebody who commands a sandbox.
#[derive(Clone)]
struct Inside {
    client: Client,
    session: String,
}

/// Deploys an agent that may reach these hosts.
async fn deploy(client: &Client, name: &str, egress: &[String]) {
    let manifest = format!("egress = {egress:?}\n");
    let files = [("CLAUDE.md", "You are tested."), ("ash.toml", &manifest), ("probe.py", PROBE)];
    deploy_files(client, name, &files).await;
}

async fn deploy_files(client: &Client, name: &str, files: &[(&str, &str)]) {
    let file = |(path, content): &(&str, &str)| json!({ "path": path, "content": BASE64_STANDARD.encode(content) });
    let files: Vec<Value> = files.iter().map(file).collect();
    client.post("/api/agents", &json!({ "name": name, "files": files })).await.ok();
}

impl Inside {
    /// A session of an agent, with further options.
    async fn of(client: &Client, agent: &str, options: Value) -> Self {
        let mut create = json!({ "agent": agent });
        create.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        let made = client.post("/api/sessions", &create).await.ok();
        let session = made["session"]["id"].as_str().unwrap().to_owned();
        Self { client: client.clone(), session }
    }

    async fn get(&self, rest: &str) -> Answer {
        self.client.get(&format!("/api/sessions/{}{rest}", self.session)).await
    }

    /// Runs a command in the sandbox, and returns what it printed.
    async fn run(&self, command: &str) -> String {
        let path = format!("/api/sessions/{}/exec", self.session);
        let ran = self.client.post(&path, &json!({ "command": command })).await.ok();
        assert_eq!(ran["exitCode"], 0, "{ran}");
        ran["stdout"].as_str().unwrap().to_owned()
    }

    /// Sends requests to the proxy from inside; what is said through a connection is followed by the end of it.
    async fn ask(&self, said: &[String]) -> Vec<String> {
        let said = serde_json::to_string(said).unwrap();
        assert!(!said.contains('\''), "it stands in quotes");
        let answers = self.run(&format!("python3 probe.py '{said}'")).await;
        serde_json::from_str(&answers).unwrap()
    }

    /// What is answered to each of these connections: a status and a code.
    async fn connect(&self, targets: &[&str]) -> Vec<(u16, String)> {
        let said: Vec<String> = targets
            .iter()
            .map(|target| format!("CONNECT {target} HTTP/1.1\nhost: {target}"))
            .collect();
        self.ask(&said).await.iter().map(|answer| read(answer)).collect()
    }

    /// What the session's sandbox asked for so far, newest first.
    async fn egress(&self) -> Value {
        self.get("/egress").await.ok()
    }
}

/// The status of an answer, and the code in it, if there is one.
fn read(answer: &str) -> (u16, String) {
    let status =
        answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    (status, body["error"]["code"].as_str().unwrap_or_default().to_owned())
}

async fn served(more: &[(&'static str, &str)]) -> Served {
    let variables = more.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    Served::with(With { variables, ..With::default() }).await
}
