//! From the url of a store to its objects.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::gcp::{GcpCredential, GoogleCloudStorageBuilder};
use object_store::{BackoffConfig, ClientOptions, RetryConfig, StaticCredentialProvider};
use reqwest::Url;

use super::answer::Watching;
use super::{Limits, LocalObjects, MemoryObjects, Objects, RemoteObjects, Signs, check_name};

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(5);

/// Something that must not be read by others. It is not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// A secret.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Who asks Google.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum GoogleCredentials {
    /// Whoever this machine is: what its metadata service says.
    #[default]
    Machine,
    /// The file of a service account, or of a user who has logged in.
    File(PathBuf),
    /// The key of a service account, as JSON.
    Json(Secret),
    /// Whoever this token was given to.
    Bearer(Secret),
}

/// How a store is reached, beside its url.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where the server is, if it is not the one of Amazon or Google.
    pub endpoint: Option<String>,
    /// S3: the region of the bucket.
    pub region: Option<String>,
    /// S3: the id of the key. Without one, this machine's metadata service is asked.
    pub access_key: Option<String>,
    /// S3: the key.
    pub secret_key: Option<Secret>,
    /// S3: what comes with a key that is lent.
    pub session_token: Option<Secret>,
    /// GCS: who asks.
    pub google: GoogleCredentials,
    /// Whether an endpoint that is not on this machine may be spoken to without TLS.
    pub allow_http: bool,
    /// How patient to be.
    pub limits: Limits,
    /// Where what comes from it is counted.
    pub signs: Signs,
}

/// Whether a url names a store on a server.
pub fn is_remote(url: &str) -> bool {
    url.starts_with("s3://") || url.starts_with("gs://")
}

/// The directory that `file:///path` or a path names.
pub fn directory(url: &str) -> io::Result<PathBuf> {
    match url.split_once("://") {
        None if url == "memory:" => Err(wrong("memory: is no directory".to_owned())),
        None => Ok(PathBuf::from(url)),
        Some(("file", _)) => {
            let path = Url::parse(url).ok().and_then(|url| url.to_file_path().ok());
            path.ok_or_else(|| wrong(format!("{url} names no file of this machine")))
        }
        Some((scheme, _)) => Err(wrong(format!(
            "{scheme}:// is no store that is known: s3://, gs:// and file:// are"
        ))),
    }
}

/// The objects at a url: `s3://bucket/prefix`, `gs://bucket/prefix`, `memory:`, `file:///path`, or a path.
pub fn open(url: &str, options: &Options) -> io::Result<Box<dyn Objects>> {
    match url.split_once("://") {
        Some(("s3", place)) => Ok(Box::new(s3(url, place, options)?)),
        Some(("gs", place)) => Ok(Box::new(google(url, place, options)?)),
        None if url == "memory:" => Ok(Box::new(MemoryObjects::default())),
        Some(_) | None => Ok(Box::new(LocalObjects::open_mounted(&directory(url)?)?)),
    }
}

fn wrong(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// A bucket, and the prefix in it.
fn split<'a>(url: &str, place: &'a str) -> io::Result<(&'a str, &'a str)> {
    let place = place.trim_end_matches('/');
    let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
    if check_name(place).is_err() {
        let form = "a scheme, a bucket and a prefix, of letters, digits, `-`, `.`, `_`";
        return Err(wrong(format!("{url} is not understood: it has to be {form}")));
    }
    Ok((bucket, prefix))
}

