//! Call detail records in, finished calls out, for a PBX of which nothing better is told.
//!
//! A record is one path between two parties, told when its channel ended. Records are one call when
//! they share a linkedid, a unique id, or a channel that lived in both; so a Local channel that
//! optimised itself away, which splits one call in two records, stays one call. What is folded is
//! an estimate, and says so.
//!
//! Nothing among records says that a call is over. So the records of a call are waited for:
//!
//! - Those of a call that happens now: until `--cdr-wait` has passed since the last one came.
//! - Those of a backlog: until no record of any call has come for `--cdr-wait`.
//! - Those of a PBX that posts in batches, which is seen by its calls coming late time and again:
//!   until records that ended later have come, or until 10 minutes after the end.
//! - Those of which another is missing (a linkedid whose own channel told none, one half of a Local
//!   channel), and those without a trunk, which may be the beginning of a customer's call: until
//!   that came, or for `--max-call`.
//! - A file that was read to its end has told everything of what ended before the last batch.
//!
//! A record that comes after its call was folded (a dialed party that was transferred goes on
//! when its caller is gone) changes nothing, and is counted as late.
//!
//! | module | what lives there |
//! |---|---|
//! | `record` | what is kept of a record |
//! | `group` | the records of one call, and what ties them |
//! | `occupancies` | records that name a channel in another's place |
//! | `plan` | the channels, who the customer is, how many calls the records are |
//! | `finish` | the values of the finished call |
//! | `timeline` | what happened, to be kept and drawn |

mod finish;
mod group;
mod occupancies;
mod plan;
mod record;
mod timeline;

use crate::assemble::index::FinishedIds;
use crate::facts::OpenCall;
use crate::resolve::{EndReason, resolve};
use crate::snapshots::{Changes, Error, OpenChange, bytes};
use crate::{Cdr, Direction, EventTime, FinishedCall, Reception, Settings, UniqueId};
use group::{Group, Groups, LIVE};
use record::Record;
use std::time::Duration;

/// A PBX that posts records in batches does so within this time (`cdr.conf`: 300 s).
const BATCH: Duration = Duration::from_secs(600);
/// Two batches lie farther apart; the records of one come at once.
const BATCHES_APART: Duration = Duration::from_secs(30);

/// Folds the records of one PBX. Time comes in from outside.
#[derive(Debug, Default)]
pub struct Folder {
    settings: Settings,
    /// Facts beyond what one call may hold, so far.
    pub facts_dropped: u64,
    groups: Groups,
    /// Ids and channels of folded calls, with the end of the call.
    done: FinishedIds<EventTime>,
    finished: Vec<FinishedCall>,
    changes: Changes,
    reception: Reception,
    /// The latest end of a record, and when the last one arrived.
    stream: Option<EventTime>,
    stream_arrived: Option<EventTime>,
    /// The PBX tells channel events as well, and has told them up to here.
    events: Option<EventTime>,
    /// Arrival of the first call that came minutes after its end; `batches`: another did so since,
    /// in a later batch.
    batch: Option<EventTime>,
    batches: bool,
}

