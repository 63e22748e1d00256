//! A call as the spool keeps it.

use crate::explain::shape::Other;
use callbridge_call::{EventTime, FinishedCall};
use callbridge_model::{CallRecord, Judged, Outcome, Reason};
use callbridge_spool::{Action, Row, State};
use serde::{Deserialize, Serialize};

/// A stored call with the facts that it was judged by.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptCall {
    pub state: State,
    /// The record that is, was, or would be sent.
    pub record: CallRecord,
    pub call: FinishedCall,
    /// Why the call is or was a dead letter or a waiting call.
    pub reason: Option<Reason>,
    /// Describes the reason. Empty if there is no reason.
    pub message: String,
    /// Time at which the call entered its state.
    pub judged_at: EventTime,
    /// The other calls of the number, if it was searched by number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub others: Option<Vec<Other>>,
    /// People's actions on the call. Only if it was searched by its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actions: Option<Vec<Action>>,
}

impl KeptCall {
    /// Makes it from a row, with the results of the search.
    pub fn from_row(row: Row, others: Option<Vec<Other>>, actions: Option<Vec<Action>>) -> Self {
        let progress = row.progress;
        Self {
            state: progress.state,
            record: row.record,
            call: row.call,
            reason: progress.reason,
            message: progress.message,
            judged_at: progress.since,
            others,
            actions,
        }
    }

    /// Returns the verdict in its current state. A former dead letter that was sent is no longer
    /// one.
    pub fn judged(&self) -> Judged {
        let judged = judged_as_kept(self.record.clone(), Some(self.state), self.reason);
        let (reason, message) = if judged.outcome == Outcome::DeadLetter {
            (judged.reason, self.message.clone())
        } else {
            (None, String::new())
        };
        Judged {
            reason,
            message,
            remarks: self.call.remarks.clone(),
            judged_at: self.judged_at,
            ..judged
        }
    }
}

/// Returns the verdict on a stored call, as its state shows it: a dead letter until it is sent
/// again, and permanently if it was discarded. Calls between extensions have no state.
pub(crate) fn judged_as_kept(
    record: CallRecord,
    state: Option<State>,
    reason: Option<Reason>,
) -> Judged {
    Judged {
        outcome: match state {
            None => Outcome::Internal,
            Some(State::Dead | State::Waiting | State::Discarded) => Outcome::DeadLetter,
            Some(State::Ready | State::Sending | State::Submitted) => Outcome::Journal,
            Some(State::Journaled | State::Forwarded) => Outcome::Journal,
        },
        reason,
        ..Judged::journaled(record, EventTime::from_seconds(0))
    }
}
