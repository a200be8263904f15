//! One request over one connection of its own, without TLS: the server's proxy is at the other end
//! of it, and adds the key.
//!
//! Nothing is spawned: the connection is driven by the same future that reads the answer, so that
//! dropping it ends both.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use ash_protocol::Event;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, CONNECTION, CONTENT_TYPE, HOST, RETRY_AFTER};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::answer::{Answer, Step};
use super::failure::{Failure, Patience};
use super::sse::SseDecoder;
use crate::reports::Reports;

/// The longest answer. A model stops long before it; this is for one that does not.
const MAX_ANSWER_BYTES: usize = 32 * 1024 * 1024;

/// How much of an answer that is an error is read.
const MAX_ERROR_BYTES: usize = 64 * 1024;

/// How much the headers of an answer may have.
const MAX_HEADER_BYTES: usize = 128 * 1024;

/// Asks the model.
#[derive(Debug)]
pub struct Client {
    endpoint: SocketAddr,
    idle: Duration,
    whole: Duration,
}

impl Client {
    /// A client of what listens there.
    pub fn new(endpoint: SocketAddr, patience: &Patience) -> Self {
        Self { endpoint, idle: patience.idle, whole: patience.whole }
    }

    /// Asks once. `answer` has what came, also when it fails or is dropped in the middle; `heard`
    /// is where it is reported piece by piece.
    pub async fn ask(
        &self,
        body: Bytes,
        answer: &mut Answer,
        heard: Option<&Reports>,
    ) -> Result<(), Failure> {
        let asking = self.exchange(body, answer, heard);
        timeout(self.whole, asking).await.unwrap_or_else(|_| {
            let seconds = self.whole.as_secs();
            Err(Failure::Refused(format!("the model did not finish within {seconds} s")))
        })
    }

