//! Shortens what is too long to be sent, where nothing is left that could be left out whole.
//!
//! A text keeps its beginning and its end: a prompt says at either what is wanted, and a result
//! what came of it. Only what is sent is shortened; the file has everything.

use serde_json::{Value, json};

use super::message::{Block, Kind, Message, Role};

/// A text this short is worth more than the room it takes.
const MIN_TEXT_BYTES: usize = 1_000;

/// A cut that saves less than its note and a little is none.
const MIN_SAVED_BYTES: usize = 100;

const LEFT_OUT: &str = " bytes are left out here: there is no room for them]\n";

/// What was shortened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shortened {
    pub(super) blocks: u64,
    pub(super) bytes: u64,
}

/// Brings messages down until they fit, as far as that goes.
///
/// All texts get the same bound, so that the largest pay for it. Pictures and documents cannot be
/// shortened: they go, the largest first, but only if all texts at their shortest are not enough.
pub(super) fn shorten(messages: &mut [Message], fits: impl Fn(&[Message]) -> bool) -> Shortened {
    if fits(messages) {
        return Shortened::default();
    }
    let before = messages.to_vec();
    let mut shortest = cut_all(messages, MIN_TEXT_BYTES);
    while !fits(&shortest) {
        let Some((at, block)) = largest_medium(&shortest) else { break };
        // Replaced, it is plain, and is not found again: this comes to an end.
        for messages in [&mut *messages, &mut shortest[..]] {
            let block = &mut messages[at].blocks[block];
            *block = without_media(block);
        }
    }
    if !fits(messages) {
        // From the same texts each time: what was cut once is not cut again.
        let mut max = messages.iter().map(Message::bytes).max().unwrap_or(0);
        let cut = loop {
            max /= 2;
            if max <= MIN_TEXT_BYTES {
                break shortest;
            }
            let cut = cut_all(messages, max);
            if fits(&cut) {
                break cut;
            }
        };
        messages.clone_from_slice(&cut);
    }
    let blocks =
        before.iter().zip(&*messages).flat_map(|(old, new)| old.blocks.iter().zip(&new.blocks));
    Shortened {
        blocks: blocks.filter(|(old, new)| old.raw() != new.raw()).count() as u64,
        bytes: bytes(&before).saturating_sub(bytes(messages)) as u64,
    }
}

fn bytes(messages: &[Message]) -> usize {
    messages.iter().map(Message::bytes).sum()
}

fn cut_all(messages: &[Message], max: usize) -> Vec<Message> {
    let cut_one = |message: &Message| Message {
        role: message.role,
        blocks: message.blocks.iter().map(|block| cut(block, max)).collect(),
    };
    messages.iter().map(cut_one).collect()
}

fn cut(block: &Block, max: usize) -> Block {
    if block.raw().len() <= max {
        return block.clone();
    }
    match block.kind {
        Kind::Text { .. } => edited(block, |value| cut_text(&mut value["text"], max)),
        Kind::ToolResult { .. } => edited(block, |value| {
            // A text by itself, or a list that has some.
            let content = &mut value["content"];
            cut_text(content, max);
            let list = content.as_array_mut().into_iter().flatten();
            list.filter(|item| item["type"] == "text")
                .for_each(|item| cut_text(&mut item["text"], max));
        }),
        // A call is what the model itself wrote, and a thought is signed.
        Kind::Thinking | Kind::ToolUse { .. } | Kind::Other => block.clone(),
    }
}

fn cut_text(value: &mut Value, max: usize) {
    if let Value::String(text) = value
        && let Some(shorter) = middle_out(text, max)
    {
        *text = shorter;
    }
}

/// The text with `max` bytes of its two ends; nothing, if that saves nothing.
fn middle_out(text: &str, max: usize) -> Option<String> {
    if text.len() <= max + LEFT_OUT.len() + MIN_SAVED_BYTES {
        return None;
    }
    let head = text.floor_char_boundary(max / 2);
    let tail = text.ceil_char_boundary(text.len() - max / 2);
    let middle = &text[head..tail];
    // What was cut before is told with what is cut now.
    let notes = middle
        .split("\n[")
        .filter_map(|rest| rest.split_once(LEFT_OUT.trim_end())?.0.parse::<usize>().ok());
    let gone = middle.len() + notes.sum::<usize>();
    Some(format!("{}\n[{gone}{LEFT_OUT}{}", &text[..head], &text[tail..]))
}

