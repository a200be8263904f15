//! Questions of the program that wait for a person.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::setup::BYPASS;
use crate::questions::{Decided, Questions};
use crate::reports::Reports;

/// What the program asks before it does something.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) request: String,
    pub(super) tool: String,
    pub(super) input: Box<RawValue>,
    pub(super) why: Why,
}

/// Why it asks, in the program's words.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Why {
    decision_reason_type: Option<String>,
    /// Settings of the agent that say that this is to be asked, whatever else there is to it.
    matched_ask_rule: Option<IgnoredAny>,
    /// Whether anybody but a person might allow it.
    classifier_approvable: Option<bool>,
}

/// The program asks about this in every mode, because it would do harm.
const HARMFUL: &str = "safetyCheck";

/// The program asks because of what its mode is, as in a plan.
const MODE: &str = "mode";

impl Question {
    /// What is answered where nobody is to be asked; nothing, if somebody is. The program asks some things in every
    /// mode, and goes into one that asks by itself.
    pub(super) fn without_asking(&self, mode: &str) -> Option<Value> {
        if mode != BYPASS {
            return None;
        }
        let unasked = "nobody is there to be asked";
        let Why { decision_reason_type, matched_ask_rule, classifier_approvable } = &self.why;
        match (decision_reason_type.as_deref(), self.tool.as_str()) {
            _ if matched_ask_rule.is_some() => None,
            (None, "AskUserQuestion") => Some(denied(&format!(
                "{unasked}: decide yourself, and say what you took for granted"
            ))),
            (None | Some(MODE), _) => Some(allowed(&self.input)),
            (Some(reason), _) if reason == HARMFUL || *classifier_approvable == Some(false) => {
                Some(denied(&format!("this would do harm, and {unasked}")))
            }
            // A rule or a hook of the agent, and whatever comes to be: somebody wants somebody to be asked.
            (Some(_), _) => None,
        }
    }
}

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
        question: Question,
        reports: &Reports,
        interrupt: &CancellationToken,
    ) {
        let (questions, reports, interrupt) =
            (questions.clone(), reports.clone(), interrupt.clone());
        let Question { request, tool, input, .. } = question;
        let id = request.clone();
        let task = self.tasks.spawn_local(async move {
            let decided = questions.ask(&reports, &tool, input.clone(), &interrupt).await;
            let answer = match decided {
                Decided::Allowed { input: instead } => Some(allowed(&instead.unwrap_or(input))),
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

    /// Takes all of them back. Returns which they were: whoever asked waits for an answer.
    pub(super) async fn end(&mut self) -> Vec<String> {
        self.tasks.shutdown().await;
        std::mem::take(&mut self.requests).into_keys().collect()
    }
}

fn allowed(input: &RawValue) -> Value {
    json!({ "behavior": "allow", "updatedInput": input })
}

pub(super) fn denied(message: &str) -> Value {
    json!({ "behavior": "deny", "message": message })
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn only_a_mode_that_asks_has_somebody_asked_unless_the_agent_wants_it() {
        let answer = |mode: &str, tool: &str, why: &Value| {
            let question = Question {
                request: "r".to_owned(),
                tool: tool.to_owned(),
                input: RawValue::from_string(r#"{"a":1}"#.to_owned()).unwrap(),
                why: serde_json::from_value(why.clone()).unwrap(),
            };
            let answer = question.without_asking(mode)?;
            let is_same = answer["updatedInput"]["a"] == 1;
            assert_eq!(answer["behavior"] == "allow", is_same, "{answer}");
            Some(is_same)
        };
        let none = json!({});
        for mode in ["default", "acceptEdits", "plan"] {
            for tool in ["Bash", "AskUserQuestion", "ExitPlanMode"] {
                assert_eq!(answer(mode, tool, &none), None, "{mode} {tool}");
            }
        }
        let because = |reason: &str| json!({ "decision_reason_type": reason });
        let [yes, no, ask] = [Some(true), Some(false), None];
        for (tool, why, expected) in [
            ("Bash", none.clone(), yes),
            ("ExitPlanMode", none.clone(), yes),
            ("Write", because("mode"), yes),
            ("AskUserQuestion", none, no),
            ("Bash", because("safetyCheck"), no),
            (
                "Bash",
                json!({ "decision_reason_type": "subcommandResults", "classifier_approvable": false }),
                no,
            ),
            ("Bash", because("subcommandResults"), ask),
            ("Bash", because("rule"), ask),
            ("Bash", because("hook"), ask),
            ("Bash", because("something new"), ask),
            ("AskUserQuestion", json!({ "matched_ask_rule": { "source": "x" } }), ask),
            ("Bash", json!({ "decision_reason_type": "safetyCheck", "matched_ask_rule": {} }), ask),
        ] {
            assert_eq!(answer(BYPASS, tool, &why), expected, "{tool} {why}");
        }
    }
}
