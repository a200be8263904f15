//! Base64, as content blocks want it: the standard alphabet, padded.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The text of some bytes.
pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let at = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let group = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            if digit <= chunk.len() {
                let index = (group >> (18 - 6 * digit)) & 63;
                text.push(char::from(ALPHABET[index as usize]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

/// The bytes of a text, in which there may be white space and the padding may be missing.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut group, mut digits) = (0_u32, 0);
    let mut is_over = false;
    for byte in text.bytes().filter(|byte| !byte.is_ascii_whitespace()) {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'=' => {
                is_over = true;
                continue;
            }
            _ => return None,
        };
        if is_over {
            return None;
        }
        group = group << 6 | u32::from(digit);
        digits += 1;
        if digits == 4 {
            bytes.extend_from_slice(&group.to_be_bytes()[1..]);
            (group, digits) = (0, 0);
        }
    }
    match digits {
        0 => {}
        2 => bytes.extend_from_slice(&(group << 12).to_be_bytes()[1..2]),
        3 => bytes.extend_from_slice(&(group << 6).to_be_bytes()[1..3]),
        _ => return None,
    }
    Some(bytes)
}

#[cfg(test)]
mod test {
    use super::{decode, encode};

    #[test]
    fn what_was_encoded_is_decoded() {
        for length in 0..70_u8 {
            let bytes: Vec<u8> = (0..length).map(|index| index.wrapping_mul(151)).collect();
            let text = encode(&bytes);
            assert_eq!(decode(&text).as_ref(), Some(&bytes));
            assert_eq!(decode(&format!(" {}\n", text.trim_end_matches('='))), Some(bytes));
        }
        for wrong in ["A", "AAAAA", "AA=A", "AA-A", "é"] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_vectors_of_the_standard() {
        let vectors =
            ["", "f", "fo", "foo", "foob", "fooba", "foobar"].map(|text| encode(text.as_bytes()));
        assert_eq!(vectors, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"]);
        assert_eq!(encode(&[0xfb, 0xff, 0xfe]), "+//+");
    }
}
