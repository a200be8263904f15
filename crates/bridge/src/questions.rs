//! What an agent asks before it does something.
//!
//! A question is reported, and whoever asked waits until it is decided, until nobody has answered for too
//! long, or until nobody wants to know any more. Whatever it is, exactly one [`Event::Answered`] follows the
//! [`Event::Question`]: room for it is taken before the question is asked, so that it is reported even by a
//! future that is dropped.
//!
//! Time stands still for a sandbox that is frozen, but not for its clocks. So the wait is made of short
//! pieces: one that took longer, because everything stood still meanwhile, counts as one piece.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use ash_protocol::{AnsweredHow, Decision, Event, PERMISSION_TIMEOUT_MS};
use rustix::rand::{GetRandomFlags, getrandom};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::reports::{Reports, Room};

/// How many questions may be open at once.
const MAX_OPEN: usize = 32;

/// How many decisions are remembered, so that one that is repeated is known.
const MAX_REMEMBERED: usize = 256;

/// The largest input that is asked about: what is larger is not taken into the log.
const MAX_INPUT_BYTES: usize = 4 * 1024 * 1024;

/// What a wait is made of.
const PIECE: Duration = Duration::from_secs(1);

/// The questions of a session. Clones are the same.
#[derive(Clone, Debug)]
pub struct Questions(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    open: RefCell<BTreeMap<String, oneshot::Sender<Word>>>,
    /// The latest decisions, as digests.
    decided: RefCell<VecDeque<(String, blake3::Hash)>>,
    /// How long a question stays open, unless the prompt says otherwise.
    usual: Cell<Duration>,
    /// How long it does in this run.
    timeout: Cell<Duration>,
}

#[derive(Debug)]
enum Word {
    Decided(Decision),
    Withdrawn,
}

/// What came of a question.
#[derive(Debug)]
pub enum Decided {
    /// It may be done.
    Allowed {
        /// With this instead, if somebody wants it otherwise.
        input: Option<Box<RawValue>>,
    },
    /// It may not be done.
    Denied {
        /// Why, for the agent.
        message: String,
    },
    /// Nobody waits for it any more.
    Withdrawn,
}

/// Why a decision was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// There is no such question, or nobody waits for its answer any more.
    #[error("no such question is open")]
    NotOpen,
    /// It was answered otherwise.
    #[error("the question was answered otherwise")]
    Otherwise,
}

impl Default for Questions {
    fn default() -> Self {
        let timeout = Cell::new(Duration::from_millis(PERMISSION_TIMEOUT_MS));
        Self(Rc::new(Inner {
            open: RefCell::default(),
            decided: RefCell::default(),
            usual: timeout.clone(),
            timeout,
        }))
    }
}

impl Questions {
    /// Says how long questions stay open.
    pub fn set_timeout(&self, timeout: Duration) {
        self.0.usual.set(timeout);
        self.0.timeout.set(timeout);
    }

    /// Takes from a prompt how long its questions stay open.
    pub fn heed(&self, prompt: &RawValue) {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Wire {
            permission_timeout_ms: Option<u64>,
        }
        let is_object = prompt.get().trim_start().starts_with('{');
        let said = is_object.then(|| serde_json::from_str::<Wire>(prompt.get()).ok()).flatten();
        let said = said.and_then(|wire| wire.permission_timeout_ms).map(Duration::from_millis);
        self.0.timeout.set(said.unwrap_or_else(|| self.0.usual.get()));
    }

