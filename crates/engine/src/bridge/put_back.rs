//! Files that become what a snapshot says, and snapshots that are looked for and compared.

use std::sync::Arc;

use ash_core::id::{SessionId, SnapshotId, TenantId};
use ash_core::snapshot::PutBackOutcome;
use ash_snapshot::Trust;

use super::came;
use super::files::Life;
use super::inner::Inner;
use super::mend;
use super::word::{archive_failed, failed};
use crate::host::{Comparison, Detail, HostError};

const PUT_BACK: &str = "put files back";
const LOOK: &str = "look for a snapshot";
const COMPARE: &str = "compare snapshots";

impl Inner {
    pub(super) async fn put_back(
        self: &Arc<Self>,
        session: SessionId,
        tenant: &TenantId,
        snapshot: SnapshotId,
    ) -> Result<PutBackOutcome, HostError> {
        // Not while they are captured, and not twice at once.
        let _turn =
            self.captures.turn_of(session).await.map_err(|error| failed(PUT_BACK, error))?;
        let (host, tenant) = (Arc::clone(self), tenant.clone());
        let put_back = tokio::task::spawn_blocking(move || {
            let _nobody_makes_it = host.files.making(session);
            // Whoever asks late, for a rewind that is over, must not pull files away from under somebody.
            for sandbox in host.files.of(session)? {
                if let Life::Alive(_) = host.files.life(sandbox)? {
                    return Err(std::io::Error::other("somebody works on them"));
                }
            }
            host.files.make_room(session)?;
            host.files.clear_place(session)?;
            let boot = &*host.options.boot_id;
            // What the machine was restarted over may be something else than it looks.
            let trust = match mend::is_believed(&host.files, session, boot)? {
                true => Trust::Looks,
                false => Trust::Bytes,
            };
            let places = host.files.places(session);
            match host.archive.put_back(&tenant, snapshot, &places, trust) {
                Ok(()) => {
                    mend::note_use(&host.files, session, boot)?;
                    came::forget(&host.files, session).map(|()| PutBackOutcome::Done)
                }
                Err(error) if error.is_lost() => {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(error, session.id = %session, "snapshot {snapshot} is lost");
                    Ok(PutBackOutcome::Lost)
                }
                Err(error) => Err(std::io::Error::other(error)),
            }
        });
        let put_back = put_back.await.map_err(|error| failed(PUT_BACK, error))?;
        put_back.map_err(|error| failed(PUT_BACK, error))
    }

    pub(super) async fn has_snapshot(
        self: &Arc<Self>,
        tenant: &TenantId,
        snapshot: SnapshotId,
    ) -> Result<bool, HostError> {
        let (host, tenant) = (Arc::clone(self), tenant.clone());
        let look = move || host.archive.has(&tenant, snapshot);
        let found = self.archive.unless_silent(look).await;
        let found = found.map_err(|error| failed(LOOK, error))?;
        found.map_err(|error| archive_failed(LOOK, &error))
    }

    pub(super) async fn compare(
        self: &Arc<Self>,
        tenant: &TenantId,
        both: (Option<SnapshotId>, Option<SnapshotId>),
        detail: Detail,
    ) -> Result<Option<Comparison>, HostError> {
        let _place = self.captures.place().await.map_err(|error| failed(COMPARE, error))?;
        let (host, tenant) = (Arc::clone(self), tenant.clone());
        let compare = move || host.archive.compare(&tenant, both, detail);
        let compared = self.archive.unless_silent(compare);
        match compared.await.map_err(|error| failed(COMPARE, error))? {
            Ok(comparison) => Ok(Some(comparison)),
            Err(error) if error.is_lost() => Ok(None),
            Err(error) => Err(archive_failed(COMPARE, &error)),
        }
    }
}
