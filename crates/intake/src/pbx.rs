//! A PBX, with the assembler of its calls (the first record, or primary) and the second record of
//! these calls (`--catch-up`). The two are merged one call at a time. This module also determines
//! which PBX a frame belongs to.

use super::catch_up::Second;
use callbridge_call::{
    Assembler, AssemblyCounts, ClockDifference, Decision, Direction, EventTime, FinishedCall,
    Folder, Kind, Knowledge, PbxEvent, UniqueId,
};
use callbridge_model::status::SourceStatus;
use callbridge_spool::{Known, Op};
use std::collections::{BTreeMap, VecDeque};
use std::{collections::btree_map::Entry, time::Duration};

/// Counter for events of finished calls.
pub(super) const LATE: &str = "late";
/// Counter for calls with the IDs of a finished call.
pub(super) const REUSED: &str = "reused_ids";

/// Maximum number of rounds in one reconciliation. Each round may end open calls of the primary,
/// and the next reconciliation picks up from there.
const ROUNDS_MAX: usize = 64;
/// Longer than any wait.
const FOREVER: Duration = Duration::from_secs(86_400 * 365);
/// By how much a call's times and a gap's times may differ, because one of them isn't exact.
const CLOCKS_APART: Duration = Duration::from_secs(5);
/// Maximum number of outages to remember per PBX. The oldest is dropped first.
const TIMES_MAX: usize = 64;

/// A function that looks up the finished and stored call that one of the PBX's unique IDs belongs
/// to.
pub(super) type FindKnown<'a> = &'a mut dyn FnMut(&str) -> Option<Known>;

/// A PBX's open calls, and those that have finished since the last commit.
pub(super) struct Pbx {
    pub(super) assembler: Assembler,
    /// Call detail records of calls without events, which are folded into calls.
    ///
    /// Whether a PBX reports events is learned rather than configured, since an AMI user might only
    /// be allowed to read records (`read = cdr`). So every record of an unknown call is kept and
    /// folded once it has waited long enough, provided that nothing has reported its call in the
    /// meantime and that the PBX's events, if there are any, have passed its end. (A CDR queue is
    /// read faster than a queue of channel events.)
    pub(super) records: Folder,
    /// Number of calls from records that turned out to be already known since the last
    /// [`Pbx::count`].
    known: u64,
    finished: Vec<FinishedCall>,
    /// Finished calls that the spool doesn't know about yet, by each of their IDs.
    pub(super) just_finished: BTreeMap<String, Known>,
    /// Times without a connection.
    outages: Outages,
    /// Offset between the PBX's clock and our boot clock before the last outage.
    clock_ahead: Option<ClockDifference>,
    /// The second record of the PBX's calls (`--catch-up`).
    pub(super) second: Option<Second>,
}

impl Pbx {
    pub(super) fn new(settings: callbridge_call::Settings) -> Self {
        Self {
            records: Folder::new(settings.clone()),
            assembler: Assembler::new(settings),
            known: 0,
            finished: Vec::new(),
            just_finished: BTreeMap::new(),
            outages: Outages::default(),
            clock_ahead: None,
            second: None,
        }
    }

    /// Starts an outage in which events of open calls may be missing after `since`, and entire
    /// calls after `from`.
    pub(super) fn begin_outage(&mut self, since: EventTime, from: EventTime) {
        self.clock_ahead = self.assembler.clock_ahead().or(self.clock_ahead);
        self.assembler.begin_gap(since);
        self.outages.begins(from);
    }

    /// Ends the outage, because events are arriving again.
    pub(super) fn end_outage(&mut self, now: EventTime) {
        self.assembler.end_gap(now);
        self.outages.ends(now);
    }