    /// Asks whether something may be done, and waits for the answer. May be dropped at any point, which
    /// withdraws the question.
    pub async fn ask(
        &self,
        reports: &Reports,
        tool: &str,
        input: Box<RawValue>,
        interrupt: &CancellationToken,
    ) -> Decided {
        let denied = |message: String| Decided::Denied { message };
        let bytes = input.get().len();
        if bytes > MAX_INPUT_BYTES {
            return denied(format!(
                "nobody was asked: the input has {bytes} bytes, which is more than can be shown"
            ));
        }
        if self.0.open.borrow().len() >= MAX_OPEN {
            return denied("nobody was asked: too many questions are open".to_owned());
        }
        let id = match new_id() {
            Ok(id) => id,
            Err(error) => return denied(format!("nobody could be asked: {error}")),
        };
        let Some(room) = reports.room().await else { return Decided::Withdrawn };
        let (sender, mut word) = oneshot::channel();
        self.0.open.borrow_mut().insert(id.clone(), sender);
        let open = Open { questions: self, id: id.clone(), room: Some(room) };
        reports.send(Event::Question { id, tool: tool.to_owned(), input }).await;
        let timeout = self.0.timeout.get();
        let word = tokio::select! {
            biased;
            () = interrupt.cancelled() => Ok(Word::Withdrawn),
            word = &mut word => Ok(word.unwrap_or(Word::Withdrawn)),
            () = pass(timeout) => Err(()),
        };
        let (how, decided) = match word {
            Ok(Word::Decided(Decision::Allow { input })) => {
                (AnsweredHow::Allowed, Decided::Allowed { input })
            }
            Ok(Word::Decided(Decision::Deny { message })) => {
                let message = message.unwrap_or_else(|| "the user does not allow it".to_owned());
                (AnsweredHow::Denied, denied(message))
            }
            Ok(Word::Withdrawn) => (AnsweredHow::Withdrawn, Decided::Withdrawn),
            Err(()) => {
                let message = format!("nobody allowed it within {timeout:?}");
                (AnsweredHow::TimedOut, denied(message))
            }
        };
        open.close(how);
        decided
    }

    /// Answers a question. Again with the same answer, it is taken too.
    pub fn decide(&self, id: &str, decision: Decision) -> Result<(), NotTaken> {
        let digest = digest(&decision);
        if let Some((_, before)) = self.0.decided.borrow().iter().find(|(of, _)| of == id) {
            return if *before == digest { Ok(()) } else { Err(NotTaken::Otherwise) };
        }
        let asked = self.0.open.borrow_mut().remove(id).ok_or(NotTaken::NotOpen)?;
        let mut decided = self.0.decided.borrow_mut();
        if decided.len() >= MAX_REMEMBERED {
            decided.pop_front();
        }
        decided.push_back((id.to_owned(), digest));
        asked.send(Word::Decided(decision)).map_err(|_nobody_waits| NotTaken::NotOpen)
    }

    /// Takes a question back. Whoever waits for its answer is told.
    pub fn withdraw(&self, id: &str) {
        if let Some(asked) = self.0.open.borrow_mut().remove(id) {
            let _nobody_waits = asked.send(Word::Withdrawn);
        }
    }
}

/// A question that is open. Dropped, it is withdrawn.
struct Open<'a> {
    questions: &'a Questions,
    id: String,
    /// For what is to be said about it; nothing, once that is said.
    room: Option<Room>,
}

impl Open<'_> {
    fn close(mut self, how: AnsweredHow) {
        self.say(how);
    }

    fn say(&mut self, how: AnsweredHow) {
        self.questions.0.open.borrow_mut().remove(&self.id);
        if let Some(room) = self.room.take() {
            room.send(Event::Answered { id: self.id.clone(), how });
        }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.say(AnsweredHow::Withdrawn);
    }
}

/// Waits for as long as things move.
pub(crate) async fn pass(mut left: Duration) {
    while !left.is_zero() {
        let piece = left.min(PIECE);
        tokio::time::sleep(piece).await;
        left -= piece;
    }
}

/// A random UUID: no other sandbox of the session has made it, nor will.
pub(crate) fn new_id() -> std::io::Result<String> {
    let mut random = [0; 16];
    getrandom(&mut random, GetRandomFlags::empty())?;
    let bits = u128::from_be_bytes(random) & !(0xf << 76) & !(0b11 << 62) | 4 << 76 | 0b10 << 62;
    let hex = format!("{bits:032x}");
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    Ok(parts.join("-"))
}

