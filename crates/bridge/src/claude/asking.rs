//! Questions of the program that wait for a person.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::questions::{Decided, Questions};
use crate::reports::Reports;

/// The questions that are open.
#[derive(Default)]
pub(super) struct Asking {
    tasks: JoinSet<(String, Option<Value>)>,
    requests: BTreeMap<String, AbortHandle>,
}

impl Asking {
    /// Asks, and goes on.
    pub(super) fn begin(
        &mut self,
        questions: &Questions,
        request: String,
        (tool, input): (String, Box<RawValue>),
        reports: &Reports,
        interrupt: &CancellationToken,
    ) {
        let (questions, reports, interrupt) =
            (questions.clone(), reports.clone(), interrupt.clone());
        let id = request.clone();
        let task = self.tasks.spawn_local(async move {
            let decided = questions.ask(&reports, &tool, input.clone(), &interrupt).await;
            let answer = match decided {
                Decided::Allowed { input: instead } => {
                    let input = instead.unwrap_or(input);
                    Some(json!({ "behavior": "allow", "updatedInput": input }))
                }
                Decided::Denied { message } => Some(denied(&message)),
                Decided::Withdrawn => None,
            };
            (id, answer)
        });
        self.requests.insert(request, task);
    }

    /// Takes one back.
    pub(super) fn withdraw(&mut self, request: &str) {
        // Dropped, a question is taken back.
        if let Some(task) = self.requests.remove(request) {
            task.abort();
        }
    }

    /// The next answer that anybody waits for; nothing, if there is no question.
    pub(super) async fn next(&mut self) -> Option<(String, Value)> {
        while let Some(joined) = self.tasks.join_next().await {
            if let Ok((request, Some(answer))) = joined {
                self.requests.remove(&request);
                return Some((request, answer));
            }
        }
        None
    }

    /// Takes all of them back.
    pub(super) async fn end(&mut self) {
        self.tasks.shutdown().await;
    }
}

pub(super) fn denied(message: &str) -> Value {
    json!({ "behavior": "deny", "message": message })
}
