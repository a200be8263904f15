//! Bytes as text, for records: paths need not be UTF-8, and JSON has to be.

use std::fmt::Write as _;

/// Bytes as text that can be read back: what is no UTF-8 becomes `%` and two digits for each byte, and so does
/// `%` itself.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for part in bytes.utf8_chunks() {
        text.push_str(&part.valid().replace('%', "%25"));
        for byte in part.invalid() {
            // Nothing fails that writes to a text.
            let _written = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// The bytes that were escaped; nothing, if the text is not one that [`escape`] makes.
pub(crate) fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = text.split('%');
    bytes.extend_from_slice(parts.next()?.as_bytes());
    for part in parts {
        let byte = u8::from_str_radix(part.get(..2)?, 16).ok()?;
        bytes.push(byte);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    (escape(&bytes) == text).then_some(bytes)
}

/// What a path is called as the source of a snapshot: as it is; one that is no UTF-8 with `%` and two digits
/// for each byte that is none, and for `%`.
pub fn source_of(path: &std::path::Path) -> String {
    let bytes = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str());
    path.to_str().map_or_else(|| escape(bytes), str::to_owned)
}

#[cfg(test)]
mod test {
    use std::os::unix::ffi::OsStrExt as _;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_escaped_is_read_back(bytes: Vec<u8>, like in "[%a2F\u{e9}]{0,12}") {
            prop_assert_eq!(unescape(&escape(&bytes)), Some(bytes));
            prop_assert_eq!(unescape(&escape(like.as_bytes())), Some(like.clone().into_bytes()));
            // Whatever is read is written the same way: no path has two spellings.
            if let Some(read) = unescape(&like) {
                prop_assert_eq!(escape(&read), like);
            }
        }
    }

    #[test]
    fn a_path_is_its_own_source() {
        let path =
            |bytes: &[u8]| source_of(std::path::Path::new(std::ffi::OsStr::from_bytes(bytes)));
        assert_eq!(path("/tmp/50%/caf\u{e9}".as_bytes()), "/tmp/50%/caf\u{e9}");
        assert_eq!(path(b"/tmp/50%/caf\xe9"), "/tmp/50%25/caf%E9");
    }
}
