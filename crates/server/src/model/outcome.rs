//! Decides what a request comes to, before anything of it is sent.

use std::time::Duration;

use axum::http::{HeaderMap, Method, StatusCode};
use serde_json::{Value, json};

use super::attempts::Attempts;
use super::body::Trouble;
use super::conversation::Conversation;
use super::error::{ApiError, kind_of, status_of};
use super::memory;
use super::record::Key;
use super::render::Reply;
use super::script::step::{Broken, Fault, Part};
use super::script::{self, Answer, Due, Script, Situation};

/// What the model says of itself at `/`.
const ABOUT: &str = "This is `ash model`: a scripted stand-in for the Anthropic Messages API.\n\
    It is not a model. It does what the prompt or a script file tells it to.\n";

/// The id of the only model that is listed. Any other may be asked for as well.
const MODEL_ID: &str = "ash-scripted-model";

/// What a request comes to.
pub(crate) enum Outcome {
    About,
    Json { answer: &'static str, body: Value },
    Error(ApiError),
    Html { status: u16 },
    Hang,
    Cut,
    Reply(Box<Replied>),
}

/// A reply, and what goes wrong with it.
pub(crate) struct Replied {
    pub(crate) reply: Reply,
    pub(crate) stream: bool,
    pub(crate) trouble: Option<Trouble>,
    pub(crate) is_mislabeled: bool,
    /// What went wrong, in a word for the log.
    fault: Option<&'static str>,
}

impl Outcome {
    /// In a few words, for the log.
    pub(crate) fn kind(&self) -> String {
        match self {
            Self::About => "about".to_owned(),
            Self::Json { answer, .. } => (*answer).to_owned(),
            Self::Error(error) => format!("error {}", error.status),
            Self::Html { status } => format!("html {status}"),
            Self::Hang => "hang".to_owned(),
            Self::Cut => "cut".to_owned(),
            Self::Reply(replied) => {
                replied.fault.map_or_else(|| replied.reply.kind(), str::to_owned)
            }
        }
    }
}

/// The text that is sent at `/`.
pub(crate) fn about() -> &'static str {
    ABOUT
}

/// A request of which everything has arrived.
pub(crate) struct Asked<'a> {
    pub(crate) method: &'a Method,
    pub(crate) path: &'a str,
    pub(crate) headers: &'a HeaderMap,
    /// `None` if it is not JSON.
    pub(crate) body: Option<&'a Value>,
}

/// What decisions depend on besides the request.
pub(crate) struct Rules<'a> {
    pub(crate) script: Option<&'a Script>,
    pub(crate) require_key: bool,
    pub(crate) attempts: &'a Attempts,
}

/// What was decided.
pub(crate) struct Decision {
    pub(crate) outcome: Outcome,
    /// If the request was one, for the log.
    pub(crate) conversation: Option<Conversation>,
    /// How long to wait before anything is sent.
    pub(crate) wait: Duration,
}

impl Decision {
    /// A request that did not even arrive.
    pub(crate) fn refused(error: ApiError) -> Self {
        Self { outcome: Outcome::Error(error), conversation: None, wait: Duration::ZERO }
    }
}

/// Decides.
pub(crate) fn decide(rules: &Rules<'_>, asked: &Asked<'_>) -> Decision {
    let mut wait = Duration::ZERO;
    let (outcome, conversation) = route(rules, asked, &mut wait);
    Decision { outcome, conversation, wait }
}

fn route(
    rules: &Rules<'_>,
    asked: &Asked<'_>,
    wait: &mut Duration,
) -> (Outcome, Option<Conversation>) {
    let only = |method: Method, outcome| {
        if *asked.method == method { outcome } else { Outcome::Error(not_allowed(asked)) }
    };
    match asked.path {
        "/" if *asked.method == Method::HEAD => (Outcome::About, None),
        "/" => (only(Method::GET, Outcome::About), None),
        "/v1/models" => (only(Method::GET, models()), None),
        "/v1/messages" | "/v1/messages/count_tokens" if *asked.method != Method::POST => {
            (Outcome::Error(not_allowed(asked)), None)
        }
        "/v1/messages" => match read(rules, asked, Conversation::read) {
            Ok(conversation) => (answer(rules, &conversation, wait), Some(conversation)),
            Err(error) => (Outcome::Error(error), None),
        },
        "/v1/messages/count_tokens" => match read(rules, asked, Conversation::read_for_counting) {
            Ok(of) => {
                let body = json!({ "input_tokens": of.input_tokens });
                (Outcome::Json { answer: "count_tokens", body }, Some(of))
            }
            Err(error) => (Outcome::Error(error), None),
        },
        path => {
            let message = format!("{path} is not served by the scripted model");
            (Outcome::Error(ApiError::new(StatusCode::NOT_FOUND, message)), None)
        }
    }
}

