//! The flags of `ash serve`. There is none for a secret: every process can read a command line.

use std::path::PathBuf;

use super::SETTINGS;
use super::value::Value;

/// Settings on the command line; they go before everything else.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ServeFlags {
    /// The port to listen on; 0 takes any that is free
    #[arg(long, value_name = "PORT", value_parser = checked::<u16>)]
    pub port: Option<String>,
    /// The address to listen on
    #[arg(long, value_name = "ADDRESS", value_parser = checked::<std::net::IpAddr>)]
    pub host: Option<String>,
    /// Where everything is kept
    #[arg(long, value_name = "DIR", value_parser = checked::<PathBuf>)]
    pub data_dir: Option<String>,
    /// A file of settings, which flags and variables go before
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// A database elsewhere than in the data directory
    #[arg(long, value_name = "URL", value_parser = checked::<super::DatabaseUrl>)]
    pub database_url: Option<String>,
    /// How many sandboxes may be alive at once
    #[arg(long, value_name = "COUNT", value_parser = checked::<std::num::NonZeroU32>)]
    pub max_sandboxes: Option<String>,
    /// How long a session may do nothing before it is paused
    #[arg(long, value_name = "MS", value_parser = checked::<std::time::Duration>)]
    pub idle_timeout_ms: Option<String>,
    /// Run agents as plain processes that can do whatever you can
    #[arg(long)]
    pub dangerously_no_sandbox: bool,
}

impl ServeFlags {
    /// What was said for a setting.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        let said = match key {
            "port" => &self.port,
            "host" => &self.host,
            "data_dir" => &self.data_dir,
            "database_url" => &self.database_url,
            "max_sandboxes" => &self.max_sandboxes,
            "idle_timeout_ms" => &self.idle_timeout_ms,
            _ => {
                let has_flag = SETTINGS.iter().any(|of| of.key == key && of.flag.is_some());
                debug_assert!(!has_flag, "{key} is declared with a flag that is not here");
                return None;
            }
        };
        said.as_deref()
    }
}

/// Takes a text that the setting can read, so that a bad flag is an error of the command line.
fn checked<T: Value>(text: &str) -> Result<String, String> {
    match T::read(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err(format!("expected {}", T::EXPECTED)),
    }
}
