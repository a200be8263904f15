//! What a program of the original says, one line of JSON at a time. Nothing of it is believed.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

/// Something that the program said.
#[derive(Debug)]
pub(super) enum Heard {
    /// That it can be talked to.
    Ready,
    /// A message of its agent, as it came.
    Message(Box<RawValue>),
    /// That it could not do what it was asked.
    Error(String),
    /// That it is done with what it was asked.
    Done,
    /// A line of its log.
    Log(Value),
}

#[derive(Deserialize)]
struct Line {
    ev: String,
    /// Only a server says this.
    cmd: Option<IgnoredAny>,
    data: Option<Box<RawValue>>,
    error: Option<Value>,
    level: Option<Value>,
    text: Option<Value>,
    ts: Option<Value>,
}

/// Reads a line. Nothing, if it says nothing that is known here.
pub(super) fn read(line: &[u8]) -> Option<Heard> {
    let Line { ev, cmd: None, data, error, level, text, ts } = serde_json::from_slice(line).ok()?
    else {
        return None;
    };
    match ev.as_str() {
        "ready" => Some(Heard::Ready),
        "message" => data.filter(|data| data.get().starts_with('{')).map(Heard::Message),
        "error" => Some(Heard::Error(match error {
            Some(Value::String(error)) => error,
            Some(error) => error.to_string(),
            None => "the bridge program does not say what went wrong".to_owned(),
        })),
        "done" => Some(Heard::Done),
        "log" => Some(Heard::Log(serde_json::json!({ "level": level, "text": text, "ts": ts }))),
        // Commands beside the agent are run by us.
        _ => None,
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_is_known_is_read_and_the_rest_is_nothing() {
        let heard = |line: &str| read(line.as_bytes()).map(|heard| format!("{heard:?}"));
        assert_eq!(heard(r#"{"ev":"ready"}"#).unwrap(), "Ready");
        assert_eq!(heard(r#" {"ev":"done","sessionId":"s"} "#).unwrap(), "Done");
        assert!(heard(r#"{"ev":"message","data":{"type":"x"}}"#).unwrap().contains(r#""type""#));
        assert_eq!(heard(r#"{"ev":"error","error":"no"}"#).unwrap(), r#"Error("no")"#);
        assert!(heard(r#"{"ev":"error","error":{"a":1}}"#).unwrap().contains('1'));
        assert!(heard(r#"{"ev":"log","level":"info","text":"a","ts":"b"}"#).is_some());
        for nothing in [
            "",
            "garbage",
            "7",
            "[]",
            "{}",
            r#"{"ev":7}"#,
            r#"{"ev":"exec_result","exitCode":0}"#,
            r#"{"ev":"new_one"}"#,
            r#"{"ev":"done","cmd":"query"}"#,
            r#"{"ev":"message"}"#,
            r#"{"ev":"message","data":null}"#,
            r#"{"ev":"message","data":[1]}"#,
            r#"{"ev":"done""#,
        ] {
            assert_eq!(heard(nothing), None, "{nothing}");
        }
        assert!(read(b"\xff\xfe{}").is_none());
    }
}
