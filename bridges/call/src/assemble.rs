//! The assembler. It takes channel events and CDRs, groups them into open calls, and returns
//! finished calls.

mod calls;
mod cdrs;
mod clocks;
mod ending;
mod gaps;
pub(crate) mod index;
mod names;
mod parts;
mod processes;
mod restart;
mod settling;
mod unreadable;

use crate::facts::{Effect, OpenCall};
use crate::snapshots::{Changes, Error, OpenChange, bytes};
use crate::trunk::unmarked;
use crate::{
    CLOCK_TOLERANCE, Cdr, ChannelEvent, ClockDifference, EventTime, FinishedCall, Kind, Origin,
    PbxEvent, Reception, Settings, UniqueId,
};
use calls::{LinkKey, OpenCalls};
use cdrs::{EarlyCdr, EarlyCdrs};
use index::Schedule;

/// Groups channel events into calls, and returns each call when it is over.
#[derive(Debug, Default)]
pub struct Assembler {
    settings: Settings,
    /// Counts of ignored and corrected items.
    pub counts: AssemblyCounts,
    calls: OpenCalls,
    early: EarlyCdrs,
    finished: Vec<FinishedCall>,
    changes: Changes,
    /// Calls all of whose channels have hung up.
    settling: settling::Settling,
    /// Open calls whose end was possibly missed, each with the time at which its known part is
    /// emitted.
    overdue: Schedule<EventTime>,
    stream: Stream,
    /// Set while our own clock is clearly wrong, for example after the boot of a board without a
    /// clock battery. Events are collected, and no call is finished until the clock is right.
    /// `Some(true)` if the stream ended in the meantime.
    wrong_clock: Option<bool>,
    listening: gaps::Listening,
    clocks: clocks::Clocks,
    reception: Reception,
    processes: processes::Processes,
    newest_ids: restart::NewestIds,
}

/// Counts of ignored and corrected items since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssemblyCounts {
    /// Repeated events, which changed nothing.
    pub doubled: u64,
    /// Events of calls that had already been finished.
    pub late: u64,
    /// Number of times that the PBX's clock was set, as far as its events show.
    pub clock_set: u64,
    /// Events without a unique id.
    pub unidentified: u64,
    /// Facts that were dropped because one call holds only a limited number.
    pub facts_dropped: u64,
    /// Open calls that were dropped because they had only leftover events, such as a late hangup.
    pub ghosts: u64,
    /// Calls that were ended before all their channels had hung up, because they were open too
    /// long, too many or too large calls were open, or a hangup was missed.
    pub forced: u64,
    /// Calls among the `forced` ones that took more memory than was available.
    pub oversized: u64,
}

/// Progress of the stream of events.
#[derive(Debug, Default)]
struct Stream {
    /// Time of the last event. If a batch arrives in reverse order, this time goes back, so no call
    /// counts as over before its beginning was received.
    at: Option<EventTime>,
    /// Latest arrival of an event, a CDR, or a mark.
    arrived: Option<EventTime>,
    /// Number of channel events that were processed, including those of restored calls.
    taken_in: u64,
    /// What the arrival of the next events shows about their times.
    timing: Timing,
}

/// Describes what the arrival of an event shows about the time at which it happened. Arrival is
/// always by our boot clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// The connection or file whose events arrive in the order in which they happened. `None` if
    /// the order of arrival shows nothing, as with a broker that redelivers.
    pub line: Option<Line>,
    /// How far our wall clock is ahead of the clock of arrivals. A call whose events have no times
    /// starts at our wall clock's time.
    pub wall_ahead: ClockDifference,
    /// Set if the source keeps events until they are read, as a broker does. Events can then arrive
    /// long after they happened, so only their own times count. A call that was live can become
    /// part of a backlog.
    pub kept: bool,
    /// Substitute time for events of a file that have no time. It shows only the order of the
    /// events, and roughly the earliest time at which they can have happened. A call with such an
    /// event has unknown durations and is incomplete. `None` if the arrival shows when events
    /// happened.
    pub order: Option<EventTime>,
}

/// One connection of a source, or one of its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Number of the source.
    pub source: u16,
    /// Number that differs for each connection and file of the source.
    pub connection: u64,
}

