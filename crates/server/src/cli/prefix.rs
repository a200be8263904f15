//! Ids as people write them: the beginning is enough.

use ash_core::time::{Clock as _, Timestamp};
use ash_engine::SystemClock;
use uuid::Uuid;

use super::exit::Mistake;
use super::output::one_line;
use super::{Hint, format, suggest};
use crate::api::Session;
use crate::client::{Client, SessionQuery};

/// No shorter beginning is shown of ids that are all known.
const SHORTEST: usize = 8;

/// No shorter beginning is shown of a session's id: a list does not show every session, and those
/// of the same minute begin alike. So much of it is the time to the millisecond and 12 random bits.
const SHORTEST_OF_SESSION: usize = 18;

/// How many characters an id has.
pub(super) const WHOLE: usize = 36;

/// How many ids that begin alike are named.
const MAX_CANDIDATES: u32 = 10;

/// Among how many items of the queue one is looked for.
const LATEST_ITEMS: u32 = 500;

/// How many characters tell sessions apart, also from those that are not in the list.
pub(super) fn session_length<'a>(ids: impl IntoIterator<Item = &'a str>) -> usize {
    unique_length(ids).max(SHORTEST_OF_SESSION)
}

/// How many characters tell the ids of a list apart. Ids of the same minute begin alike.
pub(super) fn unique_length<'a>(ids: impl IntoIterator<Item = &'a str>) -> usize {
    let mut ids: Vec<&str> = ids.into_iter().collect();
    ids.sort_unstable();
    ids.dedup();
    let alike =
        |(a, b): (&&str, &&str)| a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    let longest = ids.iter().zip(ids.iter().skip(1)).map(alike).max();
    let length = longest.map_or(0, |alike| alike + 1).max(SHORTEST);
    // A beginning that ends in a hyphen looks as if something were missing.
    let ends_in_hyphen = ids.iter().any(|id| id.as_bytes().get(length - 1) == Some(&b'-'));
    length + usize::from(ends_in_hyphen)
}

/// The beginning of an id.
pub(super) fn short(id: &str, length: usize) -> &str {
    id.get(..length).unwrap_or(id)
}

/// The session that a person means.
pub(super) async fn session(client: &Client, text: &str) -> anyhow::Result<Uuid> {
    if let Some(id) = whole(text) {
        return Ok(id);
    }
    let none = || Mistake::NotFound(format!("no session's id begins with `{text}`"));
    let hint = Hint("ash session list --all shows every session");
    let prefix = text.to_ascii_lowercase();
    let can_begin_one = (1..=WHOLE).contains(&prefix.len())
        && prefix.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    let sessions = if can_begin_one {
        let limit = Some(MAX_CANDIDATES);
        let query = SessionQuery { id_prefix: Some(prefix), limit, ..SessionQuery::default() };
        client.sessions(&query).await?.sessions
    } else {
        // A letter that no id has, or one too many, is a slip of the finger, or the name of something else.
        Vec::new()
    };
    match sessions.as_slice() {
        [] => {
            let error = anyhow::Error::from(none()).context(hint);
            Err(suggest::session(client, text, error).await)
        }
        [session] => Ok(session.id),
        sessions => Err(ambiguous("session", text, &candidates(sessions, SystemClock.now()))),
    }
}

/// Sessions as a person knows them again: how the id begins, how old it is, what it is called.
fn candidates(sessions: &[Session], now: Timestamp) -> Vec<String> {
    let ids: Vec<String> = sessions.iter().map(|session| session.id.to_string()).collect();
    let length = session_length(ids.iter().map(String::as_str));
    let candidate = |(session, id): (&Session, &String)| {
        let title = session.title.as_deref().map(|title| format!(", {}", one_line(title, 40)));
        let (id, age) = (short(id, length), format::ago(&session.created_at, now));
        format!("{id} ({age} old{})", title.unwrap_or_default())
    };
    sessions.iter().zip(&ids).map(candidate).collect()
}

/// The credential that a person means.
pub(super) async fn credential(client: &Client, text: &str) -> anyhow::Result<String> {
    if let Some(id) = whole(text) {
        return Ok(id.to_string());
    }
    let ids = client.credentials().await?;
    let ids: Vec<String> = ids.iter().map(|credential| credential.id.to_string()).collect();
    among("credential", &ids, text)
}

