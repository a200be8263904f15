//! Which package has the program for a machine, and what that package has to be.

use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::error::InstallError;

/// The release that is installed unless somebody says otherwise: the one that everything is tried with.
pub const PINNED: &str = "2.1.325";

/// The package that people know. It has no program in it, and says which release is the latest.
pub(super) const FRONT: &str = "@anthropic-ai/claude-code";

/// What the packages of the pinned release have to be, whatever a registry says.
const PINNED_PACKAGES: [(&str, &str); 4] = [
    (
        "@anthropic-ai/claude-code-linux-x64",
        "sha512-BqZzMvP/zgLLL34S+7OzbG+cyoFp7gwWHU5koVwsyMlTAz+0zZAmbY+UkzvtN2RXxp6AcMenbYIjQJxoXfUY3w==",
    ),
    (
        "@anthropic-ai/claude-code-linux-arm64",
        "sha512-NCvQcOxr685Y4mkYUjQT8l/Ouzw0k2xWloWeyzfsUtWiOedHosPkaW6XCSpzAl1dMuvDNBF97qpWgVDrSdK2Vw==",
    ),
    (
        "@anthropic-ai/claude-code-linux-x64-musl",
        "sha512-oGdN1c/gsReTlQ5lAktxX8AV7bt3USQsGrTDlFjf+bdIk7Kc8GCTZLGS7aBh59vGsgn4Oz255v/SSZ7+6wWz6g==",
    ),
    (
        "@anthropic-ai/claude-code-linux-arm64-musl",
        "sha512-xZLgceKCX42bUXTqz3Cd1Tc7Li43ys8+gO1SA8ZKJ4q+a0ALv+N2LHQUC1Sr+AY3Qv16VQU/yAvU/iS24CuJdg==",
    ),
];

/// Which libraries the programs of a machine are linked with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Libc {
    Glibc,
    Musl,
}

impl Libc {
    /// By the loader that is there. A machine that has both is one of the first kind.
    pub(super) fn below(root: &Path) -> Self {
        let has = |path: &str| root.join(path).exists();
        let is_glibc = has("lib64/ld-linux-x86-64.so.2") || has("lib/ld-linux-aarch64.so.1");
        let is_musl = has("lib/ld-musl-x86_64.so.1") || has("lib/ld-musl-aarch64.so.1");
        if is_musl && !is_glibc { Self::Musl } else { Self::Glibc }
    }
}

/// The package with the program for a machine.
pub(super) fn package_for(arch: &str, libc: Libc) -> Result<String, InstallError> {
    let arch = match arch {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        _ => {
            let message = format!("there is no Claude Code for a processor of the kind {arch}");
            return Err(InstallError::Unsupported(message));
        }
    };
    let libc = match libc {
        Libc::Glibc => "",
        Libc::Musl => "-musl",
    };
    Ok(format!("{FRONT}-linux-{arch}{libc}"))
}

/// The number by which an executable file says for which processor it is.
pub(super) fn machine_number(arch: &str) -> Option<u16> {
    match arch {
        "x86_64" => Some(62),
        "aarch64" => Some(183),
        _ => None,
    }
}

/// The SHA-512 digest of a package, as registries write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Integrity(Vec<u8>);

impl Integrity {
    /// The strongest that a text names; none, if that is not SHA-512.
    pub(super) fn parse(text: &str) -> Option<Self> {
        text.split_whitespace().find_map(|word| {
            let encoded = word.strip_prefix("sha512-")?.split('?').next()?;
            let digest = BASE64_STANDARD.decode(encoded).ok()?;
            (digest.len() == 64).then_some(Self(digest))
        })
    }

    /// That of a digest.
    pub(super) fn of(digest: &[u8]) -> Self {
        Self(digest.to_owned())
    }

    /// What we know of a package ourselves.
    pub(super) fn known(package: &str, version: &str) -> Option<Self> {
        let (_, text) = PINNED_PACKAGES.iter().find(|(name, _)| *name == package)?;
        (version == PINNED).then(|| Self::parse(text)).flatten()
    }
}

impl std::fmt::Display for Integrity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "sha512-{}", BASE64_STANDARD.encode(&self.0))
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn every_machine_has_its_package() {
        let name = |arch, libc| package_for(arch, libc).unwrap();
        assert_eq!(name("x86_64", Libc::Glibc), "@anthropic-ai/claude-code-linux-x64");
        assert_eq!(name("aarch64", Libc::Musl), "@anthropic-ai/claude-code-linux-arm64-musl");
        assert!(package_for("riscv64", Libc::Glibc).is_err());
        for arch in ["x86_64", "aarch64"] {
            for libc in [Libc::Glibc, Libc::Musl] {
                let known = Integrity::known(&name(arch, libc), PINNED);
                assert!(known.is_some(), "{arch} {libc:?}");
                assert_eq!(Integrity::known(&name(arch, libc), "2.1.1"), None);
            }
        }
    }

    #[test]
    fn the_loader_says_which_libraries_there_are() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(Libc::below(root.path()), Libc::Glibc);
        std::fs::create_dir_all(root.path().join("lib64")).unwrap();
        std::fs::create_dir_all(root.path().join("lib")).unwrap();
        std::fs::write(root.path().join("lib/ld-musl-x86_64.so.1"), "").unwrap();
        assert_eq!(Libc::below(root.path()), Libc::Musl);
        std::fs::write(root.path().join("lib64/ld-linux-x86-64.so.2"), "").unwrap();
        assert_eq!(Libc::below(root.path()), Libc::Glibc);
    }

    #[test]
    fn only_a_whole_sha_512_is_a_digest() {
        let whole = Integrity::of(&[7; 64]);
        let text = whole.to_string();
        assert_eq!(Integrity::parse(&text), Some(whole.clone()));
        assert_eq!(Integrity::parse(&format!("sha1-AAAA {text}?x")), Some(whole));
        for odd in ["", "sha1-AAAA", "sha512-", "sha512-AAAA", "sha512-*", "md5-AAAA"] {
            assert_eq!(Integrity::parse(odd), None, "{odd}");
        }
    }
}
