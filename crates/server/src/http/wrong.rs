//! What is wrong with a body, in words: which field, what it is, and what it must be.

use serde::de::DeserializeOwned;

use crate::api::Object;

/// How much of what was sent is said back.
const MAX_SAID: usize = 80;

/// What is wrong with a text that a body could not be read from, as the error says.
pub(super) fn in_words<T: DeserializeOwned>(text: &str, error: &serde_json::Error) -> String {
    if !error.is_data() {
        return format!("The body is not valid JSON: {error}");
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    match serde_path_to_error::deserialize::<_, Object<T>>(&mut reader) {
        Err(found) => sentence(&found.path().to_string(), &found.inner().to_string()),
        Ok(_) => format!("The body is invalid: {error}"),
    }
}

/// Says of the field at a path what serde says of it. What begins with a point is about a field within.
fn sentence(path: &str, error: &str) -> String {
    let error = error.rfind(" at line ").map_or(error, |at| &error[..at]);
    let is_root = path == ".";
    let path = if is_root { "" } else { path };
    let name = if is_root { "The body" } else { path };
    let within = |field: &str| match path {
        "" => field.to_owned(),
        path => format!("{path}.{field}"),
    };
    if let Some(rest) = error.strip_prefix('.') {
        let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric());
        return match rest.split_once(": ") {
            Some((field, error)) if is_name(field) => sentence(&within(field), error),
            Some(_) | None => within(&shortened(rest)),
        };
    }
    if let Some(field) = quoted(error, "missing field ") {
        return format!("{} is missing", within(field));
    }
    if let Some(field) = quoted(error, "duplicate field ") {
        return format!("{} is there twice", within(field));
    }
    if let Some(rest) = error.strip_prefix("unknown variant ")
        && let Some((word, known)) = rest.split_once(", expected ")
    {
        let known = known.strip_prefix("one of ").unwrap_or(known).replace(" or ", ", ");
        let word = shortened(word.trim_matches('`'));
        return format!("{name} \"{word}\" is not known; known are {}", known.replace('`', ""));
    }
    let typed = error.strip_prefix("invalid type: ").or(error.strip_prefix("invalid value: "));
    if let Some((found, expected)) = typed.and_then(|rest| rest.rsplit_once(", expected ")) {
        let found = shortened(&found.replace('`', ""));
        return format!("{name} is {}; it must be {}", kind_of(&found), plain(expected));
    }
    format!("{name} is invalid: {}", shortened(error))
}

/// The name in backticks that follows.
fn quoted<'e>(error: &'e str, before: &str) -> Option<&'e str> {
    error.strip_prefix(before).map(|name| name.trim_matches('`'))
}

/// What was found, as JSON calls it.
fn kind_of(found: &str) -> String {
    let kinds = [
        ("map", "an object"),
        ("sequence", "a list"),
        ("string ", "the text "),
        ("integer ", "the number "),
        ("floating point ", "the number "),
        ("boolean ", ""),
        ("unit value", "nothing"),
    ];
    let kind = kinds.iter().find_map(|(kind, word)| {
        let rest = found.strip_prefix(kind)?;
        Some(format!("{word}{rest}"))
    });
    kind.unwrap_or_else(|| found.to_owned())
}

/// What is expected, without the names of types.
fn plain(expected: &str) -> &str {
    match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number that is not negative",
        "i32" | "i64" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a string" | "a borrowed string" | "a str" => "a text",
        "a map" => "an object",
        "a sequence" => "a list",
        other if other.starts_with("struct ") => "an object",
        other => other,
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_SAID) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::api;

    fn told<T: DeserializeOwned>(text: &str) -> String {
        match serde_json::from_str::<Object<T>>(text) {
            Ok(_) => panic!("this is fine: {text}"),
            Err(error) => in_words::<T>(text, &error),
        }
    }

    #[test]
    fn an_error_names_the_field_and_what_is_allowed() {
        let kinds = "is not known; known are text, image, document";
        for (content, words) in [
            (r#"5"#, "content is the number 5; it must be a text or a list of blocks"),
            (r#"{"type": "text"}"#, "content is an object; it must be a text or a list of blocks"),
            (r#"["a"]"#, "content[0] is the text \"a\"; it must be an object"),
            (
                r#"[{"type": "text", "text": "a"}, {"type": "video"}]"#,
                &*format!("content[1].type \"video\" {kinds}"),
            ),
            (r#"[{"text": "a"}]"#, "content[0].type is missing; known are text, image, document"),
            (r#"[{"type": 0}]"#, "content[0].type must be a text; known are text, image, document"),
            (r#"[{"type": "text"}]"#, "content[0].text is missing"),
            (
                r#"[{"type": "text", "text": 7}]"#,
                "content[0].text is the number 7; it must be a text",
            ),
            (
                r#"[{"type": "image", "source": "a"}]"#,
                "content[0].source is the text \"a\"; it must be an object",
            ),
        ] {
            assert_eq!(told::<api::SendMessage>(&format!("{{\"content\": {content}}}")), words);
        }
        for (option, words) in [
            (
                r#""maxTurns": "x""#,
                "maxTurns is the text \"x\"; it must be a whole number from 0 to 4294967295",
            ),
            (
                r#""maxTurns": -1"#,
                "maxTurns is the number -1; it must be a whole number from 0 to 4294967295",
            ),
            (r#""detach": 1"#, "detach is the number 1; it must be true or false"),
            (
                r#""effort": "huge""#,
                "effort \"huge\" is not known; known are low, medium, high, xhigh, max",
            ),
            (r#""ifBusy": "maybe""#, "ifBusy \"maybe\" is not known; known are queue, reject"),
            (
                r#""thinking": {"type": "much"}"#,
                "thinking.type \"much\" is not known; known are enabled, adaptive, disabled",
            ),
            (
                r#""thinking": {"type": "enabled", "budgetTokens": "x"}"#,
                "thinking.budgetTokens is the text \"x\"; it must be a whole number from 0 to 4294967295",
            ),
            (r#""thinking": ["adaptive"]"#, "thinking is a list; it must be an object"),
            (r#""outputFormat": {}"#, "outputFormat.type is missing"),
            (r#""allowedTools": ["a", 5]"#, "allowedTools[1] is the number 5; it must be a text"),
        ] {
            assert_eq!(
                told::<api::SendMessage>(&format!("{{\"content\": \"a\", {option}}}")),
                words
            );
        }
        assert_eq!(told::<api::SendMessage>("{}"), "content is missing");
        assert_eq!(told::<api::SendMessage>("[]"), "The body is a list; it must be an object");
        assert!(told::<api::SendMessage>("{").starts_with("The body is not valid JSON: EOF"));
        let version = "cloneFrom is true; it must be the number of a version, or its id";
        assert_eq!(told::<api::NewAgentVersion>(r#"{"name": "a", "cloneFrom": true}"#), version);
        let server = r#"{"agent": "a", "mcpServers": {"b": ["c"]}}"#;
        assert_eq!(
            told::<api::CreateSession>(server),
            "mcpServers.b is a list; it must be an object"
        );
    }

    #[test]
    fn what_was_sent_is_not_said_back_in_whole() {
        let long = "x".repeat(1_000_000);
        let body = format!(r#"{{"content": "a", "maxTurns": "{long}", "ifBusy": "{long}"}}"#);
        assert!(told::<api::SendMessage>(&body).len() < 200);
        let body = format!(r#"{{"content": [{{"type": "{long}"}}]}}"#);
        assert!(told::<api::SendMessage>(&body).len() < 200);
    }
}
