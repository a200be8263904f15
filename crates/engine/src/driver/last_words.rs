//! What a sandbox had to tell before its end is heard first.
//!
//! One that died is attached to: then it tells what it left behind, and its end after that. Of one in which a run is
//! frozen, and which is about to be given up, whatever is found is heard: its agent may have finished its turn between
//! the decision to pause it and the moment when it stood still, with nobody connected.

use ash_core::session::{Decision, Effect, Fact, Request, Sandbox, Session};
use ash_store::SessionRecord;

use super::perform::Hands;
use super::setback::{Exit, Unanswered};
use super::{Driver, Owned};
use crate::host::SandboxRef;
use crate::reconcile::INTERVAL;
use crate::registry::Told;
use crate::shared::Link;

/// Whether a decision has a sandbox destroyed in which a run is frozen.
pub(super) fn gives_up_frozen_run(before: &Session, after: &Session) -> bool {
    holds_frozen_run(before) && matches!(after.sandbox(), Sandbox::Stopping { .. })
}

fn holds_frozen_run(session: &Session) -> bool {
    let is_frozen = matches!(session.sandbox(), Sandbox::Freezing { .. } | Sandbox::Frozen { .. });
    is_frozen && session.current_run().is_some()
}

impl Hands {
    /// What to make of something that was told. A sandbox is only listened to over the
    /// connection that was asked for last: what comes over an earlier one may have a hole before
    /// it, made by a driver that went without recording what it had heard.
    pub(super) fn believe(
        &mut self,
        record: &SessionRecord,
        session: &Session,
        told: Told,
    ) -> Option<Fact> {
        let Told { link, fact } = told;
        if link.is_none() || link == self.link.map(|(_, link)| link) {
            if matches!(fact, Fact::SandboxGone { .. } | Fact::SandboxUnreachable { .. }) {
                self.last_words_of = None;
            }
            return Some(fact);
        }
        // Its end would be told once only. Asked again, it tells what came before, and then that.
        // Who sees from outside that it is gone has not heard what it had to tell: whoever is
        // connected to it may have missed something too.
        if let Fact::SandboxGone { incarnation, .. } = fact
            && incarnation == session.incarnation()
        {
            self.last_words_of = Some(incarnation);
            let attach = Effect::Attach { incarnation, after: session.spool() };
            if link == Some(Link::OUTSIDE) {
                self.connect(record, incarnation, attach);
            } else {
                self.perform(record, vec![attach]);
            }
        }
        None
    }
}

impl Driver {
    /// Decides what a caller wants, and what the session then is.
    pub(super) async fn request(
        &mut self,
        owned: &mut Owned,
        hands: &mut Hands,
        mut request: Request,
    ) -> Result<(Session, Decision), Unanswered> {
        if holds_frozen_run(&owned.session) {
            let (next, decision) = self.decided(&owned.session, request.clone())?;
            if !gives_up_frozen_run(&owned.session, &next) {
                return Ok((next, decision));
            }
            // Not the next one, if this one turns out to be over.
            if let Request::Interrupt { run } = &mut request {
                *run = run.or(owned.session.current_run().map(|run| run.id));
            }
            self.hear_out(owned, hands).await.map_err(Unanswered::Exit)?;
        }
        self.decided(&owned.session, request)
    }

    fn decided(
        &self,
        session: &Session,
        request: Request,
    ) -> Result<(Session, Decision), Unanswered> {
        let mut next = session.clone();
        match next.request(&self.shared.context(), request) {
            Ok(decision) => Ok((next, decision)),
            Err(refusal) => Err(Unanswered::Told(refusal.into())),
        }
    }

    /// Records what a sandbox that stands still has reported and nobody has heard.
    pub(super) async fn hear_out(
        &mut self,
        owned: &mut Owned,
        hands: &mut Hands,
    ) -> Result<(), Exit> {
        let incarnation = owned.session.incarnation();
        let sandbox = SandboxRef { session: self.id, incarnation };
        let mut unheard = self.shared.host.unheard(sandbox, owned.session.spool());
        while let Some(reports) = unheard.recv().await {
            self.absorb(owned, hands, &[Fact::Reported { incarnation, reports }]).await?;
        }
        Ok(())
    }

    /// Whether something is to be captured before the reconciler would find that it is time to.
    pub(super) fn captures_soon(&self, session: &Session) -> bool {
        let due = session.capture_deadline(&self.shared.policy);
        due.is_some_and(|due| due <= self.shared.now().plus(INTERVAL))
    }
}
