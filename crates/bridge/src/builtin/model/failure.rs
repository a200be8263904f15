//! Why an attempt failed, and what to do about it.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

use ash_protocol::Ending;
use serde::Deserialize;

/// The longest wait that a provider may ask for. Beyond it the run ends: nobody wants a sandbox
/// that stands still for an hour.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// How much of an answer that is not understood is quoted.
const QUOTED_CHARS: usize = 200;

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
    /// The conversation is longer than the model takes.
    Overflow(String),
    /// There is something in the conversation that the model does not take.
    Rejected(String),
    /// The request will never be answered, whatever the conversation is.
    Refused(String),
}

/// What to do about a failure.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The same again, after a while.
    Repeat(Duration),
    /// The same with less in it, once; the text is for when that does not help.
    Trim(String),
    /// The run ends, and what it had added must not be sent again as it is.
    Reject(String),
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
    #[serde(rename = "type")]
    kind: String,
    message: String,
}

impl Failure {
    /// What an HTTP status that is not success means.
    pub(super) fn of_status(status: u16, body: &[u8], retry_after: Option<Duration>) -> Self {
        let (kind, said) = match serde_json::from_slice::<ErrorBody>(body) {
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
            413 => Self::Overflow(message),
            400 if lower.contains("too long") || lower.contains("context") => {
                Self::Overflow(message)
            }
            400 => Self::Rejected(message),
            408 | 429 | 500 | 502 | 503 | 504 | 529 => Self::Busy { message, retry_after },
            _ => Self::Refused(message),
        }
    }

    /// What an error in the middle of a stream, or in a body that was called a success, means.
    pub(super) fn of_error(error: &[u8]) -> Self {
        let ApiError { kind, message } = serde_json::from_slice(error).unwrap_or_default();
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
            "request_too_large" => Self::Overflow(message),
            "invalid_request_error" if lower.contains("too long") || lower.contains("context") => {
                Self::Overflow(message)
            }
            "invalid_request_error" => Self::Rejected(message),
            "" => Self::Cut("the model's answer has an error in it that cannot be read".to_owned()),
            _ => Self::Refused(message),
        }
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
            Self::Overflow(message) => return Verdict::Trim(message),
            Self::Rejected(message) => return Verdict::Reject(message),
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
            of(404, "not_found_error", "model: none"),
            Failure::Refused("the model answered 404: model: none".to_owned())
        );
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
