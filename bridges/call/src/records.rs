//! Combines call detail records (CDRs) into finished calls, for PBXs that report neither channel
//! events nor CEL. A call is "folded" once its records have been turned into a finished call.
//!
//! A record describes one path between two parties, and the PBX writes it when the record's channel
//! has ended. Records belong to the same call if they share a linkedid, a unique ID, or a channel
//! that was up in both. When a Local channel optimizes itself away, which splits a call into two
//! records, these rules rejoin them. The finished calls are marked as estimates.
//!
//! Since no record shows that its call is over, a call waits for further records:
//!
//! - A call in progress waits until `--cdr-wait` has passed since its last record.
//! - A call from a backlog waits until no record of any call has arrived for `--cdr-wait`.
//! - If the PBX writes in batches (its calls repeatedly arrive late), a call waits until records
//!   that ended later have arrived, or until 10 minutes after its end.
//! - If a record is missing (that of the linkedid's own channel or of one half of a Local channel),
//!   the call waits for it, or for `--max-call`. So does a call without a trunk, because its
//!   records may be the start of a customer's call.
//! - An unanswered call whose number an API command may redial (`originate_retries`) waits for ten
//!   minutes, because the next line's record doesn't arrive until that line has ended.
//! - Once a file has been read to its end, no more records will arrive for calls that ended before
//!   the last batch.
//!
//! A record that arrives after its call was folded counts as late. This happens, for example, when
//! a called party was transferred and is still talking after the caller has hung up. If the record
//! shows more talk time or a later end, a revised call is emitted ([`Folder::take_revised`]).
//!
//! | module | contents |
//! |---|---|
//! | `record` | the part of a record that's stored |
//! | `group` | the records of one call, and the keys that tie them together |
//! | `late` | how late records change calls that have been folded |
//! | `occupancies` | corrects records that have the wrong channel |
//! | `channels` | the channels listed in the records, and how each one started |
//! | `meetings` | which channels could hear each other, and when |
//! | `facts` | the records as facts, which `resolve` turns into the finished call |

mod channels;
mod facts;
mod group;
mod late;
mod meetings;
mod occupancies;
mod record;

use crate::assemble::index::{FinishedIds, Schedule, in_order};
use crate::facts::OpenCall;
use crate::resolve::{EndReason, MAY_BE_REDIALED, resolve};
use crate::snapshots::{Changes, Error, OpenChange, bytes};
use crate::{Cdr, Direction, EventTime, FinishedCall, Reception, Settings};
use channels::Channels;
use group::{Group, Groups, LIVE};
use late::FoldedGroups;
use record::Record;
use std::time::Duration;

/// Longest accepted interval between batches if the PBX writes records in batches. (The default in
/// `cdr.conf` is 300 s.)
const BATCH: Duration = Duration::from_secs(600);
/// Records that arrive further apart than this are from different batches, since all records in a
/// batch arrive at once.
const BATCHES_APART: Duration = Duration::from_secs(30);

/// How long an unanswered call waits for the record of the next line that its command dials.
const REDIALED: Duration = Duration::from_secs(600);

/// Why a call is incomplete if its records were dropped, or if it was folded before they arrived.
const DROPPED: &str = "the call had more records than callbridge keeps of one call";

/// Folds the records of one PBX. The caller supplies the time.
#[derive(Debug, Default)]
pub struct Folder {
    settings: Settings,
    /// Number of records that were dropped because the number of records per call is limited.
    pub facts_dropped: u64,
    groups: Groups,
    /// Groups by the arrival of their last record: those missing a record, and all others. Only the
    /// latter are checked each time a record arrives.
    awaiting: Schedule<EventTime>,
    ready: Schedule<EventTime>,
    /// IDs and channel names of folded calls, along with when each call ended.
    done: FinishedIds<EventTime>,
    finished: Vec<FinishedCall>,
    folded: FoldedGroups,
    revised: Vec<FinishedCall>,
    changes: Changes,
    reception: Reception,
    /// The latest end of any record so far. `stream_arrived` is when the last record arrived.
    stream: Option<EventTime>,
    stream_arrived: Option<EventTime>,
    /// Time up to which channel events have been received, or `None` if the PBX only sends records.
    events: Option<EventTime>,
    /// When the first late call arrived. `batches` is set once there's another one in a later
    /// batch, which shows that the PBX writes in batches.
    batch: Option<EventTime>,
    batches: bool,
}

