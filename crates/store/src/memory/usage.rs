//! What runs consumed, and how much of a log is read at once.

use std::cmp::Reverse;

use ash_core::id::{AgentName, TenantId};
use ash_core::session::LogEntry;

use super::Tables;
use crate::model::{RunRecord, UsageFilter, UsageRecord, UsageTotals, entry_json};
use crate::{MAX_PAGE_BYTES, Result};

impl Tables {
    pub(super) fn usage(&self, tenant: &TenantId, filter: &UsageFilter) -> UsageTotals {
        let mut totals = UsageTotals::default();
        for (run, _) in self.ended_runs(tenant, filter) {
            totals.runs += 1;
            if let (Some(started), Some(ended)) = (run.started_at, run.ended_at) {
                let millis = ended.since(started).as_millis();
                totals.compute_millis += u64::try_from(millis).unwrap_or(u64::MAX);
            }
            let sum = &mut totals.usage;
            sum.input_tokens += run.usage.input_tokens;
            sum.output_tokens += run.usage.output_tokens;
            sum.cache_creation_tokens += run.usage.cache_creation_tokens;
            sum.cache_read_tokens += run.usage.cache_read_tokens;
            sum.tool_calls += run.usage.tool_calls;
            sum.cost_micro_usd += run.usage.cost_micro_usd;
        }
        totals
    }

    pub(super) fn usage_records(
        &self,
        tenant: &TenantId,
        filter: &UsageFilter,
        limit: usize,
    ) -> Vec<UsageRecord> {
        let mut records: Vec<_> = self
            .ended_runs(tenant, filter)
            .map(|(run, agent)| UsageRecord { run: run.clone(), agent_name: agent.clone() })
            .collect();
        records.sort_unstable_by_key(|record| Reverse((record.run.ended_at, record.run.id)));
        records.truncate(limit);
        records
    }

    /// The runs of a tenant that are over, and their agents.
    fn ended_runs<'a>(
        &'a self,
        tenant: &'a TenantId,
        filter: &'a UsageFilter,
    ) -> impl Iterator<Item = (&'a RunRecord, &'a AgentName)> {
        let rows = self.sessions.values().filter(|row| {
            row.record.tenant == *tenant
                && filter.session.is_none_or(|id| row.record.id == id)
                && filter.agent.as_ref().is_none_or(|agent| row.record.agent_name == *agent)
        });
        // What was consumed elsewhere is counted there.
        let runs = rows.flat_map(|row| {
            let own = row.runs.values().filter(|run| run.prompt_seq > row.inherited);
            own.map(|run| (run, &row.record.agent_name))
        });
        runs.filter(|(run, _)| {
            run.ended_at.is_some_and(|ended_at| {
                filter.from.is_none_or(|from| ended_at >= from)
                    && filter.until.is_none_or(|until| ended_at < until)
            })
        })
    }
}

/// As much of a log as is read at once.
pub(super) fn page_of<'a>(
    log: impl Iterator<Item = &'a LogEntry>,
    limit: u32,
) -> Result<Vec<LogEntry>> {
    let mut page = Vec::new();
    let mut bytes = 0;
    for logged in log.take(limit as usize) {
        bytes += entry_json(logged)?.len();
        page.push(logged.clone());
        if bytes >= MAX_PAGE_BYTES {
            break;
        }
    }
    Ok(page)
}
