//! Keeps what is sent within what the model takes.
//!
//! Only whole exchanges go: a tool's call never without its result. The first prompt says what it
//! is all about and the last one what is wanted now, so both stay, and so does the latest exchange.
//! If these alone are too much, their longest texts are shortened: otherwise a prompt that is too
//! long would be sent, and refused, for ever. The file has everything, whatever happens here.
//!
//! Once there is too much, more goes than has to: each cut spoils the provider's cache, so one deep
//! cut is cheaper than a shallow one in every round.

use serde_json::json;

use super::message::{Block, Kind, Message, Role};
use super::shorten::{Shortened, shorten};

/// The most that one request may have, in bytes: pictures are cheap in tokens, and the API takes
/// no more than 32 MB.
pub(super) const MAX_REQUEST_BYTES: usize = 24 * 1024 * 1024;

/// How many messages at the end keep the results of their tools.
const FRESH_MESSAGES: usize = 4;

/// Results this small are not worth clearing.
const MIN_CLEARED_BYTES: usize = 400;

const REJECTED: &str = "[left out: the model did not take it]";

/// How much there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) tokens: u64,
    pub(super) bytes: usize,
}

/// What was left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Trimmed {
    pub(super) cleared_results: u64,
    pub(super) cleared_bytes: u64,
    pub(super) dropped_messages: u64,
    pub(super) shortened_blocks: u64,
    pub(super) shortened_bytes: u64,
}

impl Trimmed {
    fn add(&mut self, shortened: Shortened) {
        self.shortened_blocks += shortened.blocks;
        self.shortened_bytes += shortened.bytes;
    }
}

/// Leaves out what there is no room for; nothing, if there is.
pub(super) fn fit(messages: &mut Vec<Message>, room: Room) -> Option<Trimmed> {
    if Size::of(messages).fits(room) {
        return None;
    }
    let target = Room { tokens: room.tokens / 4 * 3, bytes: room.bytes / 4 * 3 };
    let mut trimmed = Trimmed::default();
    // The results of one answer may be more than all the rest: they share half of the room, so
    // that what the model knew before it asked for them is not all left out for their sake.
    if let Some(newest) = messages.last_mut().filter(|newest| newest.has_results()) {
        let half = Room { tokens: room.tokens / 2, bytes: room.bytes / 2 };
        let newest = std::slice::from_mut(newest);
        trimmed.add(shorten(newest, |newest| Size::of(newest).fits(half)));
    }
    let mut size = Size::of(messages);
    let old = messages.len().saturating_sub(FRESH_MESSAGES);
    for message in &mut messages[..old] {
        if size.fits(target) {
            break;
        }
        let before = Size::one(message);
        clear_results(message, &mut trimmed);
        size = size.less(before).more(Size::one(message));
    }
    if !size.fits(target) {
        drop_oldest(messages, size, target, &mut trimmed);
    }
    if !Size::of(messages).fits(room) {
        trimmed.add(shorten(messages, |messages| Size::of(messages).fits(target)));
    }
    (trimmed != Trimmed::default()).then_some(trimmed)
}

/// Replaces whatever is not text. A model that rejected a conversation rejected a picture that it
/// cannot read or a thought that it did not sign; it would reject every later turn as well.
pub(super) fn plain(message: &mut Message) {
    message.blocks.retain(|block| block.kind != Kind::Thinking);
    for block in message.blocks.iter_mut().filter(|block| !block.is_plain()) {
        *block = match &block.kind {
            Kind::ToolResult { id } => Block::error_result(id, REJECTED),
            Kind::Text { .. } | Kind::Thinking | Kind::ToolUse { .. } | Kind::Other => {
                Block::text(REJECTED)
            }
        };
    }
}

fn clear_results(message: &mut Message, trimmed: &mut Trimmed) {
    for block in &mut message.blocks {
        let bytes = block.raw().len();
        if let Kind::ToolResult { id } = &block.kind
            && bytes >= MIN_CLEARED_BYTES
        {
            let note = format!("[cleared to save room: {bytes} bytes]");
            *block = Block::result(id, &[json!({ "type": "text", "text": note })], false);
            trimmed.cleared_results += 1;
            trimmed.cleared_bytes += bytes as u64;
        }
    }
}

fn drop_oldest(messages: &mut Vec<Message>, mut size: Size, room: Room, trimmed: &mut Trimmed) {
    let first = messages.iter().position(Message::is_prompt);
    let last = messages.iter().rposition(Message::is_prompt);
    let mut kept = vec![true; messages.len()];
    let mut at = 0;
    while at < messages.len() && !size.fits(room) {
        let end = at + exchange(&messages[at..]);
        if end < messages.len() && Some(at) != first && Some(at) != last {
            kept[at..end].fill(false);
            size = size.less(Size::of(&messages[at..end]));
            trimmed.dropped_messages += (end - at) as u64;
        }
        at = end;
    }
    let mut kept = kept.into_iter();
    messages.retain(|_| kept.next().unwrap_or(true));
}

