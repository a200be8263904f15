//! `ash config`: what holds, and who said so.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Context as _;

use super::Hint;
use super::output::{note, print};
use crate::config::{Config, Effective, ServeFlags};

/// Show the settings that `ash serve` would start with, and where each came from
///
/// Flags go before the environment, and the environment before the file. Secrets are not shown.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    flags: ServeFlags,
}

pub(super) fn run(args: &Args, env: &BTreeMap<String, String>, json: bool) -> anyhow::Result<()> {
    let config = load(&args.flags, env)?;
    let (settings, warnings) = (config.effective(), config.warnings());
    if json {
        let shown = serde_json::json!({ "settings": settings, "warnings": warnings });
        return print(&format!("{shown:#}\n"));
    }
    print(&table(&settings))?;
    warnings.iter().for_each(|warning| note(&format!("warning: {warning}")));
    Ok(())
}

/// The configuration of the process, with a hint if it is wrong.
fn load(flags: &ServeFlags, env: &BTreeMap<String, String>) -> anyhow::Result<Config> {
    Config::load(flags, env, flags.config.as_deref())
        .context(Hint("docs/configuration.md lists every setting"))
}

fn table(settings: &[Effective]) -> String {
    let shown = |setting: &Effective| setting.value.clone().unwrap_or_else(|| "-".to_owned());
    let names = settings.iter().map(|setting| setting.name.len()).max().unwrap_or(0);
    let values = settings.iter().map(|setting| shown(setting).chars().count()).max().unwrap_or(0);
    let mut table = String::new();
    for setting in settings {
        let (value, source) = (shown(setting), setting.source.as_str());
        writeln!(table, "{:names$}  {value:values$}  {source}", setting.name)
            .expect("writing into a string does not fail");
    }
    table
}
