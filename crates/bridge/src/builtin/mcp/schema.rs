//! The schemas of servers' tools, made such that a model's interface takes them.
//!
//! It refuses the whole request for one schema that it does not like, and so every request of the
//! session. What cannot be mended is therefore replaced by a schema that takes any object, and the
//! server's own becomes a part of the description: models read it there just as well.

use serde_json::{Map, Value, json};

/// How much of a schema that was replaced is shown in the description.
const MAX_SHOWN_CHARS: usize = 4_000;
/// How long the name of a property may be.
const MAX_PROPERTY_NAME: usize = 64;
/// What the interface does not take at the top of a schema.
const COMBINATIONS: [&str; 3] = ["anyOf", "oneOf", "allOf"];

/// A schema that will be taken.
pub(super) struct Fitted {
    pub(super) schema: Value,
    /// Why the server's own was replaced, and its text for the description.
    pub(super) replaced: Option<(String, String)>,
}

/// Mends a schema, or replaces it.
pub(super) fn fit(given: Option<Value>) -> Fitted {
    let Some(given) = given.filter(|given| !given.is_null()) else {
        return Fitted { schema: open(), replaced: None };
    };
    match mend(&given) {
        Ok(schema) => Fitted { schema: Value::Object(schema), replaced: None },
        Err(why) => {
            let shown: String = given.to_string().chars().take(MAX_SHOWN_CHARS).collect();
            Fitted { schema: open(), replaced: Some((why, shown)) }
        }
    }
}

fn open() -> Value {
    json!({ "type": "object", "properties": {} })
}

fn mend(given: &Value) -> Result<Map<String, Value>, String> {
    let Value::Object(given) = given else { return Err("it is not an object".to_owned()) };
    if let Some(word) = COMBINATIONS.iter().find(|word| given.contains_key(**word)) {
        return Err(format!("it has {word} at its top"));
    }
    let is_object = match given.get("type") {
        None | Some(Value::Null) => true,
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
        Some(kind) => kind == "object",
    };
    if !is_object {
        return Err("its type is not \"object\"".to_owned());
    }
    let mut schema = given.clone();
    schema.insert("type".to_owned(), "object".into());
    match schema.get("properties") {
        None | Some(Value::Null) => {
            schema.insert("properties".to_owned(), json!({}));
        }
        Some(Value::Object(properties)) => {
            if let Some(name) = properties.keys().find(|name| !is_property_name(name)) {
                let name: String = name.chars().take(MAX_PROPERTY_NAME).collect();
                return Err(format!("a property cannot be called {name:?}"));
            }
        }
        Some(_) => return Err("its properties are not an object".to_owned()),
    }
    Ok(schema)
}

fn is_property_name(name: &str) -> bool {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    (1..=MAX_PROPERTY_NAME).contains(&name.len()) && name.chars().all(is_fine)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_is_missing_is_put_in() {
        for given in [json!({}), json!({ "type": "object" }), json!({ "type": ["null", "object"] })]
        {
            let fitted = fit(Some(given.clone()));
            assert_eq!((fitted.schema, fitted.replaced), (open(), None), "{given}");
        }
        assert_eq!(fit(None).schema, open());
        let given = json!({ "properties": { "a": { "type": "string" } }, "required": ["a"] });
        let schema = fit(Some(given)).schema;
        assert_eq!(schema["type"], "object");
        assert_eq!(schema["required"], json!(["a"]), "the rest is as it was");
    }

    #[test]
    fn what_cannot_be_mended_is_replaced_and_shown() {
        for given in [
            json!(true),
            json!("text"),
            json!({ "type": "string" }),
            json!({ "type": "object", "anyOf": [{ "required": ["a"] }] }),
            json!({ "oneOf": [] }),
            json!({ "type": "object", "allOf": [] }),
            json!({ "properties": [] }),
            json!({ "properties": { "with space": {} } }),
            json!({ "properties": { "": {} } }),
        ] {
            let fitted = fit(Some(given.clone()));
            assert_eq!(fitted.schema, open(), "{given}");
            assert_eq!(fitted.replaced.unwrap().1, given.to_string());
        }
        let long = json!({ "oneOf": ["é".repeat(10_000)] });
        assert_eq!(fit(Some(long)).replaced.unwrap().1.chars().count(), MAX_SHOWN_CHARS);
    }
}
