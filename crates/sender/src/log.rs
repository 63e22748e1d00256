//! Writes the sender's log lines and publishes its status. It logs one line for each change in
//! status, and one for each response.

use crate::core::answered::Answered;
use crate::outcome::VerdictKind;
use crate::plan::{Plan, RequestInputs};
use crate::status::{SenderStatus, TokenPlace};
use callbridge_model::status::{DegradedPart, Pause};
use callbridge_model::{Now, Reason};
use callbridge_spool::{Step, Unconfirmed};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::watch;
use tracing::{debug, info, warn};

/// Publishes the status and remembers what was logged last.
pub(super) struct SenderView {
    status: watch::Sender<SenderStatus>,
    /// The pause in the last log line about pauses.
    logged_pause: Option<Pause>,
    /// The degraded parts in the last log line about them.
    logged_degraded: Vec<DegradedPart>,
    /// The paused branches in the last log lines about them.
    logged_branches: BTreeMap<String, String>,
    warned_days: Option<u32>,
}

impl SenderView {
    pub(super) fn new(status: watch::Sender<SenderStatus>) -> Self {
        Self {
            status,
            logged_pause: None,
            logged_degraded: Vec::new(),
            logged_branches: BTreeMap::new(),
            warned_days: None,
        }
    }

    /// Publishes the status and logs what changed. `asking` tells whether the CRM has yet to accept
    /// the token. `place` is where the operator puts a new token, or `None` if tokens are renewed
    /// automatically.
    pub(super) fn publish(
        &mut self,
        now: Now,
        status: SenderStatus,
        asking: bool,
        place: Option<&TokenPlace>,
    ) {
        if status.expires_in_days != self.warned_days {
            self.warned_days = status.expires_in_days;
            // A token that's renewed automatically always expires soon, so there's no warning about
            // it.
            if let (Some(days), Some(place)) = (self.warned_days, place) {
                let fix = format!("issue a new token in the CRM and put it into {place}");
                warn!(days, fix, "the token expires soon");
            }
        }
        self.log_pause(status.pause.as_ref(), asking);
        log_degraded(&self.logged_degraded, &status.degraded);
        self.logged_degraded.clone_from(&status.degraded);
        log_branches(&self.logged_branches, &status.paused_branches);
        self.logged_branches.clone_from(&status.paused_branches);
        self.status.send_if_modified(|shown| {
            if status.token_shared && !shown.token_shared {
                let limit = status.budget(now.boot).limit;
                warn!(
                    reason = "token_shared",
                    limit,
                    "429 in three windows in a row, rate halved: another program uses the token"
                );
            }
            let modified = *shown != status;
            *shown = status;
            modified
        });
    }

    /// Logs when a pause begins, changes its cause, or ends. The end isn't logged while `asking`,
    /// because the CRM may refuse the new token too.
    fn log_pause(&mut self, pause: Option<&Pause>, asking: bool) {
        if pause == self.logged_pause.as_ref() || pause.is_none() && asking {
            return;
        }
        let logged_reason = self.logged_pause.as_ref().map(|logged| &logged.reason);
        match pause {
            // There are at most a few probes per minute, and thus at most a few lines.
            Some(Pause { reason, fix }) if logged_reason == Some(reason) => {
                warn!(%reason, %fix, "still paused");
            }
            Some(Pause { reason, fix }) => warn!(%reason, %fix, "paused"),
            None => info!("no longer paused"),
        }
        self.logged_pause = pause.cloned();
    }
}

/// Logs the endpoints that started failing while calls are being sent, and those that work again.
fn log_degraded(before: &[DegradedPart], now: &[DegradedPart]) {
    for failing in now {
        if !has_part(before, failing) {
            warn!(
                part = %failing.part,
                reason = %failing.reason,
                fallback = %failing.fallback,
                "endpoint failing"
            );
        }
    }
    for failing in before {
        if !has_part(now, failing) {
            info!(part = %failing.part, "endpoint no longer failing");
        }
    }
}