fn not_allowed(asked: &Asked<'_>) -> ApiError {
    let message = format!("{} is not allowed for {}", asked.method, asked.path);
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message)
}

fn models() -> Outcome {
    let model = json!({
        "type": "model",
        "id": MODEL_ID,
        "display_name": "Ash scripted model (a stand-in, not a model)",
        "created_at": "1970-01-01T00:00:00Z",
    });
    let body = json!({
        "data": [model], "has_more": false, "first_id": MODEL_ID, "last_id": MODEL_ID,
    });
    Outcome::Json { answer: "models", body }
}

fn read(
    rules: &Rules<'_>,
    asked: &Asked<'_>,
    read: fn(&Value) -> Result<Conversation, ApiError>,
) -> Result<Conversation, ApiError> {
    if rules.require_key && Key::of(asked.headers).is_none() {
        return Err(ApiError::new(StatusCode::UNAUTHORIZED, "x-api-key header is required"));
    }
    if !asked.headers.contains_key("anthropic-version") {
        return Err(ApiError::invalid("anthropic-version: header is required"));
    }
    let not_json = || ApiError::invalid("The request body is not valid JSON");
    read(asked.body.ok_or_else(not_json)?)
}

fn answer(rules: &Rules<'_>, conversation: &Conversation, wait: &mut Duration) -> Outcome {
    let answer = match due(rules.script, conversation) {
        Ok(answer) => answer,
        Err(error) => return Outcome::Error(error),
    };
    *wait = answer.wait.unwrap_or_default();
    let fault = if answer.faults.is_empty() {
        None
    } else {
        answer.fault(rules.attempts.next(conversation.digest()))
    };
    match fault {
        Some(Fault::Error { status, kind, retry_after_secs, message }) => {
            let kind = kind.clone().unwrap_or_else(|| kind_of(*status).to_owned());
            Outcome::Error(ApiError {
                status: *status,
                message: message.clone().unwrap_or_else(|| format!("scripted {kind}")),
                kind,
                retry_after_secs: *retry_after_secs,
            })
        }
        // There are no events when there is no stream: the API says it with the status then.
        Some(Fault::ErrorEvent { kind, .. }) if !conversation.stream => Outcome::Error(ApiError {
            status: status_of(kind),
            message: format!("scripted {kind}"),
            kind: kind.clone(),
            retry_after_secs: None,
        }),
        Some(Fault::Html { status }) => Outcome::Html { status: *status },
        Some(Fault::Hang { after: None }) => Outcome::Hang,
        Some(Fault::Cut { after: None }) => Outcome::Cut,
        Some(
            Fault::Hang { .. }
            | Fault::Cut { .. }
            | Fault::ErrorEvent { .. }
            | Fault::Broken { .. },
        )
        | None => Outcome::Reply(Box::new(Replied {
            reply: Reply::new(conversation, &answer),
            stream: conversation.stream,
            trouble: fault.and_then(Trouble::of),
            is_mislabeled: matches!(fault, Some(Fault::Broken { how: Broken::ContentType, .. })),
            fault: fault.map(Fault::name),
        })),
    }
}

/// The answer that is due: by the script if one of its rules applies, else by the prompt.
fn due(script: Option<&Script>, conversation: &Conversation) -> Result<Answer, ApiError> {
    let prompt = conversation.prompt();
    let situation = Situation {
        prompt: &prompt,
        model: &conversation.model,
        system: &conversation.system,
        turn: conversation.turn(),
        round: conversation.round(),
    };
    let due = match script.and_then(|script| script.answer(&situation)) {
        Some(due) => due,
        None => by_prompt(&prompt, situation.round)?,
    };
    let answer = match due {
        Due::Answer(answer) => answer,
        Due::Over => {
            Answer { parts: vec![Part::Say(memory::over(conversation))], ..Answer::default() }
        }
    };
    Ok(match script {
        Some(script) => answer.with_defaults(&script.defaults()),
        None => answer,
    })
}

fn by_prompt(prompt: &str, round: u64) -> Result<Due, ApiError> {
    let at = |line: usize, reason: String| {
        // A test that is scripted wrongly should fail where it is wrong.
        ApiError::invalid(format!("scripted model: line {} of the prompt: {reason}", line + 1))
    };
    let mut lines = Vec::new();
    let mut steps = Vec::new();
    for (line, text) in prompt.lines().enumerate() {
        if let Some(step) = script::parse_step(text) {
            steps.push(step.map_err(|reason| at(line, reason))?);
            lines.push(line);
        }
    }
    script::answers(&steps).map_err(|(index, reason)| at(lines[index], reason))?;
    Ok(script::due(&steps, round - 1))
}
