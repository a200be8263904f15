//! What must be true of a store after its writer was killed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ash_core::entry::Entry;
use ash_core::id::{RunId, SessionId};
use ash_core::number::{Fence, Owner, Seq, Turn};
use ash_core::run::RunStatus;
use ash_core::session::LogEntry;
use ash_core::time::Timestamp;
use ash_store::sqlite::SqliteStore;
use ash_store::{Store, StoreError};

use crate::workload::{
    Acknowledged, SESSIONS, TOPIC, checksum, commit_name, receipt_key, session_id, tenant,
};
use crate::{Fallible, database};

/// What is known of a store: what its writers said, and what was found in it.
#[derive(Default)]
pub(crate) struct Ledger {
    /// Acknowledged and not yet found.
    expected: BTreeMap<(SessionId, Seq), Acknowledged>,
    sessions: BTreeMap<SessionId, Found>,
    /// The latest owner that was heard of.
    owner: Owner,
}

/// What was found of a session so far; a later check goes on from there.
#[derive(Default)]
struct Found {
    last_seq: Seq,
    owner: Owner,
    fence: Fence,
    runs: BTreeMap<RunId, Run>,
    commits: BTreeSet<String>,
}

struct Run {
    status: RunStatus,
    prompt_seq: Seq,
    turn: Option<Turn>,
}

/// What one check found.
#[derive(Default)]
pub(crate) struct Findings {
    /// Commits that were acknowledged and are there.
    pub(crate) kept: u64,
    /// Commits that are there, whole, though nobody was told.
    pub(crate) unacknowledged: u64,
    /// What is wrong, a line each.
    pub(crate) faults: Vec<String>,
}

impl Ledger {
    /// The writer was told that this is durable.
    pub(crate) fn expect(&mut self, acknowledged: Acknowledged) {
        self.expected.insert((acknowledged.session, acknowledged.first), acknowledged);
    }

    /// A writer that was killed had been told that these are durable. Returns what is wrong with
    /// its owner: it must be one, and later than that of every writer before.
    pub(crate) fn expect_of_one_life(&mut self, told: Vec<Acknowledged>) -> Option<String> {
        let owners: BTreeSet<_> = told.iter().map(|commit| commit.owner).collect();
        told.into_iter().for_each(|commit| self.expect(commit));
        let before = self.owner;
        self.owner = owners.last().copied().unwrap_or(before);
        let is_later = owners.iter().all(|&owner| owner > before);
        let wrong = owners.len() > 1 || !is_later;
        wrong.then(|| format!("the writer was {owners:?}, after one that was {before}"))
    }

    /// Opens the store and looks at everything that is new since the last check.
    pub(crate) async fn check_reopened(&mut self, directory: &Path) -> Fallible<Findings> {
        let store = SqliteStore::open(&database(directory))?;
        let findings = self.check(&store).await?;
        store.close().await;
        Ok(findings)
    }

    /// Looks at everything that is new since the last check.
    pub(crate) async fn check(&mut self, store: &SqliteStore) -> Fallible<Findings> {
        let mut findings =
            Findings { faults: store.check_integrity().await?, ..Findings::default() };
        for slot in 0..SESSIONS {
            self.check_session(store, session_id(slot), &mut findings).await?;
        }
        for lost in std::mem::take(&mut self.expected).into_values() {
            findings.faults.push(format!("acknowledged and not there: {lost:?}"));
        }
        Ok(findings)
    }

