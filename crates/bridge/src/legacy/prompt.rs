//! What a prompt may be, and how the program is asked.

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::settings::Settings;

/// The options that the program takes, by their names in a message and in the protocol.
const PASSED_ON: [&str; 12] = [
    "includePartialMessages",
    "model",
    "maxTurns",
    "maxBudgetUsd",
    "effort",
    "thinking",
    "outputFormat",
    "allowedTools",
    "disallowedTools",
    "betas",
    "subagents",
    "initialAgent",
];

/// A prompt, read.
#[derive(Clone, Debug)]
pub(super) struct Prompt {
    /// A text, or a list of blocks.
    pub(super) content: Value,
    pub(super) options: Map<String, Value>,
}

impl Prompt {
    /// Reads a prompt. An error is for a person.
    pub(super) fn read(raw: &RawValue) -> Result<Self, String> {
        let read: Value = serde_json::from_str(raw.get())
            .map_err(|error| format!("the prompt is not understood: {error}"))?;
        let (content, options) = match read {
            Value::Object(mut options) => {
                (options.remove("content").unwrap_or(Value::Null), options)
            }
            content @ (Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)) => (content, Map::new()),
        };
        let is_empty = match &content {
            Value::String(text) => text.trim().is_empty(),
            Value::Array(blocks) if blocks.iter().all(|block| block["type"].is_string()) => {
                blocks.is_empty()
            }
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_) => {
                let wanted = "a text, or a list of content blocks, which are objects with a type";
                return Err(format!("the prompt is not {wanted}"));
            }
        };
        if is_empty {
            return Err("the prompt is empty".to_owned());
        }
        Ok(Self { content, options })
    }

    /// The command that has it worked on, with something in front of it.
    pub(super) fn query(
        &self,
        session: &str,
        settings: &Settings,
        preamble: Option<&str>,
    ) -> Value {
        let mut query = json!({
            "cmd": "query",
            "prompt": preamble.map_or_else(|| self.content.clone(), |said| self.after(said)),
            "sessionId": session,
        });
        let mut usual = Map::new();
        // Where nobody chose one, the program does.
        if !settings.model.is_empty() {
            usual.insert("model".to_owned(), json!(settings.model));
        }
        for (name, tools) in [
            ("allowedTools", &settings.allowed_tools),
            ("disallowedTools", &settings.disallowed_tools),
        ] {
            if !tools.is_empty() {
                usual.insert(name.to_owned(), json!(tools));
            }
        }
        if let Some(rounds) = settings.limits.max_rounds {
            usual.insert("maxTurns".to_owned(), json!(rounds));
        }
        for name in PASSED_ON {
            let said = self.options.get(name).filter(|value| !value.is_null());
            if let Some(value) = said.or_else(|| usual.get(name)) {
                query[name] = value.clone();
            }
        }
        query
    }

    /// The same with something in front.
    fn after(&self, said: &str) -> Value {
        if let Value::Array(blocks) = &self.content {
            let first = json!({ "type": "text", "text": said });
            return Value::Array(std::iter::once(first).chain(blocks.iter().cloned()).collect());
        }
        json!(format!("{said}\n\n{}", self.content.as_str().unwrap_or_default()))
    }
}

#[cfg(test)]
mod test {
    use std::collections::BTreeMap;
    use std::path::Path;

    use ash_protocol::Limits;

    use super::*;
    use crate::builtin::model::Patience;
    use crate::exec::Env;
    use crate::questions::Questions;

    fn read(json: &str) -> Result<Prompt, String> {
        Prompt::read(&RawValue::from_string(json.to_owned()).unwrap())
    }

    #[test]
    fn what_is_no_prompt_says_so() {
        for bad in ["7", "null", "[1]", r#"[{"a":1}]"#, r#""  ""#, "[]", "{}", r#"{"content":7}"#] {
            assert!(read(bad).is_err(), "{bad}");
        }
        assert!(read(r#"[{"type":"image"}]"#).is_ok());
    }

    #[test]
    fn what_a_message_says_goes_before_what_its_session_says() {
        let settings = Settings {
            workspace: "/workspace".into(),
            home: "/home/agent".into(),
            env: Env::new(Path::new("/"), None, None, None, &BTreeMap::new()).0,
            refused_variables: Vec::new(),
            model: "usual".to_owned(),
            limits: Limits { max_rounds: Some(9), ..Limits::default() },
            system_prompt: None,
            remark: None,
            mcp_servers: None,
            allowed_tools: vec!["Read".to_owned()],
            disallowed_tools: vec!["Write".to_owned()],
            permission_mode: None,
            questions: Questions::default(),
            endpoint: ([127, 0, 0, 1], 1).into(),
            patience: Patience::default(),
        };
        let query = |prompt: &str| read(prompt).unwrap().query("s", &settings, None);
        assert_eq!(
            query(r#"{"content":"hi","model":null,"permissionMode":"plan"}"#),
            json!({
                "cmd": "query", "prompt": "hi", "sessionId": "s", "model": "usual",
                "maxTurns": 9, "allowedTools": ["Read"], "disallowedTools": ["Write"],
            })
        );
        let unsaid = Settings { model: String::new(), ..settings.clone() };
        let chosen = read(r#""hi""#).unwrap().query("s", &unsaid, None);
        assert_eq!(chosen.get("model"), None, "nobody chose one");
        let own = query(
            r#"{"content":"hi","model":"own","maxTurns":2,"allowedTools":["Bash"],"disallowedTools":[]}"#,
        );
        assert_eq!((&own["model"], &own["maxTurns"]), (&json!("own"), &json!(2)));
        assert_eq!((&own["allowedTools"], &own["disallowedTools"]), (&json!(["Bash"]), &json!([])));
    }

    #[test]
    fn something_can_stand_in_front() {
        assert_eq!(read(r#""hi""#).unwrap().after("note"), "note\n\nhi");
        let blocks = read(r#"{"content":[{"type":"image"}],"model":"m"}"#).unwrap();
        assert_eq!(
            blocks.after("a"),
            json!([{ "type": "text", "text": "a" }, { "type": "image" }])
        );
        assert_eq!(blocks.options["model"], "m");
    }
}