/// The item of the queue that a person means, among the latest.
pub(super) async fn queue_item(client: &Client, text: &str) -> anyhow::Result<String> {
    if let Some(id) = whole(text) {
        return Ok(id.to_string());
    }
    let page = client.queue_items(None, LATEST_ITEMS).await?;
    let ids: Vec<String> = page.items.iter().map(|item| item.id.to_string()).collect();
    among("queue item", &ids, text)
}

/// The key or credential that a person means, by the beginning of its id.
pub(super) fn among(what: &str, ids: &[String], text: &str) -> anyhow::Result<String> {
    if let Some(exact) = ids.iter().find(|id| id.as_str() == text) {
        return Ok(exact.clone());
    }
    let prefix = text.to_ascii_lowercase();
    let found: Vec<String> =
        ids.iter().filter(|id| !prefix.is_empty() && id.starts_with(&prefix)).cloned().collect();
    match found.as_slice() {
        [] => {
            let error = Mistake::NotFound(format!("no {what}'s id begins with `{text}`")).into();
            Err(suggest::among(what, ids, text, error))
        }
        [id] => Ok(id.clone()),
        ids => {
            let length = unique_length(ids.iter().map(String::as_str));
            let names: Vec<String> = ids.iter().map(|id| short(id, length).to_owned()).collect();
            Err(ambiguous(what, text, &names))
        }
    }
}

/// A whole id, with its hyphens.
fn whole(text: &str) -> Option<Uuid> {
    (text.len() == WHOLE).then(|| text.parse().ok())?
}

fn ambiguous(what: &str, text: &str, names: &[String]) -> anyhow::Error {
    let more = if names.len() >= MAX_CANDIDATES as usize { ", …" } else { "" };
    let names = names.join(", ");
    Mistake::Usage(format!("more than one {what}'s id begins with `{text}`: {names}{more}")).into()
}

#[cfg(test)]
mod test {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_list_shows_as_much_as_tells_its_ids_apart() {
        assert_eq!(unique_length([]), 8);
        assert_eq!(unique_length(["0192aaaa-1111"]), 8);
        assert_eq!(unique_length(["0192aaaa-1111", "0192aaab-1111"]), 8);
        assert_eq!(unique_length(["0192aaaa-1111", "0192aaaa-1211"]), 11);
        assert_eq!(unique_length(["0192aaa0-1", "0192aaa1-1", "x2345678-"]), 8);
        assert_eq!(short("env", 8), "env");
    }

    #[test]
    fn an_id_is_found_by_its_beginning_if_that_is_enough() {
        let ids = ["abc1".to_owned(), "abc2".to_owned(), "env".to_owned(), "abc".to_owned()];
        assert_eq!(among("key", &ids, "ABC1").unwrap(), "abc1");
        assert_eq!(among("key", &ids, "abc").unwrap(), "abc");
        let error = among("key", &ids, "ab").unwrap_err();
        let expected = "more than one key's id begins with `ab`: abc1, abc2, abc";
        assert_eq!(error.to_string(), expected);
        let error = among("key", &ids, "f").unwrap_err();
        assert_eq!(error.root_cause().to_string(), "no key's id begins with `f`");
        assert_eq!(error.to_string(), "ash key list shows what there is");
        let typo = among("key", &["abcd1234".to_owned()], "abce1").unwrap_err();
        assert_eq!(typo.to_string(), "did you mean abcd1234?");
        assert!(among("key", &ids, "").is_err());
    }

    proptest! {
        #[test]
        fn what_is_shown_names_one_id_only(
            ids in prop::collection::btree_set(any::<[u8; 3]>(), 1..30),
        ) {
            // The same minute: the first ten bytes are alike.
            let ids: Vec<String> = ids.into_iter().map(|tail| {
                let mut bytes = [1; 16];
                bytes[13..].copy_from_slice(&tail);
                Uuid::from_bytes(bytes).to_string()
            }).collect();
            let length = unique_length(ids.iter().map(String::as_str));
            for id in &ids {
                prop_assert_eq!(&among("session", &ids, short(id, length)).unwrap(), id);
            }
        }
    }
}
