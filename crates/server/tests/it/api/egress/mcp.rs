//! Servers of tools that Claude Code reaches over HTTP, through the door of its sandbox.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::{ALLOW_LOOPBACK, deploy_files, served};
use crate::claude_program::claude_program;
use crate::world::can_isolate;

/// A server with one tool, which knows something that nobody else does.
struct Tools {
    address: std::net::SocketAddr,
    asked: Arc<Mutex<Vec<Value>>>,
    serving: JoinHandle<()>,
}

impl Tools {
    async fn start() -> Self {
        // Not the address of the sandbox's own proxy, which programs ask directly.
        let listener = TcpListener::bind("127.0.0.2:0").await.unwrap();
        let (address, asked) = (listener.local_addr().unwrap(), Arc::default());
        let app = Router::new().route("/mcp", post(answer)).with_state(Arc::clone(&asked));
        #[expect(clippy::disallowed_methods, reason = "a test owns what it serves")]
        let serving = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, asked, serving }
    }

    fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    fn methods(&self) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        asked.iter().map(|said| said["method"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

impl Drop for Tools {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn answer(
    State(asked): State<Arc<Mutex<Vec<Value>>>>,
    axum::Json(said): axum::Json<Value>,
) -> Response {
    asked.lock().unwrap().push(said.clone());
    let result = match said["method"].as_str() {
        Some("initialize") => json!({
            "protocolVersion": said["params"]["protocolVersion"],
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "library", "version": "1" },
        }),
        Some("tools/list") => json!({ "tools": [{
            "name": "look_up",
            "description": "Looks something up.",
            "inputSchema": { "type": "object", "properties": { "what": { "type": "string" } } },
        }] }),
        Some("tools/call") => {
            let what = said["params"]["arguments"]["what"].as_str().unwrap_or_default();
            json!({ "content": [{ "type": "text", "text": format!("{what} is on shelf 4711") }] })
        }
        _ => return StatusCode::ACCEPTED.into_response(),
    };
    axum::Json(json!({ "jsonrpc": "2.0", "id": said["id"], "result": result })).into_response()
}

#[tokio::test]
async fn tools_of_a_server_are_reached_through_the_door_if_the_agent_names_its_host() {
    let (Some(claude), true) = (claude_program(), can_isolate()) else { return };
    let served = served(&[ALLOW_LOOPBACK]).await;
    claude.install_into(&served.dir.join("data"));
    let (library, closed) = (Tools::start().await, Tools::start().await);
    let manifest = format!("runtime = \"claude\"\negress = [\"{}\"]\n", library.address);
    let files = [("CLAUDE.md", "You are tested."), ("ash.toml", manifest.as_str())];
    deploy_files(&served.client, "coder", &files).await;
    let servers = json!({
        "library": { "url": library.url() },
        "closed": { "url": closed.url() },
    });
    let create = json!({ "agent": "coder", "mcpServers": servers });
    let made = served.client.post("/api/sessions", &create).await.ok();
    let session = made["session"]["id"].as_str().unwrap().to_owned();

    let call = json!({ "what": "the book" });
    let prompt = format!("Where is it?\n/tool mcp__library__look_up {call}\n/results");
    let told = served.client.say(&session, &prompt).await.all().await;
    let of = |wanted: &str| -> Vec<Value> {
        let named = told.iter().filter(|frame| frame.event == wanted);
        named.map(|frame| frame.data.clone()).collect()
    };
    assert_eq!(of("done")[0]["stopReason"], "end_turn", "{told:?}");
    // The server was asked, and its answer is what the model goes on with.
    assert!(library.methods().contains(&"tools/call".to_owned()), "{:?}", library.methods());
    let results: Vec<String> = of("tool_result").iter().map(Value::to_string).collect();
    assert!(results.iter().any(|result| result.contains("shelf 4711")), "{results:?}");
    let text: String =
        of("text_delta").iter().filter_map(|delta| delta["delta"].as_str()).collect();
    assert!(text.contains("the book is on shelf 4711"), "{text}");

    // The other one never heard of it, and it is said why.
    assert_eq!(closed.methods(), Vec::<String>::new());
    let notices: Vec<String> =
        of("notice").iter().map(|notice| notice["message"].to_string()).collect();
    assert!(
        notices.iter().any(|notice| notice.contains("closed") && notice.contains("egress")),
        "{notices:?} {told:?}"
    );
    assert!(!notices.iter().any(|notice| notice.contains("library")), "{notices:?}");
    let egress = served.client.get(&format!("/api/sessions/{session}/egress")).await.ok();
    let refused = egress["requests"]
        .as_array()
        .unwrap()
        .iter()
        .find(|of| of["refusal"] == "host_not_allowed");
    assert!(refused.is_some(), "{egress}");
    served.end().await;
}
