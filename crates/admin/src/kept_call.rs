//! A call as the spool keeps it.

use crate::explain::shape::Other;
use callbridge_call::{EventTime, FinishedCall};
use callbridge_model::{CallRecord, Judged, Outcome, Reason};
use callbridge_spool::{Action, Row, State};
use serde::{Deserialize, Serialize};

/// A stored call: its record, and the facts of the PBX from which the rules made the record.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptCall {
    pub state: State,
    /// The record that is, was, or would be sent to the CRM.
    pub record: CallRecord,
    pub call: FinishedCall,
    /// Why the call is or was a dead letter or a waiting call.
    pub reason: Option<Reason>,
    /// Describes the reason. Empty if there is no reason.
    pub message: String,
    /// Time at which the call entered its state.
    pub judged_at: EventTime,
    /// The other calls of the customer's number. Only set if the call was found by its number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub others: Option<Vec<Other>>,
    /// People's actions on the call. Only set if the call was found by its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actions: Option<Vec<Action>>,
}

impl KeptCall {
    /// Makes the value from a row of the spool, the other calls of the number, and the actions on
    /// the call.
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

    /// Returns the outcome of the call according to its current state. A former dead letter that
    /// was sent since is no longer a dead letter.
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

/// Returns the outcome that follows from a stored call's state. Dead, waiting, and discarded calls
/// are dead letters. Calls between extensions have no state.
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