    /// Processes an event, and returns the counter to increase, if any.
    ///
    /// `known` looks up the stored call for a unique ID. Events of a finished call change nothing
    /// ([`LATE`]). A different call with a finished call's IDs becomes a separate call
    /// ([`REUSED`]), which the spool turns into a `uuid_conflict` dead letter.
    pub(super) fn on_event(
        &mut self,
        event: &PbxEvent<'_>,
        arrived: EventTime,
        known: impl FnOnce(&str) -> Option<Known>,
    ) -> Option<&'static str> {
        let (uniqueid, linkedid) = match event {
            PbxEvent::Channel(event) => (&event.channel.uniqueid, &event.channel.linkedid),
            PbxEvent::Cdr(cdr) => (&cdr.uniqueid, &cdr.linkedid),
            PbxEvent::Mark(_) => {
                self.assembler.on_event(event, arrived);
                return None;
            }
        };
        let is_open = self.assembler.knows(uniqueid) || self.assembler.knows(linkedid);
        // The time of this event may finish a call that's still open.
        if is_open && self.assembler.on_event(event, arrived) {
            return None;
        }
        self.collect(arrived);
        let just = self.just_finished.get(uniqueid.as_ref()).cloned();
        match just.or_else(|| known(uniqueid)) {
            Some(known) if begins_another(event, &known) => {
                self.assembler.forget_finished();
                self.assembler.on_event(event, arrived);
                Some(REUSED)
            }
            _ if is_open => None,
            Some(_) => {
                if let PbxEvent::Cdr(cdr) = event {
                    self.records.on_late_cdr(cdr, arrived);
                }
                Some(LATE)
            }
            None => {
                self.assembler.on_event(event, arrived);
                if let PbxEvent::Cdr(cdr) = event
                    && !self.records.on_cdr(cdr, arrived)
                {
                    return Some(LATE);
                }
                None
            }
        }
    }

    pub(super) fn take_finished(&mut self, now: EventTime) -> Vec<FinishedCall> {
        self.collect(now);
        std::mem::take(&mut self.finished)
    }

    /// Takes the calls that lasted longer than was journaled, according to late records.
    pub(super) fn take_revised(&mut self) -> Vec<FinishedCall> {
        let mut revised = self.records.take_revised();
        if let Some(second) = &mut self.second {
            revised.append(&mut second.folder.take_revised());
        }
        revised
    }

    /// Takes the calls that the assembler has finished. Those that the second record may complete
    /// are held.
    fn collect(&mut self, now: EventTime) {
        for call in self.assembler.take_finished() {
            let call = match &mut self.second {
                Some(second) => second.reconciler.on_primary(call, now),
                None => Some(call),
            };
            if let Some(call) = call {
                self.finish(call);
            }
        }
    }

    /// Adds a call to the finished ones once it's decided which record of it to use.
    fn finish(&mut self, call: FinishedCall) {
        for id in call.ids() {
            let new = known_call(&call, id);
            match self.just_finished.entry(id.as_str().to_owned()) {
                Entry::Vacant(place) => drop(place.insert(new)),
                // The known version of the call is incomplete, so a different one replaces it.
                Entry::Occupied(mut known) if known.get().incomplete => drop(known.insert(new)),
                Entry::Occupied(_) => {}
            }
        }
        self.finished.push(call);
    }

    /// Adds the operations that count what the assembler has ignored or repaired since the last
    /// time this was called.
    pub(super) fn count(&mut self, ops: &mut Vec<Op>) {
        // Each counter is listed so that new ones aren't forgotten.
        let AssemblyCounts {
            doubled,
            late,
            clock_set,
            unidentified,
            facts_dropped,
            ghosts,
            forced,
            oversized,
        } = std::mem::take(&mut self.assembler.counts);
        let dropped = facts_dropped + std::mem::take(&mut self.records.facts_dropped);
        let counts = [
            ("doubled", doubled),
            ("late", late),
            ("clock_set", clock_set),
            ("unidentified", unidentified),
            ("facts_dropped", dropped),
            ("ghosts", ghosts),
            ("forced", forced),
            ("oversized", oversized),
            ("cdr_known", std::mem::take(&mut self.known)),
        ];
        let counts = counts.into_iter().filter(|(_, by)| *by > 0);
        ops.extend(counts.map(|(counter, by)| Op::count(counter, by)));
    }

    /// Folds records that have waited long enough. Records of a known call don't make a separate
    /// one.
    pub(super) fn fold(&mut self, now: EventTime, known: FindKnown<'_>) {
        let folder = &mut self.records;
        folder.events_until(self.assembler.latest_event());
        folder.tick(now);
        let folded = folder.take_finished();
        if folded.is_empty() {
            return;
        }
        self.collect(now);
        for call in folded {
            if self.has_seen(&call, known) {
                self.known += 1;
            } else {
                self.finish(call);
            }
        }
    }

    /// Merges both records and finishes the calls that can be decided by now. `over` means that
    /// neither source will report anything else.
    pub(super) fn reconcile(&mut self, now: EventTime, over: bool, known: FindKnown<'_>) {
        self.collect(now);
        let Some(second) = &mut self.second else {
            return;
        };
        let since = second.since;
        let ahead = self.clock_ahead.unwrap_or_default();
        for call in second.take_finished() {
            let started = call.started.by_clock(ahead.reversed());
            if since.is_none_or(|since| started >= since) {
                second.reconciler.on_second(call, now);
            }
        }
        // A call that's ended in one round is held first, and the next round merges it with its
        // second record.
        for _ in 0..ROUNDS_MAX {
            if !self.decide(now, over, known) {
                break;
            }
            self.collect(now);
        }
    }

    /// Decides the calls from both records, returning `true` if one of the primary's calls was
    /// ended.
    fn decide(&mut self, now: EventTime, over: bool, known: FindKnown<'_>) -> bool {
        let Some(second) = &mut self.second else {
            return false;
        };
        let mut knows = |id: &UniqueId| {
            let id = id.as_str();
            if let Some(doubt) = self.assembler.may_miss_events(id) {
                return Knowledge::Open { doubt };
            }
            let just = self.just_finished.get(id).cloned();
            just.or_else(|| known(id))
                .map_or(Knowledge::Unknown, |known| Knowledge::Finished {
                    incomplete: known.incomplete,
                    call: known.letter,
                })
        };
        let ahead = self.clock_ahead.unwrap_or_default();
        let is_open = |id: &UniqueId| {
            let id = id.as_str();
            // The second record may never report the end of calls that the primary considers
            // finished.
            !over && second.assembler.knows(id) && self.assembler.may_miss_events(id).is_some()
        };
        // If neither source will report anything else, all waits are over.
        let then = if over { now.plus(FOREVER) } else { now };
        let decisions = second.reconciler.decide(
            then,
            &|call| self.outages.covers(call, ahead),
            &mut knows,
            &is_open,
        );
        let mut ended = false;
        for decision in decisions {
            match decision {
                Decision::Finish(call) => self.finish(*call),
                Decision::End(id) => {
                    self.assembler.end_unheard(id.as_str());
                    ended = true;
                }
            }
        }
        ended
    }

    fn has_seen(&self, call: &FinishedCall, known: FindKnown<'_>) -> bool {
        call.ids().any(|id| {
            let id = id.as_str();
            self.assembler.has_seen(id)
                || self.just_finished.contains_key(id)
                || known(id).is_some()
        })
    }
}