    async fn exchange(
        &self,
        body: Bytes,
        answer: &mut Answer,
        heard: Option<&Reports>,
    ) -> Result<(), Failure> {
        let stream = self.within(TcpStream::connect(self.endpoint)).await?.map_err(cut)?;
        // Deltas are small and wanted at once; and so is the end of a large request.
        stream.set_nodelay(true).map_err(cut)?;
        let (mut sender, connection) = http1::Builder::new()
            .max_buf_size(MAX_HEADER_BYTES)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(cut)?;
        let request = Request::builder()
            .method(Method::POST)
            .uri("/v1/messages")
            .header(HOST, self.endpoint.to_string())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "text/event-stream")
            .header(CONNECTION, "close")
            .header("anthropic-version", "2023-06-01")
            .body(Full::new(body))
            .expect("a path and four headers make a request");
        let exchange = async {
            let response = self.within(sender.send_request(request)).await?.map_err(cut)?;
            self.read(response, answer, heard).await
        };
        let mut exchange = pin!(exchange);
        tokio::select! {
            biased;
            result = &mut exchange => return result,
            // It ended, well or badly: what it had read is still to be taken.
            _ = connection => {}
        }
        exchange.await
    }

    async fn read(
        &self,
        response: Response<Incoming>,
        answer: &mut Answer,
        heard: Option<&Reports>,
    ) -> Result<(), Failure> {
        let (head, mut body) = response.into_parts();
        let header = |name| head.headers.get(name).and_then(|value| value.to_str().ok());
        let status = head.status.as_u16();
        if !head.status.is_success() {
            let wait = header(RETRY_AFTER).and_then(|value| value.trim().parse().ok());
            // The status counts even if its explanation is cut.
            let body = self.collect(&mut body, MAX_ERROR_BYTES).await;
            let body = body.unwrap_or_else(|(so_far, _)| so_far);
            return Err(Failure::of_status(status, &body, wait.map(Duration::from_secs)));
        }
        let kind = header(CONTENT_TYPE).unwrap_or_default();
        if kind.contains("text/event-stream") {
            return self.stream(&mut body, answer, heard).await;
        }
        if !kind.contains("application/json") {
            let body = self.collect(&mut body, MAX_ERROR_BYTES).await;
            let body = body.unwrap_or_else(|(so_far, _)| so_far);
            return Err(Failure::of_nonsense(status, &body));
        }
        let body =
            self.collect(&mut body, MAX_ANSWER_BYTES).await.map_err(|(_, failure)| failure)?;
        whole(status, &body, answer, heard).await
    }

    async fn stream(
        &self,
        body: &mut Incoming,
        answer: &mut Answer,
        heard: Option<&Reports>,
    ) -> Result<(), Failure> {
        let mut decoder = SseDecoder::default();
        let mut room = MAX_ANSWER_BYTES;
        let too_long = |_| Failure::Refused("a line of the model's answer has no end".to_owned());
        loop {
            let bytes = self.next(body).await?;
            let ended = bytes.is_none();
            if let Some(bytes) = bytes {
                room = room.checked_sub(bytes.len()).ok_or_else(endless)?;
                decoder.push(&bytes);
            }
            loop {
                let event = decoder.next_event().map_err(too_long)?;
                let event = match event {
                    None if ended => decoder.finish().map_err(too_long)?,
                    other => other,
                };
                let Some(event) = event else { break };
                match answer.take(&event)? {
                    Step::Text(text) => say(heard, Event::TextDelta(text)).await,
                    Step::Thinking(text) => say(heard, Event::ThinkingDelta(text)).await,
                    Step::Nothing => {}
                    Step::Done => return Ok(()),
                }
            }
            if ended {
                return Err(Failure::Cut("the model's answer ended in the middle".to_owned()));
            }
        }
    }

    /// A body up to a bound; with a failure comes what was read before it.
    async fn collect(
        &self,
        body: &mut Incoming,
        max: usize,
    ) -> Result<Vec<u8>, (Vec<u8>, Failure)> {
        let mut collected = Vec::new();
        loop {
            match self.next(body).await {
                Ok(Some(bytes)) if collected.len() + bytes.len() <= max => {
                    collected.extend_from_slice(&bytes);
                }
                Ok(Some(bytes)) => {
                    collected.extend_from_slice(&bytes[..max - collected.len()]);
                    return Err((collected, endless()));
                }
                Ok(None) => return Ok(collected),
                Err(failure) => return Err((collected, failure)),
            }
        }
    }

    /// The next bytes; nothing at the end.
    async fn next(&self, body: &mut Incoming) -> Result<Option<Bytes>, Failure> {
        loop {
            let Some(frame) = self.within(body.frame()).await? else { return Ok(None) };
            // Trailers say nothing to us.
            if let Ok(bytes) = frame.map_err(cut)?.into_data() {
                return Ok(Some(bytes));
            }
        }
    }

    /// Waits, but not for ever: a model that hangs is one that was cut.
    async fn within<F: Future>(&self, future: F) -> Result<F::Output, Failure> {
        timeout(self.idle, future).await.map_err(|_| {
            Failure::Cut(format!("the model said nothing for {} s", self.idle.as_secs()))
        })
    }
}

/// A success that is not a stream: a message all at once, or an error in disguise.
async fn whole(
    status: u16,
    body: &[u8],
    answer: &mut Answer,
    heard: Option<&Reports>,
) -> Result<(), Failure> {
    #[derive(serde::Deserialize)]
    struct Typed<'a> {
        #[serde(rename = "type")]
        kind: String,
        #[serde(borrow)]
        error: Option<&'a serde_json::value::RawValue>,
    }
    let nonsense = || Failure::of_nonsense(status, body);
    let text = std::str::from_utf8(body).map_err(|_| nonsense())?.trim_start_matches('\u{feff}');
    let typed: Typed<'_> = serde_json::from_str(text).map_err(|_| nonsense())?;
    if let Some(error) = typed.error {
        return Err(Failure::of_error(error.get().as_bytes()));
    }
    if typed.kind != "message" {
        return Err(nonsense());
    }
    for step in answer.take_whole(text).ok_or_else(nonsense)? {
        match step {
            Step::Text(text) => say(heard, Event::TextDelta(text)).await,
            Step::Thinking(text) => say(heard, Event::ThinkingDelta(text)).await,
            Step::Nothing | Step::Done => {}
        }
    }
    Ok(())
}

async fn say(heard: Option<&Reports>, event: Event) {
    if let Some(reports) = heard {
        reports.send(event).await;
    }
}

fn cut(error: impl std::error::Error) -> Failure {
    let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
    Failure::Cut(format!("the connection to the model was cut: {error}{cause}"))
}

fn endless() -> Failure {
    Failure::Refused(format!("the model's answer is longer than {MAX_ANSWER_BYTES} bytes"))
}