impl Folder {
    /// No records yet. Of the settings, the endpoints, `cdr_wait`, `max_call` and
    /// `max_open_calls` count.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            ..Self::default()
        }
    }

    /// Takes in a record, and when it arrived by our own clock. `false` when it is one of a call
    /// that was folded already, and so changed nothing.
    pub fn on_cdr(&mut self, cdr: &Cdr<'_>, arrived: EventTime) -> bool {
        let Some(record) = Record::of(cdr, arrived) else {
            return true;
        };
        if self.is_late(&record) {
            return false;
        }
        self.stream = self.stream.max(Some(record.end));
        self.stream_arrived = self.stream_arrived.max(Some(arrived));
        for key in self.groups.take_in(record, arrived) {
            self.changes.insert(key);
        }
        while self.groups.by_key.len() > self.settings.max_open_calls.max(1)
            && let Some(key) = self.groups.longest_silent()
        {
            self.finish(key);
        }
        true
    }

    /// Sets whether records arrive from here on: none is waited for in a time in which none can.
    pub fn receives(&mut self, reception: Reception) {
        self.reception = reception;
    }

    /// The PBX tells channel events as well, and has told them up to this moment (`None`: it tells
    /// none). What ended later is not folded yet: they may still tell of it.
    pub fn events_until(&mut self, latest: Option<EventTime>) {
        self.events = latest;
    }

    /// Returns `true` for a record of a folded call: by its ids, or because its channel was that of
    /// a folded call.
    fn is_late(&self, record: &Record) -> bool {
        let is_near = |text: &String, apart: Duration| {
            let end = self.done.known.get(text);
            end.is_some_and(|&end| record.start <= end.plus(apart))
        };
        let is_known = |id: &String| {
            if group::is_made_by_pbx(id) {
                is_near(id, group::FAR_APART)
            } else {
                // Strangers can have the same text.
                is_near(id, group::FOLLOWING) && is_near(&record.channel, group::FAR_APART)
            }
        };
        is_known(&record.uniqueid)
            || is_known(&record.linkedid)
            || record.linkedid.is_empty() && is_near(&record.channel, Duration::from_secs(1))
    }

    /// Says what time it is; call it at [`Folder::next_deadline`] at the latest.
    pub fn tick(&mut self, now: EventTime) {
        self.reception = self.reception.until(now);
        let now = self.reception.clock(now, self.wait());
        self.finish_those(|it, group| now >= it.due(group));
    }

    fn finish_those(&mut self, is_over: impl Fn(&Self, &Group) -> bool) {
        let groups = self.groups.by_key.iter();
        let over = groups.filter(|(_, group)| is_over(self, group));
        let over: Vec<u64> = over.map(|(&key, _)| key).collect();
        over.into_iter().for_each(|key| self.finish(key));
    }

    /// Returns the moment at which a group is folded by our own clock, if nothing else is received.
    fn due(&self, group: &Group) -> EventTime {
        if self.awaits(group) {
            return group.arrived.plus(self.settings.max_call);
        }
        let told_on = self.stream >= Some(group.end().plus(self.wait()));
        let waited = group.arrived.plus(self.wait());
        if group.is_live() || self.batches && told_on {
            return waited;
        }
        if self.batches {
            return waited.max(group.end().plus(BATCH));
        }
        // The rest of a backlog may still be on its way.
        let last = self.stream_arrived.unwrap_or(group.arrived);
        let quiet = last.max(group.arrived).plus(self.wait());
        quiet.min(waited.max(group.arrived.plus(BATCH)))
    }

    fn wait(&self) -> Duration {
        self.settings.cdr_wait.unwrap_or(self.settings.settle)
    }

    /// Returns `true` for a group to which more may come. One without a trunk is no customer's call
    /// yet: it can be the beginning of one.
    fn awaits(&self, group: &Group) -> bool {
        let (events, end) = (self.events, group.end());
        let unheard = events.is_some_and(|until| until < end.plus(LIVE));
        unheard || group.awaits_more() || !group.has_trunk(&self.settings.endpoints)
    }

    /// Returns the moment at which the next group is folded if nothing else is received.
    pub fn next_deadline(&self) -> Option<EventTime> {
        let first = self.groups.by_key.values().map(|it| self.due(it)).min()?;
        self.reception.at_earliest(first, self.wait())
    }

    /// The file that the records come from was read to its present end at `now`: what ended before
    /// the last batch that can still come is folded, but for calls whose records are missing.
    pub fn at_end(&mut self, now: EventTime) {
        let before = now.minus(BATCH.max(self.wait()));
        let long_ago = now.minus(self.settings.max_call);
        self.finish_those(|_, group| {
            let end = group.end();
            let old = !group.is_live() && end <= before && !group.awaits_more();
            old || end <= long_ago
        });
    }

    /// No more records will come: every call is folded without further waiting.
    pub fn finish_all(&mut self, _now: EventTime) {
        while let Some(key) = self.groups.longest_silent() {
            self.finish(key);
        }
    }

    fn finish(&mut self, key: u64) {
        self.changes.insert(key);
        let Some(mut group) = self.groups.remove(key) else {
            return;
        };
        // A PBX that posts in batches tells every call late; one backlog does so once.
        let late = group.arrived.since(group.end());
        if late > LIVE && late <= BATCH {
            let first = *self.batch.get_or_insert(group.arrived);
            self.batches |= group.arrived.since(first) > BATCHES_APART;
        }
        group.complete();
        occupancies::give_back(&mut group.records);
        let of_legs = of_legs(&group, &self.settings);
        let calls = of_legs.unwrap_or_else(|| finish::calls(&group, &self.settings.endpoints));
        self.facts_dropped += u64::from(group.dropped);
        let journaled = |call: &FinishedCall| call.direction != Direction::Internal;
        let end = group.end();
        for record in group.records.iter().filter(|_| calls.iter().any(journaled)) {
            let names = [&record.channel, &record.dest].into_iter();
            let ids = [&record.uniqueid, &record.linkedid].into_iter();
            let texts = ids.chain(names.filter(|name| group::is_unique(name)));
            texts.for_each(|text| self.done.insert(text, end));
        }
        self.finished.extend(calls);
    }

    /// The calls folded since the last take.
    pub fn take_finished(&mut self) -> Vec<FinishedCall> {
        std::mem::take(&mut self.finished)
    }

    /// The groups of records that changed or went since the last take.
    pub fn take_changes(&mut self) -> Vec<OpenChange> {
        let groups = &self.groups.by_key;
        self.changes.take(|key| groups.get(&key).and_then(bytes))
    }

    /// Puts a group of records back, as [`Folder::take_changes`] gave it out.
    ///
    /// # Errors
    /// When the bytes are not a snapshot.
    pub fn restore(&mut self, key: u64, snapshot: &[u8]) -> Result<(), Error> {
        let group: Group = self.changes.restored(key, snapshot)?;
        self.groups.remove(key);
        self.stream = self.stream.max(Some(group.end()));
        self.groups.put(key, group);
        Ok(())
    }

    /// Returns `true` when a record with this unique id or linkedid waits to be folded.
    pub fn knows(&self, id: &str) -> bool {
        self.groups.ids.get(id).next().is_some()
    }

    /// Calls whose records are waited for.
    pub fn open_calls(&self) -> usize {
        self.groups.by_key.len()
    }
}

/// The finished calls of records that tell of one channel alone: what each tells, as events, put
/// together as if the channels had told it themselves. It stays an estimate: a record keeps the
/// last of what changed. `None` where they tell of paths.
fn of_legs(group: &Group, settings: &Settings) -> Option<Vec<FinishedCall>> {
    let firsts = group.records.iter().filter_map(|it| it.legs.first());
    let own = |id: &UniqueId| firsts.clone().any(|leg| leg.id == *id);
    let began = firsts.clone().map(|leg| leg.first).min()?;
    let mut call = OpenCall::new(began, group.arrived, group.is_live());
    for record in &group.records {
        for (at, leg) in record.legs.iter().enumerate() {
            // Of a channel with a record of its own, that says all.
            if at == 0 || !own(&leg.id) {
                *call.legs.met(leg.id.clone(), leg.first, leg.place) = leg.clone();
            }
        }
    }
    let mut calls = resolve(&call, settings, EndReason::HungUp, false);
    for call in &mut calls {
        call.estimate = true;
    }
    Some(calls)
}
