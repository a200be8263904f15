//! Which registry to ask: our own setting, or what npm would ask.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use reqwest::Url;

/// What npm asks on a machine that says nothing else.
pub(super) const PUBLIC: &str = "https://registry.npmjs.org";

/// The scope of the packages, which may have a registry of its own.
const SCOPED: &str = "@anthropic-ai:registry";

/// Where npm's settings for everybody may be, by how it was installed.
const FOR_EVERYBODY: [&str; 3] = ["/usr/local/etc/npmrc", "/usr/etc/npmrc", "/etc/npmrc"];

/// What a file of npm's settings may have. It is read only for two lines.
const MAX_BYTES: u64 = 1 << 20;

/// The registry: `setting`, or else the one of npm's own variables and files, in npm's order. What is no
/// address is an error that says where it was said.
pub(super) fn registry(
    setting: Option<&str>,
    env: &BTreeMap<String, String>,
) -> Result<Url, String> {
    let said = |name: &str| env.get(name).filter(|value| !value.is_empty()).cloned();
    if let Some(text) = setting {
        return address(text, "ASH_NPM_REGISTRY");
    }
    let mut files = Vec::new();
    match said("npm_config_userconfig") {
        Some(path) => files.push(PathBuf::from(path)),
        None => files.extend(said("HOME").map(|home| Path::new(&home).join(".npmrc"))),
    }
    match said("npm_config_globalconfig") {
        Some(path) => files.push(path.into()),
        None => files.extend(FOR_EVERYBODY.map(PathBuf::from)),
    }
    // Each file is heard before the next, and a registry of the scope before that of all packages.
    let files: Vec<(PathBuf, String)> =
        files.into_iter().filter_map(|path| read(&path).map(|text| (path, text))).collect();
    for key in [SCOPED, "registry"] {
        let variable = format!("npm_config_{key}");
        for name in [variable.clone(), variable.to_ascii_uppercase()] {
            if let Some(text) = said(&name) {
                return address(&text, &name);
            }
        }
        for (path, text) in &files {
            if let Some(value) = value_of(key, text, env) {
                return address(&value, &path.display().to_string());
            }
        }
    }
    address(PUBLIC, "the default")
}

fn address(text: &str, origin: &str) -> Result<Url, String> {
    let url = Url::parse(text).ok();
    url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
        .ok_or_else(|| format!("the registry in {origin} is no address that begins with https://"))
}

fn read(path: &Path) -> Option<String> {
    use std::io::Read as _;
    let mut text = String::new();
    std::fs::File::open(path).ok()?.take(MAX_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The last line that sets a key, as everywhere in such files.
fn value_of(key: &str, text: &str, env: &BTreeMap<String, String>) -> Option<String> {
    let line = text.lines().rev().find_map(|line| {
        let (name, value) = line.trim().split_once('=')?;
        (name.trim() == key).then(|| value.trim().trim_matches(['"', '\'']))
    });
    line.filter(|value| !value.is_empty()).map(|value| with_variables(value, env))
}

/// Puts variables in where a text has `${NAME}`. One that is not set stays as it is, as with npm.
fn with_variables(text: &str, env: &BTreeMap<String, String>) -> String {
    let mut parts = text.split("${");
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once('}').and_then(|(name, rest)| Some((env.get(name)?, rest))) {
            Some((value, rest)) => {
                whole.push_str(value);
                whole.push_str(rest);
            }
            None => {
                whole.push_str("${");
                whole.push_str(part);
            }
        }
    }
    whole
}

#[cfg(test)]
mod test {
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn asked(setting: Option<&str>, env: &BTreeMap<String, String>) -> String {
        registry(setting, env).unwrap().to_string()
    }

    #[test]
    fn the_registry_is_the_one_that_npm_would_ask_unless_we_are_told_otherwise() {
        let dir = tempfile::tempdir().unwrap();
        let (user, global) = (dir.path().join(".npmrc"), dir.path().join("npmrc"));
        let mut env = env(&[
            ("HOME", dir.path().to_str().unwrap()),
            ("npm_config_globalconfig", global.to_str().unwrap()),
            ("MIRROR", "mirror.example"),
        ]);
        assert_eq!(asked(None, &env), format!("{PUBLIC}/"));
        std::fs::write(&global, "registry = https://global.example/npm/\n").unwrap();
        assert_eq!(asked(None, &env), "https://global.example/npm/");
        std::fs::write(
            &user,
            "; ours\nregistry=https://old.example\nregistry=\"https://${MIRROR}/${NONE}\"\n",
        )
        .unwrap();
        assert_eq!(asked(None, &env), "https://mirror.example/$%7BNONE%7D");
        env.insert("NPM_CONFIG_REGISTRY".to_owned(), "http://upper.example".to_owned());
        assert_eq!(asked(None, &env), "http://upper.example/");
        env.insert("npm_config_registry".to_owned(), "http://lower.example".to_owned());
        assert_eq!(asked(None, &env), "http://lower.example/");
        std::fs::write(&global, "@anthropic-ai:registry=https://scoped.example\n").unwrap();
        assert_eq!(asked(None, &env), "https://scoped.example/");
        assert_eq!(asked(Some("http://said.example"), &env), "http://said.example/");
    }

    #[test]
    fn what_is_no_address_is_named_without_it() {
        let env = env(&[("npm_config_registry", "user:hidden@host")]);
        let error = registry(None, &env).unwrap_err();
        assert!(error.contains("npm_config_registry") && !error.contains("hidden"), "{error}");
    }
}
