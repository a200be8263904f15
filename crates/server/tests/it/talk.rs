//! A conversation with a scripted model, as an agent leads it.

use std::net::SocketAddr;

use ash_server::model::{Model, Options, Script};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::client::{Response, post};

/// Serves a model on a port of its own.
pub(crate) async fn model(options: Options) -> Model {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    Model::start(listener, options).unwrap()
}

/// Serves a model without a script.
pub(crate) async fn plain() -> Model {
    model(Options::default()).await
}

/// Serves a model with a script.
pub(crate) async fn scripted(script: &str) -> Model {
    let script = Some(Script::parse(script).unwrap());
    model(Options { script, ..Options::default() }).await
}

/// The body of a request with these messages.
pub(crate) fn body(messages: &Value, stream: bool) -> Value {
    json!({ "model": "some-model", "max_tokens": 100, "stream": stream, "messages": messages })
}

/// A conversation.
pub(crate) struct Talk {
    addr: SocketAddr,
    pub(crate) messages: Vec<Value>,
}

impl Talk {
    pub(crate) fn new(model: &Model, prompt: &str) -> Self {
        let mut talk = Self { addr: model.addr(), messages: Vec::new() };
        talk.say(prompt);
        talk
    }

    pub(crate) fn say(&mut self, prompt: &str) {
        self.messages.push(json!({ "role": "user", "content": prompt }));
    }

    /// Asks for the next answer, without taking it into the conversation.
    pub(crate) async fn ask(&self, stream: bool) -> Option<Response> {
        post(self.addr, &body(&json!(self.messages), stream)).await
    }

    /// Asks for the next answer and takes it into the conversation.
    pub(crate) async fn next(&mut self) -> Vec<Value> {
        let response = self.ask(true).await.unwrap();
        assert_eq!((response.status, response.is_complete), (200, true), "{}", response.body);
        self.take(&response)
    }

    /// Takes an answer into the conversation, with a result for each tool that it calls.
    pub(crate) fn take(&mut self, response: &Response) -> Vec<Value> {
        let content = response.content();
        self.messages.push(json!({ "role": "assistant", "content": content }));
        let results: Vec<Value> = content
            .iter()
            .filter(|block| block["type"] == "tool_use")
            .map(|call| {
                let text = format!("the result of {}", call["input"]);
                json!({ "type": "tool_result", "tool_use_id": call["id"], "content": text })
            })
            .collect();
        if !results.is_empty() {
            self.messages.push(json!({ "role": "user", "content": results }));
        }
        content
    }

    /// Like [`next`](Self::next), for answers that are one text.
    pub(crate) async fn next_text(&mut self) -> String {
        let content = self.next().await;
        assert_eq!(content.len(), 1, "{content:?}");
        content[0]["text"].as_str().unwrap().to_owned()
    }
}