impl Folder {
    /// Creates a folder without any records. It uses the `endpoints`, `cdr_wait`, `max_call`, and
    /// `max_open_calls` settings.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            ..Self::default()
        }
    }

    /// Processes a record that arrived at `arrived` according to callbridge's clock, returning
    /// `false` if it belongs to a call that has already been folded (see [`Folder::on_late_cdr`]).
    pub fn on_cdr(&mut self, cdr: &Cdr<'_>, arrived: EventTime) -> bool {
        let Some(record) = Record::from_cdr(cdr, arrived) else {
            return true;
        };
        if self.is_late(&record) {
            self.revise(record);
            return false;
        }
        self.stream = self.stream.max(Some(record.end));
        self.stream_arrived = self.stream_arrived.max(Some(arrived));
        for key in self.groups.take_in(record, arrived) {
            self.changes.insert(key);
            self.schedule(key);
        }
        while self.groups.by_key.len() > self.settings.max_open_calls.max(1)
            && let Some(key) = self.groups.longest_silent()
        {
            let may_be_redialed = self.groups.by_key[&key].may_be_redialed();
            self.finish(key, may_be_redialed.then_some(MAY_BE_REDIALED));
        }
        true
    }

    /// Processes a record that arrived after its call was finished. If the call was folded here and
    /// the record shows that it lasted longer, [`Folder::take_revised`] will return the corrected
    /// values.
    pub fn on_late_cdr(&mut self, cdr: &Cdr<'_>, arrived: EventTime) {
        if let Some(record) = Record::from_cdr(cdr, arrived) {
            self.revise(record);
        }
    }

    fn revise(&mut self, late: Record) {
        let again = Self::new(self.settings.clone());
        self.revised.extend(self.folded.revise(late, again));
    }

    /// Returns the calls for which a late record has revealed more talk time or a later end since
    /// the last time this was called.
    pub fn take_revised(&mut self) -> Vec<FinishedCall> {
        std::mem::take(&mut self.revised)
    }

    /// Sets whether records are currently arriving. While there are unread records in a queue or a
    /// file, no call is folded by our clock.
    pub fn set_reception(&mut self, reception: Reception) {
        self.reception = reception;
    }

    /// Sets the time up to which channel events have been received, or `None` if the PBX doesn't
    /// report any. Calls that ended later aren't folded yet, because channel events may still
    /// report them.
    pub fn events_until(&mut self, latest: Option<EventTime>) {
        self.events = latest;
    }

    /// Returns `true` if the record's IDs or channel belonged to a call that has already been
    /// folded.
    fn is_late(&self, record: &Record) -> bool {
        self.is_of_folded_call(record, &record.uniqueid)
            || self.is_of_folded_call(record, &record.linkedid)
            || record.linkedid.is_empty()
                && self.follows(record, &record.channel, Duration::from_secs(1))
    }

    /// Returns `true` if a call with this ID from the record was folded shortly before the record
    /// started.
    fn is_of_folded_call(&self, record: &Record, id: &str) -> bool {
        if group::is_made_by_pbx(id) {
            return self.follows(record, id, group::FAR_APART);
        }
        // Unrelated calls can share an ID that wasn't generated by the PBX, so the channel must
        // match too.
        self.follows(record, id, group::FOLLOWING)
            && self.follows(record, &record.channel, group::FAR_APART)
    }

    /// Returns `true` if a folded call had this ID or channel, and ended no more than `apart`
    /// before the record started.
    fn follows(&self, record: &Record, text: &str, apart: Duration) -> bool {
        let end = self.done.known.get(text);
        end.is_some_and(|&end| record.start <= end.plus(apart))
    }

    /// Folds all calls that are due at `now`. This should be called no later than
    /// [`Folder::next_deadline`].
    pub fn tick(&mut self, now: EventTime) {
        self.reception = self.reception.correct_for_clock(now);
        let clock = self.reception.clock(now, self.wait());
        let ready = self.ready.due_at(clock.minus(self.wait()));
        let awaiting = self.awaiting.due_at(clock.minus(self.settings.max_call));
        let over = ready.filter(|&key| clock >= self.due(key));
        for key in in_order(over.chain(awaiting)) {
            self.finish(key, None);
        }
    }

    /// Updates the group's place in the schedules after its records have changed or it was removed.
    fn schedule(&mut self, key: u64) {
        self.awaiting.remove(key);
        self.ready.remove(key);
        if let Some(group) = self.groups.by_key.get(&key) {
            let awaits = group.awaits_more() || !group.has_trunk(&self.settings.endpoints);
            let schedule = if awaits {
                &mut self.awaiting
            } else {
                &mut self.ready
            };
            schedule.put(key, group.arrived);
        }
    }

    /// Returns when the group will be folded, by callbridge's clock, if no further records arrive.
    fn due(&self, key: u64) -> EventTime {
        let group = &self.groups.by_key[&key];
        let needed = group.end().plus(LIVE);
        let lacks_events = self.events.is_some_and(|until| until < needed);
        if lacks_events || self.awaiting.has(key) {
            return group.arrived.plus(self.settings.max_call);
        }
        let wait = self.wait();
        if group.may_be_redialed() {
            return group.arrived.plus(wait.max(REDIALED));
        }
        let later_ones_arrived = self.stream >= Some(group.end().plus(wait));
        let waited = group.arrived.plus(wait);
        if group.is_live() || self.batches && later_ones_arrived {
            return waited;
        }
        if self.batches {
            return waited.max(group.end().plus(BATCH));
        }
        // More records of a backlog may still arrive.
        let last = self.stream_arrived.unwrap_or(group.arrived);
        let quiet = last.max(group.arrived).plus(wait);
        quiet.min(waited.max(group.arrived.plus(BATCH)))
    }

    fn wait(&self) -> Duration {
        self.settings.cdr_wait.unwrap_or(self.settings.settle)
    }

    /// Returns when the next group will be folded if no further records arrive.
    pub fn next_deadline(&self) -> Option<EventTime> {
        let ready = self.ready.keys().map(|key| self.due(key));
        let awaiting = self.awaiting.first();
        let awaiting = awaiting.map(|(at, _)| at.plus(self.settings.max_call));
        let first = ready.chain(awaiting).min()?;
        self.reception.at_earliest(first, self.wait())
    }

    /// Processes the end of the file that the records come from, which was reached at `now`. Calls
    /// that ended before the last batch that may still arrive are folded, except for those with
    /// missing records.
    pub fn at_end(&mut self, now: EventTime) {
        let before = now.minus(BATCH.max(self.wait()));
        let long_ago = now.minus(self.settings.max_call);
        let groups = self.groups.by_key.iter().filter(|(_, group)| {
            let end = group.end();
            let old = !group.is_live() && end <= before && !group.awaits_more();
            old || end <= long_ago
        });
        for key in in_order(groups.map(|(&key, _)| key)) {
            self.finish(key, None);
        }
    }

    /// Folds every call right away, because no more records will arrive.
    pub fn finish_all(&mut self) {
        while let Some(key) = self.groups.longest_silent() {
            self.finish(key, None);
        }
    }

    /// Folds a group. Its calls are incomplete if there's a `doubt`.
    fn finish(&mut self, key: u64, doubt: Option<&str>) {
        self.changes.insert(key);
        let Some(mut group) = self.groups.remove(key) else {
            return;
        };
        self.schedule(key);
        // If the PBX writes in batches, every call is late, whereas a backlog causes this only
        // once.
        let late = group.arrived.since(group.end());
        if late > LIVE && late <= BATCH {
            let first = *self.batch.get_or_insert(group.arrived);
            self.batches |= group.arrived.since(first) > BATCHES_APART;
        }
        let records = group.records.clone();
        group.complete();
        occupancies::give_back(&mut group.records);
        let mut calls = calls_of_legs(&group, &self.settings)
            .unwrap_or_else(|| calls_of_paths(&group, &self.settings));
        for call in &mut calls {
            call.estimate = true;
            let dropped = (group.dropped > 0).then_some(DROPPED);
            if let Some(reason) = doubt.or(dropped) {
                call.incomplete.get_or_insert_with(|| reason.to_owned());
            }
        }
        self.facts_dropped += u64::from(group.dropped);
        let is_internal = calls
            .iter()
            .all(|call| call.direction == Direction::Internal);
        if !is_internal {
            self.remember(&group);
            self.folded.keep(records, &calls);
        }
        self.finished.extend(calls);
    }

    /// Stores the IDs and channel names of a folded group, so that [`Folder::is_late`] recognizes
    /// late records.
    fn remember(&mut self, group: &Group) {
        let end = group.end();
        for record in &group.records {
            self.done.insert(&record.uniqueid, end);
            self.done.insert(&record.linkedid, end);
            for name in [&record.channel, &record.dest] {
                if group::is_unique(name) {
                    self.done.insert(name, end);
                }
            }
        }
    }

    /// Returns the calls that have been finished since the last time this was called.
    pub fn take_finished(&mut self) -> Vec<FinishedCall> {
        std::mem::take(&mut self.finished)
    }

    /// Returns the groups of records that have changed or been removed since the last time this was
    /// called.
    pub fn take_changes(&mut self) -> Vec<OpenChange> {
        let groups = &self.groups.by_key;
        self.changes.take(|key| groups.get(&key).and_then(bytes))
    }

    /// Restores a group of records returned by [`Folder::take_changes`].
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes aren't a valid snapshot.
    pub fn restore(&mut self, key: u64, snapshot: &[u8]) -> Result<(), Error> {
        let group: Group = self.changes.restore(key, snapshot)?;
        self.groups.remove(key);
        self.stream = self.stream.max(Some(group.end()));
        self.groups.put(key, group);
        self.schedule(key);
        Ok(())
    }

    /// Returns `true` if a record with this unique ID or linkedid is waiting to be folded.
    pub fn knows(&self, id: &str) -> bool {
        self.groups.ids.get(id).next().is_some()
    }

    /// Returns the number of calls waiting for records.
    pub fn open_calls(&self) -> usize {
        self.groups.by_key.len()
    }
}

