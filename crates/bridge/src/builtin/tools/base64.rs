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

#[cfg(test)]
mod test {
    use super::encode;

    #[test]
    fn the_vectors_of_the_standard() {
        let vectors =
            ["", "f", "fo", "foo", "foob", "fooba", "foobar"].map(|text| encode(text.as_bytes()));
        assert_eq!(vectors, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"]);
        assert_eq!(encode(&[0xfb, 0xff, 0xfe]), "+//+");
    }
}