/// Logs the branches whose calls are no longer sent, and those for which sending has resumed.
fn log_branches(before: &BTreeMap<String, String>, now: &BTreeMap<String, String>) {
    for (branch, fix) in now {
        if !before.contains_key(branch) {
            warn!(%branch, %fix, "paused");
        }
    }
    for branch in before.keys() {
        if !now.contains_key(branch) {
            info!(%branch, "no longer paused");
        }
    }
}

fn has_part(all: &[DegradedPart], part: &DegradedPart) -> bool {
    all.iter().any(|other| other.part == part.part)
}

/// Logs a warning about parts of the sender's memory that can't be read.
pub(super) fn log_doubts(doubts: &[String]) {
    if !doubts.is_empty() {
        let what = doubts.join("; ");
        warn!(
            %what,
            "cannot read parts of what the sender stored. They are reset, and nothing is sent for \
             one window"
        );
    }
}

/// A call in flight, for the log.
#[derive(Clone, Debug, Default)]
pub(super) struct Call {
    uuid: String,
    linkedid: String,
    trunk: String,
}

impl Call {
    pub(super) fn from_plan(plan: &Plan, inputs: &RequestInputs) -> Self {
        let (uuid, linkedid, trunk) = match (plan.task.work.poll(), &inputs.row) {
            (Some(call), _) => (call.uuid, &call.linkedid, &call.trunk),
            (None, Some(row)) => (row.uuid, &row.record.linkedid, &row.record.trunk),
            (None, None) => return Self::default(),
        };
        Self {
            uuid: uuid.to_string(),
            linkedid: linkedid.clone(),
            trunk: trunk.clone().unwrap_or_default(),
        }
    }
}

/// Logs a response.
pub(super) fn log_answer(answered: &Answered, call: &Call, took: Duration) {
    let uuid = &call.uuid;
    let linkedid = &call.linkedid;
    let trunk = &call.trunk;
    let endpoint = answered.endpoint;
    let verdict = answered.verdict;
    let error = &answered.message;
    let id = answered.row.map(|row| row.0);
    let request_id = answered.request_id.as_ref().map(tracing::field::display);
    let ms = took.as_millis();
    for (call, step) in &answered.steps {
        log_step(call, step);
    }
    if answered.again {
        info!(%endpoint, verdict, call = %uuid, %linkedid, %trunk, request_id, id, ms, error,
            "tried again");
    } else if answered.kind == Some(VerdictKind::Journaled) {
        info!(call = %uuid, %linkedid, %trunk, request_id, id, "journaled");
    } else if answered.kind == Some(VerdictKind::Refused) {
        let what = if verdict == Reason::Failed.word() {
            // The spool decides whether the call is sent to another lead, or without its employee.
            "the CRM could not write it"
        } else {
            "dead letter"
        };
        warn!(reason = %verdict, call = %uuid, %linkedid, %trunk, request_id, id, error, "{what}");
    } else {
        debug!(%endpoint, verdict, call = %uuid, %linkedid, %trunk, request_id, id, ms, "answered");
    }
}

/// Logs a step that makes an unconfirmed call journaled, resent, or a dead letter.
pub(super) fn log_step(call: &Unconfirmed, step: &Step) {
    let uuid = call.uuid.to_string();
    let linkedid = &call.linkedid;
    let id = call.row.0;
    let trunk = call.trunk.as_deref().unwrap_or_default();
    match step {
        Step::Journaled(_) => info!(call = %uuid, %linkedid, %trunk, id, "journaled"),
        Step::Resubmit { why } => {
            info!(call = %uuid, %linkedid, %trunk, id, reason = why, "sent again");
        }
        Step::Died {
            reason, message, ..
        } => warn!(%reason, call = %uuid, %linkedid, %trunk, id, error = message, "dead letter"),
        _ => {}
    }
}
