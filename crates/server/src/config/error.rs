//! Why a configuration is not taken.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

/// What is wrong with the configuration. The message names where it was said.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("could not read {}", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The file is not TOML.
    #[error("{} line {line} is not TOML: {detail}", path.display())]
    Syntax {
        /// Which file.
        path: PathBuf,
        /// The line, from one.
        line: usize,
        /// What the parser says.
        detail: String,
    },
    /// The file sets something that does not exist.
    #[error("{} line {line}: there is no setting `{key}`{hint}", path.display())]
    UnknownKey {
        /// Which file.
        path: PathBuf,
        /// The line, from one.
        line: usize,
        /// What it sets.
        key: String,
        /// The setting that was probably meant, as the end of the sentence.
        hint: String,
    },
    /// A variable of ours cannot be read at all.
    #[error("the variable {name} is not UTF-8")]
    NotText {
        /// Which variable.
        name: String,
    },
    /// A value is not what it has to be.
    #[error("{origin} is `{shown}`: expected {expected}")]
    Value {
        /// Where it was said.
        origin: Origin,
        /// The value; a secret is not shown.
        shown: String,
        /// What it has to be.
        expected: String,
    },
    /// The server would be open to other machines.
    #[error(
        "{origin} is `{host}`, which other machines can reach: with --dangerously-no-sandbox agents are plain \
         processes, without isolation, so that whoever reaches the server could run anything as you; \
         listen on a loopback address, or leave the flag out"
    )]
    Exposed {
        /// Where it was said.
        origin: Origin,
        /// The address.
        host: IpAddr,
    },
}

/// Where a value was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nowhere: it is what holds by itself.
    Default(&'static str),
    /// In the configuration file.
    File {
        /// Which file.
        path: PathBuf,
        /// The line, from one.
        line: usize,
        /// Its key there.
        key: &'static str,
    },
    /// In the environment, by this variable.
    Environment(&'static str),
    /// On the command line, by this flag.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default(name) => write!(f, "the default of {name}"),
            Self::File { path, line, key } => {
                write!(f, "`{key}` in {} line {line}", path.display())
            }
            Self::Environment(name) | Self::Flag(name) => f.write_str(name),
        }
    }
}
