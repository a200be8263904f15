//! What the model says of the conversation itself.

use super::conversation::{Block, Conversation, Message, Role};
use super::script::parse_step;

/// How much of a prompt or a result is repeated in `/recall`.
const MAX_RECALLED_CHARS: usize = 300;

/// How much of a prompt is repeated in an answer that nobody scripted.
const MAX_QUOTED_CHARS: usize = 120;

/// How many earlier prompts are repeated in an answer that nobody scripted.
const MAX_QUOTED_PROMPTS: usize = 10;

/// How much of each tool result `/results` repeats.
const MAX_RESULT_CHARS: usize = 4_000;

/// The answer that nobody scripted.
pub(crate) fn unscripted(conversation: &Conversation) -> String {
    let prompts: Vec<String> = said(conversation);
    let (last, earlier) =
        prompts.split_last().map_or((String::new(), &[][..]), |(last, earlier)| {
            (quoted(last, MAX_QUOTED_CHARS), earlier)
        });
    let turn = conversation.turn();
    let mut text = format!("I am a scripted model. You said: {last}. This is turn {turn}");
    if earlier.is_empty() {
        return text + ".";
    }
    let skipped = earlier.len().saturating_sub(MAX_QUOTED_PROMPTS);
    let quotes: Vec<String> =
        earlier[skipped..].iter().map(|prompt| quoted(prompt, MAX_QUOTED_CHARS)).collect();
    text += &format!("; earlier you said: {}", quotes.join(", "));
    if skipped > 0 {
        text += &format!(" and {skipped} before that");
    }
    text + "."
}

/// The answer after the last one of a script.
pub(crate) fn over(conversation: &Conversation) -> String {
    format!("The script is at its end. {}", results(conversation))
}

/// What the tools that were called last have given.
pub(crate) fn results(conversation: &Conversation) -> String {
    let since_last_answer =
        conversation.messages.iter().rposition(|message| message.role == Role::Assistant);
    let Some(answer) = since_last_answer else { return "No tool was called.".to_owned() };
    let results: Vec<String> = conversation.messages[answer..]
        .iter()
        .flat_map(|message| &message.blocks)
        .filter_map(|block| match block {
            Block::ToolResult { text, .. } => {
                Some(text.chars().take(MAX_RESULT_CHARS).collect::<String>())
            }
            Block::Text(_)
            | Block::ToolUse { .. }
            | Block::Thinking { .. }
            | Block::Other { .. } => None,
        })
        .collect();
    match results.len() {
        0 => "No tool was called.".to_owned(),
        _ => format!("The tools gave:\n{}", results.join("\n")),
    }
}

/// Everything that the model can see of the past, in order, a line each.
pub(crate) fn recall(conversation: &Conversation) -> String {
    let prompts = conversation.prompts();
    let now = prompts.last().copied().unwrap_or(0);
    let mut lines = Vec::new();
    let mut number = 0;
    for (index, message) in conversation.messages.iter().enumerate() {
        if prompts.contains(&index) && index != now {
            number += 1;
            let said = quoted(&essence(message), MAX_RECALLED_CHARS);
            lines.push(format!("prompt {number}: {said}"));
        }
        for block in &message.blocks {
            match block {
                Block::Text(text) if message.role == Role::Assistant => {
                    lines.push(format!("answer: {}", quoted(text, MAX_RECALLED_CHARS)));
                }
                Block::ToolUse { id, name, input } => {
                    let input = shortened(input, MAX_RECALLED_CHARS);
                    let result = result_of(conversation, id);
                    lines.push(format!("tool {name} {input} gave {result}"));
                }
                Block::Text(_)
                | Block::ToolResult { .. }
                | Block::Thinking { .. }
                | Block::Other { .. } => {}
            }
        }
    }
    let heading = if lines.is_empty() { "I remember nothing." } else { "I remember:" };
    lines.insert(0, heading.to_owned());
    lines.join("\n")
}

fn result_of(conversation: &Conversation, call: &str) -> String {
    let blocks = conversation.messages.iter().flat_map(|message| &message.blocks);
    let mut results = blocks.filter_map(|block| match block {
        Block::ToolResult { id, text } if id == call => Some(text),
        Block::Text(_)
        | Block::ToolUse { .. }
        | Block::ToolResult { .. }
        | Block::Thinking { .. }
        | Block::Other { .. } => None,
    });
    results.next().map_or("nothing".to_owned(), |text| quoted(text, MAX_RECALLED_CHARS))
}

fn said(conversation: &Conversation) -> Vec<String> {
    let prompts = conversation.prompts().into_iter();
    prompts.map(|index| essence(&conversation.messages[index])).collect()
}

/// A prompt without its steps, or with them if there is nothing else.
fn essence(message: &Message) -> String {
    let said = message.said();
    let words: Vec<&str> = said.lines().filter(|line| parse_step(line).is_none()).collect();
    let words = words.join("\n");
    if words.trim().is_empty() { said } else { words.trim().to_owned() }
}

fn quoted(text: &str, max_chars: usize) -> String {
    format!("{:?}", shortened(text, max_chars))
}

fn shortened(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
