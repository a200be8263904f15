//! A session from a bundle, made one of this server.

use std::io::Read;
use std::sync::Arc;

use ash_core::id::{SessionId, TenantId};
use ash_store::{Places, StoredSession};

use super::error::BundleError;
use super::export::blocking;
use super::manifest::Manifest;
use super::unpack::unpack;
use super::{Aside, Bundles, nobody};
use crate::archive::{ArchiveError, theirs};
use crate::cloud::{Fetched, Shelf, fetch};
use crate::engine::{Engine, Idempotency};
use crate::error::EngineError;
use crate::import::{Arrival, Imported, Name, Settled, Supply, Understand};

/// A bundle that is here, and every byte of it is what its manifest says. Dropped, it is gone.
pub struct Received {
    aside: Arc<Aside>,
    manifest: Manifest,
    digest: [u8; 32],
}

impl Received {
    /// The digest of all its bytes.
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }
}

impl Engine {
    /// Takes a bundle in, as it comes, and looks whether it is whole. Nothing is made of it yet.
    pub async fn receive_bundle(
        &self,
        from: impl Read + Send + 'static,
    ) -> Result<Received, EngineError> {
        self.accepts_work()?;
        self.room_for_another()?;
        let (bundles, room) = (self.bundles()?.clone(), self.room());
        let received = blocking(move || {
            let aside = bundles.aside().map_err(BundleError::disk)?;
            let (manifest, digest) = unpack(from, &aside.0, &room)?;
            Ok(Received { aside, manifest, digest })
        });
        Ok(received.await?)
    }

    /// Makes the session in a bundle one of this server and of a tenant, whoever had it before. Its files are here
    /// then.
    pub async fn import_bundle(
        &self,
        tenant: &TenantId,
        received: Received,
        understand: &Understand,
        idempotency: Option<Idempotency>,
    ) -> Result<Arc<StoredSession>, EngineError> {
        self.accepts_work()?;
        if let Some(earlier) = self.imported_before(tenant, idempotency.as_ref()).await? {
            return Ok(earlier.session);
        }
        let bundles = self.bundles()?.clone();
        let _place = bundles.0.imports.acquire().await.map_err(|_| EngineError::Draining)?;
        // What is brought here belongs to no session until it is recorded.
        let _arrival = self.shared.housekeeping.arrivals.read().await;
        let (from, aside) = (received.manifest.session, received.aside.0.join("agent"));
        let (shelf, fetched) = {
            let (bundles, tenant, room) = (bundles.clone(), tenant.clone(), self.room());
            let go_on = move || room.has(0);
            blocking(move || bundles.take_in(&tenant, received, &go_on)).await?
        };
        let agent = fetched.agent.record().map_err(BundleError::of_set)?;
        let understood = understand(&fetched.record.settings, &agent.settings);
        let wrong = || BundleError::damaged("what the session is set to is not understood");
        let understood = understood.ok_or_else(wrong)?;
        let supply = Supply { shelf, library: bundles.0.library.clone(), aside };
        let places = Places { local: true, cloud: false };
        let name = self.name_beside_cloud(tenant, from).await;
        let arrival = Arrival {
            tenant,
            from,
            name,
            fetched,
            supply: &supply,
            cloud: None,
            places,
            understood,
        };
        let settled = self.settle(arrival, idempotency.as_ref()).await;
        // There may be much to remove: not here, and before anybody is told that it is done.
        let _removed = tokio::task::spawn_blocking(move || drop(supply)).await;
        match settled.map_err(of_bundle)? {
            Settled::Imported(Imported { session, .. }) => {
                if let Some(cloud) = self.cloud() {
                    cloud.want(session.record.id);
                }
                Ok(session)
            }
            Settled::Earlier(Imported { session, .. }) => Ok(session),
        }
    }

    /// A session that is in the cloud under the same name may be another server's, which goes on with it.
    async fn name_beside_cloud(&self, tenant: &TenantId, from: SessionId) -> Name {
        let Some(cloud) = self.cloud().cloned() else { return Name::Kept };
        let tenant = tenant.clone();
        let known = tokio::task::spawn_blocking(move || cloud.knows(&tenant, from)).await;
        match known {
            Ok(Ok(false)) => Name::Kept,
            // Whoever cannot tell takes another one.
            Ok(Ok(true) | Err(_)) | Err(_) => Name::Another,
        }
    }
}

impl Bundles {
    /// Reads the set of a bundle, and brings its snapshots to those of a tenant. Blocks.
    fn take_in(
        &self,
        tenant: &TenantId,
        received: Received,
        go_on: &(dyn Fn() -> bool + Sync),
    ) -> Result<(Arc<Shelf>, Fetched), BundleError> {
        let Received { aside, manifest, .. } = received;
        let place = aside.0.clone();
        let nobody = nobody();
        let shelf = Shelf::beneath(&place, &nobody, aside).map_err(BundleError::of_set)?;
        let fetched = fetch(&shelf, &nobody, manifest.session).map_err(BundleError::of_set)?;
        // A bundle is whole, or none.
        fetched.agent.record().map_err(BundleError::of_set)?;
        shelf.repository.snapshot(theirs(fetched.snapshot)).map_err(BundleError::of_snapshot)?;
        for kept in &fetched.record.snapshots {
            let taken = self.0.archive.take_in(tenant, kept.captured.id, &shelf.repository, go_on);
            taken.map_err(|error| match error {
                ArchiveError::Snapshot(error) => BundleError::of_snapshot(error),
                ArchiveError::Place(_)
                | ArchiveError::Home(_)
                | ArchiveError::Cloud(_)
                | ArchiveError::Nowhere(_)
                | ArchiveError::NoCloud
                | ArchiveError::DamagedInCloud
                | ArchiveError::NothingLeft => BundleError::here(error),
            })?;
        }
        Ok((Arc::new(shelf), fetched))
    }
}

/// What is wrong with a bundle, where it is found out late.
fn of_bundle(error: EngineError) -> EngineError {
    if let EngineError::Cloud(error) = error {
        return BundleError::of_set(error).into();
    }
    let is_wrong = matches!(
        error,
        EngineError::Exists("run" | "snapshot")
            | EngineError::NotFound("run")
            | EngineError::TooLarge { .. }
    );
    if is_wrong { BundleError::damaged("its log is none of a session").into() } else { error }
}