    async fn check_session(
        &mut self,
        store: &dyn Store,
        id: SessionId,
        findings: &mut Findings,
    ) -> Fallible<()> {
        let stored = match store.session(&tenant(), id).await {
            Ok(stored) => stored.session.clone(),
            Err(StoreError::NotFound(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let found = self.sessions.entry(id).or_default();
        let mut fault = |what: String| findings.faults.push(format!("session {id}: {what}"));

        // The receipts tile the log: from each we learn where the next one must begin.
        while found.last_seq < stored.last_seq() {
            let first = found.last_seq.next();
            let Some(receipt) = store.receipt(&receipt_key(id, first)).await? else {
                fault(format!("no receipt for the commit that begins at {first}"));
                break;
            };
            let commit: Acknowledged = serde_json::from_str(receipt.answer.get())?;
            let length = u32::try_from(commit.last.get().saturating_sub(found.last_seq.get()))?;
            let entries = store.events_after(id, found.last_seq, length).await?;
            if entries.last().map(|entry| entry.seq) != Some(commit.last) {
                fault(format!("only a part of the commit {first}..{}", commit.last));
                break;
            }
            if checksum(&entries)? != commit.checksum {
                fault(format!("the commit {first}..{} has another content", commit.last));
            }
            if commit.fence < found.fence {
                fault(format!("fence {} wrote after fence {}", commit.fence, found.fence));
            }
            if commit.owner < found.owner {
                fault(format!("owner {} wrote after owner {}", commit.owner, found.owner));
            }
            match self.expected.remove(&(id, first)) {
                Some(expected) if expected == commit => findings.kept += 1,
                Some(expected) => fault(format!("{expected:?} was acknowledged, not {commit:?}")),
                None => findings.unacknowledged += 1,
            }
            found.owner = commit.owner;
            found.fence = commit.fence;
            found.last_seq = commit.last;
            found.commits.insert(commit_name(id, first));
            found.follow_runs(&entries);
        }

        let beyond = receipt_key(id, stored.last_seq().next());
        if store.receipt(&beyond).await?.is_some() {
            fault("a receipt of a commit that is not there".to_owned());
        }
        if let Some(broken) = stored.broken_invariant() {
            fault(format!("its value cannot be: {broken}"));
        }
        let current = stored.current_run().map(|run| run.id);
        if current != found.runs_that_are(RunStatus::Running).next() {
            fault("its value has another current run than its log".to_owned());
        }
        let queued: BTreeSet<_> = stored.queued_runs().map(|run| run.id).collect();
        if queued != found.runs_that_are(RunStatus::Queued).collect() {
            fault("its value has other waiting runs than its log".to_owned());
        }
        let rows = store.runs(id, u32::MAX).await?;
        if rows.len() != found.runs.len() {
            fault(format!("{} runs, and {} in its log", rows.len(), found.runs.len()));
        }
        for row in rows {
            let agrees = found.runs.get(&row.id).is_some_and(|run| {
                (run.status, run.prompt_seq, run.turn) == (row.status, row.prompt_seq, row.turn)
            });
            if !agrees {
                fault(format!("run {} is not what its log says", row.id));
            }
        }
        Ok(())
    }

    /// The last look at a store: takes its outbox, which must hold what the commits put there.
    pub(crate) async fn check_outbox(&self, store: &dyn Store) -> Fallible<Vec<String>> {
        let far = Timestamp::from_millis(i64::MAX);
        let tasks = store.claim_outbox(TOPIC, far, far, u32::MAX).await?;
        let mut names = BTreeSet::new();
        for task in &tasks {
            names.insert(serde_json::from_str::<String>(task.item.payload.get())?);
        }
        let mut expected: BTreeSet<_> =
            self.sessions.values().flat_map(|found| found.commits.clone()).collect();
        for &id in self.sessions.keys() {
            // A session's creation has no outbox.
            expected.remove(&commit_name(id, Seq::new(1)));
        }
        let differing = names.symmetric_difference(&expected);
        Ok(differing.map(|name| format!("the outbox and the log differ about {name}")).collect())
    }
}

impl Found {
    fn follow_runs(&mut self, entries: &[LogEntry]) {
        for LogEntry { seq, entry, .. } in entries {
            if let Entry::Prompt { run, .. } = entry {
                let accepted = Run { status: RunStatus::Queued, prompt_seq: *seq, turn: None };
                self.runs.insert(*run, accepted);
            } else if let Entry::RunStarted { run, turn, .. } = entry
                && let Some(run) = self.runs.get_mut(run)
            {
                run.status = RunStatus::Running;
                run.turn = Some(*turn);
            } else if let Entry::RunEnded { run, outcome, .. } = entry
                && let Some(run) = self.runs.get_mut(run)
            {
                run.status = outcome.status();
            }
        }
    }

    fn runs_that_are(&self, status: RunStatus) -> impl Iterator<Item = RunId> {
        self.runs.iter().filter(move |(_, run)| run.status == status).map(|(id, _)| *id)
    }
}
