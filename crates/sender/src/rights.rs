//! What the token may do. Its record is read again once an hour and after each 403, for a company
//! may give a right, or take one, at any time (§5.4.1); and where it may not ask with its
//! requestIds (403), what else confirms calls.

use super::core::Core;
use super::flight::Flight;
use super::schedule::{DEADLINE, OLD_POLL, PROBE};
use super::verdict::Halt;
use callbridge_call::EventTime;
use callbridge_crm::{Answer, Endpoint, TokenInfo};
use callbridge_leads::errand::LeadChange;
use callbridge_leads::errand::Told;
use callbridge_leads::errand::due::{Asked, Errand};
use callbridge_model::clock::Now;
use callbridge_model::status::Trouble;
use callbridge_spool::{Head, Op, Unconfirmed};
use std::collections::BTreeSet;
use std::time::Duration;

/// The record is read again after so long…
const HOURLY: Duration = Duration::from_secs(3600);

/// …and where that failed, after so long.
const AGAIN: Duration = Duration::from_secs(60);

/// The grant to read the journal's pages.
const CALL_READ: &str = "PERMISSION_OPEN_API_CALL:READ";

/// What is known of the token's rights.
#[derive(Clone, Debug, Default)]
pub(super) struct Rights {
    /// When the record is read again, since boot; `None` before it was read.
    due: Option<Duration>,
    /// When a refusal asked for that last, since boot.
    doubted: Option<Duration>,
    /// The slot of the request that reads it beside the calls.
    slot: Option<u32>,
    /// The request that was answered last is that one.
    beside: bool,
    /// The grants of the record that was read last, whichever token's.
    seen: Option<BTreeSet<String>>,
    /// The token may not ask with its requestIds.
    barred: Option<Barred>,
}

/// Polls are refused (403).
#[derive(Clone, Debug)]
struct Barred {
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

    /// It is being read; in this slot where calls go on meanwhile.
    pub(super) fn asked(&mut self, now: Duration, slot: Option<u32>) {
        self.due = self.due.map(|_| now + HOURLY);
        self.slot = slot;
    }

    /// The request in this slot has ended, or never left; whether it was that one.
    pub(super) fn ended(&mut self, slot: u32) -> bool {
        self.beside = self.slot.take_if(|it| *it == slot).is_some();
        self.beside
    }

    /// What was answered last was asked beside the calls: it ends no pause.
    pub(super) const fn was_beside(&self) -> bool {
        self.beside
    }

    /// It could not be read: that says nothing.
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

    /// The record was read. The rights that it shows and the one before did not; all of them where
    /// none was read yet.
    fn read(&mut self, now: Duration, info: &TokenInfo) -> BTreeSet<String> {
        self.due = Some(now + HOURLY);
        let Some(grants) = &info.grants else {
            return BTreeSet::new();
        };
        let grants: BTreeSet<String> = grants.iter().map(ToString::to_string).collect();
        let before = self.seen.replace(grants.clone()).unwrap_or_default();
        grants.difference(&before).cloned().collect()
    }

    /// Polls are refused, and no time has come to try one again.
    pub(super) fn polls_barred(&self, now: Duration) -> bool {
        self.barred.as_ref().is_some_and(|it| now < it.until)
    }

    fn bar_polls(&mut self, now: Now, why: &str) {
        let since = self.barred.as_ref().map_or(now.wall, |it| it.since);
        self.barred = Some(Barred {
            why: why.to_owned(),
            since,
            until: now.boot + HOURLY,
        });
    }

    /// A poll was answered.
    pub(super) fn polls_work(&mut self) {
        self.barred = None;
    }

    /// When something is to be looked at that nothing else points at.
    pub(super) fn look(&self, now: Duration) -> Option<Duration> {
        // what is due and may not go out now is looked at in a while
        let due = self
            .due
            .map(|due| if due > now { due } else { now + PROBE });
        let barred = self.barred.as_ref().map(|_| now + PROBE);
        [due, barred].into_iter().flatten().min()
    }
}

impl Core {
    /// The record was read: what rested for want of a right that is there now goes on at once.
    pub(super) fn rights_read(&mut self, now: Now, info: &TokenInfo, ops: &mut Vec<Op>) {
        let first = self.rights.seen.is_none();
        let gained = self.rights.read(now.boot, info);
        if gained.is_empty() {
            return;
        }
        let at = now.wall;
        let told = Box::new(Told::Granted);
        ops.push(Op::Lead(LeadChange::Request { told, at }));
        self.rights.polls_work();
        if !first && gained.contains(CALL_READ) {
            self.sweeper.granted();
        }
    }