/// How many messages belong together: a call and its results, or one.
fn exchange(messages: &[Message]) -> usize {
    match messages {
        [call, results, ..]
            if call.role == Role::Assistant
                && call.calls().next().is_some()
                && results.has_results() =>
        {
            2
        }
        _ => 1,
    }
}

#[derive(Clone, Copy)]
struct Size {
    tokens: u64,
    bytes: usize,
}

impl Size {
    fn one(message: &Message) -> Self {
        Self { tokens: message.tokens(), bytes: message.bytes() }
    }

    fn of(messages: &[Message]) -> Self {
        messages
            .iter()
            .fold(Self { tokens: 0, bytes: 0 }, |sum, message| sum.more(Self::one(message)))
    }

    fn more(self, other: Self) -> Self {
        Self { tokens: self.tokens + other.tokens, bytes: self.bytes + other.bytes }
    }

    fn less(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_sub(other.tokens),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }

    fn fits(self, room: Room) -> bool {
        self.tokens <= room.tokens && self.bytes <= room.bytes
    }
}

#[cfg(test)]
mod test {
    use proptest::prelude::*;

    use super::super::request::sanitized;
    use super::super::request::test::{any_message, check};
    use super::*;

    proptest! {
        #[test]
        fn what_is_left_is_valid_and_fits_unless_nothing_more_may_go(
            messages in prop::collection::vec(any_message(), 0..24),
            tokens in 0u64..3_000,
        ) {
            let mut left = messages.clone();
            let room = Room { tokens, bytes: usize::MAX };
            let trimmed = fit(&mut left, room);
            check(&sanitized(&left, 0)).unwrap();
            if trimmed.is_none() {
                prop_assert_eq!(left.len(), messages.len());
            }
            // The first prompt, the last one, and the last exchange.
            if left.len() > 4 {
                prop_assert!(Size::of(&left).fits(room));
            }
            // Both prompts stay. All texts are short; only a picture may have become a note.
            let prompts = |messages: &[Message]| {
                let prompts = messages.iter().filter(|message| message.is_prompt());
                let shapes = prompts.map(|message| message.blocks.len()).collect::<Vec<_>>();
                (shapes.first().copied(), shapes.last().copied())
            };
            prop_assert_eq!(prompts(&left), prompts(&messages));
        }
    }

    proptest! {
        #[test]
        fn whatever_the_sizes_the_newest_exchange_can_be_sent(
            sizes in prop::collection::vec(0usize..200_000, 1..8),
            prompt in 1usize..200_000,
            tokens in 6_000u64..40_000,
        ) {
            let mut messages = vec![Message::text(Role::User, &"p".repeat(prompt))];
            let call = |id| Block::of(
                &json!({ "type": "tool_use", "id": format!("{id}"), "name": "n", "input": {} }));
            let blocks = (0..sizes.len()).map(call).collect();
            messages.push(Message { role: Role::Assistant, blocks });
            let result = |(id, &size): (usize, &usize)| {
                let text = json!({ "type": "text", "text": "r".repeat(size) });
                Block::result(&id.to_string(), &[text], false)
            };
            let blocks = sizes.iter().enumerate().map(result).collect();
            messages.push(Message { role: Role::User, blocks });
            let room = Room { tokens, bytes: usize::MAX };
            fit(&mut messages, room);
            check(&sanitized(&messages, 0)).unwrap();
            prop_assert!(Size::of(&messages).fits(room));
            prop_assert_eq!(messages.len(), 3);
        }
    }

    #[test]
    fn old_results_go_before_messages_do() {
        let mut messages = vec![Message::text(Role::User, "do it")];
        for number in 0..10 {
            let id = format!("t{number}");
            let call = json!({ "type": "tool_use", "id": id, "name": "read", "input": {} });
            messages.push(Message { role: Role::Assistant, blocks: vec![Block::of(&call)] });
            let text = json!({ "type": "text", "text": "x".repeat(3_500) });
            let blocks = vec![Block::result(&id, &[text], false)];
            messages.push(Message { role: Role::User, blocks });
        }
        let room = Room { tokens: 8_000, bytes: usize::MAX };
        let trimmed = fit(&mut messages, room).unwrap();
        assert_eq!(messages.len(), 21);
        assert_eq!(trimmed.dropped_messages, 0);
        assert!(trimmed.cleared_results >= 4, "{trimmed:?}");
        assert!(messages[2].blocks[0].raw().contains("cleared to save room: 35"));
        assert_eq!(fit(&mut messages, room), None, "one cut is enough for a while");
        let trimmed = fit(&mut messages, Room { tokens: 10, bytes: usize::MAX }).unwrap();
        assert_eq!(trimmed.dropped_messages, 18);
        assert_eq!(messages.len(), 3);
    }
}
