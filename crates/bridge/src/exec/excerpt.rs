//! What is kept of a long output: its beginning and its end, never more than a bound.

use std::collections::VecDeque;

/// The beginning and the end of some bytes.
#[derive(Debug)]
pub(super) struct Excerpt {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    max_head: usize,
    max_tail: usize,
    omitted: u64,
}

impl Excerpt {
    /// Keeps at most so many bytes: half of them from the beginning, half from the end.
    pub(super) fn new(max_bytes: usize) -> Self {
        let max_tail = max_bytes / 2;
        Self {
            head: Vec::new(),
            tail: VecDeque::new(),
            max_head: max_bytes - max_tail,
            max_tail,
            omitted: 0,
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let (to_head, rest) = bytes.split_at(bytes.len().min(self.max_head - self.head.len()));
        self.head.extend_from_slice(to_head);
        let skipped = rest.len().saturating_sub(self.max_tail);
        let rest = &rest[skipped..];
        let displaced = (self.tail.len() + rest.len()).saturating_sub(self.max_tail);
        self.tail.drain(..displaced);
        self.tail.extend(rest);
        self.omitted += (skipped + displaced) as u64;
    }

    /// How many bytes were not kept.
    pub(super) fn omitted(&self) -> u64 {
        self.omitted
    }

    /// What was kept, as text, with a line that says where something is missing.
    pub(super) fn into_text(self) -> String {
        let Self { mut head, tail, omitted, .. } = self;
        let mut tail: Vec<u8> = tail.into();
        if omitted == 0 {
            head.append(&mut tail);
            return String::from_utf8_lossy(&head).into_owned();
        }
        // A character that the cut went through would be shown as damage that there was none of.
        let head = &head[..head.len() - cut_at_end(&head)];
        let tail = &tail[cut_at_start(&tail)..];
        let (head, tail) = (String::from_utf8_lossy(head), String::from_utf8_lossy(tail));
        format!("{head}\n[… {omitted} bytes left out …]\n{tail}")
    }
}

/// How many bytes at the end are the beginning of a character.
fn cut_at_end(bytes: &[u8]) -> usize {
    (1..=bytes.len().min(3))
        .find(|&length| is_unfinished(&bytes[bytes.len() - length..]))
        .unwrap_or(0)
}

fn is_unfinished(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes)
        .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
}

/// How many bytes at the start are the end of a character.
fn cut_at_start(bytes: &[u8]) -> usize {
    bytes.iter().take(3).take_while(|&&byte| byte & 0b1100_0000 == 0b1000_0000).count()
}

#[cfg(test)]
mod test {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_keeps_both_ends_and_never_more_than_its_bound(
            max in 0usize..50,
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..10),
        ) {
            let all: Vec<u8> = chunks.concat();
            let mut excerpt = Excerpt::new(max);
            for chunk in &chunks {
                excerpt.push(chunk);
                prop_assert!(excerpt.head.len() + excerpt.tail.len() <= max);
            }
            let kept = excerpt.head.len() + excerpt.tail.len();
            prop_assert_eq!(kept as u64 + excerpt.omitted(), all.len() as u64);
            prop_assert_eq!(kept, all.len().min(max));
            prop_assert!(all.starts_with(&excerpt.head));
            let tail: Vec<u8> = excerpt.tail.iter().copied().collect();
            prop_assert!(all.ends_with(&tail));
        }

        #[test]
        fn a_cut_does_not_damage_characters(text in "[aé€😀]{0,40}", max in 0usize..60) {
            let mut excerpt = Excerpt::new(max);
            excerpt.push(text.as_bytes());
            prop_assert!(!excerpt.into_text().contains(char::REPLACEMENT_CHARACTER), "damaged");
        }
    }

    #[test]
    fn what_is_not_text_is_shown_as_far_as_it_is() {
        let mut excerpt = Excerpt::new(100);
        excerpt.push(b"a\0b\x1b[1m\xffc");
        assert_eq!(excerpt.into_text(), "a\0b\u{1b}[1m\u{fffd}c");
    }
}
