//! What was meant, when what was said does not exist.

use std::fmt;

use uuid::Uuid;

use super::prefix;
use crate::api::Session;
use crate::client::{Client, ClientError, SessionQuery};

/// How many sessions are looked at.
const LOOKED_AT: u32 = 1_000;

/// How many are named.
const NAMED: usize = 3;

/// How many are listed if none is like what was said.
const SHOWN: usize = 10;

/// How much of a name may differ: one character in three.
const ALIKE: f64 = 0.66;

/// What else there is. It is put into the chain as a context, as a hint is.
#[derive(Debug)]
pub(super) struct Suggestion(pub(super) String);

impl fmt::Display for Suggestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Adds to an error about a session which one may have been meant.
pub(super) async fn session(client: &Client, said: &str, error: anyhow::Error) -> anyhow::Error {
    let query = SessionQuery { limit: Some(LOOKED_AT), ..SessionQuery::default() };
    // A server that does not answer now has said enough.
    let Ok(page) = client.sessions(&query).await else { return error };
    if let Some(names) = near_sessions(said, &page.sessions) {
        return error.context(Suggestion(format!("did you mean {names}?")));
    }
    if page.sessions.is_empty() {
        let none = "there is no session yet: ash chat <agent> begins one";
        return error.context(Suggestion(none.to_owned()));
    }
    if page.sessions.iter().any(|session| session.agent_name == said) {
        let of = format!("{said} is an agent; ash session list --agent {said} shows its sessions");
        return error.context(Suggestion(of));
    }
    error
}

/// Adds to an error about one of a few things which one may have been meant, or where they are listed.
pub(super) fn among(what: &str, ids: &[String], said: &str, error: anyhow::Error) -> anyhow::Error {
    let list = match what {
        "credential" => "ash credential list",
        "queue item" => "ash queue list",
        "snapshot" => "ash session snapshots",
        "key" => "ash key list",
        _ => return error,
    };
    let names: Vec<&str> = ids.iter().map(String::as_str).collect();
    let near: Vec<&str> =
        names.iter().copied().filter(|id| is_near(&said.to_lowercase(), id)).take(NAMED).collect();
    let length = prefix::unique_length(names.iter().copied());
    let near: Vec<&str> = near.into_iter().map(|id| prefix::short(id, length)).collect();
    error.context(Suggestion(match near.as_slice() {
        [] if names.is_empty() => format!("there is none; {list} shows what there is"),
        [] => format!("{list} shows what there is"),
        near => format!("did you mean {}?", listed(near)),
    }))
}

/// Adds to an error about an agent which one may have been meant.
pub(super) async fn agent(client: &Client, said: &str, error: ClientError) -> anyhow::Error {
    let is_missing = matches!(&error, ClientError::Problem(problem) if problem.status_code == 404);
    let error = anyhow::Error::from(error);
    if !is_missing {
        return error;
    }
    let Ok(agents) = client.agents().await else { return error };
    let names: Vec<&str> = agents.iter().map(|agent| agent.name.as_str()).collect();
    error.context(Suggestion(match near(said, &names).as_slice() {
        [] if names.is_empty() => "no agent is deployed: ash deploy <directory>".to_owned(),
        [] if names.len() == 1 => format!("there is only {}", names[0]),
        [] if names.len() > SHOWN => {
            format!("there are {} and others: ash agent list", names[..SHOWN].join(", "))
        }
        [] => format!(
            "there are {} and {}",
            names[..names.len() - 1].join(", "),
            names[names.len() - 1]
        ),
        near => format!("did you mean {}?", listed(near)),
    }))
}

/// Which words are known where one is not, and which one may have been meant.
pub(super) fn word(said: &str, known: &[&str]) -> String {
    let all = format!("known are {}", known.join(", "));
    match near(said, known).as_slice() {
        [] => all,
        near => format!("{all}; did you mean {}?", listed(near)),
    }
}

/// The ids of the arguments that were written in whole, for an error that does not say which of them is meant.
pub(super) fn whole_ids(words: impl Iterator<Item = String>) -> Vec<String> {
    words.filter(|word| word.len() == prefix::WHOLE && word.parse::<Uuid>().is_ok()).collect()
}

/// Sessions whose id begins alike, or differs by little.
fn near_sessions(said: &str, sessions: &[Session]) -> Option<String> {
    let said = said.to_ascii_lowercase();
    let mut near: Vec<(usize, &Session)> = sessions
        .iter()
        .map(|session| (distance(&said, &session.id.to_string()), session))
        .filter(|(distance, session)| *distance > 0 && is_near(&said, &session.id.to_string()))
        .collect();
    near.sort_by_key(|(distance, _)| *distance);
    near.truncate(NAMED);
    let ids: Vec<String> = near.iter().map(|(_, session)| session.id.to_string()).collect();
    let length = prefix::session_length(ids.iter().map(String::as_str));
    let named: Vec<String> = near
        .iter()
        .zip(&ids)
        .map(|((_, session), id)| {
            let id = if said.len() >= prefix::WHOLE { id } else { prefix::short(id, length) };
            match session.title.as_deref() {
                Some(title) => format!("{id} ({})", super::output::one_line(title, 40)),
                None => format!("{id} ({})", session.agent_name),
            }
        })
        .collect();
    let named: Vec<&str> = named.iter().map(String::as_str).collect();
    (!named.is_empty()).then(|| listed(&named))
}

/// How much a beginning differs from that of an id. Somebody who writes the beginning means the beginning.
fn distance(said: &str, id: &str) -> usize {
    let length = said.len().min(id.len());
    strsim::damerau_levenshtein(said, id.get(..length).unwrap_or(id))
}

/// Whether a beginning is nearly that of an id: one character in five may differ, and four at the most.
fn is_near(said: &str, id: &str) -> bool {
    said.len() >= 4 && distance(said, id) <= (said.len() / 5).clamp(1, 4)
}

fn near<'a>(said: &str, names: &[&'a str]) -> Vec<&'a str> {
    let said = said.to_lowercase();
    let score = |name: &str| {
        let name = name.to_lowercase();
        if name.starts_with(&said) || said.starts_with(&name) {
            return 1.0;
        }
        strsim::normalized_damerau_levenshtein(&said, &name)
    };
    let mut near: Vec<(f64, &str)> = names.iter().map(|name| (score(name), *name)).collect();
    near.retain(|(score, _)| *score >= ALIKE);
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    near.into_iter().take(NAMED).map(|(_, name)| name).collect()
}

fn listed(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [head @ .., last] => format!("{} or {last}", head.join(", ")),
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_name_that_is_nearly_right_is_known() {
        let names = ["coder", "reviewer", "coder-2"];
        assert_eq!(near("codre", &names), ["coder"]);
        assert_eq!(near("review", &names), ["reviewer"]);
        assert_eq!(near("xyz", &names), Vec::<&str>::new());
        assert_eq!(listed(&["a", "b", "c"]), "a, b or c");
    }

    #[test]
    fn whole_ids_are_found_among_words() {
        let id = "0192aaaa-0000-7000-8000-000000000001";
        let words = ["session", "show", id, "--json", "0192"].map(str::to_owned);
        assert_eq!(whole_ids(words.into_iter()), [id]);
    }
}
