//! `server.toml`: one level of keys, each a setting.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::error::{ConfigError, Origin};
use super::setting::Setting;
use super::{SETTINGS, nearest};

/// What a file says.
#[derive(Debug, Default)]
pub(crate) struct File {
    path: PathBuf,
    /// Text and line, by key.
    values: BTreeMap<&'static str, (String, usize)>,
    /// Whether anybody but its owner can read it.
    is_open: bool,
}

impl File {
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigError> {
        let unreadable = |source| ConfigError::Unreadable { path: path.to_owned(), source };
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        let mode = std::fs::metadata(path).map_err(unreadable)?.permissions().mode();
        let is_open = mode & 0o077 != 0;
        Ok(Self { path: path.to_owned(), values: values(path, &text)?, is_open })
    }

    pub(crate) fn get(&self, key: &'static str) -> Option<(&str, Origin)> {
        let (text, line) = self.values.get(key)?;
        Some((text, Origin::File { path: self.path.clone(), line: *line, key }))
    }

    /// What the owner should know about the file.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let is_secret =
            |setting: &&Setting| setting.secret && self.values.contains_key(setting.key);
        let secrets: Vec<&str> =
            SETTINGS.iter().filter(is_secret).map(|setting| setting.key).collect();
        if secrets.is_empty() || !self.is_open {
            return Vec::new();
        }
        let path = self.path.display();
        vec![format!(
            "{path} holds {} and others can read it: chmod 600 {path}",
            secrets.join(", ")
        )]
    }
}

fn values(path: &Path, text: &str) -> Result<BTreeMap<&'static str, (String, usize)>, ConfigError> {
    let line_of = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
    // Not the parser's own rendering: it quotes the line, which may hold a secret.
    let table = DeTable::parse(text).map_err(|error| ConfigError::Syntax {
        path: path.to_owned(),
        line: line_of(error.span().map_or(0, |span| span.start)),
        detail: error.message().to_owned(),
    })?;
    let mut values = BTreeMap::new();
    for (key, value) in table.get_ref() {
        let line = line_of(key.span().start);
        let key: &str = key.get_ref();
        let Some(setting) = SETTINGS.iter().find(|setting| setting.key == key) else {
            let meant = key.to_ascii_lowercase();
            let meant = meant.strip_prefix("ash_").unwrap_or(&meant);
            let hint = nearest(meant, SETTINGS.iter().map(|setting| setting.key));
            return Err(ConfigError::UnknownKey {
                path: path.to_owned(),
                line,
                key: key.to_owned(),
                hint: hint.map(|key| format!("; did you mean `{key}`?")).unwrap_or_default(),
            });
        };
        let text = as_text(setting, value.get_ref()).ok_or_else(|| ConfigError::Value {
            origin: Origin::File { path: path.to_owned(), line, key: setting.key },
            shown: format!("a TOML {}", value.get_ref().type_str()),
            expected: format!("{}, as {}", setting.expected, shapes(setting)),
        })?;
        values.insert(setting.key, (text, line));
    }
    Ok(values)
}

/// The text that the same value would be in a variable.
fn as_text(setting: &Setting, value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.clone().into_owned()),
        DeValue::Integer(number) if setting.number => {
            let number = i128::from_str_radix(number.as_str(), number.radix()).ok()?;
            Some(number.to_string())
        }
        DeValue::Array(items) if setting.list => {
            let texts: Option<Vec<&str>> =
                items.iter().map(|item| item.get_ref().as_str()).collect();
            Some(texts?.join(","))
        }
        DeValue::Integer(_)
        | DeValue::Array(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_)
        | DeValue::Table(_) => None,
    }
}

fn shapes(setting: &Setting) -> &'static str {
    match (setting.number, setting.list) {
        (true, _) => "a whole number",
        (false, true) => "a string or a list of strings",
        (false, false) => "a string",
    }
}
