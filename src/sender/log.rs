//! The line in the log for each answer.

use super::outcome::{Ended, Outcome};
use super::plan::{About, Plan, Task};
use std::time::Duration;
use tracing::{debug, info, warn};

/// A call under way, for the log.
#[derive(Clone, Debug, Default)]
pub(super) struct Call {
    uuid: String,
    linkedid: String,
    trunk: String,
}

impl Call {
    pub(super) fn of(plan: &Plan, about: &About) -> Self {
        let (uuid, linkedid, trunk) = match (&plan.task, &about.row) {
            (Task::Poll(call), _) => (call.uuid, &call.linkedid, &call.trunk),
            (_, Some(row)) => (row.uuid, &row.record.linkedid, &row.record.trunk),
            (Task::Submit(_) | Task::Sweep { .. } | Task::TokenInfo, None) => {
                return Self::default();
            }
        };
        Self {
            uuid: uuid.to_string(),
            linkedid: linkedid.clone(),
            trunk: trunk.clone().unwrap_or_default(),
        }
    }
}

/// The line in the log.
pub(super) fn told(outcome: &Outcome, call: &Call, took: Duration) {
    let Call {
        uuid,
        linkedid,
        trunk,
    } = call;
    let Outcome {
        endpoint,
        verdict,
        words,
        ..
    } = outcome;
    let id = outcome.row.map(|row| row.0);
    let request_id = outcome.request_id.as_ref().map(tracing::field::display);
    let ms = took.as_millis();
    for call in &outcome.found {
        let (uuid, linkedid) = (call.uuid.to_string(), &call.linkedid);
        let trunk = call.trunk.as_deref().unwrap_or_default();
        info!(call = %uuid, %linkedid, %trunk, id = call.row.0, "journaled");
    }
    match outcome.ended {
        Ended::Well => {
            debug!(%endpoint, verdict, call = %uuid, %linkedid, %trunk, request_id, id, ms,
                "answered");
        }
        Ended::Journaled => {
            info!(call = %uuid, %linkedid, %trunk, request_id, id, "journaled");
        }
        Ended::Dead => {
            warn!(reason = %verdict, call = %uuid, %linkedid, %trunk, request_id, id, words,
                "dead letter");
        }
        Ended::Again => {
            info!(%endpoint, verdict, call = %uuid, %linkedid, %trunk, request_id, id, ms, words,
                "tried again");
        }
    }
}
