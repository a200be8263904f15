//! What a prompt may be, and which of its options hold for its run.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::message::{Block, Kind};
use super::strict;

/// The least the API takes.
pub(super) const MIN_THINKING_TOKENS: u32 = 1_024;

/// A prompt, read.
#[derive(Debug)]
pub(super) struct Prompt {
    pub(super) blocks: Vec<Block>,
    pub(super) model: Option<String>,
    pub(super) max_rounds: Option<u32>,
    pub(super) budget_micro_usd: Option<u64>,
    /// Nothing: as the agent is set up.
    pub(super) thinking: Option<Thinking>,
    /// Nothing: as the agent is set up.
    pub(super) allowed_tools: Option<Vec<String>>,
    /// Nothing: as the agent is set up.
    pub(super) disallowed_tools: Option<Vec<String>>,
    /// Nothing: as the agent is set up.
    pub(super) permission_mode: Option<String>,
    /// The shape of the answer, if it is to have one.
    pub(super) output_schema: Option<Box<RawValue>>,
}

/// How much a model may think before it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Thinking {
    Off,
    Budget(u32),
    /// As much as the model finds right.
    Adaptive,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    content: Box<RawValue>,
    model: Option<String>,
    max_turns: Option<u32>,
    max_budget_usd: Option<f64>,
    thinking: Option<ThinkingWire>,
    max_thinking_tokens: Option<u32>,
    effort: Option<String>,
    allowed_tools: Option<Vec<String>>,
    disallowed_tools: Option<Vec<String>>,
    permission_mode: Option<String>,
    output_format: Option<OutputFormat>,
}

/// The shape of an answer, as clients say it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct OutputFormat {
    r#type: String,
    schema: Option<Box<RawValue>>,
}