fn digest(decision: &Decision) -> blake3::Hash {
    let (kind, text) = match decision {
        Decision::Allow { input } => ("allow", input.as_ref().map(|input| input.get())),
        Decision::Deny { message } => ("deny", message.as_deref()),
    };
    let mut hasher = blake3::Hasher::new();
    hasher.update(kind.as_bytes());
    if let Some(text) = text {
        hasher.update(b"\0").update(text.as_bytes());
    }
    hasher.finalize()
}

#[cfg(test)]
mod test {
    use std::pin::pin;

    use tokio::sync::mpsc;

    use super::*;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    fn allow(input: Option<&str>) -> Decision {
        Decision::Allow { input: input.map(raw) }
    }

    fn deny(message: Option<&str>) -> Decision {
        Decision::Deny { message: message.map(str::to_owned) }
    }

    async fn asked(events: &mut mpsc::Receiver<Event>) -> String {
        match events.recv().await {
            Some(Event::Question { id, tool, input }) => {
                assert_eq!((tool.as_str(), input.get()), ("bash", r#"{"command":"ls"}"#));
                id
            }
            other => panic!("{other:?}"),
        }
    }

    fn answered(events: &mut mpsc::Receiver<Event>) -> (String, AnsweredHow) {
        match events.try_recv() {
            Ok(Event::Answered { id, how }) => (id, how),
            other => panic!("{other:?}"),
        }
    }

    /// Asks, does something when the question is there, and says what came of it.
    async fn ask_and(
        questions: &Questions,
        then: impl FnOnce(&str, &CancellationToken),
    ) -> (Decided, AnsweredHow) {
        let (reports, mut events) = Reports::channel();
        let interrupt = CancellationToken::new();
        let ask = questions.ask(&reports, "bash", raw(r#"{"command":"ls"}"#), &interrupt);
        let told = async {
            let id = asked(&mut events).await;
            then(&id, &interrupt);
            id
        };
        let (decided, id) = tokio::join!(ask, told);
        let (of, how) = answered(&mut events);
        assert_eq!(of, id);
        assert!(events.try_recv().is_err(), "it is answered once");
        (decided, how)
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_is_answered_as_somebody_decides() {
        let questions = Questions::default();
        let (decided, how) = ask_and(&questions, |id, _| {
            assert_eq!(questions.decide("other", allow(None)), Err(NotTaken::NotOpen));
            assert_eq!(questions.decide(id, allow(Some(r#"{"a":1}"#))), Ok(()));
            assert_eq!(questions.decide(id, allow(Some(r#"{"a":1}"#))), Ok(()));
            assert_eq!(questions.decide(id, allow(None)), Err(NotTaken::Otherwise));
            assert_eq!(questions.decide(id, deny(None)), Err(NotTaken::Otherwise));
        })
        .await;
        assert_eq!(how, AnsweredHow::Allowed);
        assert!(matches!(decided, Decided::Allowed { input: Some(i) } if i.get() == r#"{"a":1}"#));

        let mut again = None;
        let (decided, how) = ask_and(&questions, |id, _| {
            assert_eq!(questions.decide(id, deny(Some("not today"))), Ok(()));
            again = Some(id.to_owned());
        })
        .await;
        assert_eq!(how, AnsweredHow::Denied);
        assert!(matches!(decided, Decided::Denied { message } if message == "not today"));
        // A server that does not know that it was heard says it once more.
        let id = again.unwrap();
        assert_eq!(questions.decide(&id, deny(Some("not today"))), Ok(()));
        assert_eq!(questions.decide(&id, deny(None)), Err(NotTaken::Otherwise));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_answers_in_time_which_is_a_no() {
        let questions = Questions::default();
        questions.set_timeout(Duration::from_millis(2_500));
        let mut asked = None;
        let (decided, how) = ask_and(&questions, |id, _| asked = Some(id.to_owned())).await;
        assert_eq!(how, AnsweredHow::TimedOut);
        assert!(matches!(decided, Decided::Denied { message } if message.contains("2.5s")));
        assert_eq!(questions.decide(&asked.unwrap(), allow(None)), Err(NotTaken::NotOpen));
    }

    #[tokio::test(start_paused = true)]
    async fn time_stands_still_while_everything_does() {
        let questions = Questions::default();
        questions.set_timeout(Duration::from_secs(3));
        let (reports, mut events) = Reports::channel();
        let interrupt = CancellationToken::new();
        let mut ask = pin!(questions.ask(&reports, "bash", raw(r#"{"command":"ls"}"#), &interrupt));
        assert!(futures_poll(ask.as_mut()).await.is_none());
        // Frozen for an hour, which is over at once as far as anybody inside can tell.
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert!(futures_poll(ask.as_mut()).await.is_none(), "it is still open");
        let id = asked(&mut events).await;
        assert_eq!(questions.decide(&id, allow(None)), Ok(()));
        assert!(matches!(ask.await, Decided::Allowed { input: None }));
    }

    /// Polls once.
    async fn futures_poll<F: Future>(mut future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        std::future::poll_fn(|cx| {
            std::task::Poll::Ready(match future.as_mut().poll(cx) {
                std::task::Poll::Ready(output) => Some(output),
                std::task::Poll::Pending => None,
            })
        })
        .await
    }

    #[tokio::test(start_paused = true)]
    async fn an_interrupt_a_withdrawal_and_a_drop_take_it_back() {
        let questions = Questions::default();
        let (decided, how) = ask_and(&questions, |_, interrupt| interrupt.cancel()).await;
        assert!(matches!((decided, how), (Decided::Withdrawn, AnsweredHow::Withdrawn)));
        let (decided, how) = ask_and(&questions, |id, _| questions.withdraw(id)).await;
        assert!(matches!((decided, how), (Decided::Withdrawn, AnsweredHow::Withdrawn)));

        let (reports, mut events) = Reports::channel();
        let interrupt = CancellationToken::new();
        for decide in [false, true] {
            let mut ask =
                Box::pin(questions.ask(&reports, "bash", raw(r#"{"command":"ls"}"#), &interrupt));
            assert!(futures_poll(ask.as_mut()).await.is_none());
            let id = asked(&mut events).await;
            if decide {
                assert_eq!(questions.decide(&id, allow(None)), Ok(()));
            }
            drop(ask);
            assert_eq!(answered(&mut events), (id.clone(), AnsweredHow::Withdrawn));
            assert!(questions.0.open.borrow().is_empty());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_too_large_or_too_much_is_not_asked() {
        let questions = Questions::default();
        let (reports, mut events) = Reports::channel();
        let interrupt = CancellationToken::new();
        let large = raw(&format!("\"{}\"", "x".repeat(MAX_INPUT_BYTES)));
        let decided = questions.ask(&reports, "bash", large, &interrupt).await;
        assert!(matches!(decided, Decided::Denied { message } if message.contains("bytes")));
        assert!(events.try_recv().is_err());

        let (reports, events) = Reports::channel();
        drop(events);
        let decided = questions.ask(&reports, "bash", raw("{}"), &interrupt).await;
        assert!(matches!(decided, Decided::Withdrawn), "nobody is there to be asked");
    }

    #[test]
    fn a_prompt_says_how_long_its_questions_stay_open() {
        let questions = Questions::default();
        questions.set_timeout(Duration::from_secs(5));
        questions.heed(&raw(r#"{"content":"a","permissionTimeoutMs":1500}"#));
        assert_eq!(questions.0.timeout.get(), Duration::from_millis(1500));
        for silent in
            [r#""a""#, r#"{"content":"a"}"#, r#"{"content":"a","permissionTimeoutMs":"x"}"#]
        {
            questions.heed(&raw(silent));
            assert_eq!(questions.0.timeout.get(), Duration::from_secs(5), "{silent}");
        }
    }

    #[test]
    fn every_question_has_an_id_of_its_own() {
        let id = new_id().unwrap();
        assert_eq!((id.len(), &id[14..15]), (36, "4"), "{id}");
        assert!("89ab".contains(&id[19..20]), "{id}");
        assert_ne!(id, new_id().unwrap());
    }
}
