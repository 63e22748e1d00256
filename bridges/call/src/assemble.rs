//! The assembler, which groups channel events and CDRs into open calls and returns the calls once
//! they're finished.

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

use crate::facts::{Effect, Leg, OpenCall};
use crate::snapshots::{Changes, Error, OpenChange, bytes};
use crate::trunk::unmarked;
use crate::{
    CLOCK_TOLERANCE, Cdr, ChannelEvent, ClockDifference, EventTime, FinishedCall, Kind, Origin,
    PbxEvent, Reception, Settings, UniqueId,
};
use calls::{LinkKey, OpenCalls};
use cdrs::{EarlyCdr, EarlyCdrs};
use index::Schedule;

/// Groups channel events into calls, and returns each call once it's over.
#[derive(Debug, Default)]
pub struct Assembler {
    settings: Settings,
    /// Counts of ignored and corrected items.
    pub counts: AssemblyCounts,
    calls: OpenCalls,
    early: EarlyCdrs,
    finished: Vec<FinishedCall>,
    changes: Changes,
    /// Calls whose channels have all hung up.
    settling: settling::Settling,
    /// Open calls whose end may have been missed, along with when to emit the known part of each.
    overdue: Schedule<EventTime>,
    stream: Stream,
    /// Set while our own clock is clearly wrong, e.g., after booting a board without a
    /// battery-backed clock, and `Some(true)` if the stream has ended since.
    ///
    /// Events are still collected, but no call is finished until the clock is right.
    wrong_clock: Option<bool>,
    listening: gaps::Listening,
    clocks: clocks::Clocks,
    reception: Reception,
    processes: processes::Processes,
    newest_ids: restart::NewestIds,
}

/// Counts of ignored and corrected items since startup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssemblyCounts {
    /// Duplicate events, which had no effect.
    pub doubled: u64,
    /// Events that arrived after their call had finished.
    pub late: u64,
    /// How many times the PBX's clock was set, judging by its events.
    pub clock_set: u64,
    /// Events without a unique ID.
    pub unidentified: u64,
    /// Facts that were dropped because the number of facts per call is limited.
    pub facts_dropped: u64,
    /// Open calls that were dropped because they consisted only of leftover events, such as a late
    /// hangup.
    pub ghosts: u64,
    /// Calls that were ended before all their channels had hung up, because they'd been open for
    /// too long, too many or too large calls were open, or a hangup was missed.
    pub forced: u64,
    /// Those of the `forced` calls that needed more memory than was available.
    pub oversized: u64,
}

/// How far the event stream has progressed.
#[derive(Debug, Default)]
struct Stream {
    /// Time of the last event. This moves backward if a batch arrives in reverse order, so that no
    /// call is considered over before its start has been received.
    at: Option<EventTime>,
    /// When an event, a CDR, or a mark last arrived.
    arrived: Option<EventTime>,
    /// Number of channel events processed so far, including those of restored calls.
    taken_in: u64,
    /// How to interpret the arrival times of the next events.
    timing: Timing,
}

/// What an event's arrival says about when the event happened. Arrivals are always measured by our
/// boot clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// The connection or file whose events arrive in the order they happened, or `None` if the
    /// arrival order is inconclusive, as with a broker that redelivers.
    pub line: Option<Line>,
    /// How far our wall clock is ahead of the clock used for arrivals. A call whose events have no
    /// timestamps starts at our wall clock's time.
    pub wall_ahead: ClockDifference,
    /// Whether the source keeps events until they're read, as a broker does. In that case, events
    /// may arrive long after they happened, so only their own times count, and a call that was live
    /// can become part of a backlog.
    pub kept: bool,
    /// Substitute time for events in a file that have no timestamps, or `None` if their arrival
    /// shows when they happened.
    ///
    /// It only preserves the order of the events and gives a rough lower bound for when they
    /// happened, so a call with such an event has unknown durations and is incomplete.
    pub order: Option<EventTime>,
}

/// A source's connection, or one of its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// The source's number.
    pub source: u16,
    /// A different number for each of the source's connections and files.
    pub connection: u64,
}

