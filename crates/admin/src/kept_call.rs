//! A call that the spool keeps, as it was put down.

use crate::explain::shape::Other;
use callbridge_call::{EventTime, FinishedCall};
use callbridge_model::{CallRecord, Judged, Outcome, Reason};
use callbridge_spool::{Action, Row, State};
use serde::{Deserialize, Serialize};

/// A stored call with the facts that it was judged by.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptCall {
    /// The state of the call in the spool.
    pub state: State,
    /// The record that is, was or would be sent.
    pub record: CallRecord,
    /// The facts by which the call was judged.
    pub call: FinishedCall,
    /// The reason for which the call is or was a letter.
    pub reason: Option<Reason>,
    /// The reason in words, empty without one.
    pub message: String,
    /// Since when it stands so.
    pub judged_at: EventTime,
    /// The other calls of the number that it was asked for by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub others: Option<Vec<Other>>,
    /// Actions of people on the call. Only if the call was asked for by its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actions: Option<Vec<Action>>,
}

impl KeptCall {
    /// A row, with what was looked for beside it.
    pub fn of(row: Row, others: Option<Vec<Other>>, actions: Option<Vec<Action>>) -> Self {
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

    /// As it stands now: what was a letter for a time, and went on, is none.
    pub fn judged(&self) -> Judged {
        let judged = judged_as_kept(self.record.clone(), Some(self.state), self.reason);
        let is_letter = judged.outcome == Outcome::DeadLetter;
        Judged {
            reason: judged.reason.filter(|_| is_letter),
            message: match is_letter {
                true => self.message.clone(),
                false => String::new(),
            },
            remarks: self.call.remarks.clone(),
            judged_at: self.judged_at,
            ..judged
        }
    }
}

/// A stored call as it was judged, as far as its state tells: a letter until it goes on, and for
/// good where it was discarded. Calls between extensions have no state.
pub(crate) fn judged_as_kept(
    record: CallRecord,
    state: Option<State>,
    reason: Option<Reason>,
) -> Judged {
    Judged {
        outcome: match state {
            None => Outcome::Internal,
            Some(State::Dead | State::Waiting | State::Discarded) => Outcome::DeadLetter,
            Some(State::Ready | State::Sending | State::Submitted | State::Journaled) => {
                Outcome::Journal
            }
        },
        reason,
        ..Judged::journaled(record, EventTime::from_seconds(0))
    }
}
