//! Why an attempt failed, and what to do about it.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

use ash_protocol::Ending;
use serde::Deserialize;

use super::wire::null_is_default;

/// The longest wait that a provider may ask for. Beyond it the run ends: nobody wants a sandbox
/// that stands still for an hour.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// How much of an answer that is not understood is quoted.
const QUOTED_CHARS: usize = 200;

/// What a complaint begins with that is not about the conversation.
const SETUP_FIELDS: [&str; 14] = [
    "max_tokens",
    "metadata",
    "model",
    "output_config",
    "service_tier",
    "stop_sequences",
    "stream",
    "system",
    "temperature",
    "thinking",
    "tool_choice",
    "tools",
    "top_k",
    "top_p",
];

/// How long the loop waits, and how often it tries.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// How often one request is made, all in all.
    pub attempts: u32,
    /// After how long without a byte an answer counts as cut.
    pub idle: Duration,
    /// How long one answer may take all in all: pings alone can keep one alive for ever.
    pub whole: Duration,
    /// The longest first wait between two attempts; each further one may be twice as long.
    pub base: Duration,
    /// The longest wait.
    pub cap: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            attempts: 8,
            idle: Duration::from_secs(120),
            whole: Duration::from_secs(3_600),
            base: Duration::from_millis(500),
            cap: Duration::from_secs(30),
        }
    }
}

/// Why an attempt failed.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// The connection or the answer broke off, or is garbled: nobody decided anything.
    Cut(String),
    /// The provider cannot answer now.
    Busy {
        /// What it said.
        message: String,
        /// How long it asked to be left alone.
        retry_after: Option<Duration>,
    },
    /// The provider lets nobody spend more on this account.
    Quota(String),
    /// The server lets this session spend no more.
    Budget,
    /// The conversation is longer than the model takes.
    Overflow(Overflow),
    /// There is something in the conversation that the model does not take.
    Rejected(Rejection),
    /// The model does not write answers as long as the request allows.
    TooManyTokens {
        /// What it said.
        message: String,
        /// How many tokens an answer may have.
        most: u32,
    },
    /// The request will never be answered, whatever the conversation is.
    Refused(String),
}

/// A conversation that is too long.
#[derive(Debug, PartialEq, Eq)]
pub struct Overflow {
    /// What the model said.
    pub message: String,
    /// How many tokens it counted, and how many it takes, if it told.
    pub counted: Option<(u64, u64)>,
}

/// Content that is not taken.
#[derive(Debug, PartialEq, Eq)]
pub struct Rejection {
    /// What the model said.
    pub message: String,
    /// Which of the messages it complained of, if it told.
    pub at: Option<usize>,
}

/// What to do about a failure.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The same again, after a while.
    Repeat(Duration),
    /// The same with less in it, once.
    Trim(Overflow),
    /// The same without what was complained of, once. If that does not help the run ends, and what
    /// it had added must not be sent again as it is.
    Reject(Rejection),
    /// The same for an answer of at most so many tokens, once; the text is for when that does not
    /// help.
    Cap(String, u32),
    /// The run ends: there is no money left.
    Spent(String),
    /// Nothing: the run ends.
    End(Ending),
}

#[derive(Deserialize)]
struct ErrorBody {
    error: ApiError,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ApiError {
    #[serde(rename = "type", deserialize_with = "null_is_default")]
    kind: String,
    #[serde(deserialize_with = "null_is_default")]
    message: String,
    /// What our own proxy adds where it is not the provider who refuses.
    #[serde(deserialize_with = "null_is_default")]
    code: String,
}

/// How our own proxy says that a session has spent its budget.
const BUDGET_SPENT: &str = "budget_spent";

impl Failure {
    /// What an HTTP status that is not success means.
    pub(super) fn of_status(status: u16, body: &[u8], retry_after: Option<Duration>) -> Self {
        let (kind, said) = match serde_json::from_slice::<ErrorBody>(body) {
            Ok(ErrorBody { error }) if error.code == BUDGET_SPENT => return Self::Budget,
            Ok(ErrorBody { error }) => (error.kind, error.message),
            Err(_) => (String::new(), quote(body)),
        };
        let message = format!("the model answered {status}: {said}");
        let lower = said.to_lowercase();
        let spent = ["credit", "quota", "billing"].iter().any(|word| lower.contains(word));
        match status {
            402 => Self::Quota(message),
            _ if kind == "billing_error" => Self::Quota(message),
            400 | 403 | 429 if spent => Self::Quota(message),
            413 => Self::Overflow(Overflow { counted: counted(&lower), message }),
            400 => Self::of_invalid(message, &lower),
            408 | 429 | 500 | 502 | 503 | 504 | 529 => Self::Busy { message, retry_after },
            _ => Self::Refused(message),
        }
    }

