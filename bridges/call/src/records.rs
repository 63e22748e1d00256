//! Combines call detail records (CDRs) into finished calls, for a PBX that reports neither channel
//! events nor CEL. A call is "folded" when its records have become a finished call.
//!
//! A record is one path between two parties. The PBX writes a record when its channel has ended.
//! Records belong to one call if they share a linkedid, a unique id, or a channel that lived in
//! both. A Local channel that optimizes itself away splits a call into two records, and these rules
//! join the two records again. The finished calls are marked as estimates.
//!
//! No record shows that its call is over. So a call waits for further records:
//!
//! - A call that happens now waits until `--cdr-wait` has passed since its last record.
//! - A call of a backlog waits until no record of any call has arrived for `--cdr-wait`.
//! - If the PBX writes in batches (its calls repeatedly arrive late), a call waits until records
//!   that ended later have arrived, or until 10 minutes after its end.
//! - If a record is missing (the record of a linkedid's own channel, or of one half of a Local
//!   channel), the call waits for that record, or for `--max-call`. A call without a trunk waits
//!   too, because its records can be the beginning of a customer's call.
//! - If a file was read to its end, no more records arrive for calls that ended before the last
//!   batch.
//!
//! A record that arrives after its call was folded is counted as late. An example is a dialed party
//! that was transferred and still talks after the caller has hung up. If the record shows that the
//! call has more talk or a later end, a revised call is emitted ([`Folder::take_revised`]).
//!
//! | module | contents |
//! |---|---|
//! | `record` | the stored part of a record |
//! | `group` | the records of one call, and the keys that tie them |
//! | `late` | what late records change in folded calls |
//! | `occupancies` | corrects records that have one channel in place of another |
//! | `channels` | the channels that the records name, and how each began |
//! | `meetings` | which channels heard each other when |
//! | `facts` | the records as facts, from which `resolve` makes the finished call |

mod channels;
mod facts;
mod group;
mod late;
mod meetings;
mod occupancies;
mod record;

use crate::assemble::index::FinishedIds;
use crate::facts::OpenCall;
use crate::resolve::{EndReason, resolve};
use crate::snapshots::{Changes, Error, OpenChange, bytes};
use crate::{Cdr, Direction, EventTime, FinishedCall, Reception, Settings};
use channels::Channels;
use group::{Group, Groups, LIVE};
use late::FoldedGroups;
use record::Record;
use std::time::Duration;

/// Longest accepted interval between batches of a PBX that writes records in batches (the default
/// in `cdr.conf` is 300 s).
const BATCH: Duration = Duration::from_secs(600);
/// Records that arrive further apart than this are from different batches. The records of one batch
/// arrive at once.
const BATCHES_APART: Duration = Duration::from_secs(30);

/// Folds the records of one PBX. The caller supplies the time.
#[derive(Debug, Default)]
pub struct Folder {
    settings: Settings,
    /// Number of records that were dropped because one call holds only a limited number.
    pub facts_dropped: u64,
    groups: Groups,
    /// Ids and channel names of folded calls, with the end of each call.
    done: FinishedIds<EventTime>,
    finished: Vec<FinishedCall>,
    folded: FoldedGroups,
    revised: Vec<FinishedCall>,
    changes: Changes,
    reception: Reception,
    /// The latest end of a record so far. `stream_arrived` is the time at which the last record
    /// arrived.
    stream: Option<EventTime>,
    stream_arrived: Option<EventTime>,
    /// Time up to which channel events were received. `None` if the PBX sends only records.
    events: Option<EventTime>,
    /// Arrival of the first call that came late. `batches` is set once another late call came in a
    /// later batch, which shows that the PBX writes in batches.
    batch: Option<EventTime>,
    batches: bool,
}

