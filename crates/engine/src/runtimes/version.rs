//! Releases of programs: how they are written, and which of two is the newer one.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// A release, as `2.1.325` or `2.2.0-beta.1`. It can be the name of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Version(String);

/// What is no release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a version has three numbers, such as 2.1.325")]
pub struct NotAVersion;

/// No release has a longer name.
const MAX_BYTES: usize = 64;

impl Version {
    /// As it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its three numbers, and what comes before the release itself, if it is not that.
    fn parts(&self) -> ([u64; 3], Option<&str>) {
        parts(&self.0).expect("it was looked at when it was made")
    }
}

impl FromStr for Version {
    type Err = NotAVersion;

    fn from_str(text: &str) -> Result<Self, NotAVersion> {
        parts(text).map(|_| Self(text.to_owned())).ok_or(NotAVersion)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Ord for Version {
    /// The newer one is the greater. A release comes after everything that led to it.
    fn cmp(&self, other: &Self) -> Ordering {
        let ((numbers, before), (their_numbers, their_before)) = (self.parts(), other.parts());
        numbers.cmp(&their_numbers).then_with(|| match (before, their_before) {
            (None, None) => Ordering::Equal,
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
            (Some(ours), Some(theirs)) => words(ours).cmp(words(theirs)),
        })
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn parts(text: &str) -> Option<([u64; 3], Option<&str>)> {
    let (numbers, before) = match text.split_once('-') {
        Some((numbers, before)) => (numbers, Some(before)),
        None => (text, None),
    };
    let is_fit = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'-');
    if text.len() > MAX_BYTES || before.is_some_and(|of| of.is_empty() || !of.bytes().all(is_fit)) {
        return None;
    }
    let mut found = numbers.split('.').map(number);
    let three = [found.next()??, found.next()??, found.next()??];
    found.next().is_none().then_some((three, before))
}

/// One way to write each: two names for one release would be two installations.
fn number(text: &str) -> Option<u64> {
    let is_plain = text == "0" || !text.starts_with('0');
    (is_plain && text.bytes().all(|c| c.is_ascii_digit())).then(|| text.parse().ok())?
}

/// Numbers are compared as numbers, and come before words.
fn words(before: &str) -> impl Iterator<Item = (bool, u64, &str)> {
    before.split('.').map(|word| match number(word) {
        Some(number) => (false, number, ""),
        None => (true, 0, word),
    })
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_newer_one_is_the_greater() {
        let in_order = [
            "0.9.9",
            "2.1.9",
            "2.1.197",
            "2.1.325-2",
            "2.1.325-10",
            "2.1.325-beta",
            "2.1.325-beta.1",
            "2.1.325",
            "2.2.0",
            "10.0.0",
        ];
        let versions: Vec<Version> = in_order.iter().map(|text| text.parse().unwrap()).collect();
        assert!(versions.is_sorted(), "{versions:?}");
        assert_ne!(versions[4].cmp(&versions[3]), Ordering::Equal);
    }

    #[test]
    fn what_is_no_version_is_no_name_of_a_directory_either() {
        let refused = [
            "",
            ".",
            "..",
            "2",
            "2.1",
            "2.1.",
            "2.1.3.4",
            "v2.1.3",
            "2.1.3/..",
            "2.1.3-",
            "02.1.3",
            "2.1.3-a/b",
            "2.1.3-a\0",
            "latest",
            "2.1.+3",
            " 2.1.3",
            "2.1.99999999999999999999",
        ];
        for text in refused {
            assert_eq!(text.parse::<Version>(), Err(NotAVersion), "{text}");
        }
    }
}
