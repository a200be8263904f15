//! Which bucket it is: an object in it tells it from every other, whatever it is called and wherever it is found.
//!
//! A directory that is not mounted looks like a bucket in which nothing is. So where a bucket was used before none is
//! made, and whoever does not find something there looks whether the bucket itself is there.

use std::io;
use std::sync::PoisonError;

use ash_snapshot::objects;
use ash_store::UsedCloud;

use super::error::CloudError;
use super::place::{Remote, random_name};

/// What says which bucket it is.
const BUCKET: &str = "bucket-id";

/// The longest of what is read of it.
const MAX_BUCKET: u64 = 128;

/// What has to be there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Expected {
    /// Whatever it is, or nothing yet.
    #[default]
    Anything,
    /// A bucket: this one was used at this place before.
    ABucket(String),
    /// This bucket: it is in use.
    This(String),
}

impl Remote {
    /// Says which one was used last, if any. Where that was, none is made.
    pub(super) fn remember(&self, used: Option<UsedCloud>) {
        let was_here = used.filter(|used| used.url.as_deref() == Some(self.url()));
        let mut expected = self.expected.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(used) = was_here
            && *expected == Expected::Anything
        {
            *expected = Expected::ABucket(used.bucket);
        }
    }

    /// Says which one is in use from now on.
    pub(super) fn use_bucket(&self, bucket: &str) {
        let mut expected = self.expected.lock().unwrap_or_else(PoisonError::into_inner);
        *expected = Expected::This(bucket.to_owned());
    }

    fn expected(&self) -> Expected {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes sure that the bucket is there that should be: what is not found in it then is not there. Blocks.
    pub(crate) fn is_here(&self) -> Result<(), CloudError> {
        let expected = self.expected();
        if expected == Expected::Anything {
            return Ok(());
        }
        let url = self.url();
        let wrong = match (expected, self.find()?) {
            (Expected::Anything | Expected::ABucket(_), Some(_)) => return Ok(()),
            (Expected::This(ours), Some(found)) if found == ours => return Ok(()),
            (Expected::This(_), Some(_)) => format!(
                "another bucket is at {url} than the one in use: bring that back, or start the server again to use this one"
            ),
            (_, None) => format!(
                "there is no {BUCKET} at {url} any more: is it mounted? A new bucket needs another path or prefix"
            ),
        };
        Err(CloudError::Unavailable(wrong))
    }

    /// What tells this bucket from every other: it is put there by whoever comes first. An answer also says that the
    /// bucket can be read. Blocks.
    pub(super) fn bucket(&self) -> Result<String, CloudError> {
        self.is_here()?;
        for _ in 0..2 {
            if let Some(name) = self.find()? {
                return Ok(name);
            }
            let name = random_name().map_err(CloudError::here)?;
            self.root()?.put(BUCKET, name.as_bytes()).map_err(|error| CloudError::there(&error))?;
        }
        Err(CloudError::Unavailable(format!("{BUCKET} was put and is not there")))
    }

    /// Which bucket is there, if any. Nothing is made. Blocks.
    fn find(&self) -> Result<Option<String>, CloudError> {
        let is_gone = |place: std::path::PathBuf| matches!(place.try_exists(), Ok(false));
        if objects::directory(self.url()).is_ok_and(is_gone) {
            return Ok(None);
        }
        let name = match self.root()?.get(BUCKET, MAX_BUCKET) {
            Ok(name) => String::from_utf8_lossy(&name).trim().to_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(CloudError::there(&error)),
        };
        // One that is torn is not taken for another bucket.
        if name.len() != 32 || !name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            let known = match self.expected() {
                Expected::Anything => String::new(),
                Expected::ABucket(known) | Expected::This(known) => {
                    format!(": it was {known} when this server used it last")
                }
            };
            let url = self.url();
            return Err(CloudError::Unavailable(format!("{url}/{BUCKET} is damaged{known}")));
        }
        Ok(Some(name))
    }
}
