//! Values of the command line.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::exit::Mistake;
use super::suggest;

/// `NAME=VALUE`.
pub(super) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        Some(_) | None => Err("expected NAME=VALUE".to_owned()),
    }
}

/// Pairs as a map; nothing, if there are none.
pub(super) fn map(pairs: Vec<(String, String)>) -> Option<BTreeMap<String, String>> {
    (!pairs.is_empty()).then(|| pairs.into_iter().collect())
}

/// A variable for tools: `NAME=VALUE`, or `NAME` alone, whose value is then in the environment. A
/// secret does not have to stand on the command line, where every process can read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Variable {
    name: String,
    value: Option<String>,
}

/// `NAME=VALUE` or `NAME`.
pub(super) fn variable(text: &str) -> Result<Variable, String> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (text, None),
    };
    if name.is_empty() {
        return Err("expected NAME=VALUE, or NAME for a variable of the environment".to_owned());
    }
    Ok(Variable { name: name.to_owned(), value })
}

/// Variables with their values; nothing, if there are none.
pub(super) fn variables(
    said: Vec<Variable>,
    env: &BTreeMap<String, String>,
) -> Result<Option<BTreeMap<String, String>>, Mistake> {
    let mut values = Vec::new();
    for Variable { name, value } in said {
        let value = value.or_else(|| env.get(&name).cloned()).ok_or_else(|| {
            Mistake::Usage(format!("-e {name}: the environment has no {name}, or it is not UTF-8"))
        })?;
        values.push((name, value));
    }
    Ok(map(values))
}

/// An amount of US dollars.
pub(super) fn dollars(text: &str) -> Result<f64, String> {
    let amount = text.parse::<f64>().ok();
    amount
        .filter(|amount| amount.is_finite() && *amount > 0.0)
        .ok_or_else(|| "expected an amount above 0, such as 0.50".to_owned())
}

/// A duration, or a number alone, which is of milliseconds.
pub(super) fn duration_or_millis(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(millis) => Ok(Duration::from_millis(millis)),
        Err(_) => duration(text),
    }
}

/// A duration such as `500ms`, `90s`, `30m`, `2h` or `7d`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "expected a duration such as 500ms, 90s, 30m, 2h or 7d".to_owned();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    number.checked_mul(millis).map(Duration::from_millis).ok_or_else(wrong)
}

/// A word of the wire.
pub(super) fn word<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_value(Value::String(text.to_owned())).map_err(|error| {
        let error = error.to_string();
        let known = error.rsplit_once(", expected ").map_or("", |(_, known)| known);
        // Each stands in backticks.
        let known: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
        suggest::word(text, &known)
    })
}

/// A duration as the wire has it.
pub(super) fn millis(duration: Option<Duration>) -> Option<u64> {
    duration.map(|duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::api::{CredentialType, SessionStatus};

    #[test]
    fn durations_have_a_unit() {
        for (text, millis) in
            [("500ms", 500), ("90s", 90_000), ("30m", 1_800_000), ("2h", 7_200_000)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for bad in ["", "5", "s", "-1s", "1w", "1.5h", "99999999999999999999s", "9999999999999999d"]
        {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_pair_has_a_name() {
        assert_eq!(pair("A=b=c"), Ok(("A".to_owned(), "b=c".to_owned())));
        assert_eq!(pair("A="), Ok(("A".to_owned(), String::new())));
        assert!(pair("=b").is_err() && pair("A").is_err());
    }

    #[test]
    fn a_variable_without_a_value_is_taken_from_the_environment() {
        let env = BTreeMap::from([("TOKEN".to_owned(), "hush".to_owned())]);
        let said = ["A=b=c", "TOKEN", "E="].map(|text| variable(text).unwrap());
        let expected = [("A", "b=c"), ("E", ""), ("TOKEN", "hush")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(variables(said.to_vec(), &env).unwrap(), Some(expected.into()));
        assert_eq!(variables(Vec::new(), &env).unwrap(), None);
        let missing = variables(vec![variable("OTHER").unwrap()], &env).unwrap_err();
        assert!(missing.to_string().starts_with("-e OTHER: the environment has no OTHER"));
        assert!(variable("=x").is_err() && variable("").is_err());
    }

    #[test]
    fn an_amount_of_money_is_finite_and_above_nothing() {
        assert_eq!(dollars("0.5"), Ok(0.5));
        for bad in ["nan", "inf", "-inf", "-1", "0", "-0", "1e999", "", "five"] {
            assert!(dollars(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_wrong_word_is_answered_with_the_right_ones() {
        assert_eq!(word::<SessionStatus>("paused"), Ok(SessionStatus::Paused));
        let error = word::<SessionStatus>("gone").unwrap_err();
        assert!(error.starts_with("known are ") && error.contains(", paused, "), "{error}");
        assert!(!error.contains("did you mean"), "{error}");
        let error = word::<SessionStatus>("actve").unwrap_err();
        assert!(error.ends_with("; did you mean active?"), "{error}");
        let error = word::<CredentialType>("custm").unwrap_err();
        assert_eq!(error, "known are anthropic, openai, bedrock, custom; did you mean custom?");
    }
}