impl Assembler {
    /// Creates an assembler without any calls.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            ..Self::default()
        }
    }

    /// Processes a PBX event that arrived at `arrived` by our own clock, returning `false` if it
    /// belongs to a finished call and therefore changed nothing.
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

    /// Sets how to interpret the arrival times of all subsequent events.
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
        // A key press that doesn't affect monitoring is irrelevant to calls.
        if matches!(&event.kind, Kind::Monitors { target, .. } if target.is_empty()) {
            return;
        }
        let timing = self.stream.timing;
        let found = self.calls.find_for_event(&id, &event.channel.linkedid);
        let open = found.ok().flatten();
        let call = open.and_then(|key| self.calls.get(key));
        let wall_ahead = call.map_or(timing.wall_ahead, |call| call.times.wall_ahead);
        let reported = event.at.or(timing.order);
        // A list of channels has no timestamps. It shows the state at the time it arrived, so that
        // time is converted to the PBX's clock.
        let is_listed = matches!(event.kind, Kind::Listed { .. });
        let by_arrival = reported.is_none() && !is_listed;
        let mut ahead = wall_ahead;
        if is_listed && let Some(list_ahead) = self.clocks.difference(timing.line) {
            ahead = list_ahead;
        }
        let at = reported.unwrap_or(arrived.by_clock(ahead));
        self.check_clock(&id, event, arrived);
        let far = timing.kept && at.apart(arrived) > CLOCK_TOLERANCE;
        // A kept event that arrives long after it happened is part of a backlog, so from now on the
        // stream's time decides when the call is over.
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
        // The call, or the part that this channel belonged to, may be over by now.
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

    /// Processes an event of channel `id` in the call `key`, which happened at `at` by the PBX's
    /// clock and arrived at `arrived` by ours.
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
        let mut key = if outcome.new_leg {
            self.on_first_event(key, id, event, at)
        } else {
            key
        };
        if matches!(event.kind, Kind::DialBegin { .. }) {
            let call = self.calls.get(key);
            let leg = call.and_then(|call| call.legs.get(id));
            let number = leg.and_then(Leg::commanded_number).map(str::to_owned);
            key = self.tie(key, number.as_deref().map(LinkKey::Number), at);
        }
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

    /// Registers the channels that an event mentions for the first time, which are its own channel
    /// `id` and possibly a second one, such as the dialing channel.
    ///
    /// Also merges legs stored under a channel's name, and adds CDRs that arrived early. Returns
    /// the call's key, which changes if two calls are merged.
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

    /// Merges every call that `ties` refers to into the call `key`, and returns the key of the
    /// resulting call.
    ///
    /// `at` is the time of the event that the ties come from.
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

    /// Processes a CDR, of which only the user field is used.
    fn on_cdr(&mut self, cdr: &Cdr<'_>, arrived: EventTime) {
        // Don't search by the CDR's linkedid, since it may be that of an agent's login, which is
        // still open.
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

    /// Keeps a CDR until its call is known, provided that the settings make calls wait for CDRs.
    ///
    /// Otherwise, the CDR isn't needed here. If nothing else reports its call, the
    /// [`Folder`](crate::Folder) will build the call from it.
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

    /// Drops CDRs that have been waiting for their call for `max_call`, along with the oldest ones
    /// if there are too many.
    fn forget_early(&mut self, now: EventTime) {
        let since = now.minus(self.settings.max_call);
        while let Some(key) = self.early.take_stale(since) {
            self.changes.insert(key);
        }
    }

    /// Adds the user fields of CDRs that arrived early to the call `key`.
    fn give_early(&mut self, key: u64, cdrs: Vec<(u64, EarlyCdr)>) {
        for (early, cdr) in cdrs {
            self.changes.insert(early);
            self.changes.insert(key);
            if let Some(call) = self.calls.get_mut(key) {
                call.userfield(cdr.at, &cdr.uniqueid, &cdr.userfield);
            }
        }
    }

    /// Returns the calls finished since the last time this was called, in the order they finished.
    pub fn take_finished(&mut self) -> Vec<FinishedCall> {
        std::mem::take(&mut self.finished)
    }

    /// Returns the open calls and waiting CDRs that have changed or ended since the last time this
    /// was called.
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

    /// Restores an open call, or a CDR waiting for its call, from a snapshot returned by
    /// [`Assembler::take_changes`].
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes aren't a valid snapshot.
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

    /// Forgets the IDs of finished calls, because the PBX is reusing them for new calls. From now
    /// on, it's up to the caller, which remembers finished IDs for longer, to recognize late
    /// events.
    pub fn forget_finished(&mut self) {
        self.calls.forget_finished();
    }

    /// Returns `true` if an open call has this unique ID or linkedid.
    pub fn knows(&self, id: &str) -> bool {
        self.calls.find(id).is_some()
    }

    /// Returns `true` if any event had this unique ID, linkedid, or channel name, including those
    /// of finished calls that are still remembered.
    pub fn has_seen(&self, id: &str) -> bool {
        !id.is_empty()
            && (self.knows(id) || self.calls.has_finished(id) || self.calls.names.has(id))
    }

    /// Returns the time of the last event, or `None` if there hasn't been one.
    pub fn latest_event(&self) -> Option<EventTime> {
        self.stream.at
    }

    /// Returns the number of open calls, not counting leftover events that are still waiting for
    /// the start of their call.
    pub fn open_calls(&self) -> usize {
        self.calls.len() - self.settling.scraps
    }
}
