//! What a server answers to a call, as content blocks for a model.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::builtin::tools::{Outcome, media};

/// How much text of one answer a model is shown.
const MAX_TEXT_BYTES: usize = 100 * 1024;
/// How much of pictures and documents, encoded, one answer may have. With the text it stays below
/// what a result may have.
const MAX_MEDIA_BYTES: usize = media::MAX_DOCUMENT_BASE64;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    #[serde(default)]
    content: Vec<Value>,
    #[serde(default)]
    is_error: bool,
    structured_content: Option<Value>,
}

/// Translates the result of `tools/call`.
pub(super) fn translate(result: &str) -> Outcome {
    let answer: Answer = match serde_json::from_str(result) {
        Ok(answer) => answer,
        Err(error) => return Outcome::error(format!("the server answered nonsense: {error}")),
    };
    // The result of a call that failed can be nothing but text.
    let media = if answer.is_error { 0 } else { MAX_MEDIA_BYTES };
    let mut room = Room { text: MAX_TEXT_BYTES, media };
    let mut content: Vec<Value> =
        answer.content.iter().map(|item| block(item, &mut room)).collect();
    if content.is_empty() {
        let text = answer.structured_content.map_or("(no content)".to_owned(), |it| it.to_string());
        content.push(text_block(&text, &mut room));
    }
    Outcome { content, is_error: answer.is_error, touched: Vec::new() }
}

/// What there is still room for.
struct Room {
    text: usize,
    media: usize,
}

fn block(item: &Value, room: &mut Room) -> Value {
    let field = |name: &str| item.get(name).and_then(Value::as_str);
    match field("type") {
        Some("text") => text_block(field("text").unwrap_or_default(), room),
        Some("image") => shown(field("mimeType"), field("data"), room),
        Some("resource") => resource(item.get("resource").unwrap_or(&Value::Null), room),
        Some("resource_link") => {
            let (name, uri) = (field("name").unwrap_or("?"), field("uri").unwrap_or("?"));
            text_block(&format!("[a resource: {name}, at {uri}]"), room)
        }
        other => {
            let kind = other.unwrap_or("an unknown kind");
            text_block(&format!("[content of {kind}, which cannot be shown]"), room)
        }
    }
}

fn resource(resource: &Value, room: &mut Room) -> Value {
    let field = |name: &str| resource.get(name).and_then(Value::as_str);
    match (field("text"), field("blob")) {
        (Some(text), _) => text_block(text, room),
        (None, Some(blob)) => shown(field("mimeType"), Some(blob), room),
        (None, None) => text_block(&format!("[a resource: {}]", field("uri").unwrap_or("?")), room),
    }
}

/// What the bytes are counts, and not what the server calls them: they must not contradict.
fn shown(media_type: Option<&str>, data: Option<&str>, room: &mut Room) -> Value {
    let media_type = media_type.unwrap_or("an unknown kind");
    let why = match media::from_base64(data.unwrap_or_default()) {
        Ok(block) => {
            let length = block["source"]["data"].as_str().map_or(0, str::len);
            if length <= room.media {
                room.media -= length;
                return block;
            }
            if room.media == 0 { "there is no room for it" } else { "there is too much of it" }
                .to_owned()
        }
        Err(why) => why,
    };
    text_block(&format!("[{media_type} that cannot be shown: {why}]"), room)
}

/// A text, as far as there is room. A block must not be empty.
fn text_block(text: &str, room: &mut Room) -> Value {
    let mut end = text.len().min(room.text);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    room.text -= end;
    let left_out = text.len() - end;
    let text = match (&text[..end], left_out) {
        ("", 0) => "(empty)".to_owned(),
        (text, 0) => text.to_owned(),
        (text, left_out) => format!("{text}\n[{left_out} more bytes were left out]"),
    };
    json!({ "type": "text", "text": text })
}

#[cfg(test)]
mod test {
    use super::*;

    const GIF: &str = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7";

    #[test]
    fn every_kind_becomes_something_a_model_can_see() {
        let answer = |is_error: bool| {
            let pdf = "JVBERi0xLjcKJSVFT0YK";
            let content = json!([
                { "type": "text", "text": "hello" },
                { "type": "image", "mimeType": "image/jpeg", "data": GIF },
                { "type": "image", "mimeType": "image/png", "data": "AAAA" },
                { "type": "resource", "resource": { "uri": "file:///x", "text": "inside" } },
                { "type": "resource", "resource": { "mimeType": "application/pdf", "blob": pdf } },
                { "type": "audio", "data": "AAAA" },
            ]);
            translate(&json!({ "content": content, "isError": is_error }).to_string())
        };
        let source = |kind, data| json!({ "type": "base64", "media_type": kind, "data": data });
        let pdf = source("application/pdf", "JVBERi0xLjcKJSVFT0YK");
        let unknown = "[image/png that cannot be shown: 3 bytes of no known kind]";
        let expected = [
            json!({ "type": "text", "text": "hello" }),
            json!({ "type": "image", "source": source("image/gif", GIF) }),
            json!({ "type": "text", "text": unknown }),
            json!({ "type": "text", "text": "inside" }),
            json!({ "type": "document", "source": pdf }),
            json!({ "type": "text", "text": "[content of audio, which cannot be shown]" }),
        ];
        assert_eq!(answer(false).content, expected);
        // An error can be nothing but text.
        let failed = answer(true);
        assert!(failed.is_error);
        assert!(failed.content.iter().all(|block| block["type"] == "text"), "{failed:?}");
    }

    #[test]
    fn many_pictures_are_shown_as_far_as_a_result_goes() {
        let data = format!("{GIF}{}", "A".repeat(4 * 1024 * 1024));
        let item = json!({ "type": "image", "mimeType": "image/gif", "data": data });
        let outcome = translate(&json!({ "content": [item, item, item] }).to_string());
        let kinds: Vec<&str> =
            outcome.content.iter().filter_map(|block| block["type"].as_str()).collect();
        assert_eq!(kinds, ["image", "text", "text"]);
    }

    #[test]
    fn long_and_strange_answers_stay_bounded() {
        let long = "é".repeat(MAX_TEXT_BYTES);
        let item = json!({ "type": "text", "text": long });
        let outcome = translate(&json!({ "content": [item, item] }).to_string());
        assert!(outcome.content[0].to_string().len() < MAX_TEXT_BYTES + 100);
        assert!(outcome.content[1].to_string().len() < 100);
        assert_eq!(translate(r#"{"structuredContent": {"a": 1}}"#), Outcome::text(r#"{"a":1}"#));
        assert!(translate("7").is_error);
    }
}
