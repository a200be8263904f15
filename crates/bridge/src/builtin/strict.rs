//! JSON that every reader takes.
//!
//! What a model writes and what a person sends is kept as the text it came as, and sent back to the
//! model again and again. Some JSON is read by one and refused by the next: half of a surrogate
//! pair, a number beyond every bound, arrays in arrays without end. One such value in the
//! conversation would spoil every request from then on, so it is mended or refused on its way in.

use std::borrow::Cow;

use serde_json::Value;

/// The same text, with every escaped half of a surrogate pair replaced. What has none is borrowed.
pub(super) fn mended(text: &str) -> Cow<'_, str> {
    let mut fixed: Option<String> = None;
    let mut copied = 0;
    let mut at = 0;
    let bytes = text.as_bytes();
    while let Some(found) = bytes[at..].iter().position(|&byte| byte == b'\\') {
        at += found;
        match unit(bytes, at) {
            // A pair, or no surrogate at all.
            Some(0xd800..=0xdbff) if matches!(unit(bytes, at + 6), Some(0xdc00..=0xdfff)) => {
                at += 12;
            }
            Some(0xd800..=0xdfff) => {
                let fixed = fixed.get_or_insert_default();
                fixed.push_str(&text[copied..at]);
                fixed.push_str("\\ufffd");
                at += 6;
                copied = at;
            }
            // Any other escape: what follows the backslash is not one by itself.
            Some(_) | None => at = (at + 2).min(bytes.len()),
        }
    }
    match fixed {
        Some(mut fixed) => {
            fixed.push_str(&text[copied..]);
            Cow::Owned(fixed)
        }
        None => Cow::Borrowed(text),
    }
}

/// The value, if every reader takes it.
pub(super) fn value(text: &str) -> Result<Value, serde_json::Error> {
    serde_json::from_str(text)
}

/// The number of a `\u` escape that begins here.
fn unit(bytes: &[u8], at: usize) -> Option<u16> {
    let escape = bytes.get(at..at + 6)?;
    let digits = escape.strip_prefix(b"\\u")?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod test {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn half_a_pair_is_replaced_and_everything_else_is_kept() {
        for (text, expected) in [
            (r#""a\ud83d""#, r#""a\ufffd""#),
            (r#""\ud83d\ude00""#, r#""\ud83d\ude00""#),
            (r#""\ude00\ud83d""#, r#""\ufffd\ufffd""#),
            (r#""\\ud83d""#, r#""\\ud83d""#),
            (r#""\\\ud83d!""#, r#""\\\ufffd!""#),
            (r#""\n\u0041é""#, r#""\n\u0041é""#),
            (r"\u", r"\u"),
            (r"\", r"\"),
        ] {
            assert_eq!(mended(text), expected);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_mended_once(text in r#"[ax"\\ud830-9é]{0,40}"#) {
            let once = mended(&text).into_owned();
            prop_assert_eq!(mended(&once), once.as_str());
        }

        #[test]
        fn any_string_of_units_can_be_read(units in prop::collection::vec(any::<u16>(), 0..20)) {
            let escaped: String = units.iter().map(|unit| format!("\\u{unit:04x}")).collect();
            let json = format!("\"{escaped}\"");
            prop_assert_eq!(value(&mended(&json)).unwrap(), String::from_utf16_lossy(&units));
        }
    }
}
