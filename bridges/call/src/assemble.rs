//! Channel events in, finished calls out.

mod calls;
mod cdrs;
mod clocks;
mod ending;
mod eviction;
mod gaps;
pub(crate) mod index;
mod names;
mod processes;
mod restart;
mod rooms;
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

/// Groups channel events into calls, and gives each out when it is over.
#[derive(Debug, Default)]
pub struct Assembler {
    settings: Settings,
    /// Counts of what was ignored or set right so far.
    pub counts: AssemblyCounts,
    calls: OpenCalls,
    early: EarlyCdrs,
    finished: Vec<FinishedCall>,
    changes: Changes,
    /// Calls all of whose channels have hung up.
    settling: settling::Settling,
    /// Calls that may be silent because their end was missed, and when each is given out.
    overdue: Schedule<EventTime>,
    stream: Stream,
    /// Set while our own clock is plainly wrong, as on a board without a battery at its boot: what
    /// is told is kept, and nothing is finished until the clock is right. `true` once the stream
    /// has ended meanwhile.
    wrong_clock: Option<bool>,
    listening: gaps::Listening,
    clocks: clocks::Clocks,
    reception: Reception,
    processes: processes::Processes,
    newest_ids: restart::NewestIds,
    /// CEL has told of a bridge.
    cel_bridges: bool,
}

/// Counts of what was ignored or set right since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssemblyCounts {
    /// Events told before in the same words, which changed nothing.
    pub doubled: u64,
    /// Events of calls that were finished already.
    pub late: u64,
    /// Times at which the PBX's clock was found to have been set.
    pub clock_set: u64,
    /// Events without a unique id.
    pub unidentified: u64,
    /// Facts beyond what one call may hold.
    pub facts_dropped: u64,
    /// Scraps of channels that were never seen to do anything: no call.
    pub ghosts: u64,
    /// Calls ended because they were open too long, or too many or too large ones were open.
    pub forced: u64,
    /// Calls among the `forced` ones that took more memory than there was for them.
    pub oversized: u64,
    /// CDRs of no call, or of one that is finished.
    pub cdr_unmatched: u64,
}

/// Progress of the stream of events.
#[derive(Debug, Default)]
struct Stream {
    /// The time of its last event. Of a batch in reverse order it goes back, so that no call is
    /// taken for over before its beginning was heard.
    at: Option<EventTime>,
    /// The latest arrival of anything.
    arrived: Option<EventTime>,
    /// Number of channel events that were processed, including those of restored calls.
    taken_in: u64,
    /// Meaning of the arrival of its events.
    timing: Timing,
}

/// The meaning of arrival for the time of an event. Arrival is always by our boot clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// The connection or file whose events come in the order in which they happened. `None` where
    /// their order shows nothing, as with a broker that redelivers.
    pub line: Option<Line>,
    /// How far our wall clock is ahead of the clock that arrival is given by. A call of events
    /// without times starts at our wall clock's time.
    pub wall_ahead: ClockDifference,
    /// Set where the source keeps what nobody took, as a broker does: events may arrive long after
    /// they happened, so that their own times alone count, and a call that was reported as it
    /// happened may end as one of a backlog.
    pub kept: bool,
    /// Stand-in time for events without one of their own that come out of a file, where their
    /// arrival says nothing: it gives only what came before what, and about when at the earliest.
    /// How long things lasted is unknown then, and a call with such an event is incomplete. `None`:
    /// the arrival says when they happened.
    pub order: Option<EventTime>,
}

/// One connection of a source, or one of its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Number of the source.
    pub source: u16,
    /// Differs for each connection and file of the source.
    pub connection: u64,
}

