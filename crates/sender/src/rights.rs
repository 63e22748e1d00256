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

/// The record is read again after so long…
const HOURLY: Duration = Duration::from_secs(3600);

/// …and where that failed, after so long.
const AGAIN: Duration = Duration::from_secs(60);

/// Rights of the token, and when its record is read again.
#[derive(Clone, Debug, Default)]
pub(super) struct Rights {
    /// Time since boot at which the record is read again; `None` before it was read.
    due: Option<Duration>,
    /// Time since boot at which a refusal last asked for that.
    doubted: Option<Duration>,
    /// The slot of the request that reads it beside the calls.
    slot: Option<u32>,
    /// The request that was answered last is that one.
    pub(super) beside: bool,
    /// The grants of the record that was read last, whichever token's.
    seen: Option<Vec<String>>,
    /// The token may not ask with its requestIds.
    pub(super) barred: Option<Barred>,
}

/// Refusal of polls (403) that holds now.
#[derive(Clone, Debug)]
pub(super) struct Barred {
    why: String,
    since: EventTime,
    /// Then one is tried again, since boot.
    until: Duration,
}

impl Rights {
    /// Another token, or none: it has a record of its own.
    pub(super) fn forget_token(&mut self) {
        (self.due, self.slot, self.barred) = (None, None, None);
    }

    /// The record is to be read beside the calls.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// Notes that the record is being read; `slot` is that of the request where calls go on
    /// meanwhile.
    pub(super) fn asked(&mut self, now: Duration, slot: Option<u32>) {
        self.due = self.due.map(|_| now + HOURLY);
        self.slot = slot;
    }

    /// The request in this slot has ended, or never left; whether it was that one.
    pub(super) fn ended(&mut self, slot: u32) -> bool {
        self.beside = self.slot.take_if(|it| *it == slot).is_some();
        self.beside
    }

    /// Plans another try in 60 s: the record could not be read, which says nothing of the rights.
    pub(super) fn unread(&mut self, now: Duration) {
        self.due = Some(now + AGAIN);
    }

    /// Something was refused for want of a right, or granted against the record: it is read at
    /// once, and for that reason once a minute at most.
    pub(super) fn doubt(&mut self, now: Duration) {
        let soonest = self.doubted.map_or(now, |at| now.max(at + PROBE));
        if let Some(due) = self.due.filter(|due| *due > soonest) {
            self.doubted = Some(soonest);
            self.due = Some(due.min(soonest));
        }
    }

    /// The record was read: what rested for want of a right that is there now goes on at once.
    /// Whether the journal's pages may be read that could not be before.
    pub(super) fn read(&mut self, now: Now, info: &TokenInfo, ops: &mut Vec<Op>) -> bool {
        self.due = Some(now.boot + HOURLY);
        let Some(mut gained) = info.grants.clone() else {
            return false;
        };
        let before = self.seen.replace(gained.clone());
        // the rights that the record before did not show; all of them where none was read yet
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

    /// Polls are refused, and no time has come to try one again.
    pub(super) fn polls_barred(&self, now: Duration) -> bool {
        self.barred.as_ref().is_some_and(|it| now < it.until)
    }

    /// Bars polls for an hour after one was refused.
    pub(super) fn bar_polls(&mut self, now: Now, why: &str) {
        let since = self.barred.as_ref().map_or(now.wall, |it| it.since);
        self.barred = Some(Barred {
            why: why.to_owned(),
            since,
            until: now.boot + HOURLY,
        });
    }

    /// Time since boot of the next check that no other event brings about; `None` where there is
    /// nothing to check.
    pub(super) fn next_check(&self, now: Duration) -> Option<Duration> {
        // what is due and may not go out now is looked at in a while
        let later = |due| if due > now { due } else { now + PROBE };
        let barred = self.barred.as_ref().map(|_| now + PROBE);
        [self.due.map(later), barred].into_iter().flatten().min()
    }

    /// The call with the reason why nobody could be asked about it.
    pub(super) fn with_bar(&self, call: &Unconfirmed) -> Unconfirmed {
        let mut call = call.clone();
        if let Some(barred) = self.barred.as_ref().filter(|_| call.message.is_empty()) {
            call.message.clone_from(&barred.why);
        }
        call
    }

    /// As `status` shows it: polls are refused while the rest works; `pages` where the journal can
    /// be read, `webhooks` where they come.
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
