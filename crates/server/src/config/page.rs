//! The table of `docs/configuration.md`.

use super::SETTINGS;
use super::setting::Setting;

/// Every setting as a row of a Markdown table, written from the declaration.
pub fn settings_table() -> String {
    let mut page =
        "| variable | in `server.toml` | default | what it does |\n|---|---|---|---|\n".to_owned();
    for setting in SETTINGS {
        page.push_str(&row(setting));
    }
    page
}

fn row(setting: &Setting) -> String {
    let flag = setting.flag.map(|flag| format!(", `{flag}`")).unwrap_or_default();
    let default = match setting.default {
        "" => "not set".to_owned(),
        default => format!("`{default}`"),
    };
    let secret = if setting.secret { " Secret." } else { "" };
    let Setting { env, key, expected, .. } = setting;
    let off = setting.off.first().map(|word| format!(", or `{word}`")).unwrap_or_default();
    let doc = setting.doc();
    format!("| `{env}`{flag} | `{key}` | {default} | {doc}. Takes {expected}{off}.{secret} |\n")
}