    /// An answer says something else of the token's rights than its record.
    pub(super) fn rights_doubted(&mut self, now: Now, errand: Option<&Errand>, answer: &Answer) {
        let may = |scope| {
            let info = self.info.as_ref();
            info.is_none_or(|info| info.may("PERMISSION_OPEN_API_LEAD", scope))
        };
        let against = answer.is_good()
            && match errand {
                Some(Errand::FieldWrite(_) | Errand::Asked(_, Asked::FieldList { .. })) => {
                    !may("SAVE")
                }
                Some(Errand::LookUp(_) | Errand::Backfill(_)) => !may("READ"),
                Some(
                    Errand::Catalogue
                    | Errand::FieldPoll(_)
                    | Errand::Asked(_, Asked::CrmFields | Asked::Poll { .. }),
                )
                | None => false,
            };
        if against || matches!(answer, Answer::Forbidden { .. }) {
            self.rights.doubt(now.boot);
        }
    }

    /// A poll was refused for want of a right: calls are confirmed in other ways, where there are
    /// any; else nothing goes out, for what is sent could not be confirmed.
    pub(super) fn unpolled(&mut self, now: Now, flight: &Flight, why: &str) -> bool {
        if self.confirms_otherwise(now) {
            self.rights.bar_polls(now, why);
            return true;
        }
        self.rights.polls_work(); // the pause itself asks again
        self.halted(now, &flight.token, Halt::NoGrant(Endpoint::Poll), why);
        false
    }

    /// The same of a write of fields: calls that wait are not asked for in vain either.
    pub(super) fn errand_unpolled(&mut self, now: Now, why: &str) {
        if self.confirms_otherwise(now) {
            self.rights.bar_polls(now, why);
        }
    }

    /// Pages of the journal, or webhooks.
    pub(super) fn confirms_otherwise(&self, now: Now) -> bool {
        self.sweeper.ways.is_readable(now.wall) || !self.flow.left(now.wall).is_zero()
    }

    /// The ways that were left are gone, too.
    pub(super) fn look_for_ways(&mut self, now: Now) {
        let gone = self.rights.polls_barred(now.boot)
            && self.waiting > 0
            && self.line.is_open()
            && !self.confirms_otherwise(now);
        if let Some(barred) = self.rights.barred.take_if(|_| gone) {
            let halt = Halt::NoGrant(Endpoint::Poll);
            self.line.halted(now.boot, halt, &barred.why);
        }
    }

    /// A call that neither polls, which are refused, nor sweeps will ever tell of: it was left to
    /// the polls before, or no page can be read and a webhook was waited for as long as a requestId
    /// lives.
    pub(super) fn untold<'head>(&self, now: Now, head: &'head Head) -> Option<&'head Unconfirmed> {
        if !self.rights.polls_barred(now.boot) {
            return None;
        }
        let old = |call: &Unconfirmed, age| call.age(now.wall) >= age;
        let alone = head.alone.as_ref().filter(|it| old(it, OLD_POLL));
        let pages = self.sweeper.ways.is_readable(now.wall);
        let oldest = head.oldest_submitted.iter().filter(|_| !pages);
        let oldest = oldest.filter(|it| old(it, DEADLINE));
        let mut all = alone.into_iter().chain(oldest);
        all.find(|it| !self.flights.has_call(it.row))
    }

    /// The call with the reason why nobody could be asked about it.
    pub(super) fn with_bar(&self, call: &Unconfirmed) -> Unconfirmed {
        let mut call = call.clone();
        if let Some(barred) = self
            .rights
            .barred
            .as_ref()
            .filter(|_| call.message.is_empty())
        {
            call.message.clone_from(&barred.why);
        }
        call
    }

    /// As `status` shows it: polls are refused while the rest works.
    pub(super) fn barred_polls(&self, now: Now) -> Option<Trouble> {
        let barred = self.rights.barred.as_ref()?;
        let instead = match self.sweeper.ways.is_readable(now.wall) {
            true => "pages of the CRM's journal are read instead",
            false => "webhooks alone tell whether calls are journaled",
        };
        Some(Trouble {
            part: "polls".to_owned(),
            why: barred.why.clone(),
            instead: format!(
                "{instead}; grant the application the right to read the status of its requests"
            ),
            since: barred.since.floor_seconds().get(),
        })
    }
}
