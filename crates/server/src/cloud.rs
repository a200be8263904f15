//! The cloud that a server is told of: where it is, and whether it can be relied on.

use std::collections::BTreeMap;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use ash_core::time::Timestamp;
use ash_engine::agent::Library;
use ash_engine::{Cloud, CloudError, CloudOptions};
use ash_snapshot::objects::{GoogleCredentials, Limits, Options, Secret};
use ash_store::Store;

use crate::config::Config;

/// How long a start waits for the cloud to be tried out: a bucket that is down keeps no server from starting.
const PATIENCE: Duration = Duration::from_secs(5);

/// How patient the server is with one request: whatever fails is tried again later anyway.
const LIMITS: Limits =
    Limits { attempts: 3, timeout: Duration::from_secs(15), pause: Duration::from_millis(200) };

/// The cloud of the settings, if they name one.
///
/// # Errors
/// It is not understood, or its server does not do what is relied on.
pub(crate) async fn open(
    config: &Config,
    environment: &BTreeMap<String, String>,
    data: &Path,
    library: &Library,
    store: &dyn Store,
    now: Timestamp,
) -> anyhow::Result<Option<Cloud>> {
    let Some(url) = &config.snapshot_url else { return Ok(None) };
    let megabits = config.cloud_mbps.map(|megabits| u64::from(megabits.get()) * 125_000);
    let options = CloudOptions {
        url: url.as_str().to_owned(),
        reach: reach(config, environment),
        wait: config.cloud_wait_ms,
        uploads: NonZeroUsize::new(config.cloud_uploads.get() as usize)
            .context("ASH_CLOUD_UPLOADS is zero")?,
        bytes_per_second: megabits.and_then(NonZeroU64::new),
    };
    let cloud = Cloud::open(options, data, library.clone());
    let cloud = cloud.context("the cloud of ASH_SNAPSHOT_URL cannot be used")?;
    match cloud.check(store, PATIENCE, now).await {
        // It would lose what is stored: better not to begin.
        Err(error @ CloudError::Unfit(_)) => Err(anyhow::Error::from(error)
            .context("ASH_SNAPSHOT_URL names a place that cannot be used")),
        // It is nobody's to mend but of whoever put it: sessions on this machine are served all the same.
        Err(error @ CloudError::NotOurs(_)) => {
            let error = &error as &dyn std::error::Error;
            let url = cloud.url();
            tracing::warn!(error, "nothing is copied to {url} until what is there is mended");
            Ok(Some(cloud))
        }
        // What is wrong was said, and is tried again.
        Ok(()) | Err(_) => Ok(Some(cloud)),
    }
}

/// Who asks, and where: what every program that speaks to a bucket finds in its environment.
fn reach(config: &Config, environment: &BTreeMap<String, String>) -> Options {
    let set = |name: &str| environment.get(name).filter(|value| !value.is_empty()).cloned();
    Options {
        endpoint: config.s3_endpoint.as_ref().map(|endpoint| endpoint.as_str().to_owned()),
        region: Some(config.s3_region.clone()),
        access_key: set("AWS_ACCESS_KEY_ID"),
        secret_key: set("AWS_SECRET_ACCESS_KEY").map(Secret::new),
        session_token: set("AWS_SESSION_TOKEN").map(Secret::new),
        google: set("GOOGLE_APPLICATION_CREDENTIALS")
            .map_or(GoogleCredentials::Machine, |path| GoogleCredentials::File(path.into())),
        // Whoever says http:// has seen it.
        allow_http: true,
        limits: LIMITS,
        ..Options::default()
    }
}
