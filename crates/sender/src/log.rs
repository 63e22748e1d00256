//! The line in the log for each answer.

use super::answered::Answered;
use super::outcome::Outcome;
use super::plan::{About, Plan};
use super::possibly_sent_search::SearchNews;
use callbridge_model::Reason;
use callbridge_model::status::SenderTrouble;
use callbridge_spool::{OutcomeSource, Step, Unconfirmed};
use std::time::Duration;
use tracing::{debug, info, warn};

/// Warns of what the sender remembered and nobody can read any more.
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

/// Logs the parts of the CRM that began to fail while the rest works, and those that fail no more.
pub(super) fn troubles(before: &[SenderTrouble], now: &[SenderTrouble]) {
    let among =
        |all: &[SenderTrouble], it: &SenderTrouble| all.iter().any(|other| other.part == it.part);
    for trouble in now.iter().filter(|it| !among(before, it)) {
        let SenderTrouble {
            part, why, instead, ..
        } = trouble;
        warn!(%part, words = %why, %instead, "a part of the CRM fails");
    }
    for trouble in before.iter().filter(|it| !among(now, it)) {
        info!(part = %trouble.part, "no longer reported as failing");
    }
}

/// Logs the progress of the search for calls that another may have sent.
pub(super) fn searched(news: &[SearchNews]) {
    for news in news {
        match news {
            SearchNews::Begun { calls } => info!(
                calls,
                "calls from before this state began are looked for in the CRM's journal before \
                 they are sent"
            ),
            SearchNews::Segment {
                found,
                pages,
                waiting,
            } => info!(
                found,
                pages, waiting, "found in the journal; of the newest the others are sent now"
            ),
            SearchNews::Unreadable { calls } => warn!(
                calls,
                "calls from before this state began cannot be looked for in the CRM's journal: \
                 they are sent, newest first, and those that it holds are not written twice"
            ),
        }
    }
}

/// A call under way, for the log.
#[derive(Clone, Debug, Default)]
pub(super) struct Call {
    uuid: String,
    linkedid: String,
    trunk: String,
}

impl Call {
    pub(super) fn of(plan: &Plan, about: &About) -> Self {
        let polled = plan.task.poll();
        let polled = polled.map(|call| (call.uuid, &call.linkedid, &call.trunk));
        let submitted = about.row.as_ref();
        let submitted = submitted.map(|row| (row.uuid, &row.record.linkedid, &row.record.trunk));
        let Some((uuid, linkedid, trunk)) = polled.or(submitted) else {
            return Self::default();
        };
        Self {
            uuid: uuid.to_string(),
            linkedid: linkedid.clone(),
            trunk: trunk.clone().unwrap_or_default(),
        }
    }
}

/// The line in the log.
pub(super) fn log_answer(answered: &Answered, call: &Call, took: Duration) {
    let Call {
        uuid,
        linkedid,
        trunk,
    } = call;
    let Answered {
        endpoint,
        verdict,
        words,
        ..
    } = answered;
    let id = answered.row.map(|row| row.0);
    let request_id = answered.request_id.as_ref().map(tracing::field::display);
    let ms = took.as_millis();
    for (call, step) in &answered.swept {
        settled(call, step);
    }
    match answered.outcome {
        _ if answered.again => {
            info!(%endpoint, verdict, call = %uuid, %linkedid, %trunk, request_id, id, ms, words,
                "tried again");
        }
        Outcome::Journaled => {
            info!(call = %uuid, %linkedid, %trunk, request_id, id, "journaled");
        }
        // it may go on to another lead, or without its employee: the spool decides
        Outcome::Dead if *verdict == Reason::Failed.word() => {
            warn!(reason = %verdict, call = %uuid, %linkedid, %trunk, request_id, id, words,
                "the CRM could not write it");
        }
        Outcome::Dead => {
            warn!(reason = %verdict, call = %uuid, %linkedid, %trunk, request_id, id, words,
                "dead letter");
        }
        Outcome::Submitted
        | Outcome::NotYet
        | Outcome::Known
        | Outcome::Swept
        | Outcome::Unswept
        | Outcome::Lost
        | Outcome::Fault
        | Outcome::Unreached
        | Outcome::TokenRefused
        | Outcome::NoGrant
        | Outcome::WrongAddress
        | Outcome::TooMany
        | Outcome::LeadRequest => {
            debug!(%endpoint, verdict, call = %uuid, %linkedid, %trunk, request_id, id, ms,
                "answered");
        }
    }
}

/// The line for a call that was looked for in the journal, where it says something of its fate.
pub(super) fn settled(call: &Unconfirmed, step: &Step) {
    let (uuid, linkedid, id) = (call.uuid.to_string(), &call.linkedid, call.row.0);
    let trunk = call.trunk.as_deref().unwrap_or_default();
    match step {
        Step::Journaled(OutcomeSource::Confirmation | OutcomeSource::Webhook) => {
            info!(call = %uuid, %linkedid, %trunk, id, "journaled");
        }
        Step::Died {
            reason, message, ..
        } => {
            warn!(reason = %reason, call = %uuid, %linkedid, %trunk, id, words = message,
                "dead letter");
        }
        Step::Resubmit { why } => {
            info!(call = %uuid, %linkedid, %trunk, id, words = why, "sent again");
        }
        Step::NotYet { .. }
        | Step::Send
        | Step::Accepted { .. }
        | Step::Returned { .. }
        | Step::Unsent
        | Step::Unresolved { .. }
        | Step::Retry { .. }
        | Step::Recheck { .. }
        | Step::Rejudged { .. }
        | Step::Moved { .. }
        | Step::Expire
        | Step::Discard { .. }
        | Step::Forwarded
        | Step::Journaled(OutcomeSource::Journal | OutcomeSource::Stream)
        | Step::SendAgain { .. } => {}
    }
}
