//! What a server answers to a call, as content blocks for a model.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::builtin::tools::Outcome;

/// How much text of one answer a model is shown.
const MAX_TEXT_BYTES: usize = 100 * 1024;
/// How large an encoded picture may be.
const MAX_IMAGE_BYTES: usize = 7 * 1024 * 1024;
/// The pictures that a model can see.
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

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
    let mut room = MAX_TEXT_BYTES;
    let mut content: Vec<Value> =
        answer.content.iter().map(|item| block(item, &mut room)).collect();
    if content.is_empty() {
        let text = answer.structured_content.map_or("(no content)".to_owned(), |it| it.to_string());
        content.push(text_block(&text, &mut room));
    }
    Outcome { content, is_error: answer.is_error, touched: Vec::new() }
}

fn block(item: &Value, room: &mut usize) -> Value {
    let field = |name: &str| item.get(name).and_then(Value::as_str);
    match field("type") {
        Some("text") => text_block(field("text").unwrap_or_default(), room),
        Some("image") => media(field("mimeType"), field("data"), room),
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

fn resource(resource: &Value, room: &mut usize) -> Value {
    let field = |name: &str| resource.get(name).and_then(Value::as_str);
    match (field("text"), field("blob")) {
        (Some(text), _) => text_block(text, room),
        (None, Some(blob)) => media(field("mimeType"), Some(blob), room),
        (None, None) => text_block(&format!("[a resource: {}]", field("uri").unwrap_or("?")), room),
    }
}

fn media(media_type: Option<&str>, data: Option<&str>, room: &mut usize) -> Value {
    let (media_type, data) = (media_type.unwrap_or("an unknown kind"), data.unwrap_or_default());
    let kind = if media_type == "application/pdf" {
        "document"
    } else if IMAGES.contains(&media_type) && data.len() <= MAX_IMAGE_BYTES {
        "image"
    } else {
        let text = format!("[{} bytes of {media_type}, which cannot be shown]", data.len() / 4 * 3);
        return text_block(&text, room);
    };
    let source = json!({ "type": "base64", "media_type": media_type, "data": data });
    json!({ "type": kind, "source": source })
}

/// A text, as far as there is room. A block must not be empty.
fn text_block(text: &str, room: &mut usize) -> Value {
    let mut end = text.len().min(*room);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    *room -= end;
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

    #[test]
    fn every_kind_becomes_something_a_model_can_see() {
        let outcome = translate(
            r#"{"content": [
                {"type": "text", "text": "hello"},
                {"type": "image", "mimeType": "image/png", "data": "AAAA"},
                {"type": "image", "mimeType": "image/tiff", "data": "AAAA"},
                {"type": "resource", "resource": {"uri": "file:///x", "text": "inside"}},
                {"type": "resource", "resource": {"mimeType": "application/pdf", "blob": "AAAA"}},
                {"type": "audio", "data": "AAAA"}
            ], "isError": true}"#,
        );
        assert!(outcome.is_error);
        let source = |kind| json!({ "type": "base64", "media_type": kind, "data": "AAAA" });
        let expected = [
            json!({ "type": "text", "text": "hello" }),
            json!({ "type": "image", "source": source("image/png") }),
            json!({ "type": "text", "text": "[3 bytes of image/tiff, which cannot be shown]" }),
            json!({ "type": "text", "text": "inside" }),
            json!({ "type": "document", "source": source("application/pdf") }),
            json!({ "type": "text", "text": "[content of audio, which cannot be shown]" }),
        ];
        assert_eq!(outcome.content, expected);
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
