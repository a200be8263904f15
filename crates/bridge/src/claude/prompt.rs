//! What a prompt may be, and which of its options hold for its run.

use serde::Deserialize;
use serde_json::value::RawValue;

/// A prompt, read.
#[derive(Debug)]
pub(super) struct Prompt {
    /// A text, or a list of blocks, as the model takes it.
    pub(super) content: Box<RawValue>,
    pub(super) options: Options,
}

/// What a prompt can say about how it is to be run. Nothing: as the agent is set up.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Options {
    pub(super) model: Option<String>,
    pub(super) max_turns: Option<u32>,
    pub(super) max_budget_usd: Option<f64>,
    pub(super) thinking: Option<Thinking>,
    pub(super) max_thinking_tokens: Option<u32>,
    pub(super) effort: Option<String>,
    pub(super) allowed_tools: Option<Vec<String>>,
    pub(super) disallowed_tools: Option<Vec<String>>,
    pub(super) permission_mode: Option<String>,
    /// Beta features of the model's API.
    pub(super) betas: Option<Vec<String>>,
    /// Agents that the agent can start, by name.
    pub(super) subagents: Option<serde_json::Map<String, serde_json::Value>>,
    /// The one of them that it begins as.
    pub(super) initial_agent: Option<String>,
    /// The shape of the answer.
    pub(super) output_format: Option<OutputFormat>,
}

/// The shape of an answer.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct OutputFormat {
    /// As a JSON Schema.
    pub(super) schema: serde_json::Map<String, serde_json::Value>,
}

/// How much a model may think before it answers.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Thinking {
    pub(super) r#type: String,
    #[serde(alias = "budget_tokens", default)]
    pub(super) budget_tokens: Option<u32>,
}

#[derive(Deserialize)]
struct Content {
    content: Box<RawValue>,
}

impl Prompt {
    /// Reads a prompt. An error is for a person.
    pub(super) fn read(raw: &RawValue) -> Result<Self, String> {
        let not_understood =
            |error: serde_json::Error| format!("the prompt is not understood: {error}");
        let (content, options) = if raw.get().trim_start().starts_with('{') {
            let Content { content } = serde_json::from_str(raw.get()).map_err(not_understood)?;
            (content, serde_json::from_str(raw.get()).map_err(not_understood)?)
        } else {
            (raw.to_owned(), Options::default())
        };
        let is_empty = match serde_json::from_str(content.get()).map_err(not_understood)? {
            serde_json::Value::String(text) => text.trim().is_empty(),
            serde_json::Value::Array(blocks) => {
                if let Some(block) = blocks.iter().find(|block| !is_of_a_person(block)) {
                    let kind = &block["type"];
                    return Err(format!("a prompt cannot have a block of type {kind}"));
                }
                blocks.iter().all(is_blank)
            }
            serde_json::Value::Null
            | serde_json::Value::Bool(_)
            | serde_json::Value::Number(_)
            | serde_json::Value::Object(_) => {
                let wanted = "a text, or a list of content blocks, which are objects with a type";
                return Err(format!("the prompt is not {wanted}"));
            }
        };
        if is_empty {
            return Err("the prompt is empty".to_owned());
        }
        Ok(Self { content, options })
    }

    /// Whether the program may take it for a command of its own.
    pub(super) fn is_command(&self) -> bool {
        let is_one = |text: &serde_json::Value| {
            text.as_str().is_some_and(|text| text.trim_start().starts_with('/'))
        };
        match serde_json::from_str(self.content.get()) {
            Ok(serde_json::Value::Array(blocks)) => {
                blocks.iter().any(|block| is_one(&block["text"]))
            }
            Ok(text) => is_one(&text),
            Err(_) => false,
        }
    }

    /// The same with a remark in front.
    pub(super) fn after(&self, remark: &str) -> serde_json::Value {
        let remark = serde_json::json!({ "type": "text", "text": remark });
        let blocks = match serde_json::from_str(self.content.get()) {
            Ok(serde_json::Value::Array(blocks)) => blocks,
            Ok(text) => vec![serde_json::json!({ "type": "text", "text": text })],
            Err(_) => Vec::new(),
        };
        serde_json::Value::Array(std::iter::once(remark).chain(blocks).collect())
    }
}

/// Whether it is a block, and not one that only a model or a tool has.
fn is_of_a_person(block: &serde_json::Value) -> bool {
    let Some(kind) = block["type"].as_str() else { return false };
    !(kind.ends_with("thinking") || kind.ends_with("tool_use") || kind.ends_with("_result"))
}

fn is_blank(block: &serde_json::Value) -> bool {
    block["type"] == "text" && block["text"].as_str().is_none_or(|text| text.trim().is_empty())
}

#[cfg(test)]
mod test {
    use super::*;

    fn read(json: &str) -> Result<Prompt, String> {
        Prompt::read(&RawValue::from_string(json.to_owned()).unwrap())
    }

    #[test]
    fn what_begins_with_a_slash_may_be_a_command() {
        for (prompt, is_command) in [
            (r#""/model haiku""#, true),
            (r#""hi\n/say hi""#, false),
            (r#"{"content":[{"type":"image"},{"type":"text","text":" /model x"}]}"#, true),
            (r#"[{"type":"text","text":"a /b"}]"#, false),
        ] {
            assert_eq!(read(prompt).unwrap().is_command(), is_command, "{prompt}");
        }
    }

    #[test]
    fn a_prompt_is_a_text_or_blocks_or_either_with_options() {
        assert_eq!(read(r#""hi""#).unwrap().content.get(), r#""hi""#);
        let prompt = read(
            r#"{"content":[{"type":"image"}],"model":"m","maxTurns":3,"maxBudgetUsd":0.5,"other":1,
                "thinking":{"type":"enabled","budget_tokens":2000},"permissionMode":"plan",
                "outputFormat":{"type":"json_schema","schema":{"type":"object"}}}"#,
        )
        .unwrap();
        assert_eq!(prompt.content.get(), r#"[{"type":"image"}]"#);
        assert_eq!(prompt.options.max_turns, Some(3));
        assert_eq!(prompt.options.output_format.unwrap().schema["type"], "object");
        assert_eq!(prompt.options.thinking.unwrap().budget_tokens, Some(2000));
        assert_eq!(prompt.options.permission_mode.as_deref(), Some("plan"));
        let prompt = read(
            r#"{"content":"hi","betas":["b"],"subagents":{"r":{"prompt":"p"}},"initialAgent":"r"}"#,
        );
        let options = prompt.unwrap().options;
        assert_eq!(options.betas.as_deref(), Some(&["b".to_owned()][..]));
        assert_eq!(options.subagents.unwrap()["r"]["prompt"], "p");
        assert_eq!(options.initial_agent.as_deref(), Some("r"));
    }

    #[test]
    fn what_is_no_prompt_says_so() {
        for bad in [
            "7",
            "null",
            "[1]",
            r#"[{"a":1}]"#,
            r#""  ""#,
            "[]",
            "{}",
            r#"{"content":7}"#,
            r#"[{"type":"tool_result"}]"#,
            r#"[{"type":"thinking"}]"#,
            r#"{"content":"a","maxTurns":"x"}"#,
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_remark_stands_in_front() {
        let blocks = |json| read(json).unwrap().after("note").to_string();
        let note = r#"[{"text":"note","type":"text"},"#;
        assert_eq!(blocks(r#""hi""#), format!(r#"{note}{{"text":"hi","type":"text"}}]"#));
        assert_eq!(blocks(r#"[{"type":"image"}]"#), format!(r#"{note}{{"type":"image"}}]"#));
    }
}
