//! What the token may do. Its record is read again once an hour and after each 403, for a company
//! may give a right, or take one, at any time (§5.4.1); and where it may not ask with its
//! requestIds (403), what else confirms calls.

use crate::PROBE;
use callbridge_call::EventTime;
use callbridge_crm::TokenInfo;
use callbridge_leads::lead_request::{LeadChange, LeadOutcome};
use callbridge_model::status::DegradedPart;
use callbridge_model::{Grant, Now};
use callbridge_spool::{Op, Unconfirmed};
use std::time::Duration;

/// Time after which the record is read again…
const HOURLY: Duration = Duration::from_secs(3600);

/// …and the same after a failure.
const AGAIN: Duration = Duration::from_secs(60);

/// Rights of the token, and when its record is read again.
#[derive(Clone, Debug, Default)]
pub(super) struct Rights {
    /// Time since boot at which the record is read again. `None` before the first reading.
    due: Option<Duration>,
    /// Time since boot of the last refusal that caused a reading.
    doubted: Option<Duration>,
    /// The slot of the request that reads it in addition to the calls.
    slot: Option<u32>,
    /// The last answer was to that request.
    pub(super) beside: bool,
    /// The grants in the last record of any token.
    seen: Option<Vec<String>>,
    /// Polls are refused for lack of a right.
    pub(super) barred: Option<Barred>,
}

/// A refusal of polls (403) that is in effect.
#[derive(Clone, Debug)]
pub(super) struct Barred {
    why: String,
    since: EventTime,
    /// Time since boot at which a poll is tried again.
    until: Duration,
}

impl Rights {
    /// Handles another token, or none, which has its own record.
    pub(super) fn forget_token(&mut self) {
        (self.due, self.slot, self.barred) = (None, None, None);
    }

    /// The record must be read in addition to the calls.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// Notes that the record is being read. `slot` is that of the request if calls are sent
    /// meanwhile.
    pub(super) fn asked(&mut self, now: Duration, slot: Option<u32>) {
        self.due = self.due.map(|_| now + HOURLY);
        self.slot = slot;
    }

    /// The request in this slot has ended or was not sent. Returns whether it was that request.
    pub(super) fn ended(&mut self, slot: u32) -> bool {
        self.beside = self.slot.take_if(|it| *it == slot).is_some();
        self.beside
    }

    /// Plans another try in 60 s. The record could not be read, which says nothing about the
    /// rights.
    pub(super) fn unread(&mut self, now: Duration) {
        self.due = Some(now + AGAIN);
    }

    /// A request was refused for lack of a right, or granted although the record has no right. The
    /// record is read at once, but for this reason at most once a minute.
    pub(super) fn doubt(&mut self, now: Duration) {
        let soonest = self.doubted.map_or(now, |at| now.max(at + PROBE));
        if let Some(due) = self.due.filter(|due| *due > soonest) {
            self.doubted = Some(soonest);
            self.due = Some(due.min(soonest));
        }
    }

    /// Handles the record. Requests that were paused for lack of a right continue at once. Returns
    /// whether the journal's pages have become readable.
    pub(super) fn read(&mut self, now: Now, info: &TokenInfo, ops: &mut Vec<Op>) -> bool {
        self.due = Some(now.boot + HOURLY);
        let Some(mut gained) = info.grants.clone() else {
            return false;
        };
        let before = self.seen.replace(gained.clone());
        // the rights that are new since the last record. All of them if none was read yet
        gained.retain(|grant| !before.as_ref().is_some_and(|seen| seen.contains(grant)));
        if gained.is_empty() {
            return false;
        }
        let at = now.wall;
        let outcome = Box::new(LeadOutcome::Granted);
        ops.push(Op::Lead(LeadChange::Request { outcome, at }));
        self.barred = None;
        before.is_some() && Grant::CallRead.is_among(&gained)
    }

    /// Polls are refused, and it is not yet time to try one again.
    pub(super) fn polls_barred(&self, now: Duration) -> bool {
        self.barred.as_ref().is_some_and(|it| now < it.until)
    }

    /// Stops polls for an hour after one was refused.
    pub(super) fn bar_polls(&mut self, now: Now, why: &str) {
        let since = self.barred.as_ref().map_or(now.wall, |it| it.since);
        self.barred = Some(Barred {
            why: why.to_owned(),
            since,
            until: now.boot + HOURLY,
        });
    }

    /// Time since boot of the next check that no other event triggers. `None` if there is nothing
    /// to check.
    pub(super) fn next_check(&self, now: Duration) -> Option<Duration> {
        // a due check that cannot be made now is tried again later
        let later = |due| if due > now { due } else { now + PROBE };
        let barred = self.barred.as_ref().map(|_| now + PROBE);
        [self.due.map(later), barred].into_iter().flatten().min()
    }

    /// The call with the reason why it could not be polled.
    pub(super) fn with_bar(&self, call: &Unconfirmed) -> Unconfirmed {
        let mut call = call.clone();
        if let Some(barred) = self.barred.as_ref().filter(|_| call.message.is_empty()) {
            call.message.clone_from(&barred.why);
        }
        call
    }

    /// The part for `status`: polls are refused while the rest works. `pages` if the journal can be
    /// read, `webhooks` if they arrive.
    pub(super) fn degraded(&self, pages: bool, webhooks: bool) -> Option<DegradedPart> {
        let barred = self.barred.as_ref()?;
        let fallback = match (pages, webhooks) {
            (true, _) => "pages of the CRM's journal are read instead",
            (false, true) => "webhooks alone show whether calls are journaled",
            (false, false) => {
                "calls go out, and nothing shows whether they are journaled: after a day they are \
                 listed as `unconfirmed`; set up webhooks, or grant PERMISSION_OPEN_API_CALL:READ"
            }
        };
        Some(DegradedPart {
            part: "polls".to_owned(),
            reason: barred.why.clone(),
            fallback: format!(
                "{fallback}; grant the application the right to read the status of its requests"
            ),
            since: barred.since.floor_seconds().get(),
        })
    }
}
