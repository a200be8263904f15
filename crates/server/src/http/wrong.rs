//! What is wrong with a body or a query, in words: which field, what it is, and what it must be.

use serde::de::DeserializeOwned;

use crate::api::Object;

/// How much of what was sent is said back.
const MAX_SAID: usize = 80;

/// What is wrong with a text that a body could not be read from, as the error says.
pub(super) fn in_words<T: DeserializeOwned>(text: &str, error: &serde_json::Error) -> String {
    if !error.is_data() {
        // A number where a word is wanted is called so, too.
        let Ok(value) = serde_json::from_str::<serde_json::Value>(text) else {
            return format!("The body is not valid JSON: {}", of_syntax(&error.to_string()));
        };
        return match serde_path_to_error::deserialize::<_, Object<T>>(value) {
            Err(found) => {
                sentence("The body", &found.path().to_string(), &found.inner().to_string())
            }
            Ok(_) => format!("The body is invalid: {error}"),
        };
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    match serde_path_to_error::deserialize::<_, Object<T>>(&mut reader) {
        Err(found) => sentence("The body", &found.path().to_string(), &found.inner().to_string()),
        Ok(_) => format!("The body is invalid: {error}"),
    }
}

/// What is wrong with JSON that is none. Half of a pair is not called so by whoever reads it.
fn of_syntax(error: &str) -> String {
    let halves = ["unexpected end of hex escape", "lone leading surrogate in hex escape"];
    match halves.iter().find_map(|half| error.strip_prefix(half)) {
        Some(place) => format!(
            "a text has half of a surrogate pair; \\ud800 to \\udfff come in twos, which are one character{place}"
        ),
        None => error.to_owned(),
    }
}

/// What is wrong with a query, as the error says, which does not say with which parameter: with the one that alone is
/// wrong in the same way.
pub(super) fn query_in_words<T: DeserializeOwned>(query: &str, error: &str) -> String {
    let is_it = |pair: &&str| {
        serde_urlencoded::from_str::<T>(pair).is_err_and(|alone| alone.to_string() == error)
    };
    let pair = query.split('&').find(is_it).unwrap_or_default();
    let pair = serde_urlencoded::from_str::<Vec<(String, String)>>(pair).unwrap_or_default();
    let is_about_others =
        ["missing field ", "duplicate field "].iter().any(|s| error.starts_with(s));
    let Some((name, value)) = pair.first().filter(|_| !is_about_others) else {
        return sentence("The query", ".", error);
    };
    let is_number = value.parse::<i128>().is_ok();
    let wanted = match error {
        "number too large to fit in target type" => "a smaller number",
        "number too small to fit in target type" => "a larger number",
        "invalid digit found in string" if is_number => "a whole number that is not negative",
        "invalid digit found in string" | "cannot parse integer from empty string" => {
            "a whole number"
        }
        "provided string was not `true` or `false`" => "true or false",
        uuid if uuid.starts_with("UUID parsing failed") => "an id",
        other => match other.strip_prefix("expected ") {
            Some(wanted) => wanted,
            None => return sentence("The query", name, other),
        },
    };
    format!("{} is \"{}\"; it must be {wanted}", shortened(name), shortened(value))
}

/// Says of the field at a path of a whole what serde says of it. What begins with a point is about a field within.
fn sentence(whole: &str, path: &str, error: &str) -> String {
    let error = error.rfind(" at line ").map_or(error, |at| &error[..at]);
    let is_root = path == ".";
    let path = if is_root { "" } else { path };
    let name = if is_root { whole } else { path };
    let within = |field: &str| match path {
        "" => field.to_owned(),
        path => format!("{path}.{field}"),
    };
    if let Some(rest) = error.strip_prefix('.') {
        let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric());
        return match rest.split_once(": ") {
            Some((field, error)) if is_name(field) => sentence(whole, &within(field), error),
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
        // How large it may be is said where that is known: the type allows more.
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number that is not negative",
        "i32" | "i64" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a string" | "a borrowed string" | "a str" | "string or map" => "a text",
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
                "maxTurns is the text \"x\"; it must be a whole number that is not negative",
            ),
            (
                r#""maxTurns": -1"#,
                "maxTurns is the number -1; it must be a whole number that is not negative",
            ),
            (r#""detach": 1"#, "detach is the number 1; it must be true or false"),
            (
                r#""effort": "huge""#,
                "effort \"huge\" is not known; known are low, medium, high, xhigh, max",
            ),
            (r#""ifBusy": 5"#, "ifBusy is the number 5; it must be a text"),
            (r#""effort": [1]"#, "effort is a list; it must be a text"),
            (r#""ifBusy": "maybe""#, "ifBusy \"maybe\" is not known; known are queue, reject"),
            (
                r#""thinking": {"type": "much"}"#,
                "thinking.type \"much\" is not known; known are enabled, adaptive, disabled",
            ),
            (
                r#""thinking": {"type": "enabled", "budgetTokens": "x"}"#,
                "thinking.budgetTokens is the text \"x\"; it must be a whole number that is not negative",
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
    fn half_of_a_surrogate_pair_is_called_so() {
        for half in [r"\ud800 x", r"\ud800", r"\ud800\n", r"\ud800\u0041", r"\udc00"] {
            let words = told::<api::SendMessage>(&format!("{{\"content\": \"{half}\"}}"));
            assert!(words.contains("half of a surrogate pair"), "{half}: {words}");
            assert!(words.contains("at line 1 column "), "{half}: {words}");
        }
        let words = told::<api::SendMessage>(r#"{"content": "\ud8"}"#);
        assert!(!words.contains("surrogate"), "{words}");
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    #[expect(dead_code, reason = "only what cannot be read is looked at")]
    struct Asked {
        limit: Option<u32>,
        after: Option<i64>,
        cursor: Option<uuid::Uuid>,
        include_total: Option<bool>,
        status: Option<api::SessionStatus>,
        path: String,
    }

    #[test]
    fn an_error_of_a_query_names_the_parameter_and_what_is_allowed() {
        let statuses = "known are starting, active, paused, stopped, ended, error";
        for (query, words) in [
            ("limit=abc&path=a", "limit is \"abc\"; it must be a whole number"),
            ("path=a&limit=", "limit is \"\"; it must be a whole number"),
            ("limit=-1", "limit is \"-1\"; it must be a whole number that is not negative"),
            ("limit=99999999999", "limit is \"99999999999\"; it must be a smaller number"),
            ("after=1.5", "after is \"1.5\"; it must be a whole number"),
            (
                "after=-9999999999999999999",
                "after is \"-9999999999999999999\"; it must be a larger number",
            ),
            ("cursor=z%20z", "cursor is \"z z\"; it must be an id"),
            ("includeTotal=perhaps", "includeTotal is \"perhaps\"; it must be true or false"),
            ("status=actve", &format!("status \"actve\" is not known; {statuses}")),
            ("limit=5", "path is missing"),
            ("path=a&limit=5&limit=6", "limit is there twice"),
        ] {
            let error = serde_urlencoded::from_str::<Asked>(query).unwrap_err().to_string();
            assert_eq!(query_in_words::<Asked>(query, &error), words);
        }
        let long = format!("limit={}", "x".repeat(1_000_000));
        let error = serde_urlencoded::from_str::<Asked>(&long).unwrap_err().to_string();
        assert!(query_in_words::<Asked>(&long, &error).len() < 200);
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
