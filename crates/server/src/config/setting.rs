//! The one place where a setting is declared.

use super::value::Value;

/// What is known of a setting before anybody has set it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    /// Its key in `server.toml`, and the name of its field.
    pub(crate) key: &'static str,
    /// Its variable.
    pub(crate) env: &'static str,
    /// Its flag, if it has one.
    pub(crate) flag: Option<&'static str>,
    /// The text that holds when nobody says anything; empty: it is not set.
    pub(crate) default: &'static str,
    /// What it does, in one line.
    pub(crate) doc: &'static str,
    /// Whether it does it yet.
    pub(crate) effect: Effect,
    /// What a value has to be.
    pub(crate) expected: &'static str,
    /// Whether it is kept from every output.
    pub(crate) secret: bool,
    /// Whether `server.toml` may give it as a number.
    pub(crate) number: bool,
    /// Whether `server.toml` may give it as a list.
    pub(crate) list: bool,
    /// Words that switch it off.
    pub(crate) off: &'static [&'static str],
}

/// Whether a setting does anything yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It does what its line says.
    Now,
    /// It is read and shown, and waits for this part of the server.
    Later(&'static str),
}

impl Setting {
    pub(crate) const fn new<T: Value>(names: Names, doc: &'static str, effect: Effect) -> Self {
        let Names { key, env, flag, default } = names;
        let (expected, secret, off) = (T::EXPECTED, T::SECRET, T::OFF);
        let (number, list) = (T::NUMBER, T::LIST);
        Self { key, env, flag, default, doc, effect, expected, secret, number, list, off }
    }

    /// What it does, and whether it does it yet.
    pub(crate) fn doc(&self) -> String {
        match self.effect {
            Effect::Now => self.doc.trim().to_owned(),
            Effect::Later(part) => format!("{} (no effect yet: waits for {part})", self.doc.trim()),
        }
    }
}

/// How a setting is called, and what it is when nobody calls it.
pub(crate) struct Names {
    pub(crate) key: &'static str,
    pub(crate) env: &'static str,
    pub(crate) flag: Option<&'static str>,
    pub(crate) default: &'static str,
}

/// Declares every setting once: its field, its row in the table, and how it is read.
///
/// A function cannot do it: the fields have types of their own. A line is
/// `/// doc`, then `field: Type = "VARIABLE" ("--flag") default "text", effect;`.
macro_rules! settings {
    (
        $(#[$meta:meta])*
        pub struct $config:ident;
        $(
            #[doc = $doc:literal]
            $key:ident: $kind:ty = $env:literal $(($flag:literal))? default $default:literal, $effect:expr;
        )*
    ) => {
        $(#[$meta])*
        pub struct $config {
            $(#[doc = $doc] pub $key: $kind,)*
            /// Agents may run without isolation: the flag `--dangerously-no-sandbox` was given
            pub dangerously_no_sandbox: bool,
            /// The file that settings were read from
            pub file: Option<PathBuf>,
            /// Where programs of the machine are looked for: the variable `PATH`
            pub search_path: Option<String>,
            shown: Vec<Effective>,
            warnings: Vec<String>,
        }

        /// Every setting, in the order in which they are shown.
        pub(crate) const SETTINGS: &[Setting] = &[
            $(Setting::new::<$kind>(
                Names {
                    key: stringify!($key),
                    env: $env,
                    flag: [$(Some($flag),)? None][0],
                    default: $default,
                },
                $doc,
                $effect,
            ),)*
        ];

        impl $config {
            fn read(sources: &mut Sources<'_>) -> Result<Self, ConfigError> {
                Ok(Self {
                    $($key: sources.read(stringify!($key))?,)*
                    dangerously_no_sandbox: false,
                    file: None,
                    search_path: None,
                    shown: Vec::new(),
                    warnings: Vec::new(),
                })
            }
        }
    };
}

pub(super) use settings;
