//! What the loop shows: to whoever looks, each change in the log once, and a line for each answer.

use crate::answered::Answered;
use crate::{About, Outcome, Plan, SenderStatus, TokenPlace};
use callbridge_model::status::{DegradedPart, Pause};
use callbridge_model::{Now, Reason};
use callbridge_spool::{Step, Unconfirmed};
use std::time::Duration;
use tokio::sync::watch;
use tracing::{debug, info, warn};

/// Publishes the status, and remembers what was logged last.
pub(super) struct SenderView {
    status: watch::Sender<SenderStatus>,
    /// The pause in the last log line about pauses.
    logged_pause: Option<Pause>,
    /// The degraded parts in the last log line about them.
    logged_troubles: Vec<DegradedPart>,
    warned_days: Option<u32>,
}

impl SenderView {
    pub(super) fn new(status: watch::Sender<SenderStatus>) -> Self {
        Self {
            status,
            logged_pause: None,
            logged_troubles: Vec::new(),
            warned_days: None,
        }
    }

    /// Publishes the status. `asking` while it is not known whether requests are allowed. `place`
    /// is the place for a new token, unless it is renewed automatically.
    pub(super) fn publish(
        &mut self,
        now: Now,
        status: SenderStatus,
        asking: bool,
        place: Option<&TokenPlace>,
    ) {
        if status.expires_in_days != self.warned_days {
            self.warned_days = status.expires_in_days;
            // a token that is renewed automatically always expires soon
            if let (Some(days), Some(place)) = (self.warned_days, place) {
                let fix = format!("issue a new token in the CRM and put it into {place}");
                warn!(days, fix, "the token ends in so many days");
            }
        }
        self.log_pause(status.pause.as_ref(), asking);
        log_troubles(&self.logged_troubles, &status.degraded);
        self.logged_troubles.clone_from(&status.degraded);
        self.status.send_if_modified(|shown| {
            if status.token_shared && !shown.token_shared {
                let limit = status.budget(now.boot).limit;
                warn!(
                    reason = "token_shared",
                    limit,
                    "a 429 although fewer requests than allowed were sent: the rate is halved"
                );
            }
            let modified = *shown != status;
            *shown = status;
            modified
        });
    }

    /// Logs a pause that begins, changes its cause, or ends. A new token that is also refused does
    /// not end the pause.
    fn log_pause(&mut self, pause: Option<&Pause>, asking: bool) {
        if pause == self.logged_pause.as_ref() || pause.is_none() && asking {
            return;
        }
        let logged_reason = self.logged_pause.as_ref().map(|logged| &logged.reason);
        match pause {
            // There are at most a few probes per minute, and so at most a few lines.
            Some(Pause { reason, fix }) if logged_reason == Some(reason) => {
                warn!(%reason, %fix, "still paused");
            }
            Some(Pause { reason, fix }) => warn!(%reason, %fix, "paused"),
            None => info!("no longer paused"),
        }
        self.logged_pause = pause.cloned();
    }
}

/// Logs the parts of the CRM that began to fail while the rest works, and those that work again.
fn log_troubles(before: &[DegradedPart], now: &[DegradedPart]) {
    let among =
        |all: &[DegradedPart], it: &DegradedPart| all.iter().any(|other| other.part == it.part);
    for it in now.iter().filter(|it| !among(before, it)) {
        let (part, reason, fallback) = (&it.part, &it.reason, &it.fallback);
        warn!(%part, %reason, %fallback, "a part of the CRM fails");
    }
    for trouble in before.iter().filter(|it| !among(now, it)) {
        info!(part = %trouble.part, "no longer reported as failing");
    }
}

/// Logs warnings about parts of the sender's memory that cannot be read.
pub(super) fn doubted(doubts: &[String]) {
    if !doubts.is_empty() {
        let what = doubts.join("; ");
        warn!(
            %what,
            "what the sender remembered cannot be read, in part or at all: what was sent lately is \
             not known, so nothing is sent for a window; the rest begins anew"
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
    pub(super) fn of(plan: &Plan, about: &About) -> Self {
        let (uuid, linkedid, trunk) = match (plan.task.poll(), &about.row) {
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

/// Logs an answer.
pub(super) fn log_answer(answered: &Answered, call: &Call, took: Duration) {
    let (uuid, linkedid, trunk) = (&call.uuid, &call.linkedid, &call.trunk);
    let (endpoint, verdict, words) = (answered.endpoint, answered.verdict, &answered.words);
    let id = answered.row.map(|row| row.0);
    let request_id = answered.request_id.as_ref().map(tracing::field::display);
    let ms = took.as_millis();
    for (call, step) in &answered.swept {
        settled(call, step);
    }
    if answered.again {
        info!(%endpoint, verdict, call = %uuid, %linkedid, %trunk, request_id, id, ms, words,
            "tried again");
    } else if answered.outcome == Outcome::Journaled {
        info!(call = %uuid, %linkedid, %trunk, request_id, id, "journaled");
    } else if answered.outcome == Outcome::Dead {
        let what = match verdict == Reason::Failed.word() {
            // it can be sent to another lead, or without its employee: the spool decides
            true => "the CRM could not write it",
            false => "dead letter",
        };
        warn!(reason = %verdict, call = %uuid, %linkedid, %trunk, request_id, id, words, "{what}");
    } else {
        debug!(%endpoint, verdict, call = %uuid, %linkedid, %trunk, request_id, id, ms, "answered");
    }
}

/// Logs the result for a call that was looked for in the journal, if it is settled.
pub(super) fn settled(call: &Unconfirmed, step: &Step) {
    let (uuid, linkedid, id) = (call.uuid.to_string(), &call.linkedid, call.row.0);
    let trunk = call.trunk.as_deref().unwrap_or_default();
    if let Step::Journaled(_) = step {
        info!(call = %uuid, %linkedid, %trunk, id, "journaled");
    } else if let Step::Resubmit { why } = step {
        info!(call = %uuid, %linkedid, %trunk, id, words = why, "sent again");
    } else if let Step::Died {
        reason, message, ..
    } = step
    {
        warn!(%reason, call = %uuid, %linkedid, %trunk, id, words = message, "dead letter");
    }
}