impl OutputFormat {
    /// The shape. An error is for a person.
    pub(crate) fn schema(self) -> Result<Box<RawValue>, String> {
        match (self.r#type.as_str(), self.schema) {
            ("json_schema", Some(schema)) if schema.get().starts_with('{') => Ok(schema),
            ("json_schema", _) => Err("outputFormat has no schema".to_owned()),
            (other, _) => Err(format!("outputFormat of type {other:?} is not known: json_schema")),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ThinkingWire {
    r#type: String,
    #[serde(alias = "budget_tokens")]
    budget_tokens: Option<u32>,
}

impl Prompt {
    /// Reads a prompt. An error is for a person.
    pub(super) fn read(raw: &RawValue) -> Result<Self, String> {
        let not_understood = |error| format!("the prompt is not understood: {error}");
        let text = strict::mended(raw.get());
        strict::value(&text).map_err(not_understood)?;
        let raw: Box<RawValue> = serde_json::from_str(&text).map_err(not_understood)?;
        let wire = if raw.get().starts_with('{') {
            serde_json::from_str(raw.get()).map_err(not_understood)?
        } else {
            Wire {
                content: raw,
                model: None,
                max_turns: None,
                max_budget_usd: None,
                thinking: None,
                max_thinking_tokens: None,
                effort: None,
                allowed_tools: None,
                disallowed_tools: None,
                permission_mode: None,
                output_format: None,
            }
        };
        let mut blocks = Block::read_all(&wire.content).ok_or(
            "the prompt is neither a text nor a list of content blocks, which are objects with a \
             type",
        )?;
        let of_the_model = |block: &&Block| match block.kind {
            Kind::Thinking | Kind::ToolUse { .. } | Kind::ToolResult { .. } => true,
            Kind::Text { .. } => false,
            Kind::Other => {
                block.type_name().ends_with("tool_use") || block.type_name().ends_with("_result")
            }
        };
        if let Some(block) = blocks.iter().find(of_the_model) {
            let kind = block.type_name();
            return Err(format!("a prompt cannot have a block of type {kind:?}"));
        }
        blocks.retain(|block| block.kind != Kind::Text { blank: true });
        if blocks.is_empty() {
            return Err("the prompt is empty".to_owned());
        }
        let effort = wire.effort.as_deref().map(Thinking::of_effort).transpose()?;
        let thinking = match (wire.thinking, wire.max_thinking_tokens) {
            (Some(thinking), max) => Some(match thinking.r#type.as_str() {
                "enabled" => Thinking::of(thinking.budget_tokens.or(max).unwrap_or(10_000)),
                "adaptive" => Thinking::Adaptive,
                "disabled" => Thinking::Off,
                other => return Err(format!("thinking of type {other:?} is not known")),
            }),
            (None, max) => max.map(Thinking::of).or(effort),
        };
        Ok(Self {
            blocks,
            model: wire.model,
            max_rounds: wire.max_turns,
            budget_micro_usd: wire.max_budget_usd.map(micro),
            thinking,
            allowed_tools: wire.allowed_tools,
            disallowed_tools: wire.disallowed_tools,
            permission_mode: wire.permission_mode,
            output_schema: wire.output_format.map(OutputFormat::schema).transpose()?,
        })
    }
}

impl Thinking {
    pub(super) fn of(tokens: u32) -> Self {
        if tokens == 0 { Self::Off } else { Self::Budget(tokens.max(MIN_THINKING_TOKENS)) }
    }

    /// How much thinking an effort is. An error is for a person.
    fn of_effort(effort: &str) -> Result<Self, String> {
        match effort {
            "low" => Ok(Self::Off),
            "medium" => Ok(Self::Budget(4_096)),
            "high" => Ok(Self::Budget(16_384)),
            "xhigh" => Ok(Self::Budget(24_576)),
            "max" => Ok(Self::Budget(32_768)),
            other => Err(format!("effort {other:?} is not known: low, medium, high, xhigh or max")),
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast of a float saturates, and a budget below nothing is none"
)]
fn micro(usd: f64) -> u64 {
    (usd * 1_000_000.0) as u64
}

#[cfg(test)]
mod test {
    use super::*;

    fn read(json: &str) -> Result<Prompt, String> {
        Prompt::read(&RawValue::from_string(json.to_owned()).unwrap())
    }

    #[test]
    fn a_prompt_is_a_text_or_blocks_or_either_with_options() {
        assert_eq!(read(r#""hi""#).unwrap().blocks[0].raw(), r#"{"text":"hi","type":"text"}"#);
        let image = r#"{"type":"image","source":{"type":"base64","data":"AA=="}}"#;
        assert_eq!(read(&format!("[{image}]")).unwrap().blocks[0].raw(), image);
        let prompt = read(
            r#"{"content":"hi","model":"m","maxTurns":3,"maxBudgetUsd":0.5,
                "thinking":{"type":"enabled","budgetTokens":2000},"other":1}"#,
        )
        .unwrap();
        assert_eq!(prompt.model.as_deref(), Some("m"));
        assert_eq!(prompt.max_rounds, Some(3));
        assert_eq!(prompt.budget_micro_usd, Some(500_000));
        assert_eq!(prompt.thinking, Some(Thinking::Budget(2000)));
        let thinking = |json| read(json).unwrap().thinking;
        assert_eq!(thinking(r#"{"content":"a","maxThinkingTokens":0}"#), Some(Thinking::Off));
        assert_eq!(thinking(r#"{"content":"a"}"#), None);
    }

    #[test]
    fn an_effort_is_a_budget_of_thinking_unless_one_is_given() {
        let thinking = |options: &str| {
            read(&format!(r#"{{"content":"a",{options}}}"#)).map(|prompt| prompt.thinking)
        };
        let budget = |tokens| Ok(Some(Thinking::Budget(tokens)));
        assert_eq!(thinking(r#""effort":"low""#), Ok(Some(Thinking::Off)));
        assert_eq!(thinking(r#""effort":"medium""#), budget(4_096));
        assert_eq!(thinking(r#""effort":"high""#), budget(16_384));
        assert_eq!(thinking(r#""effort":"xhigh""#), budget(24_576));
        assert_eq!(thinking(r#""effort":"max""#), budget(32_768));
        assert_eq!(thinking(r#""effort":"max","maxThinkingTokens":2000"#), budget(2_000));
        let given = r#""effort":"max","thinking":{"type":"disabled"}"#;
        assert_eq!(thinking(given), Ok(Some(Thinking::Off)));
        assert_eq!(thinking(r#""effort":null"#), Ok(None));
        assert!(
            thinking(r#""effort":"huge""#).unwrap_err().contains("low, medium, high, xhigh or max")
        );
    }

    #[test]
    fn an_option_that_is_not_known_is_passed_over() {
        let prompt =
            read(r#"{"content":"a","includePartialMessages":true,"initialAgent":7,"betas":[1]}"#);
        assert_eq!(prompt.unwrap().blocks.len(), 1);
    }

    #[test]
    fn an_answer_can_be_wanted_in_a_shape() {
        let schema = |format: &str| {
            let prompt = read(&format!(r#"{{"content":"a","outputFormat":{format}}}"#))?;
            Ok(prompt.output_schema.map(|schema| schema.get().to_owned()))
        };
        let object = r#"{"type":"object"}"#;
        let format = format!(r#"{{"type":"json_schema","schema":{object}}}"#);
        assert_eq!(schema(&format), Ok(Some(object.to_owned())));
        assert_eq!(schema("null"), Ok(None));
        let missing: Result<_, String> = Err("outputFormat has no schema".to_owned());
        assert_eq!(schema(r#"{"type":"json_schema"}"#), missing);
        assert_eq!(schema(r#"{"type":"json_schema","schema":7}"#), missing);
        assert!(schema(r#"{"type":"yaml","schema":{}}"#).unwrap_err().contains("yaml"));
    }

    #[test]
    fn what_is_no_prompt_says_so() {
        for bad in ["7", "null", "[1]", r#"[{"a":1}]"#, r#""  ""#, "[]", "{}", r#"{"content":7}"#] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