impl Folder {
    /// Creates a folder without records. It uses the settings `endpoints`, `cdr_wait`, `max_call`,
    /// and `max_open_calls`.
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
        }
        while self.groups.by_key.len() > self.settings.max_open_calls.max(1)
            && let Some(key) = self.groups.longest_silent()
        {
            self.finish(key);
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

    /// Returns the calls found since the last time to have more talk time or a later end than first
    /// reported, because of a late record.
    pub fn take_revised(&mut self) -> Vec<FinishedCall> {
        std::mem::take(&mut self.revised)
    }

    /// Sets whether records arrive from here on. While records wait unread in a queue or a file, no
    /// call is folded by our clock.
    pub fn set_reception(&mut self, reception: Reception) {
        self.reception = reception;
    }

    /// Sets the time up to which channel events were received, or `None` if the PBX reports none.
    /// Calls that ended later are not folded yet, because channel events may still report them.
    pub fn events_until(&mut self, latest: Option<EventTime>) {
        self.events = latest;
    }

    /// Returns `true` if the ids or the channel of the record belonged to a call that was already
    /// folded.
    fn is_late(&self, record: &Record) -> bool {
        self.is_of_folded_call(record, &record.uniqueid)
            || self.is_of_folded_call(record, &record.linkedid)
            || record.linkedid.is_empty()
                && self.follows(record, &record.channel, Duration::from_secs(1))
    }

    /// Returns `true` if a call with this id of the record was folded shortly before the record
    /// began.
    fn is_of_folded_call(&self, record: &Record, id: &str) -> bool {
        if group::is_made_by_pbx(id) {
            return self.follows(record, id, group::FAR_APART);
        }
        // Unrelated calls can share an id that the PBX did not make, so the channel must match too.
        self.follows(record, id, group::FOLLOWING)
            && self.follows(record, &record.channel, group::FAR_APART)
    }

    /// Returns `true` if a folded call had this id or channel, and ended at most `apart` before the
    /// record began.
    fn follows(&self, record: &Record, text: &str, apart: Duration) -> bool {
        let end = self.done.known.get(text);
        end.is_some_and(|&end| record.start <= end.plus(apart))
    }

    /// Folds all calls that are due at `now`. Call this function at [`Folder::next_deadline`] at
    /// the latest.
    pub fn tick(&mut self, now: EventTime) {
        self.reception = self.reception.correct_for_clock(now);
        let clock = self.reception.clock(now, self.wait());
        self.finish_groups(|folder, group| clock >= folder.due(group));
    }

    fn finish_groups(&mut self, is_over: impl Fn(&Self, &Group) -> bool) {
        let mut over = Vec::new();
        for (&key, group) in &self.groups.by_key {
            if is_over(self, group) {
                over.push(key);
            }
        }
        for key in over {
            self.finish(key);
        }
    }

    /// Returns the time, by callbridge's clock, at which the group is folded if no further record
    /// arrives.
    fn due(&self, group: &Group) -> EventTime {
        if self.awaits(group) {
            return group.arrived.plus(self.settings.max_call);
        }
        let wait = self.wait().max(group.patience());
        let later_ones_arrived = self.stream >= Some(group.end().plus(wait));
        let waited = group.arrived.plus(wait);
        if group.is_live() || self.batches && later_ones_arrived {
            return waited;
        }
        if self.batches {
            return waited.max(group.end().plus(BATCH));
        }
        // More records of a backlog can still arrive.
        let last = self.stream_arrived.unwrap_or(group.arrived);
        let quiet = last.max(group.arrived).plus(wait);
        quiet.min(waited.max(group.arrived.plus(BATCH)))
    }

    fn wait(&self) -> Duration {
        self.settings.cdr_wait.unwrap_or(self.settings.settle)
    }

    /// Returns `true` for a group that waits for more records. A group without a trunk can be the
    /// beginning of a customer's call.
    fn awaits(&self, group: &Group) -> bool {
        let needed = group.end().plus(LIVE);
        let lacks_events = self.events.is_some_and(|until| until < needed);
        lacks_events || group.awaits_more() || !group.has_trunk(&self.settings.endpoints)
    }

    /// Returns the time at which the next group is folded if no further record arrives.
    pub fn next_deadline(&self) -> Option<EventTime> {
        let groups = self.groups.by_key.values();
        let first = groups.map(|group| self.due(group)).min()?;
        self.reception.at_earliest(first, self.wait())
    }

    /// Processes the end of the file that the records come from, which was reached at `now`. Calls
    /// that ended before the last batch that can still arrive are folded, except those with missing
    /// records.
    pub fn at_end(&mut self, now: EventTime) {
        let before = now.minus(BATCH.max(self.wait()));
        let long_ago = now.minus(self.settings.max_call);
        self.finish_groups(|_, group| {
            let end = group.end();
            let old = !group.is_live() && end <= before && !group.awaits_more();
            old || end <= long_ago
        });
    }

    /// Folds every call without further waiting, because no more records will arrive.
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
        // If the PBX writes in batches, every call is late. With a backlog, this happens only once.
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
            if group.dropped > 0 {
                let reason = "the call had more records than callbridge keeps of one call";
                call.incomplete = Some(reason.to_owned());
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

    /// Stores the ids and channel names of a folded group, so [`Folder::is_late`] recognizes late
    /// records.
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

    /// Returns the calls that were finished since this function last ran.
    pub fn take_finished(&mut self) -> Vec<FinishedCall> {
        std::mem::take(&mut self.finished)
    }

    /// Returns the groups of records that changed or were removed since this function last ran.
    pub fn take_changes(&mut self) -> Vec<OpenChange> {
        let groups = &self.groups.by_key;
        self.changes.take(|key| groups.get(&key).and_then(bytes))
    }

    /// Restores a group of records from [`Folder::take_changes`].
    ///
    /// # Errors
    /// Returns an error if the bytes are not a snapshot.
    pub fn restore(&mut self, key: u64, snapshot: &[u8]) -> Result<(), Error> {
        let group: Group = self.changes.restore(key, snapshot)?;
        self.groups.remove(key);
        self.stream = self.stream.max(Some(group.end()));
        self.groups.put(key, group);
        Ok(())
    }

    /// Returns `true` if a record with this unique id or linkedid waits to be folded.
    pub fn knows(&self, id: &str) -> bool {
        self.groups.ids.get(id).next().is_some()
    }

    /// Returns the number of calls that wait for records.
    pub fn open_calls(&self) -> usize {
        self.groups.by_key.len()
    }
}

/// Resolves records that each describe one channel like the events of these channels. The calls are
/// still estimates, because a record keeps only the last of several values. Returns `None` if the
/// records describe paths between two parties.
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
            // If a channel has its own record, only its own record is used.
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
    // These records have only the dialed side. Another group of records has the whole call.
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
            // A billed time that is longer than the call is not clamped, because the mapping
            // reports talk that is longer than its call.
            call.answered = true;
            call.talk = call.talk.max(excess);
        }
        let userfields = facts::userfields_of_lines(&channels, call, &settings.endpoints);
        if !userfields.is_empty() {
            call.userfields = userfields;
        }
        // An id that was made from a channel's name occurs nowhere else.
        call.also_known_as.retain(|id| {
            let mut ids = own.iter().flat_map(|record| record.ids());
            ids.any(|known| known == id.as_str())
        });
    }
    calls
}