impl Assembler {
    /// Creates an assembler without calls.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            ..Self::default()
        }
    }

    /// Processes an event of a PBX that arrived at `arrived` by our own clock. Returns `false` if
    /// the event belongs to a finished call, and so changed nothing.
    pub fn on_event(&mut self, event: &PbxEvent<'_>, arrived: EventTime) -> bool {
        self.stream.arrived = self.stream.arrived.max(Some(arrived));
        let late = self.counts.late;
        match event {
            PbxEvent::Channel(event) => self.on_channel_event(event, arrived),
            PbxEvent::Cdr(cdr) => self.on_cdr(cdr, arrived),
            PbxEvent::Mark(mark) => self.on_mark(*mark, arrived),
        }
        self.counts.late == late
    }

    /// Sets what the arrival of all later events shows about their times.
    pub fn timing(&mut self, timing: Timing) {
        self.stream.timing = timing;
    }

    fn on_channel_event(&mut self, event: &ChannelEvent<'_>, arrived: EventTime) {
        if event.kind == Kind::LinkedidEnd {
            let key = self.calls.find(&event.channel.linkedid);
            if let Some(call) = key.and_then(|key| self.calls.get_mut(key)) {
                let ended = Some(event.at.unwrap_or(arrived));
                call.times.linkedid_ended = call.times.linkedid_ended.max(ended);
            }
            return;
        }
        self.look_for_restart(event, arrived);
        let Some(id) = self.calls.identify(&event.channel) else {
            self.counts.unidentified += 1;
            return;
        };
        if event.is_listed() {
            self.listening.listed.insert(id.clone());
            if self.listening.has_list && !self.knows(id.as_str()) {
                return;
            }
        }
        let completed = self.calls.complete_event(&id, event);
        let event = completed.as_ref().unwrap_or(event);
        // A key press that changes no monitoring says nothing about a call.
        if matches!(&event.kind, Kind::Monitors { target, .. } if target.is_empty()) {
            return;
        }
        let timing = self.stream.timing;
        let found = self.calls.find_for_event(&id, &event.channel.linkedid);
        let open = found.ok().flatten();
        let call = open.and_then(|key| self.calls.get(key));
        let wall_ahead = call.map_or(timing.wall_ahead, |call| call.times.wall_ahead);
        let reported = event.at.or(timing.order);
        // A list of channels has no times. It describes the moment of its arrival, which is
        // translated to the PBX's clock.
        let is_listed = matches!(event.kind, Kind::Listed { .. });
        let by_arrival = reported.is_none() && !is_listed;
        let mut ahead = wall_ahead;
        if is_listed && let Some(list_ahead) = self.clocks.difference(timing.line) {
            ahead = list_ahead;
        }
        let at = reported.unwrap_or(arrived.by_clock(ahead));
        self.check_clock(&id, event, arrived);
        let far = timing.kept && at.apart(arrived) > CLOCK_TOLERANCE;
        // A kept event with a time far from its arrival is part of a backlog. From here on, the
        // time of the stream decides when the call is over.
        if far
            && let Some(key) = open
            && let Some(call) = self.calls.get_mut(key)
        {
            call.times.live = false;
            self.keep_deadlines(key);
        }
        self.stream.at = Some(at);
        if let Some(process) = event.channel.process {
            let stamp = event.channel.stamp;
            self.on_sign(process, stamp, None, at, arrived);
        }
        self.listening.whole = self.listening.whole.max(Some(arrived));
        self.advance(arrived);
        // The call, or the part of it that had this channel, can be over now.
        let Ok(open) = self.calls.find_for_event(&id, &event.channel.linkedid) else {
            self.counts.late += 1;
            return;
        };
        let live = !far && !self.settings.history;
        let mut key = open.unwrap_or_else(|| {
            let mut call = OpenCall::new(at, arrived, live);
            call.times.wall_ahead = wall_ahead;
            self.calls.open(call)
        });
        if !self.calls.is_tied(key, &id, event) {
            let holder = self.calls.holder_of_name(key, &id, event);
            let held = holder.iter().map(|holder| LinkKey::Id(holder.as_str()));
            key = self.tie(key, held, at);
            if let Some(holder) = &holder {
                let named = (at, event.channel.name.as_ref());
                self.calls.change_names(key, (&id, holder), named);
            }
            key = self.tie(key, calls::ties(&id, event), at);
        }
        if let Some(call) = self.calls.get_mut(key) {
            let has_no_clock = self.wrong_clock.is_some() || (timing.order.is_some() && !is_listed);
            call.times.untimed += u32::from(has_no_clock && event.at.is_none());
            call.times.by_arrival |= by_arrival;
            call.times.stalled |= by_arrival && self.clocks.is_stalled(timing.line);
            self.take_in(key, &id, event, at, arrived);
        }
        self.limit_open();
    }

    /// Processes an event of the channel `id`, which belongs to the call `key`. The event happened
    /// at `at` by the PBX's clock, and arrived at `arrived` by ours.
    fn take_in(
        &mut self,
        key: u64,
        id: &UniqueId,
        event: &ChannelEvent<'_>,
        at: EventTime,
        arrived: EventTime,
    ) {
        self.note_recovery(key, &event.channel);
        let back = self.listening.back;
        let Some(call) = self.calls.get_mut(key) else {
            return;
        };
        call.of.on_event(event.channel.process, event.channel.stamp);
        let dropped = call.size.dropped;
        self.stream.taken_in += 1;
        let outcome = call.on_event(id, at, event, self.stream.taken_in, &self.settings);
        call.times.on_event(at, arrived);
        if event.origin == Origin::Channel
            && let Some(line) = self.stream.timing.line
            && let Some(leg) = call.legs.get_mut(id)
        {
            leg.source = Some(line.source);
        }
        if outcome.effect == Effect::HungUp
            && let Some(leg) = call.legs.get_mut(id)
        {
            leg.over_arrived = Some(arrived);
        }
        if outcome.new_leg && back.is_some() {
            call.gaps.late = back;
        }
        if outcome.new_leg || outcome.effect == Effect::HungUp {
            call.times.rest(at, arrived);
        }
        self.counts.facts_dropped += u64::from(call.size.dropped - dropped);
        self.counts.doubled += u64::from(outcome.effect == Effect::Doubled);
        if let Some(process) = event.channel.process {
            self.asks_set_back(key, process);
        }
        let key = if outcome.new_leg {
            self.on_first_event(key, id, event, at)
        } else {
            key
        };
        if let Kind::Renamed { to, .. } = &event.kind {
            self.calls.rename_channel(key, id, (at, to));
        }
        if outcome.changed {
            self.changes.insert(key);
        }
        if self.calls.get(key).is_some_and(OpenCall::is_over_limit) {
            self.emit_rootless(key);
        }
        if outcome.changed {
            self.update_settling(key);
        } else {
            self.keep_deadlines(key);
        }
    }

    /// Registers the channels that an event mentions for the first time: its own channel `id`, and
    /// a second channel such as the dialing one. Merges legs that were stored under a channel's
    /// name, and adds CDRs that arrived early. Returns the key of the call, which changes if two
    /// calls are merged.
    fn on_first_event(
        &mut self,
        mut key: u64,
        id: &UniqueId,
        event: &ChannelEvent<'_>,
        at: EventTime,
    ) -> u64 {
        let mut channels = vec![(id.clone(), unmarked(&event.channel.name))];
        if let Some(other) = event.kind.other() {
            channels.extend(UniqueId::new(&other.uniqueid).map(|id| (id, unmarked(&other.name))));
        }
        for (id, name) in channels {
            if let Some(stand_in) = self.calls.stand_in(name).filter(|other| *other != id) {
                key = self.tie(key, [LinkKey::Id(stand_in.as_str())], at);
                if let Some(call) = self.calls.get_mut(key) {
                    call.merge_stand_in(&stand_in, &id);
                }
            }
            self.calls.register_name(key, &id);
            let early = self.early.take_of_channel(id.as_str());
            self.give_early(key, early);
        }
        key
    }

    /// Merges all calls that the keys `ties` lead to into the call `key`. `at` is the time of the
    /// event with these keys. Returns the key of the merged call.
    fn tie<'a>(
        &mut self,
        mut key: u64,
        ties: impl IntoIterator<Item = LinkKey<'a>>,
        at: EventTime,
    ) -> u64 {
        for tie in ties {
            if let Some(absorbed) = self.calls.tie(&mut key, tie, at) {
                self.settling.remove(absorbed);
                self.overdue.remove(absorbed);
                self.update_settling(key);
                self.changes.remove(absorbed);
                self.changes.insert(key);
            }
        }
        key
    }

    /// Processes a CDR. Only its user field is used.
    fn on_cdr(&mut self, cdr: &Cdr<'_>, arrived: EventTime) {
        // The CDR's linkedid must not be searched: it can be that of an agent's login, which is
        // open.
        if self.calls.has_finished(&cdr.uniqueid) {
            self.keep_cdr(cdr, arrived);
            return;
        }
        let mut ids = [&cdr.uniqueid, &cdr.linkedid].into_iter();
        let Some(key) = ids.find_map(|id| self.calls.find(id)) else {
            self.keep_cdr(cdr, arrived);
            return;
        };
        let at = cdr.at.unwrap_or(arrived);
        if !cdr.userfield.is_empty()
            && let Some(call) = self.calls.get_mut(key)
            && call.userfield(at, &cdr.uniqueid, &cdr.userfield)
        {
            self.changes.insert(key);
            self.keep_deadlines(key);
        }
        self.advance(arrived);
    }

    /// Keeps a CDR until its call is known, provided that calls wait for CDRs according to the
    /// settings. Otherwise, the CDR isn't needed here, and if nothing else reports its call, the
    /// [`Folder`](crate::Folder) will build one from it.
    fn keep_cdr(&mut self, cdr: &Cdr<'_>, arrived: EventTime) {
        let mut ids = [&cdr.uniqueid, &cdr.linkedid].into_iter();
        let awaited = self.settings.awaits_cdr() && !ids.any(|id| self.calls.has_finished(id));
        if awaited && let Some(early) = EarlyCdr::from_cdr(cdr, arrived) {
            let key = self.calls.next_key();
            self.early.put(key, early);
            self.changes.insert(key);
            self.forget_early(arrived);
        }
    }

    /// Drops CDRs that have waited for their call for `max_call`, and the oldest ones if there are
    /// too many.
    fn forget_early(&mut self, now: EventTime) {
        let since = now.minus(self.settings.max_call);
        while let Some(key) = self.early.take_stale(since) {
            self.changes.insert(key);
        }
    }

    /// Adds the user fields of CDRs that arrived before their call to the call `key`.
    fn give_early(&mut self, key: u64, cdrs: Vec<(u64, EarlyCdr)>) {
        for (early, cdr) in cdrs {
            self.changes.insert(early);
            self.changes.insert(key);
            if let Some(call) = self.calls.get_mut(key) {
                call.userfield(cdr.at, &cdr.uniqueid, &cdr.userfield);
            }
        }
    }

    /// Returns the calls finished since this function last ran, in the order in which they were
    /// finished.
    pub fn take_finished(&mut self) -> Vec<FinishedCall> {
        std::mem::take(&mut self.finished)
    }

    /// Returns the open calls and waiting CDRs that changed or ended since this function last ran.
    pub fn take_changes(&mut self) -> Vec<OpenChange> {
        let calls = &mut self.calls;
        let early = &self.early;
        self.changes.take(|key| {
            let call = calls.get(key).and_then(bytes);
            let snapshot = call.or_else(|| early.cdrs.get(&key).and_then(bytes))?;
            calls.weigh(key, snapshot.len());
            Some(snapshot)
        })
    }

    /// Restores an open call, or a CDR that waits for its call, from a snapshot of
    /// [`Assembler::take_changes`].
    ///
    /// # Errors
    /// Returns an error if the bytes are not a snapshot.
    pub fn restore(&mut self, key: u64, snapshot: &[u8]) -> Result<(), Error> {
        if let Ok(cdr) = self.changes.restore::<EarlyCdr>(key, snapshot) {
            self.calls.key_is_used(key);
            self.early.put(key, cdr);
            return Ok(());
        }
        let mut call: OpenCall = self.changes.restore(key, snapshot)?;
        call.size.bytes = snapshot.len();
        let places = call.legs.values().map(|leg| leg.place);
        self.stream.taken_in = places.fold(self.stream.taken_in, u64::max);
        self.calls.put_back(key, call);
        self.was_alive(key);
        if let Some(call) = self.calls.get(key) {
            call.legs
                .keys()
                .for_each(|id| self.newest_ids.note(id.as_str()));
        }
        self.update_settling(key);
        Ok(())
    }

    /// Forgets the ids of finished calls, because the PBX uses them again for new calls. The caller
    /// remembers finished ids longer, and must recognize late events from here on.
    pub fn forget_finished(&mut self) {
        self.calls.forget_finished();
    }

    /// Returns `true` if this unique id or linkedid is part of an open call.
    pub fn knows(&self, id: &str) -> bool {
        self.calls.find(id).is_some()
    }

    /// Returns `true` if an event had this unique id, linkedid, or channel name. Ids of finished
    /// calls count as long as they are remembered here.
    pub fn has_seen(&self, id: &str) -> bool {
        !id.is_empty()
            && (self.knows(id) || self.calls.has_finished(id) || self.calls.names.has(id))
    }

    /// Returns the time of the last event, or `None` before the first.
    pub fn latest_event(&self) -> Option<EventTime> {
        self.stream.at
    }

    /// Returns the number of open calls. Leftover events that still wait for the beginning of their
    /// call do not count.
    pub fn open_calls(&self) -> usize {
        self.calls.len() - self.settling.scraps
    }
}
