//! The environment of everything that runs in the sandbox: an allow-list, never a copy.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

/// Where programs are, if the bridge was not told.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Names that belong to the server or to its keys, and that no agent may set: a tool that found
/// one would take it for real.
const REFUSED_PREFIXES: [&str; 3] = ["ASH_", "AWS_", "GOOGLE_"];
const REFUSED_NAMES: [&str; 1] = ["ANTHROPIC_API_KEY"];

/// What a program finds in its environment, complete.
#[derive(Clone, PartialEq, Eq)]
pub struct Env(BTreeMap<String, String>);

impl Env {
    /// The environment from what the bridge has, and what the agent and its session add. The
    /// strings are the names that were refused.
    pub fn new(
        home: &Path,
        path: Option<&str>,
        lang: Option<&str>,
        term: Option<&str>,
        own: &BTreeMap<String, String>,
    ) -> (Self, Vec<String>) {
        let base = [
            ("PATH", path.filter(|path| !path.is_empty()).unwrap_or(DEFAULT_PATH).to_owned()),
            ("HOME", home.to_string_lossy().into_owned()),
            ("LANG", lang.unwrap_or("C.UTF-8").to_owned()),
            ("TERM", term.unwrap_or("dumb").to_owned()),
        ];
        Self(base.map(|(name, value)| (name.to_owned(), value)).into()).with(own)
    }

    /// The same and some more, with the same refusals.
    pub fn with(&self, own: &BTreeMap<String, String>) -> (Self, Vec<String>) {
        let mut all = self.0.clone();
        let mut refused = Vec::new();
        for (name, value) in own {
            if is_refused(name)
                || name.is_empty()
                || name.contains(['=', '\0'])
                || value.contains('\0')
            {
                refused.push(name.clone());
            } else {
                all.insert(name.clone(), value.clone());
            }
        }
        (Self(all), refused)
    }

    /// The same for programs that reach other hosts through a proxy: they are told in the variables that
    /// most of them look at. Whoever set one of these wants something else.
    #[must_use]
    pub fn behind(mut self, proxy: Option<SocketAddr>) -> Self {
        let Some(proxy) = proxy else { return self };
        let proxy = format!("http://{proxy}");
        let here = "127.0.0.1,localhost".to_owned();
        for (name, value) in [("http_proxy", &proxy), ("https_proxy", &proxy), ("no_proxy", &here)]
        {
            for name in [name.to_owned(), name.to_uppercase()] {
                self.0.entry(name).or_insert_with(|| value.clone());
            }
        }
        self
    }

    /// The same with names that the bridge itself gives, and nobody else may.
    #[must_use]
    pub(crate) fn named(mut self, names: &BTreeMap<&'static str, String>) -> Self {
        self.0.extend(names.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        self
    }

    /// Every variable.
    pub fn variables(&self) -> &BTreeMap<String, String> {
        &self.0
    }
}

impl std::fmt::Debug for Env {
    /// Names only: an agent's own variables are often its keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

fn is_refused(name: &str) -> bool {
    REFUSED_NAMES.contains(&name) || REFUSED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn programs_behind_a_proxy_are_told_unless_they_know_better() {
        let own = [("HTTPS_PROXY".to_owned(), "mine".to_owned())].into();
        let (env, _) = Env::new(Path::new("/home/agent"), None, None, None, &own);
        assert_eq!(env.clone().behind(None).variables(), env.variables());
        let env = env.behind(Some(([127, 0, 0, 1], 8080).into()));
        let of = |name: &str| env.variables().get(name).map(String::as_str);
        for name in ["http_proxy", "HTTP_PROXY", "https_proxy"] {
            assert_eq!(of(name), Some("http://127.0.0.1:8080"), "{name}");
        }
        assert_eq!(of("HTTPS_PROXY"), Some("mine"));
        assert_eq!((of("no_proxy"), of("NO_PROXY")), (of("NO_PROXY"), Some("127.0.0.1,localhost")));
    }

    #[test]
    fn keys_of_the_server_are_refused_and_named() {
        let own =
            ["ASH_X", "AWS_SECRET_ACCESS_KEY", "GOOGLE_Y", "ANTHROPIC_API_KEY", "A=B", "MINE"]
                .map(|name| (name.to_owned(), "1".to_owned()));
        let (env, refused) = Env::new(Path::new("/home/agent"), None, None, None, &own.into());
        assert_eq!(
            refused,
            ["A=B", "ANTHROPIC_API_KEY", "ASH_X", "AWS_SECRET_ACCESS_KEY", "GOOGLE_Y"]
        );
        let names: Vec<&str> = env.variables().keys().map(String::as_str).collect();
        assert_eq!(names, ["HOME", "LANG", "MINE", "PATH", "TERM"]);
        assert!(!format!("{env:?}").contains('1'), "values are not printed");
    }
}