impl Assembler {
    /// Makes an assembler that knows no call yet.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            ..Self::default()
        }
    }

    /// Takes in what a PBX told, and when it arrived by our own clock. `false` when it was told of
    /// a call that is finished, and so changed nothing.
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

    /// Sets the meaning of arrival for the events from here on.
    pub fn timing(&mut self, timing: Timing) {
        self.stream.timing = timing;
    }

    fn on_channel_event(&mut self, event: &ChannelEvent<'_>, arrived: EventTime) {
        if event.kind == Kind::LinkedidEnd {
            let key = self.calls.knows(&event.channel.linkedid);
            if let Some(call) = key.and_then(|key| self.calls.get_mut(key)) {
                let ended = Some(event.at.unwrap_or(arrived));
                call.times.linkedid_ended = call.times.linkedid_ended.max(ended);
            }
            return;
        }
        self.look_for_restart(event, arrived);
        let of_cel = event.origin == Origin::Cel && event.kind.is_of_bridge();
        // A call of which CEL tells no bridge from here on had none.
        if of_cel && !std::mem::replace(&mut self.cel_bridges, true) {
            self.change_each(|call| {
                call.cel_bridges = true;
                true
            });
        }
        let Some(id) = self.calls.identify(&event.channel) else {
            self.counts.unidentified += 1;
            return;
        };
        let completed = self.calls.completed(&id, event);
        let event = completed.as_ref().unwrap_or(event);
        // A key press that changes nothing says nothing about a call.
        if matches!(&event.kind, Kind::Monitors { target, .. } if target.is_empty()) {
            return;
        }
        let timing = self.stream.timing;
        let mut found = self.calls.of(&id, &event.channel.linkedid);
        let open = found.ok().flatten();
        let call = open.and_then(|key| self.calls.get(key));
        let wall_ahead = call.map_or(timing.wall_ahead, |call| call.times.wall_ahead);
        let reported = event.at.or(timing.order);
        // A list of channels has no times. It is as new as its arrival, by the PBX's clock.
        let is_listed = matches!(event.kind, Kind::Listed { .. });
        let by_arrival = reported.is_none() && !is_listed;
        let mut ahead = wall_ahead;
        if is_listed && let Some(list_ahead) = self.clocks.difference(timing.line) {
            ahead = list_ahead;
        }
        let at = reported.unwrap_or(arrived.by_clock(ahead));
        self.check_clock(&id, event, arrived);
        let far = timing.kept && at.apart(arrived) > CLOCK_TOLERANCE;
        // Such an event arrived late: from here on the stream says when the call is over.
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
        if self.advance(arrived) {
            found = self.calls.of(&id, &event.channel.linkedid);
        }
        let Ok(open) = found else {
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
            let no_clock = timing.order.is_some() || self.wrong_clock.is_some();
            call.times.untimed += u32::from(no_clock && event.at.is_none());
            call.times.by_arrival |= by_arrival;
            call.times.stalled |= by_arrival && self.clocks.is_stalled(timing.line);
            self.take_in(key, &id, event, at, arrived);
        }
        self.limit_open();
    }

    /// Takes in an event of the channel `id`, which belongs to the call `key`.
    fn take_in(
        &mut self,
        key: u64,
        id: &UniqueId,
        event: &ChannelEvent<'_>,
        at: EventTime,
        arrived: EventTime,
    ) {
        let traits = &event.channel.traits;
        if traits.as_ref().is_some_and(|it| it.listed) || matches!(event.kind, Kind::Listed { .. })
        {
            self.listening.listed.insert(id.clone());
        }
        let back = self.listening.back;
        let Some(call) = self.calls.get_mut(key) else {
            return;
        };
        call.cel_bridges = self.cel_bridges;
        call.of.on_event(event.channel.process, event.channel.stamp);
        let dropped = call.size.dropped;
        self.stream.taken_in += 1;
        let outcome = call.on_event(id, at, event, self.stream.taken_in, &self.settings);
        call.times.on_event(at, arrived);
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
        let key = match outcome.new_leg {
            true => self.met(key, id, event, at),
            false => key,
        };
        if let Kind::Renamed { to, .. } = &event.kind {
            self.calls.renamed(key, id, (at, to));
        }
        if outcome.changed {
            self.changes.insert(key);
            let call = self.calls.get(key);
            let open = call.is_some_and(|call| call.is_plainly_open(id));
            // What settles while somebody is left is asked again.
            if !open || self.settling.deadlines.contains_key(&key) {
                self.settle_or_not(key);
            }
        }
        if self.calls.get(key).is_some_and(OpenCall::is_over_limit) {
            self.evict_finished_legs(key, arrived);
        }
        self.keep_deadlines(key);
    }

    /// A channel was met for the first time, the event's or the one that dials it: what was told by
    /// its name alone is its own.
    fn met(&mut self, mut key: u64, id: &UniqueId, event: &ChannelEvent<'_>, at: EventTime) -> u64 {
        let mut met = vec![(id.clone(), unmarked(&event.channel.name))];
        if let Some(other) = event.kind.other() {
            met.extend(UniqueId::new(&other.uniqueid).map(|id| (id, unmarked(&other.name))));
        }
        for (id, name) in met {
            if let Some(stand_in) = self.calls.stand_in(name).filter(|other| *other != id) {
                key = self.tie(key, [LinkKey::Id(stand_in.as_str())], at);
                if let Some(call) = self.calls.get_mut(key) {
                    call.is_really(&stand_in, &id);
                }
            }
            self.calls.met(key, &id);
            let early = self.early.take_of_channel(id.as_str());
            self.give_early(key, early);
        }
        key
    }

    /// Brings together what the event ties to the call; the key of the call that came of it.
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
                self.settle_or_not(key);
                self.changes.remove(absorbed);
                self.changes.insert(key);
            }
        }
        key
    }

    /// Takes in a CDR: of it, a call needs the user field alone.
    fn on_cdr(&mut self, cdr: &Cdr<'_>, arrived: EventTime) {
        let mut ids = [&cdr.uniqueid, &cdr.linkedid].into_iter();
        // The linkedid of a finished call can be that of an agent whose login goes on.
        let is_finished = self.calls.has_finished(&cdr.uniqueid);
        let key = ids.find_map(|id| self.calls.knows(id));
        let Some(key) = key.filter(|_| !is_finished) else {
            return self.keep_cdr(cdr, arrived);
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

    /// Keeps a CDR for a call that is not known yet, where calls wait for CDRs at all.
    fn keep_cdr(&mut self, cdr: &Cdr<'_>, arrived: EventTime) {
        let mut ids = [&cdr.uniqueid, &cdr.linkedid].into_iter();
        let awaited = self.settings.awaits_cdr() && !ids.any(|id| self.calls.has_finished(id));
        match EarlyCdr::of(cdr, arrived).filter(|_| awaited) {
            Some(early) => {
                let key = self.calls.next_key();
                self.early.put(key, early);
                self.changes.insert(key);
                self.forget_early(arrived);
            }
            None => self.counts.cdr_unmatched += 1,
        }
    }

    /// Forgets CDRs whose call did not come.
    fn forget_early(&mut self, now: EventTime) {
        let since = now.minus(self.settings.max_call);
        while let Some(key) = self.early.take_stale(since) {
            self.changes.insert(key);
            self.counts.cdr_unmatched += 1;
        }
    }

    /// Gives CDRs that came before to the call.
    fn give_early(&mut self, key: u64, cdrs: Vec<(u64, EarlyCdr)>) {
        for (early, cdr) in cdrs {
            self.changes.insert(early);
            self.changes.insert(key);
            if let Some(call) = self.calls.get_mut(key) {
                call.userfield(cdr.at, &cdr.uniqueid, &cdr.userfield);
            }
        }
    }

    /// The calls finished since the last take, in the order they were finished.
    pub fn take_finished(&mut self) -> Vec<FinishedCall> {
        std::mem::take(&mut self.finished)
    }

    /// The open calls that changed or went since the last take.
    pub fn take_changes(&mut self) -> Vec<OpenChange> {
        let (calls, early) = (&mut self.calls, &self.early);
        self.changes.take(|key| {
            let call = calls.get(key).and_then(bytes);
            let snapshot = call.or_else(|| early.cdrs.get(&key).and_then(bytes))?;
            calls.weigh(key, snapshot.len());
            Some(snapshot)
        })
    }

    /// Puts an open call, or a CDR that waits for its call, back.
    ///
    /// # Errors
    /// When the bytes are not a snapshot.
    pub fn restore(&mut self, key: u64, snapshot: &[u8]) -> Result<(), Error> {
        if let Ok(cdr) = self.changes.restored::<EarlyCdr>(key, snapshot) {
            self.calls.key_is_used(key);
            self.early.put(key, cdr);
            return Ok(());
        }
        let mut call: OpenCall = self.changes.restored(key, snapshot)?;
        call.size.bytes = snapshot.len();
        self.cel_bridges |= call.cel_bridges;
        let places = call.legs.values().map(|leg| leg.place);
        self.stream.taken_in = places.fold(self.stream.taken_in, u64::max);
        self.calls.put_back(key, call);
        self.was_alive(key);
        if let Some(call) = self.calls.get(key) {
            call.legs
                .keys()
                .for_each(|id| self.newest_ids.note(id.as_str()));
        }
        self.settle_or_not(key);
        Ok(())
    }

    /// Forgets the ids of finished calls, because the PBX gives them to others: whoever remembers
    /// them for longer tells which event is late from here on.
    pub fn forget_finished(&mut self) {
        self.calls.forget_finished();
    }

    /// Returns `true` when this unique id or linkedid is part of an open call.
    pub fn knows(&self, id: &str) -> bool {
        self.calls.knows(id).is_some()
    }

    /// Returns `true` when an event named a channel, linkedid or channel name like this; of
    /// finished calls, as long as they are remembered here.
    pub fn has_seen(&self, id: &str) -> bool {
        !id.is_empty()
            && (self.knows(id) || self.calls.has_finished(id) || self.calls.names.has(id))
    }

    /// The latest time that an event told; `None` before the first.
    pub fn latest_event(&self) -> Option<EventTime> {
        self.stream.at
    }

    /// Number of open calls; scraps that wait for their beginning are none.
    pub fn open_calls(&self) -> usize {
        self.calls.len() - self.settling.scraps
    }
}
