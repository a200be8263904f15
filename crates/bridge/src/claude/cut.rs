//! What the agent is told of messages that were cut off.

use super::record::{MAX_UNSEEN_BYTES, Unfinished};

/// How many calls are told of, the latest ones.
const MAX_CALLS: usize = 20;

/// What the agent is told of everything that was cut off, in the order in which it came. What the program has `seen`
/// told it already of what came before; what it has not is repeated, within bounds.
pub(super) fn remark<'a>(
    cut: impl DoubleEndedIterator<Item = &'a Unfinished>,
    seen: impl Fn(&str) -> bool,
) -> Option<String> {
    let (mut unseen, mut bytes, mut left_out, mut was_cut) = (Vec::new(), 0, 0, false);
    let mut calls = Vec::new();
    for turn in cut.rev() {
        calls.extend(turn.calls.iter().rev().map(|call| call.what.as_str()));
        if seen(&turn.run) {
            was_cut = true;
            break;
        }
        bytes += turn.text.len();
        if unseen.is_empty() || bytes <= MAX_UNSEEN_BYTES {
            unseen.push(turn.text.as_str());
        } else {
            left_out += 1;
        }
    }
    unseen.reverse();
    let mut said = Vec::new();
    if was_cut {
        said.push("[The previous turn was cut off before it finished.]".to_owned());
    }
    match &unseen[..] {
        [] => {}
        [one] if left_out == 0 => said.push(format!(
            "[The message before this one was cut off, and you do not remember it. It said:]\n{}",
            quoted(one)
        )),
        all => {
            let count = all.len();
            said.push(format!(
                "[{count} messages before this one were cut off, and you do not remember them{}. They said, in this order:]",
                if left_out > 0 { format!(", and {left_out} more before these") } else { String::new() }
            ));
            let numbered =
                (1..).zip(all).map(|(number, text)| format!("[{number}:]\n{}", quoted(text)));
            said.extend(numbered);
        }
    }
    if !calls.is_empty() {
        calls.truncate(MAX_CALLS);
        calls.reverse();
        said.push(format!(
            "[When that was cut off, these tools had been called. Whether they took effect is not known: look before you call them again.]\n{}",
            calls.join("\n")
        ));
    }
    (!said.is_empty()).then(|| said.join("\n"))
}

/// As something that was said before, and is not said now.
fn quoted(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(|line| format!("> {line}")).collect();
    lines.join("\n")
}

#[cfg(test)]
mod test {
    use super::*;

    fn told(texts: &[&str], seen: &[usize]) -> Option<String> {
        let cut: Vec<Unfinished> = (0..)
            .zip(texts)
            .map(|(run, text): (usize, _)| Unfinished {
                run: run.to_string(),
                text: (*text).to_owned(),
                calls: Vec::new(),
            })
            .collect();
        remark(cut.iter(), |run| seen.iter().any(|seen| seen.to_string() == run))
    }

    #[test]
    fn everything_that_was_cut_is_told_once() {
        assert_eq!(told(&[], &[]), None);
        let seen = told(&["a"], &[0]).unwrap();
        assert_eq!(seen, "[The previous turn was cut off before it finished.]");
        let one = told(&["alpha"], &[]).unwrap();
        assert!(one.contains("The message before this one") && one.ends_with("> alpha"), "{one}");
        assert!(told(&["do\n/this"], &[]).unwrap().ends_with("\n> do\n> /this"));
        let all = told(&["alpha", "beta", "gamma"], &[]).unwrap();
        assert!(all.contains("3 messages"), "{all}");
        assert!(all.contains("[1:]\n> alpha\n[2:]\n> beta\n[3:]\n> gamma"), "{all}");
        // The second told of the first when it was given.
        let later = told(&["alpha", "beta", "gamma"], &[1]).unwrap();
        assert!(later.contains("previous turn was cut") && later.ends_with("> gamma"), "{later}");
        assert!(!later.contains("alpha") && !later.contains("beta"), "{later}");
    }

    #[test]
    fn what_is_told_has_a_bound() {
        let long = "x".repeat(MAX_UNSEEN_BYTES / 2);
        let told = told(&["the first", &long, &long, "the last"], &[]).unwrap();
        assert!(told.len() < MAX_UNSEEN_BYTES + 1_000, "{}", told.len());
        assert!(told.contains("2 messages") && told.contains("and 2 more"), "{told:.200}");
        assert!(told.ends_with("> the last") && !told.contains("the first"));
    }
}