/// Resolves records that each describe a single channel, treating them like those channels' events,
/// or returns `None` if the records describe paths between two parties.
///
/// The calls are still estimates, because where a value has changed, a record only keeps the last
/// one.
fn calls_of_legs(group: &Group, settings: &Settings) -> Option<Vec<FinishedCall>> {
    let records = group.records.iter();
    let own_legs = records.filter_map(|record| record.legs.first());
    let began = own_legs.clone().map(|leg| leg.first).min()?;
    let mut call = OpenCall::new(began, group.arrived, group.is_live());
    for record in &group.records {
        for (room, ..) in record.rooms() {
            call.rooms.insert(room.into());
        }
        for (i, leg) in record.legs.iter().enumerate() {
            // If a channel has its own record, only that one is used.
            if i == 0 || !own_legs.clone().any(|own_leg| own_leg.id == leg.id) {
                *call.legs.get_or_add(leg.id.clone(), leg.first, leg.place) = leg.clone();
            }
        }
    }
    Some(resolve(&call, settings, EndReason::HungUp))
}

/// Resolves records that each describe a path between two parties, treating them like those
/// parties' events.
fn calls_of_paths(group: &Group, settings: &Settings) -> Vec<FinishedCall> {
    // These records only cover the dialed side. Another group of records has the complete call.
    if group.records.iter().all(Record::is_dialed_side) {
        return Vec::new();
    }
    let channels = Channels::of_group(group, &settings.endpoints);
    let call = facts::open_call(group, &channels, &settings.endpoints);
    let mut calls = resolve(&call, settings, EndReason::HungUp);
    for call in &mut calls {
        let own = channels.records_of(call);
        if let Some(doubt) = own.iter().find_map(|record| record.doubt()) {
            call.incomplete = Some(doubt);
        }
        let connecting = own.iter().filter(|record| record.connects());
        if let Some(excess) = connecting.filter_map(|record| record.excess).max() {
            // A billed time that's longer than the call isn't clamped, because the mapping reports
            // calls whose talk time exceeds their duration.
            call.answered = true;
            call.talk = call.talk.max(excess);
        }
        let userfields = facts::userfields_of_lines(&channels, call, &settings.endpoints);
        if !userfields.is_empty() {
            call.userfields = userfields;
        }
        // An ID that was generated from a channel's name doesn't occur anywhere else.
        call.also_known_as.retain(|id| {
            let mut ids = own.iter().flat_map(|record| record.ids());
            ids.any(|known| known == id.as_str())
        });
    }
    calls
}
