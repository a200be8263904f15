//! What a model sent as input, read liberally: numbers may be strings, extra fields are ignored,
//! and whatever is wrong becomes a sentence that says how to do it right.

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::fault::Fault;

/// The input of one call.
pub(super) struct Input(Map<String, Value>);

impl Input {
    pub(super) fn parse(raw: &RawValue) -> Result<Self, Fault> {
        match serde_json::from_str(raw.get()) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            Ok(_) => Err(Fault::new("the input must be a JSON object with the tool's fields")),
            Err(error) => Err(Fault::new(format!("the input could not be read: {error}"))),
        }
    }

    pub(super) fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::Object(fields) => Some(Self(fields)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
            Value::Array(_) => None,
        }
    }

    /// A text that must be there.
    pub(super) fn text(&mut self, field: &str) -> Result<String, Fault> {
        self.optional_text(field)?
            .ok_or_else(|| Fault::new(format!("the field \"{field}\" is missing: give a string")))
    }

    /// A text that may be left out.
    pub(super) fn optional_text(&mut self, field: &str) -> Result<Option<String>, Fault> {
        match self.0.remove(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong(field, "a string", &other)),
        }
    }

    /// A whole number that may be left out.
    pub(super) fn optional_number(&mut self, field: &str) -> Result<Option<u64>, Fault> {
        let found = match self.0.remove(field) {
            None | Some(Value::Null) => return Ok(None),
            Some(found) => found,
        };
        let number = match &found {
            Value::Number(number) => {
                number.as_u64().or_else(|| number.as_f64().and_then(whole_number))
            }
            Value::String(text) => text.trim().parse().ok(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        };
        number.map(Some).ok_or_else(|| wrong(field, "a whole number that is not negative", &found))
    }

    /// Yes or no; left out is no.
    pub(super) fn flag(&mut self, field: &str) -> Result<bool, Fault> {
        match self.0.remove(field) {
            None | Some(Value::Null | Value::Bool(false)) => Ok(false),
            Some(Value::Bool(true)) => Ok(true),
            Some(Value::String(text)) if text == "true" => Ok(true),
            Some(Value::String(text)) if text == "false" => Ok(false),
            Some(other) => Err(wrong(field, "true or false", &other)),
        }
    }

    /// A list that must be there. Models sometimes send a list as the text of a list.
    pub(super) fn list(&mut self, field: &str) -> Result<Vec<Value>, Fault> {
        match self.0.remove(field) {
            Some(Value::Array(list)) => Ok(list),
            Some(Value::String(text)) => serde_json::from_str(&text)
                .map_err(|_| wrong(field, "a list", &Value::String(text))),
            None | Some(Value::Null) => {
                Err(Fault::new(format!("the field \"{field}\" is missing: give a list")))
            }
            Some(other) => Err(wrong(field, "a list", &other)),
        }
    }
}

/// A number such as `3.0`, which some models write for 3.
fn whole_number(number: f64) -> Option<u64> {
    // Beyond 2^53 a float no longer says which whole number was meant.
    let is_whole = number.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&number);
    is_whole.then_some(number as u64)
}

fn wrong(field: &str, wanted: &str, found: &Value) -> Fault {
    let kind = match found {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    Fault::new(format!("the field \"{field}\" must be {wanted}, and is {kind}"))
}

#[cfg(test)]
mod test {
    use super::*;

    fn input(json: &str) -> Input {
        Input::parse(&RawValue::from_string(json.to_owned()).unwrap()).ok().unwrap()
    }

    #[test]
    fn numbers_are_read_however_they_are_written() {
        for json in [r#"{"n": 7}"#, r#"{"n": "7"}"#, r#"{"n": 7.0}"#, r#"{"n": " 7 "}"#] {
            assert_eq!(input(json).optional_number("n").unwrap(), Some(7), "{json}");
        }
        for json in [r#"{"n": -7}"#, r#"{"n": "x"}"#, r#"{"n": 7.5}"#, r#"{"n": 1e300}"#] {
            assert!(input(json).optional_number("n").is_err(), "{json}");
        }
        assert_eq!(input("{}").optional_number("n").unwrap(), None);
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert!(Input::parse(&RawValue::from_string("[]".to_owned()).unwrap()).is_err());
        let fault = input(r#"{"path": 1}"#).text("path").unwrap_err();
        assert_eq!(fault.to_string(), "the field \"path\" must be a string, and is a number");
        let fault = input("{}").text("path").unwrap_err();
        assert_eq!(fault.to_string(), "the field \"path\" is missing: give a string");
    }
}