    /// What an error in the middle of a stream, or in a body that was called a success, means.
    pub(super) fn of_error(error: &[u8]) -> Self {
        let ApiError { kind, message, .. } = serde_json::from_slice(error).unwrap_or_default();
        let lower = message.to_lowercase();
        let message = format!("the model answered with {kind}: {message}");
        match kind.as_str() {
            "overloaded_error" | "api_error" | "timeout_error" => {
                Self::Busy { message, retry_after: None }
            }
            "billing_error" => Self::Quota(message),
            "rate_limit_error" if lower.contains("quota") || lower.contains("credit") => {
                Self::Quota(message)
            }
            "rate_limit_error" => Self::Busy { message, retry_after: None },
            "request_too_large" => Self::Overflow(Overflow { counted: counted(&lower), message }),
            "invalid_request_error" => Self::of_invalid(message, &lower),
            "authentication_error" | "permission_error" | "not_found_error" => {
                Self::Refused(message)
            }
            "" => Self::Cut("the model's answer has an error in it that cannot be read".to_owned()),
            // The request was taken, so whatever it is came up while it was answered.
            _ => Self::Busy { message, retry_after: None },
        }
    }

    /// What a request that is said to be invalid means. Only what points at the conversation may
    /// change it: pictures must not go because a tool's schema is wrong.
    fn of_invalid(message: String, lower: &str) -> Self {
        if let Some(most) = most_tokens(lower) {
            return Self::TooManyTokens { message, most };
        }
        let field = lower.split([':', '.']).next().unwrap_or_default();
        if SETUP_FIELDS.contains(&field) {
            return Self::Refused(message);
        }
        let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
        let exceeds = lower.split_once("exceed").is_some_and(|(_, rest)| rest.contains("context"));
        if exceeds || has(&["too long", "context window", "context length"]) {
            return Self::Overflow(Overflow { counted: counted(lower), message });
        }
        if has(&["messages.", "image", "document", "media_type", "could not process"]) {
            return Self::Rejected(Rejection { at: named_message(lower), message });
        }
        Self::Refused(message)
    }

    /// What an answer that is no message means.
    pub(super) fn of_nonsense(status: u16, body: &[u8]) -> Self {
        Self::Refused(format!(
            "the model answered {status} with something that is no message: {}",
            quote(body)
        ))
    }

    /// What to do after the `attempt`-th attempt, counted from 1, failed like this.
    pub fn verdict(self, attempt: u32, patience: &Patience) -> Verdict {
        let (message, wait) = match self {
            // The server in between was replaced: it is back already, or connections wait for it.
            Self::Cut(message) if attempt == 1 => (message, Duration::ZERO),
            Self::Cut(message) | Self::Busy { message, retry_after: None } => {
                (message, backoff(attempt, patience))
            }
            Self::Busy { message, retry_after: Some(wait) } => {
                if wait > MAX_RETRY_AFTER {
                    let message = format!("{message} (and wants {} s of peace)", wait.as_secs());
                    return Verdict::End(Ending::Failed { message });
                }
                (message, wait + backoff(1, patience))
            }
            Self::Quota(message) => return Verdict::Spent(message),
            Self::Budget => return Verdict::End(Ending::Budget),
            Self::Overflow(overflow) => return Verdict::Trim(overflow),
            Self::Rejected(rejection) => return Verdict::Reject(rejection),
            Self::TooManyTokens { message, most } => return Verdict::Cap(message, most),
            Self::Refused(message) => return Verdict::End(Ending::Failed { message }),
        };
        if attempt >= patience.attempts {
            let message = format!("{message} (after {attempt} attempts)");
            return Verdict::End(Ending::Failed { message });
        }
        Verdict::Repeat(wait)
    }
}

/// Full jitter: after an outage every agent repeats at once, and a fixed wait would keep them in
/// step.
fn backoff(attempt: u32, patience: &Patience) -> Duration {
    let doublings = attempt.saturating_sub(1).min(16);
    let longest = patience.base.saturating_mul(1 << doublings).min(patience.cap);
    // A fresh `RandomState` is seeded by the operating system: randomness without a dependency.
    let random = RandomState::new().build_hasher().finish() >> 11;
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    longest.mul_f64(random as f64 / (1u64 << 53) as f64)
}

/// The N of "max_tokens: X > N".
fn most_tokens(lower: &str) -> Option<u32> {
    let (asked, most) = lower.split_once("max_tokens: ")?.1.split_once(" > ")?;
    asked.trim().parse::<u64>().ok()?;
    number(most).filter(|&most| most > 0)
}

/// The numbers of "X tokens > N maximum".
fn counted(lower: &str) -> Option<(u64, u64)> {
    let (sent, most) = lower.split_once(" tokens > ")?;
    Some((sent.split(' ').next_back()?.parse().ok()?, number(most)?))
}

/// The N of "messages.N.content".
fn named_message(lower: &str) -> Option<usize> {
    number(lower.split_once("messages.")?.1)
}

/// The number that a text begins with.
fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.split(|char: char| !char.is_ascii_digit()).next()?.parse().ok()
}

/// The beginning of a body, fit for a message to a person.
fn quote(body: &[u8]) -> String {
    // Four bytes are the longest character: no more are looked at.
    let body = &body[..body.len().min(QUOTED_CHARS * 4)];
    let text: String = String::from_utf8_lossy(body).chars().take(QUOTED_CHARS).collect();
    if text.trim().is_empty() { "(nothing)".to_owned() } else { text }
}

