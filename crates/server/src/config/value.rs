//! How the text of a setting becomes a value, and how a value is shown.
//!
//! One reading for every source: a flag, a variable and a line of `server.toml` mean the same.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use crate::api;
use crate::egress::PrivateHosts;
use ash_engine::runtimes::Version;

/// The longest time that a setting may name, a hundred years: sums with the clock stay in range.
const MAX_MILLIS: u64 = 100 * 365 * 24 * 60 * 60 * 1000;

/// What stands for a secret wherever settings are shown.
pub const REDACTED: &str = "***";

/// A type that a setting can have.
pub(crate) trait Value: Sized {
    /// What a text has to be, after "expected".
    const EXPECTED: &'static str;
    /// Whether it is kept from every output.
    const SECRET: bool = false;
    /// Whether `server.toml` may give it as a number.
    const NUMBER: bool = false;
    /// Whether `server.toml` may give it as a list.
    const LIST: bool = false;
    /// Words that mean "none" where it may be absent.
    const WORDS_FOR_NONE: &'static [&'static str] = &[];
    /// Words that switch the setting off.
    const OFF: &'static [&'static str] = &[];

    /// Reads a text; nothing if it is not what is expected.
    fn read(text: &str) -> Option<Self>;

    /// How it is shown to people; nothing if it is not set.
    fn show(&self) -> Option<String>;

    /// How a text that could not be read is shown. It may hold a secret all the same.
    fn show_text(text: &str) -> String {
        if Self::SECRET { REDACTED.to_owned() } else { without_password(text) }
    }
}

/// A text that cannot be printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// A secret that travels in a header: visible ASCII. It cannot be printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(String);

macro_rules! unprintable {
    ($name:ident) => {
        impl $name {
            /// The text itself. Whoever asks for it keeps it out of logs and answers.
            pub fn expose(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!(stringify!($name), "(..)"))
            }
        }
    };
}

unprintable!(Secret);
unprintable!(Key);

/// An address that begins with `http://` or `https://`. It is printed without a password.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpUrl(String);

/// Where snapshots are copied to: `s3://` or `gs://`, a bucket, and a prefix if there is one.
#[derive(Clone, PartialEq, Eq)]
pub struct BucketUrl(String);

macro_rules! url {
    ($name:ident) => {
        impl $name {
            /// The whole address.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), without_password(&self.0))
            }
        }
    };
}

url!(HttpUrl);
url!(BucketUrl);

/// A SQLite database at a place of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseUrl(PathBuf);

impl DatabaseUrl {
    /// Where the file is.
    pub fn path(&self) -> &std::path::Path {
        &self.0
    }
}

/// What an agent may do without asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PermissionMode {
    /// Everything: the sandbox is the limit.
    BypassPermissions,
    /// What the agent's own settings allow.
    PermissionsByAgent,
    /// Nothing that changes something.
    Default,
    /// Changing files.
    AcceptEdits,
    /// Nothing that changes something, and it does not ask either.
    Plan,
}

impl PermissionMode {
    /// The same as a session has it.
    pub fn of_session(self) -> api::PermissionMode {
        match self {
            Self::BypassPermissions => api::PermissionMode::BypassPermissions,
            Self::PermissionsByAgent => api::PermissionMode::PermissionsByAgent,
            Self::Default => api::PermissionMode::Default,
            Self::AcceptEdits => api::PermissionMode::AcceptEdits,
            Self::Plan => api::PermissionMode::Plan,
        }
    }

    /// Its name on the wire.
    pub fn as_str(self) -> &'static str {
        self.of_session().as_str()
    }
}

/// The least isolation that sandboxes are started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MinIsolation {
    /// A user id of its own for each session, which takes root.
    Full,
    /// Namespaces, as an ordinary user can have them.
    Rootless,
}

impl MinIsolation {
    /// Its name in settings and in `/health`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Rootless => "rootless",
        }
    }
}

/// What runs agents that do not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultRuntime {
    /// Claude Code.
    Claude,
    /// Our own loop.
    Builtin,
    /// A bridge program of the original.
    Legacy,
}

impl Value for DefaultRuntime {
    const EXPECTED: &'static str = "one of claude, builtin, legacy";

