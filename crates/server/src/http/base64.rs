//! Base64 as clients send it: either alphabet, with its padding or without, in one line or in many. Each of them stands
//! for the same bytes. What stands for none, or may have lost some, is refused, with the reason.

use std::borrow::Cow;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::prelude::BASE64_STANDARD;

/// Padding that is not there says nothing that the length does not say.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The bytes that a text stands for, or why it stands for none: the end of a sentence.
pub(super) fn decode(text: &str) -> Result<Vec<u8>, String> {
    let plain = plain(text);
    LENIENT.decode(&*plain).map_err(|_| reason(text))
}

/// How many bytes a text stands for, if it stands for any.
pub(super) fn decoded_len(text: &str) -> u64 {
    let digits = text.bytes().filter(|byte| !is_between(*byte) && *byte != b'=').count() as u64;
    digits * 3 / 4
}

/// The same text in the usual alphabet and in one line.
fn plain(text: &str) -> Cow<'_, [u8]> {
    let is_usual = |byte: u8| !is_between(byte) && byte != b'-' && byte != b'_';
    if text.bytes().all(is_usual) {
        return Cow::Borrowed(text.as_bytes());
    }
    let usual = |byte| match byte {
        b'-' => b'+',
        b'_' => b'/',
        byte => byte,
    };
    Cow::Owned(text.bytes().filter(|byte| !is_between(*byte)).map(usual).collect())
}

/// Whether it may stand between two digits: encoders break lines.
fn is_between(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// The same for text that is passed on as it is, to a provider that takes one form alone.
pub(super) fn check_strict(text: &str) -> Result<(), String> {
    match BASE64_STANDARD.decode(text) {
        Ok(_) => Ok(()),
        Err(_) if LENIENT.decode(&*plain(text)).is_ok() => {
            Err("the model takes it with its padding, with + and / and in one line".to_owned())
        }
        Err(_) => Err(reason(text)),
    }
}

fn reason(text: &str) -> String {
    if text.starts_with("data:") {
        return "it is a data URL, of which only what follows the comma is wanted".to_owned();
    }
    let is_digit = |c: char| c.is_ascii_alphanumeric() || "+/-_".contains(c);
    let is_known = |c: char| is_digit(c) || c == '=' || u8::try_from(c).is_ok_and(is_between);
    if let Some((place, wrong)) = text.chars().enumerate().find(|(_, c)| !is_known(*c)) {
        return format!("{wrong:?} at place {} is no digit of it", place + 1);
    }
    let digits = text.chars().filter(|c| is_digit(*c)).count();
    let ends_early = text.find('=').is_some_and(|at| text[at..].contains(is_digit));
    if ends_early {
        "something follows its padding".to_owned()
    } else if digits % 4 == 1 {
        format!("it has {digits} digits, and no bytes have so many: some are missing")
    } else {
        "its end is not whole: some digits are missing or wrong".to_owned()
    }
}

#[cfg(test)]
mod test {
    use base64::prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_way_to_write_bytes_stands_for_them(
            bytes in prop::collection::vec(any::<u8>(), 0..100),
            width in 1_usize..20,
        ) {
            let usual = BASE64_STANDARD.encode(&bytes);
            let lines: Vec<String> =
                usual.as_bytes().chunks(width).map(|line| String::from_utf8(line.to_vec()).unwrap()).collect();
            let ways = [
                BASE64_STANDARD_NO_PAD.encode(&bytes),
                BASE64_URL_SAFE_NO_PAD.encode(&bytes),
                usual.replace('+', "-").replace('/', "_"),
                lines.join("\r\n") + "\n",
                usual,
            ];
            for way in ways {
                prop_assert_eq!(decode(&way), Ok(bytes.clone()));
                prop_assert_eq!(decoded_len(&way), bytes.len() as u64);
            }
        }
    }

    #[test]
    fn what_stands_for_no_bytes_is_refused_with_the_reason() {
        for (text, why) in [
            ("aGk!", "'!' at place 4"),
            ("aGk\u{e9}", "'\u{e9}' at place 4"),
            ("aGkaa", "it has 5 digits"),
            ("a", "it has 1 digits"),
            ("aGk=aGk=", "something follows its padding"),
            ("aGl=", "its end is not whole"),
            ("aGk====", "its end is not whole"),
            ("data:text/plain;base64,aGk=", "data URL"),
        ] {
            let told = decode(text).unwrap_err();
            assert!(told.contains(why), "{text}: {told}");
        }
    }
}