#[cfg(test)]
mod test {
    use super::*;

    fn error(kind: &str, message: &str) -> Vec<u8> {
        format!(r#"{{"type":"error","error":{{"type":"{kind}","message":"{message}"}}}}"#).into()
    }

    #[test]
    fn statuses_mean_what_they_say() {
        let of = |status, kind, message| Failure::of_status(status, &error(kind, message), None);
        assert!(matches!(of(529, "overloaded_error", "Overloaded"), Failure::Busy { .. }));
        assert!(matches!(of(429, "rate_limit_error", "slow down"), Failure::Busy { .. }));
        assert!(matches!(of(429, "rate_limit_error", "Quota exceeded"), Failure::Quota(_)));
        assert!(matches!(of(400, "x", "Your credit balance is too low"), Failure::Quota(_)));
        assert!(matches!(of(403, "billing_error", ""), Failure::Quota(_)));
        assert!(matches!(of(403, "permission_error", "no"), Failure::Refused(_)));
        assert!(matches!(of(400, "x", "prompt is too long: 3 > 2"), Failure::Overflow(_)));
        assert!(matches!(of(400, "x", "could not process image"), Failure::Rejected(_)));
        assert!(matches!(of(413, "request_too_large", ""), Failure::Overflow(_)));
        assert_eq!(
            of(529, "overloaded_error", "x").verdict(9, &Patience::default()),
            Verdict::End(Ending::Failed {
                message: "the model answered 529: x (after 9 attempts)".to_owned()
            })
        );
        assert_eq!(
            of(404, "not_found_error", "model: none"),
            Failure::Refused("the model answered 404: model: none".to_owned())
        );
    }

    #[test]
    fn only_complaints_about_the_conversation_change_it() {
        let of = |message| Failure::of_status(400, &error("invalid_request_error", message), None);
        for setup in [
            "max_tokens: must be at least 1",
            "tools.0.custom.input_schema: the document is no JSON schema",
            "thinking.budget_tokens: Input should be greater than or equal to 1024",
            "A maximum of 4 blocks with cache_control may be provided. Found 5.",
            "this model has no context management",
            "system.0: image blocks are not allowed",
        ] {
            assert!(matches!(of(setup), Failure::Refused(_)), "{setup}");
        }
        for content in ["unsupported media_type", "a document has no pages", "Could not process it"]
        {
            assert!(matches!(of(content), Failure::Rejected(_)), "{content}");
        }
        let Failure::Rejected(rejection) = of("messages.12.content.0: Invalid `signature`") else {
            panic!("that is about the content");
        };
        assert_eq!(rejection.at, Some(12));
        for long in [
            "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
            "the context window is full",
            "maximum context length is 8192",
        ] {
            assert!(matches!(of(long), Failure::Overflow(_)), "{long}");
        }
        let Failure::Overflow(overflow) = of("prompt is too long: 215000 tokens > 200000 maximum")
        else {
            panic!("that is about the length");
        };
        assert_eq!(overflow.counted, Some((215_000, 200_000)));
        let Failure::TooManyTokens { most, .. } = of("max_tokens: 99999 > 8192, which is the most")
        else {
            panic!("that is about the answer");
        };
        assert_eq!(most, 8192);
    }

    #[test]
    fn errors_in_a_stream_are_transient_unless_they_are_known() {
        let of = |kind: &str| {
            Failure::of_error(format!(r#"{{"type":"{kind}","message":null}}"#).as_bytes())
        };
        assert!(matches!(of("something_new"), Failure::Busy { .. }));
        assert!(matches!(of("permission_error"), Failure::Refused(_)));
    }

    #[test]
    fn a_body_that_is_no_error_is_quoted_and_cut() {
        let html = format!("<html>{}", "x".repeat(1000));
        let Failure::Busy { message, .. } = Failure::of_status(502, html.as_bytes(), None) else {
            panic!("502 is transient");
        };
        assert!(message.starts_with("the model answered 502: <html>xxx"), "{message}");
        assert!(message.len() < 260, "{message}");
    }

    #[test]
    fn patience_ends() {
        let patience = Patience::default();
        let cut = || Failure::Cut("cut".to_owned());
        assert_eq!(cut().verdict(1, &patience), Verdict::Repeat(Duration::ZERO));
        for attempt in 2..patience.attempts {
            let Verdict::Repeat(wait) = cut().verdict(attempt, &patience) else {
                panic!("attempt {attempt} is not the last");
            };
            assert!(wait <= patience.cap);
        }
        assert!(matches!(cut().verdict(patience.attempts, &patience), Verdict::End(_)));
        let busy = |seconds| Failure::Busy {
            message: String::new(),
            retry_after: Some(Duration::from_secs(seconds)),
        };
        assert!(matches!(busy(61).verdict(1, &patience), Verdict::End(Ending::Failed { .. })));
        let Verdict::Repeat(wait) = busy(7).verdict(1, &patience) else { panic!("7 s are fine") };
        assert!(wait >= Duration::from_secs(7));
    }
}