/// Times without a connection to a PBX, given by start and end according to our own clock.
#[derive(Debug, Default)]
struct Outages(VecDeque<(EventTime, Option<EventTime>)>);

impl Outages {
    fn begins(&mut self, since: EventTime) {
        if let Some((from, None)) = self.0.back_mut() {
            *from = since.min(*from);
            return;
        }
        if self.0.len() >= TIMES_MAX {
            self.0.pop_front();
        }
        self.0.push_back((since, None));
    }

    fn ends(&mut self, now: EventTime) {
        if let Some((_, until)) = self.0.back_mut() {
            *until = until.or(Some(now));
        }
    }

    /// Returns `true` if there was no connection from the call's start to its end. `ahead` is the
    /// offset between the PBX's clock and our boot clock.
    fn covers(&self, call: &FinishedCall, ahead: ClockDifference) -> bool {
        let started = call.started.by_clock(ahead.reversed());
        let ended = call.ended.by_clock(ahead.reversed());
        self.0.iter().any(|(since, until)| {
            let began_after = started.plus(CLOCKS_APART) >= *since;
            began_after && until.is_none_or(|until| ended <= until.plus(CLOCKS_APART))
        })
    }
}

/// Returns `true` if the event creates a channel belonging to a different call than `known`, the
/// finished call with the same ID.
pub fn begins_another(event: &PbxEvent<'_>, known: &Known) -> bool {
    match event {
        PbxEvent::Channel(event) if matches!(event.kind, Kind::Born { .. }) => {
            let born = event.at.map(EventTime::floor_seconds);
            known.is_another(born, &event.channel.caller_number)
        }
        PbxEvent::Channel(_) | PbxEvent::Cdr(_) | PbxEvent::Mark(_) => false,
    }
}

/// Returns a finished call in the form that the spool remembers under one of its IDs.
pub fn known_call(call: &FinishedCall, id: &UniqueId) -> Known {
    let caller = match &call.number {
        Some(number) if call.direction == Direction::Inbound => Some(number.text.clone()),
        _ => None,
    };
    Known {
        own: *id == call.linkedid,
        started: call.started.floor_seconds(),
        caller,
        incomplete: call.incomplete.is_some(),
        letter: call.incomplete.as_ref().map(|_| Box::new(call.clone())),
    }
}

/// Returns the name of the spool setting for the first `server_name` on this PBX's stream.
pub fn server_key(pbx: &str) -> String {
    format!("first-server:{pbx}")
}

/// Returns the ID of a frame's PBX. `server` is the frame's `server_name`, or empty. The first
/// `server_name` on a PBX's stream is that PBX. Any other `server_name` is a different PBX, which
/// may have the same unique IDs.
pub(super) fn pbx_of(
    source: &mut SourceStatus,
    server: &str,
    servers: &mut BTreeMap<String, String>,
    ops: &mut Vec<Op>,
) -> String {
    let pbx = &source.pbx;
    if server.is_empty() {
        return pbx.clone();
    }
    let name = match servers.get(pbx) {
        Some(first) if first == server => pbx.to_owned(),
        Some(_) => format!("{pbx}/{server}"),
        None => {
            servers.insert(pbx.to_owned(), server.to_owned());
            ops.push(Op::meta(server_key(pbx), server));
            pbx.to_owned()
        }
    };
    source.note_switch(server, &name);
    name
}

/// Returns the PBX that already knows the channel, which is either `base` or another one on the
/// same stream. A channel recovered by the other node of a pair stays with the PBX where its call
/// started.
pub(super) fn pbx_that_knows(
    pbxes: &BTreeMap<String, Pbx>,
    base: &str,
    channel: &str,
) -> Option<String> {
    let below = format!("{base}/");
    let mut of_stream = pbxes
        .iter()
        .filter(|(name, _)| *name == base || name.starts_with(&below));
    let known = of_stream.find(|(_, pbx)| pbx.assembler.has_seen(channel));
    known.map(|(name, _)| name.clone())
}