    fn read(text: &str) -> Option<Self> {
        match text {
            "claude" => Some(Self::Claude),
            "builtin" => Some(Self::Builtin),
            "legacy" => Some(Self::Legacy),
            _ => None,
        }
    }

    fn show(&self) -> Option<String> {
        let name = match self {
            Self::Claude => "claude",
            Self::Builtin => "builtin",
            Self::Legacy => "legacy",
        };
        Some(name.to_owned())
    }
}

impl Value for Version {
    const EXPECTED: &'static str = "a version such as 2.1.325";

    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn show(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Value for u16 {
    const EXPECTED: &'static str = "a port from 0 to 65535";
    const NUMBER: bool = true;

    fn read(text: &str) -> Option<Self> {
        digits(text)?.try_into().ok()
    }

    fn show(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Value for u32 {
    const EXPECTED: &'static str = "a whole number from 0 to 4294967295";
    const NUMBER: bool = true;

    fn read(text: &str) -> Option<Self> {
        digits(text)?.try_into().ok()
    }

    fn show(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Value for NonZeroU32 {
    const EXPECTED: &'static str = "a whole number from 1 to 4294967295";
    const NUMBER: bool = true;
    const WORDS_FOR_NONE: &'static [&'static str] = &["off", "0"];

    fn read(text: &str) -> Option<Self> {
        Self::new(digits(text)?.try_into().ok()?)
    }

    fn show(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Value for Duration {
    const EXPECTED: &'static str = "a number of milliseconds, at most a hundred years";
    const NUMBER: bool = true;
    const WORDS_FOR_NONE: &'static [&'static str] = &["off", "0"];

    fn read(text: &str) -> Option<Self> {
        digits(text).filter(|millis| *millis <= MAX_MILLIS).map(Self::from_millis)
    }

    fn show(&self) -> Option<String> {
        Some(self.as_millis().to_string())
    }
}

impl Value for IpAddr {
    const EXPECTED: &'static str = "an IP address such as 127.0.0.1 or ::1";

    fn read(text: &str) -> Option<Self> {
        if text == "localhost" { Some(Ipv4Addr::LOCALHOST.into()) } else { text.parse().ok() }
    }

    fn show(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Value for PathBuf {
    const EXPECTED: &'static str = "a path";

    fn read(text: &str) -> Option<Self> {
        (!text.is_empty() && !text.contains('\0')).then(|| text.into())
    }

    fn show(&self) -> Option<String> {
        Some(self.display().to_string())
    }
}

impl Value for String {
    const EXPECTED: &'static str = "a text";

    fn read(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| text.to_owned())
    }

    fn show(&self) -> Option<String> {
        Some(self.clone())
    }
}

impl Value for Secret {
    const EXPECTED: &'static str = "a text that is hard to guess";
    const SECRET: bool = true;

    fn read(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| Self(text.to_owned()))
    }

    fn show(&self) -> Option<String> {
        Some(REDACTED.to_owned())
    }
}

impl Value for Key {
    // A line break at its end is an accident of how it was read from a file, and breaks the header.
    const EXPECTED: &'static str = "a key of visible ASCII characters, without spaces";
    const SECRET: bool = true;

    fn read(text: &str) -> Option<Self> {
        let is_key = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_key.then(|| Self(text.to_owned()))
    }

    fn show(&self) -> Option<String> {
        Some(REDACTED.to_owned())
    }
}

impl Value for HttpUrl {
    const EXPECTED: &'static str = "an address that begins with http:// or https://";

    fn read(text: &str) -> Option<Self> {
        let url = reqwest::Url::parse(text).ok()?;
        let is_http = matches!(url.scheme(), "http" | "https") && url.has_host();
        is_http.then(|| Self(text.to_owned()))
    }

    fn show(&self) -> Option<String> {
        Some(without_password(&self.0))
    }
}

impl Value for BucketUrl {
    const EXPECTED: &'static str =
        "a bucket such as s3://bucket/prefix or gs://bucket, or a directory such as file:///path";

    fn read(text: &str) -> Option<Self> {
        if text.strip_prefix("file:///").is_some_and(|path| !path.is_empty()) {
            return Some(Self(text.to_owned()));
        }
        let rest = text.strip_prefix("s3://").or_else(|| text.strip_prefix("gs://"))?;
        let has_bucket = rest.split('/').next().is_some_and(|bucket| !bucket.is_empty());
        has_bucket.then(|| Self(text.to_owned()))
    }

    fn show(&self) -> Option<String> {
        Some(without_password(&self.0))
    }
}

impl Value for DatabaseUrl {
    // Refused rather than ignored: whoever names a PostgreSQL must not find everything in a file.
    const EXPECTED: &'static str =
        "a SQLite database such as sqlite:///var/lib/ash/ash.db (there is no PostgreSQL yet)";

    fn read(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("sqlite:")?;
        let path = rest.strip_prefix("//").unwrap_or(rest);
        PathBuf::read(path).map(Self)
    }

    fn show(&self) -> Option<String> {
        Some(format!("sqlite://{}", self.0.display()))
    }
}

impl Value for PermissionMode {
    const EXPECTED: &'static str =
        "one of bypassPermissions, permissionsByAgent, default, acceptEdits, plan";

    fn read(text: &str) -> Option<Self> {
        let modes = [
            Self::BypassPermissions,
            Self::PermissionsByAgent,
            Self::Default,
            Self::AcceptEdits,
            Self::Plan,
        ];
        modes.into_iter().find(|mode| mode.as_str() == text)
    }

    fn show(&self) -> Option<String> {
        Some(self.as_str().to_owned())
    }
}

impl Value for MinIsolation {
    const EXPECTED: &'static str =
        "one of full, rootless (without any: the flag --dangerously-no-sandbox)";

    fn read(text: &str) -> Option<Self> {
        [Self::Full, Self::Rootless].into_iter().find(|tier| tier.as_str() == text)
    }

    fn show(&self) -> Option<String> {
        Some(self.as_str().to_owned())
    }
}

/// Origins of pages, separated by commas.
impl Value for Vec<String> {
    const EXPECTED: &'static str =
        "origins such as https://console.example.com, separated by commas";
    const LIST: bool = true;

    fn read(text: &str) -> Option<Self> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        parts.map(origin).collect()
    }

    fn show(&self) -> Option<String> {
        (!self.is_empty()).then(|| self.join(","))
    }
}

/// Ranges of addresses and names of hosts, separated by commas.
impl Value for PrivateHosts {
    const EXPECTED: &'static str =
        "ranges of addresses and names of hosts, such as 10.1.0.0/16,vault.internal";
    const LIST: bool = true;

    fn read(text: &str) -> Option<Self> {
        Self::parse(text)
    }

    fn show(&self) -> Option<String> {
        Some(self.to_string())
    }
}

/// A setting that may be absent: the empty text, or a word that switches it off.
impl<T: Value> Value for Option<T> {
    const EXPECTED: &'static str = T::EXPECTED;
    const SECRET: bool = T::SECRET;
    const NUMBER: bool = T::NUMBER;
    const LIST: bool = T::LIST;
    const OFF: &'static [&'static str] = T::WORDS_FOR_NONE;

    fn read(text: &str) -> Option<Self> {
        if text.is_empty() || Self::OFF.contains(&text) {
            return Some(None);
        }
        T::read(text).map(Some)
    }

    fn show(&self) -> Option<String> {
        match self {
            Some(value) => value.show(),
            None => Self::OFF.first().map(|word| (*word).to_owned()),
        }
    }

    fn show_text(text: &str) -> String {
        T::show_text(text)
    }
}

/// Digits and nothing else: `str::parse` would take a plus sign, too.
fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// A scheme, a host and perhaps a port: exactly what a browser sends as `Origin`.
fn origin(text: &str) -> Option<String> {
    let url = reqwest::Url::parse(text).ok()?;
    let plain = url.origin().ascii_serialization();
    (url.has_host() && plain == text.trim_end_matches('/').to_ascii_lowercase()).then_some(plain)
}

/// An address without what stands between its scheme and an `@`.
fn without_password(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) => format!("{scheme}://{REDACTED}@{}", &rest[at + 1..]),
        None => text.to_owned(),
    }
}
