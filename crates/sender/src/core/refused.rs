//! Refused calls: which call a request is about, and how its response affects other calls.

use super::Core;
use crate::breaker::refusals::{RefusedBranch, SentCall};
use crate::plan::RequestInputs;
use crate::queue::Work;
use callbridge_model::Now;
use callbridge_spool::{Op, Parties, RowId, Step, Unconfirmed, WorkQueue};

impl Core {
    /// Returns the name under which a branch's refusals are counted.
    fn branch(&self, turn: &str) -> String {
        if self.settings.is_hub {
            turn.to_owned()
        } else {
            String::new()
        }
    }

    /// Returns the call that a request is about, or `None` for other requests.
    pub(super) fn sent_call(&self, work: &Work, inputs: &RequestInputs) -> Option<SentCall> {
        if let Some(call) = work.poll() {
            return Some(self.submitted(call));
        }
        let row = inputs.row.as_ref()?;
        let onward = inputs.onward.as_ref().map(|onward| &onward.record);
        let record = onward.unwrap_or(&row.record);
        Some(SentCall {
            row: row.id,
            branch: self.branch(&row.turn),
            parties: Parties {
                lead: record.lead_id,
                employee: record.employee_id,
            },
        })
    }

    pub(super) fn submitted(&self, call: &Unconfirmed) -> SentCall {
        SentCall {
            row: call.row,
            branch: self.branch(&call.turn),
            parties: call.parties,
        }
    }

    /// Notes that a call was journaled, which ends a series of FAILED calls.
    pub(super) fn note_journaled(&mut self, now: Now, call: &SentCall, ops: &mut Vec<Op>) {
        reopen(self.refusals.note_journaled(call), now, ops);
    }

    /// Notes that a webhook confirmed one of this branch's calls, without saying which.
    pub(super) fn note_webhook(&mut self, now: Now, turn: &str, ops: &mut Vec<Op>) {
        let call = SentCall {
            row: RowId(0),
            branch: self.branch(turn),
            parties: Parties::default(),
        };
        self.note_journaled(now, &call, ops);
    }

    /// Returns the branches whose calls are refused and held back. An unconfirmed refusal is left
    /// out while one of the branch's calls is being tried.
    pub(super) fn refused_branches(&self, head: &WorkQueue) -> Vec<RefusedBranch> {
        self.refusals.refused_branches(|branch| {
            head.trials.contains_key(branch) || self.in_flight.submits_for(branch)
        })
    }
}

/// Adds the steps that resend refused calls.
pub(super) fn reopen(rows: Vec<RowId>, now: Now, ops: &mut Vec<Op>) {
    for row in rows {
        let step = Step::Reopened {
            why: "the CRM refused several calls in a row, so the cause was not in this call"
                .to_owned(),
        };
        ops.push(Op::step(row, step, now.wall));
    }
}
