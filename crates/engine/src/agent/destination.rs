//! Hosts that an agent may reach beside the model: the entries of `egress` in `ash.toml`.
//!
//! | entry | allows |
//! |---|---|
//! | `api.example.com` | that name, on the ports 443 and 80 |
//! | `api.example.com:8443` | that name, on that port alone |
//! | `*.example.com` | every name below it, and not itself |
//! | `preset:npm` | what a package manager or a git host needs |
//! | `1.1.1.1`, `[2606:4700::1111]:443` | an address, written as addresses are |
//!
//! Where a name leads to is not looked at here: whoever connects does.

use std::net::{IpAddr, Ipv6Addr};

/// Where a destination that names no port may be reached.
const USUAL_PORTS: [u16; 2] = [443, 80];

/// How an entry begins that stands for several hosts.
const PRESET: &str = "preset:";

/// Hosts of package managers and git hosts, by name.
const PRESETS: [(&str, &[&str]); 7] = [
    ("crates", &["crates.io", "index.crates.io", "static.crates.io"]),
    ("debian", &["deb.debian.org", "security.debian.org"]),
    ("github", &["github.com", "api.github.com", "codeload.github.com", "*.githubusercontent.com"]),
    ("gitlab", &["gitlab.com", "registry.gitlab.com"]),
    ("go", &["proxy.golang.org", "sum.golang.org"]),
    ("npm", &["registry.npmjs.org", "registry.yarnpkg.com"]),
    ("pypi", &["pypi.org", "files.pythonhosted.org"]),
];

/// A host as it is looked up: a name in lower case, or an address. There is one spelling of each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// A name.
    Name(String),
    /// An address.
    Address(IpAddr),
}

/// Why a text is no host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// It is no name that can be looked up.
    #[error("it is no name of a host")]
    NoName,
    /// Some programs would take it for an address: `127.1`, `0x7f000001`, `2130706433`.
    #[error("it is an address in an unusual spelling")]
    OddAddress,
}

/// Hosts and a port that an agent may reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    pattern: Pattern,
    /// None: the usual ones.
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    Exactly(Host),
    /// Every name that ends so; it begins with a dot.
    Below(String),
}

impl Host {
    /// Reads a host as a request names it. A name may end with a dot; an IPv6 address stands in
    /// brackets, as it does in an address of the web.
    pub fn parse(text: &str) -> Result<Self, HostError> {
        if let Some(inner) = text.strip_prefix('[') {
            let inner = inner.strip_suffix(']').ok_or(HostError::NoName)?;
            let address: Ipv6Addr = inner.parse().map_err(|_| HostError::NoName)?;
            return Ok(Self::Address(address.into()));
        }
        if let Ok(address) = text.parse::<std::net::Ipv4Addr>() {
            return Ok(Self::Address(address.into()));
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let last = name.rsplit('.').next().unwrap_or_default();
        let is_number = |label: &str| {
            let digits = label.strip_prefix("0x");
            digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
                || (!label.is_empty() && label.bytes().all(|byte| byte.is_ascii_digit()))
        };
        if is_number(last) {
            return Err(HostError::OddAddress);
        }
        let fits = name.len() <= 253 && name.split('.').all(is_label);
        if fits { Ok(Self::Name(name)) } else { Err(HostError::NoName) }
    }
}

impl std::fmt::Display for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V4(address)) => write!(f, "{address}"),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

/// A label of a name. Underscores are in names that exist, though not in those of hosts.
fn is_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        && !label.starts_with('-')
        && !label.ends_with('-')
}

impl Destination {
    /// Reads one entry of `egress`; a preset is several.
    pub fn parse(entry: &str) -> Result<Vec<Self>, String> {
        let Some(name) = entry.strip_prefix(PRESET) else {
            return Self::parse_one(entry).map(|one| vec![one]);
        };
        let known = PRESETS.iter().find(|(preset, _)| *preset == name);
        let Some((_, hosts)) = known else {
            let names: Vec<&str> = PRESETS.iter().map(|(name, _)| *name).collect();
            let names = names.join(", ");
            return Err(format!("there is no preset {name:?}; there are {names}"));
        };
        hosts.iter().map(|host| Self::parse_one(host)).collect()
    }

    fn parse_one(entry: &str) -> Result<Self, String> {
        let no_host = |why: &dyn std::fmt::Display| {
            format!("egress takes names of hosts, and {entry:?} is none: {why}")
        };
        let (host, port) = split_port(entry).ok_or_else(|| no_host(&"its port is no port"))?;
        let pattern = match host.strip_prefix("*.") {
            None => Pattern::Exactly(Host::parse(host).map_err(|error| no_host(&error))?),
            Some(below) => match Host::parse(below).map_err(|error| no_host(&error))? {
                Host::Name(name) if name.contains('.') => Pattern::Below(format!(".{name}")),
                Host::Name(_) => return Err(no_host(&"a pattern has two labels or more")),
                Host::Address(_) => return Err(no_host(&"no address is below another")),
            },
        };
        Ok(Self { pattern, port })
    }

    /// Whether a host may be reached on a port.
    pub fn allows(&self, host: &Host, port: u16) -> bool {
        let fits = match self.port {
            Some(only) => only == port,
            None => USUAL_PORTS.contains(&port),
        };
        fits && match (&self.pattern, host) {
            (Pattern::Exactly(wanted), host) => wanted == host,
            (Pattern::Below(suffix), Host::Name(name)) => name.ends_with(suffix.as_str()),
            (Pattern::Below(_), Host::Address(_)) => false,
        }
    }
}

/// A host and the port behind it, if there is one; nothing, if what is behind it is no port.
pub fn split_port(text: &str) -> Option<(&str, Option<u16>)> {
    let behind = text.rfind(']').map_or(0, |bracket| bracket + 1);
    let Some(colon) = text[behind..].find(':') else { return Some((text, None)) };
    let (host, port) = text.split_at(behind + colon);
    let digits = &port[1..];
    let is_port = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let port: u16 = is_port.then(|| digits.parse().ok())??;
    (port != 0).then_some((host, Some(port)))
}

#[cfg(test)]
mod test;