/// Where the largest block is that has a picture or a document in it.
fn largest_medium(messages: &[Message]) -> Option<(usize, usize)> {
    let of_user = messages.iter().enumerate().filter(|(_, message)| message.role == Role::User);
    let blocks = of_user.flat_map(|(at, message)| {
        message.blocks.iter().enumerate().map(move |(block_at, block)| ((at, block_at), block))
    });
    let media = blocks.filter(|(_, block)| !block.is_plain() && block.kind != Kind::Thinking);
    media.max_by_key(|(_, block)| block.raw().len()).map(|(at, _)| at)
}

fn without_media(block: &Block) -> Block {
    let note = |bytes: usize| json!({ "type": "text", "text": format!("[{bytes}{}", LEFT_OUT.trim_end()) });
    match &block.kind {
        Kind::ToolResult { id } => {
            let without = edited(block, |value| {
                let list = value["content"].as_array_mut().into_iter().flatten();
                for item in list.filter(|item| item["type"] != "text") {
                    *item = note(item.to_string().len());
                }
            });
            // What is no list of blocks cannot be told apart, and goes as a whole; what cannot even
            // be read is replaced. Either way it is plain then, and is not met again.
            let note = note(block.raw().len());
            let whole = edited(block, |value| value["content"] = json!([note.clone()]));
            let all = [without, whole, Block::result(id, &[note], false)];
            all.into_iter().find(Block::is_plain).unwrap_or_else(|| Block::text(LEFT_OUT))
        }
        Kind::Text { .. } | Kind::Thinking | Kind::ToolUse { .. } | Kind::Other => {
            Block::of(&note(block.raw().len()))
        }
    }
}

fn edited(block: &Block, edit: impl FnOnce(&mut Value)) -> Block {
    let Ok(mut value) = serde_json::from_str(block.raw()) else { return block.clone() };
    edit(&mut value);
    Block::of(&value)
}

#[cfg(test)]
mod test {
    use super::*;

    fn at_most(max: usize) -> impl Fn(&[Message]) -> bool {
        move |messages| bytes(messages) <= max
    }

    fn texts(message: &Message) -> Vec<String> {
        let text = |block: &Block| {
            let value: Value = serde_json::from_str(block.raw()).unwrap();
            value["text"].as_str().unwrap_or_default().to_owned()
        };
        message.blocks.iter().map(text).collect()
    }

    #[test]
    fn a_result_that_is_no_list_of_blocks_goes_as_a_whole() {
        let content = json!({ "a": "x".repeat(100_000) });
        let result = json!({ "type": "tool_result", "tool_use_id": "t", "content": content });
        let mut messages = [Message { role: Role::User, blocks: vec![Block::of(&result)] }];
        shorten(&mut messages, at_most(10_000));
        assert!(bytes(&messages) <= 10_000 && messages[0].is_plain());
    }

    #[test]
    fn the_longest_text_pays_and_keeps_both_ends() {
        let long = format!("begin{}end", "é".repeat(50_000));
        let blocks = vec![Block::text("short"), Block::text(&long)];
        let mut messages = [Message { role: Role::User, blocks }];
        let saved = shorten(&mut messages, at_most(30_000));
        assert!(saved.bytes > 70_000 && saved.blocks == 1, "{saved:?}");
        let said = texts(&messages[0]);
        assert_eq!(said[0], "short");
        assert!(said[1].starts_with("begin") && said[1].ends_with("end"));
        // Cut once more, it still says how much there was in the first place.
        shorten(&mut messages, at_most(8_000));
        let said = texts(&messages[0]).remove(1);
        let gone = said.split("\n[").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
        let gone: usize = gone.parse().unwrap();
        let all = gone + said.len();
        assert!((long.len()..long.len() + 200).contains(&all), "{gone} and {}", said.len());
        assert!(said.len() < 8_000, "{}", said.len());
    }

    #[test]
    fn pictures_go_only_if_texts_are_not_enough() {
        let image =
            |bytes: usize| json!({ "type": "image", "source": { "data": "A".repeat(bytes) } });
        let text = json!({ "type": "text", "text": "x".repeat(20_000) });
        let result = Block::result("a", &[image(9_000), text], false);
        let messages =
            [Message { role: Role::User, blocks: vec![result, Block::of(&image(5_000))] }];
        let mut some = messages.clone();
        shorten(&mut some, at_most(20_000));
        assert!(
            some[0].blocks[0].raw().contains("AAAA") && some[0].blocks[1].raw().contains("AAAA")
        );
        let mut fewer = messages.clone();
        shorten(&mut fewer, at_most(8_000));
        assert!(!fewer[0].blocks[0].raw().contains("AAAA"));
        assert!(fewer[0].blocks[1].raw().contains("AAAA"));
        let mut none = messages;
        shorten(&mut none, at_most(10));
        assert!(none[0].blocks.iter().all(Block::is_plain));
        assert_eq!(none[0].blocks[0].kind, Kind::ToolResult { id: "a".into() });
    }
}