/// An endpoint that may be spoken to.
fn endpoint(options: &Options) -> io::Result<Option<&str>> {
    let Some(endpoint) = options.endpoint.as_deref() else { return Ok(None) };
    let endpoint = endpoint.trim_end_matches('/');
    // Not repeated: whoever puts a password into it does not want to see it.
    let not_understood = || wrong("the endpoint has to be https://host:port".to_owned());
    let url = Url::parse(endpoint).map_err(|_| not_understood())?;
    let is_bare = url.username().is_empty() && url.password().is_none() && url.query().is_none();
    let Some(host) = url.host_str().filter(|_| is_bare) else { return Err(not_understood()) };
    match url.scheme() {
        "https" => Ok(Some(endpoint)),
        "http" if options.allow_http || is_loopback(host) => Ok(Some(endpoint)),
        "http" => Err(wrong(format!(
            "{host} is not on this machine, and http:// would show everybody what is stored: use \
             https://, or allow http"
        ))),
        _ => Err(not_understood()),
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let address = address.parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// What both have in common.
fn client(options: &Options, endpoint: Option<&str>) -> (ClientOptions, RetryConfig) {
    let client = ClientOptions::new()
        // How long something may take is decided by whoever knows how much is asked for.
        .with_timeout_disabled()
        .with_connect_timeout(CONNECT.min(options.limits.timeout))
        .with_allow_http(endpoint.is_some_and(|endpoint| endpoint.starts_with("http://")));
    // And whether to try again by whoever knows what an answer that was lost means.
    let retry = RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: 0,
        retry_timeout: options.limits.timeout,
    };
    (client, retry)
}

fn s3(url: &str, place: &str, options: &Options) -> io::Result<RemoteObjects> {
    let (bucket, prefix) = split(url, place)?;
    let endpoint = endpoint(options)?;
    let (client, retry) = client(options, endpoint);
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(bucket)
        .with_region(options.region.as_deref().unwrap_or("us-east-1"))
        .with_http_connector(Watching::default())
        .with_client_options(client)
        .with_retry(retry)
        // One request for each: not every server has the other kind.
        .with_disable_bulk_delete(true);
    if let Some(endpoint) = endpoint {
        builder = builder.with_endpoint(endpoint);
    }
    let mut note = "";
    match (&options.access_key, &options.secret_key) {
        (Some(id), Some(Secret(key))) => {
            builder = builder.with_access_key_id(id).with_secret_access_key(key);
        }
        (None, None) => {
            note = "; no key was given, and this machine's metadata service was asked for one";
        }
        (Some(_), None) => return Err(wrong("there is the id of a key, and no key".to_owned())),
        (None, Some(_)) => return Err(wrong("there is a key, and not its id".to_owned())),
    }
    if let Some(Secret(token)) = &options.session_token {
        builder = builder.with_token(token);
    }
    let store = builder.build().map_err(|error| wrong(format!("{url}: {error}")))?;
    let mut objects = RemoteObjects::over(Arc::new(store), prefix, url, options.limits)?;
    objects.note(note);
    objects.count(options.signs.clone());
    Ok(objects)
}

fn google(url: &str, place: &str, options: &Options) -> io::Result<RemoteObjects> {
    let (bucket, prefix) = split(url, place)?;
    let endpoint = endpoint(options)?;
    let (client, retry) = client(options, endpoint);
    let mut builder = GoogleCloudStorageBuilder::new()
        .with_bucket_name(bucket)
        .with_http_connector(Watching::default())
        .with_client_options(client)
        .with_retry(retry);
    if let Some(endpoint) = endpoint {
        builder = builder.with_base_url(endpoint);
    }
    let mut note = "";
    match &options.google {
        GoogleCredentials::Machine => {
            note = "; no credentials were given, and this machine's metadata service was asked";
        }
        GoogleCredentials::File(path) => {
            let read = std::fs::read_to_string(path).map_err(|error| {
                let what = format!("could not read the credentials {}: {error}", path.display());
                io::Error::new(error.kind(), what)
            })?;
            builder = match kind_of(&read).as_deref() {
                Some("service_account") => builder.with_service_account_key(read),
                Some("authorized_user") => {
                    builder.with_application_credentials(path.to_string_lossy())
                }
                Some(_) | None => {
                    let path = path.display();
                    return Err(wrong(format!(
                        "the credentials {path} are neither those of a service account nor those of a \
                         user who has logged in"
                    )));
                }
            };
        }
        GoogleCredentials::Json(Secret(key)) => builder = builder.with_service_account_key(key),
        GoogleCredentials::Bearer(Secret(token)) => {
            let credential = GcpCredential { bearer: token.clone() };
            builder = builder.with_credentials(Arc::new(StaticCredentialProvider::new(credential)));
        }
    }
    // Why is not said: a part of the key could be in it.
    let store = builder.build();
    let store = store.map_err(|_| wrong(format!("{url}: the credentials are not understood")))?;
    let mut objects = RemoteObjects::over(Arc::new(store), prefix, url, options.limits)?;
    objects.note(note);
    objects.count(options.signs.clone());
    Ok(objects)
}

/// What kind of credentials a file says it has.
fn kind_of(credentials: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Kind {
        r#type: String,
    }
    serde_json::from_str::<Kind>(credentials).ok().map(|kind| kind.r#type)
}

#[cfg(test)]
mod test {
    use super::*;

    fn refused(url: &str, options: &Options) -> String {
        let Err(error) = open(url, options) else { panic!("{url} was opened") };
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
        error.to_string()
    }

    #[test]
    fn what_names_no_store_is_refused() {
        let options = Options::default();
        for url in ["s3://", "s3:///prefix", "s3://b//p", "s3://b/../p", "gs://b/p?q", "s3://u@b"] {
            assert!(refused(url, &options).contains("not understood"), "{url}");
        }
        assert!(refused("ftp://host/path", &options).contains("s3://"));
        assert!(refused("file://elsewhere/path", &options).contains("no file of this machine"));
    }

    #[test]
    fn without_tls_only_this_machine_is_spoken_to_unless_asked() {
        let at = |endpoint: &str, allow_http| Options {
            endpoint: Some(endpoint.to_owned()),
            allow_http,
            ..Options::default()
        };
        for here in ["http://127.0.0.1:9000", "http://[::1]:9000/", "http://localhost"] {
            assert!(endpoint(&at(here, false)).is_ok(), "{here}");
        }
        for elsewhere in ["http://10.0.0.1", "http://localhost.example.org", "http://127.0.0.1.org"]
        {
            let said = refused("s3://bucket", &at(elsewhere, false));
            assert!(said.contains("https://"), "{said}");
            assert!(endpoint(&at(elsewhere, true)).is_ok());
        }
        for bad in ["host:9000", "ftp://host", "https://user:hidden@host", "https://h/?key=hidden"]
        {
            assert!(!refused("s3://bucket", &at(bad, true)).contains("hidden"), "{bad}");
        }
    }

    #[test]
    fn credentials_of_google_are_read_from_a_file_of_a_known_kind() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("credentials.json");
        let options =
            Options { google: GoogleCredentials::File(path.clone()), ..Options::default() };
        let Err(missing) = open("gs://bucket", &options) else { panic!("there is no file") };
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert!(missing.to_string().contains("credentials.json"), "{missing}");
        for odd in ["", "hidden", r#"{"type":"external_account"}"#, r#"{"type":"service_account"}"#]
        {
            std::fs::write(&path, odd).unwrap();
            let said = refused("gs://bucket", &options);
            assert!(said.contains("credentials") && !said.contains("hidden"), "{said}");
        }
        let user =
            r#"{"type":"authorized_user","client_id":"i","client_secret":"s","refresh_token":"t"}"#;
        std::fs::write(&path, user).unwrap();
        assert!(open("gs://bucket", &options).is_ok());
    }

    #[test]
    fn secrets_are_in_no_text() {
        let secret = || Some(Secret::new("hidden"));
        let options = Options {
            access_key: Some("id".to_owned()),
            secret_key: secret(),
            session_token: secret(),
            google: GoogleCredentials::Json(Secret::new(r#""hidden""#)),
            ..Options::default()
        };
        assert!(!format!("{options:?}").contains("hidden"));
        assert!(!refused("gs://bucket", &options).contains("hidden"));
        let objects = s3("s3://bucket/p", "bucket/p", &options).unwrap();
        assert_eq!(format!("{objects:?}"), "RemoteObjects(s3://bucket/p)");
        let halves = [
            Options { secret_key: None, ..options.clone() },
            Options { access_key: None, ..options },
        ];
        for half in halves {
            assert!(refused("s3://bucket", &half).contains("key"));
        }
    }
}
