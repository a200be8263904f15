//! Asks an npm registry for a package: what it is, and then its bytes.
//!
//! What the registry says a package has to be is believed only from the host that was asked; the package itself
//! may come from anywhere, because its digest is compared.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use futures_util::StreamExt as _;
use reqwest::header::{ACCEPT, LOCATION};
use reqwest::{Response, StatusCode, Url};
use ring::digest::{Context, SHA512};
use serde::Deserialize;

use super::error::{InstallError, at};
use super::npmrc::PUBLIC;
use super::package::Integrity;

/// How long the registry may be silent.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How large what is said of a package may be.
const MAX_MANIFEST: usize = 4 << 20;

/// How large a package may be: six times what one has today.
const MAX_PACKAGE: u64 = 1 << 30;

/// How often one may be sent elsewhere.
const MAX_HOPS: usize = 5;

/// A registry.
pub(super) struct Registry {
    client: reqwest::Client,
    base: Url,
    patience: Duration,
}

/// What a registry says of one version of a package.
#[derive(Debug, Deserialize)]
pub(super) struct Manifest {
    pub(super) version: String,
    pub(super) dist: Dist,
}

/// Where the package is, and what it has to be.
#[derive(Debug, Deserialize)]
pub(super) struct Dist {
    #[serde(default)]
    pub(super) integrity: Option<String>,
    pub(super) tarball: String,
}

/// Where one may be sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SentTo {
    /// Only to other places of the same host.
    SameHost,
    Anywhere,
}

impl Registry {
    pub(super) fn new(base: Url, patience: Duration) -> Result<Self, InstallError> {
        // One crypto provider for the whole process; whoever came first chose the same.
        let _installed = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .connect_timeout(patience)
            .read_timeout(patience)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| InstallError::Unreachable(with_causes(&error)))?;
        Ok(Self { client, base, patience })
    }

    /// What it is called in what people are told: without a password.
    fn name(&self) -> &str {
        self.base.host_str().unwrap_or("the registry")
    }

    /// What the registry says of a version, or of the one that has this tag.
    pub(super) async fn manifest(
        &self,
        package: &str,
        version: &str,
    ) -> Result<Manifest, InstallError> {
        let url = self.place(&format!("{}/{version}", package.replace('/', "%2f")))?;
        let response = self.get(url, SentTo::SameHost).await?;
        let name = self.name();
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => {
                let message = format!("{name} has no {package} of version {version}");
                return Err(InstallError::NotFound(message));
            }
            other => return Err(self.odd(other)),
        }
        let mut body = Vec::new();
        let mut stream = response.bytes_stream();
        while let Some(chunk) = stream.next().await {
            body.extend_from_slice(&chunk.map_err(|error| self.silent(&error))?);
            if body.len() > MAX_MANIFEST {
                let message = format!("{name} says too much of {package}");
                return Err(InstallError::Refused(message));
            }
        }
        serde_json::from_slice(&body).map_err(|error| {
            InstallError::Unreachable(format!("{name} does not answer as an npm registry: {error}"))
        })
    }

    /// Writes a package into a file, and says what it is. `progress` is told what has come, and of how much.
    pub(super) async fn fetch(
        &self,
        url: Url,
        into: &Path,
        progress: impl Fn(u64, Option<u64>),
    ) -> Result<Integrity, InstallError> {
        let response = self.get(url, SentTo::Anywhere).await?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => {
                let message = format!("{} does not have the package that it names", self.name());
                return Err(InstallError::NotFound(message));
            }
            other => return Err(self.odd(other)),
        }
        let too_large = || {
            let message = format!("the package has more than {} MB", MAX_PACKAGE >> 20);
            InstallError::Refused(message)
        };
        let total = response.content_length();
        if total.is_some_and(|total| total > MAX_PACKAGE) {
            return Err(too_large());
        }
        let mut file = File::create_new(into).map_err(at(into))?;
        let mut digest = Context::new(&SHA512);
        let mut done = 0;
        let mut stream = response.bytes_stream();
        while let Some(chunk) = stream.next().await {
            let chunk = chunk.map_err(|error| self.silent(&error))?;
            done += chunk.len() as u64;
            if done > MAX_PACKAGE {
                return Err(too_large());
            }
            digest.update(&chunk);
            file.write_all(&chunk).map_err(at(into))?;
            progress(done, total);
        }
        Ok(Integrity::of(digest.finish().as_ref()))
    }

    /// Where a package is. One that lies with the public registry is asked of the registry that was named
    /// instead: a mirror may pass on what it was told, and the machine may reach nobody else.
    pub(super) fn tarball(
        &self,
        package: &str,
        version: &str,
        tarball: &str,
    ) -> Result<Url, InstallError> {
        let odd = || {
            let message = format!("{} says that {package} is at no address", self.name());
            InstallError::Refused(message)
        };
        let url = Url::parse(tarball).map_err(|_| odd())?;
        let public = Url::parse(PUBLIC).expect("it is one");
        if url.host_str() == public.host_str() && self.base.host_str() != public.host_str() {
            let file = package.rsplit('/').next().unwrap_or(package);
            return self.place(&format!("{package}/-/{file}-{version}.tgz"));
        }
        self.is_as_safe(&self.base, &url).then_some(url).ok_or_else(odd)
    }

    fn place(&self, below: &str) -> Result<Url, InstallError> {
        let base = self.base.as_str().split(['?', '#']).next().unwrap_or_default();
        let url = Url::parse(&format!("{}/{below}", base.trim_end_matches('/')));
        url.map_err(|error| InstallError::Unreachable(error.to_string()))
    }

    async fn get(&self, mut url: Url, sent_to: SentTo) -> Result<Response, InstallError> {
        for _ in 0..=MAX_HOPS {
            let asked = self.client.get(url.clone()).header(ACCEPT, "application/json, */*");
            let response = asked.send().await.map_err(|error| self.silent(&error))?;
            if !response.status().is_redirection() {
                return Ok(response);
            }
            let next = response.headers().get(LOCATION).and_then(|to| to.to_str().ok());
            let next = next.and_then(|next| url.join(next).ok()).filter(|next| {
                let is_same = (next.host_str(), next.port_or_known_default())
                    == (url.host_str(), url.port_or_known_default());
                self.is_as_safe(&url, next) && (sent_to == SentTo::Anywhere || is_same)
            });
            let Some(next) = next else {
                let message = format!("{} sends us to where we do not go", self.name());
                return Err(InstallError::Refused(message));
            };
            url = next;
        }
        Err(InstallError::Unreachable(format!("{} sends us from place to place", self.name())))
    }

    /// Whether nobody can listen who could not before.
    fn is_as_safe(&self, from: &Url, to: &Url) -> bool {
        matches!((from.scheme(), to.scheme()), ("http", "http" | "https") | ("https", "https"))
            && to.has_host()
    }

    fn odd(&self, status: StatusCode) -> InstallError {
        let name = self.name();
        InstallError::Unreachable(format!("{name} answers with the status {status}"))
    }

    fn silent(&self, error: &reqwest::Error) -> InstallError {
        let name = self.name();
        InstallError::Unreachable(if error.is_timeout() {
            format!("{name} was silent for {} s", self.patience.as_secs_f32())
        } else {
            format!("{name} cannot be reached, or stopped in the middle: {}", with_causes(error))
        })
    }
}

/// An error and what it came from. No address is in it, which may have a password.
fn with_causes(error: &reqwest::Error) -> String {
    let mut texts = Vec::new();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        texts.push(error.to_string());
        cause = error.source();
    }
    if texts.is_empty() { "the request failed".to_owned() } else { texts.join(": ") }
}
