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
    match near_sessions(said, &page.sessions) {
        Some(names) => error.context(Suggestion(format!("did you mean {names}?"))),
        None => error,
    }
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
        [] => format!("there are {}", listed(&names[..names.len().min(10)])),
        near => format!("did you mean {}?", listed(near)),
    }))
}

/// The ids of the arguments that were written in whole, for an error that does not say which of them is meant.
pub(super) fn whole_ids(words: impl Iterator<Item = String>) -> Vec<String> {
    words.filter(|word| word.len() == 36 && word.parse::<Uuid>().is_ok()).collect()
}

/// Sessions whose id begins alike, or differs by little.
fn near_sessions(said: &str, sessions: &[Session]) -> Option<String> {
    let said = said.to_ascii_lowercase();
    if said.len() < 4 {
        return None;
    }
    let distance = |session: &Session| {
        let id = session.id.to_string();
        // Somebody who writes the beginning means the beginning.
        strsim::damerau_levenshtein(&said, &id[..said.len().min(id.len())])
    };
    let most = (said.len() / 5).clamp(1, 4);
    let mut near: Vec<(usize, &Session)> = sessions
        .iter()
        .map(|session| (distance(session), session))
        .filter(|(distance, _)| (1..=most).contains(distance))
        .collect();
    near.sort_by_key(|(distance, _)| *distance);
    near.truncate(NAMED);
    let ids: Vec<String> = near.iter().map(|(_, session)| session.id.to_string()).collect();
    let length = prefix::session_length(ids.iter().map(String::as_str));
    let named: Vec<String> = near
        .iter()
        .zip(&ids)
        .map(|((_, session), id)| {
            let id = if said.len() == 36 { id } else { prefix::short(id, length) };
            match session.title.as_deref() {
                Some(title) => format!("{id} ({})", super::output::one_line(title, 40)),
                None => format!("{id} ({})", session.agent_name),
            }
        })
        .collect();
    let named: Vec<&str> = named.iter().map(String::as_str).collect();
    (!named.is_empty()).then(|| listed(&named))
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
