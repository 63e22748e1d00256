//! Tracks processes of a PBX whose messages name their process. Heartbeats report every few seconds
//! that a process is alive. If they stop, the process has ended, and its channels with it.
//!
//! ```text
//! process A  ──call────♥────♥────♥──✝                      its calls ended at its last ♥
//! process B                            ├─♥────♥────♥──▶    began after it, and A is silent
//! ```
//! If there is no other process, the connection can be the cause of the silence. The calls are then
//! emitted as far as they are known, and stay open.
//!
//! The events of a process also show when the PBX's clock is set back while calls are open. The
//! number of each event grows, and so does the reported uptime, whatever the clock shows and in
//! whatever order the events arrive.
//!
//! ```text
//! number    11    12    13                 14    15
//! clock   10.0  12.0  15.0 ── set back ──▶ 9.0  11.0
//! call A    ├─────────────────────────────────────┤   its duration is unknown
//! call B                                   ├────┤     its duration is right
//! ```

use super::Assembler;
use crate::facts::{CallProcess, OpenCall, SetBack};
use crate::{ChannelRef, EventStamp, EventTime, Reception};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Maximum number of processes that are tracked.
const PROCESSES_MAX: usize = 64;
/// Silence after which a process counts as ended: three heartbeats at the usual interval of 20 s.
const SILENT: Duration = Duration::from_secs(60);
/// A process's count of its channels includes a call whose last event is at least this much older
/// than the count.
const BEFORE_COUNT: Duration = Duration::from_secs(1);
/// Longest accepted interval between heartbeats. An administrator can make heartbeats less frequent
/// than usual, up to this interval.
const EVERY_MAX: Duration = Duration::from_secs(300);

/// The last event and the last heartbeat of a process.
#[derive(Clone, Debug, Default)]
pub(super) struct Sign {
    at: EventTime,
    arrived: EventTime,
    /// Time of the last heartbeat. Without a heartbeat, the silence of a process shows nothing,
    /// because other events do not come regularly.
    beat: Option<EventTime>,
    /// Longest interval seen between two heartbeats, up to `EVERY_MAX`.
    every: Duration,
    /// Set once the calls of the process were emitted because it was silent.
    given_up: bool,
    counter: Counter,
}

impl Sign {
    fn silence(&self) -> Duration {
        SILENT.max(self.every * 3)
    }
}

/// The known processes by number.
pub(super) type Processes = BTreeMap<u64, Sign>;

/// Notes an event or a heartbeat of a process, and returns the process's entry. If too many
/// processes are known, the longest silent one is dropped.
fn sign(known: &mut Processes, process: u64, at: EventTime, arrived: EventTime) -> &mut Sign {
    if known.len() >= PROCESSES_MAX && !known.contains_key(&process) {
        let oldest = known.iter().min_by_key(|(_, sign)| sign.arrived);
        if let Some(oldest) = oldest.map(|(&process, _)| process) {
            known.remove(&oldest);
        }
    }
    let sign = known.entry(process).or_default();
    sign.at = sign.at.max(at);
    sign.arrived = sign.arrived.max(arrived);
    sign.given_up = false;
    sign
}

/// Returns the entry of the call's process.
fn sign_of<'p>(known: &'p Processes, call: &OpenCall) -> Option<&'p Sign> {
    known.get(&call.of.process?)
}

/// Returns the time of the last event or heartbeat of the call or its process.
fn last_alive(known: &Processes, call: &OpenCall) -> EventTime {
    let alive_at = call.alive_at();
    sign_of(known, call).map_or(alive_at, |sign| sign.at.max(alive_at))
}

impl OpenCall {
    /// Returns the time of the call's last event, or of the last heartbeat of its process if that
    /// is later.
    fn alive_at(&self) -> EventTime {
        let alive = self.of.alive.unwrap_or(self.times.latest);
        alive.max(self.times.latest)
    }
}

impl Assembler {
    /// Sets whether events arrive from here on. If they do not, silence says nothing about a call
    /// or a process.
    pub fn set_reception(&mut self, reception: Reception) {
        self.reception = reception;
        for key in self.calls.keys() {
            self.update_overdue(key);
        }
    }

    /// Assigns the call `key` to the process that recovered it, according to the event with these
    /// traits. The call's links end along with the previous process.
    pub(super) fn note_recovery(&mut self, key: u64, channel: &ChannelRef<'_>) {
        let is_recovered = matches!(&channel.traits, Some(traits) if traits.recovered);
        let (Some(call), Some(process)) = (self.calls.get_mut(key), channel.process) else {
            return;
        };
        if !is_recovered || call.of.process == Some(process) || call.of.process.is_none() {
            return;
        }
        let last = last_alive(&self.processes, call);
        call.legs.values_mut().for_each(|leg| leg.unlink(last));
        call.of = CallProcess {
            process: Some(process),
            ..CallProcess::default()
        };
    }

    /// Restores the state of a process from a restored open call.
    pub(super) fn was_alive(&mut self, key: u64) {
        let Some(call) = self.calls.get(key) else {
            return;
        };
        let Some(process) = call.of.process else {
            return;
        };
        let at = call.alive_at();
        let arrived = call.times.latest_arrived;
        let sign = sign(&mut self.processes, process, at, arrived);
        sign.beat = sign.beat.max(call.of.alive);
        sign.counter.last = sign.counter.last.max(call.of.last_stamp);
        sign.counter.beat = sign.counter.beat.max(call.of.beat);
    }

    /// Processes a heartbeat of a process, and the time at which the process `began`, if reported.
    /// Ends the calls of other processes that have been silent since before that time.
    pub(super) fn on_beat(
        &mut self,
        (process, began): (u64, Option<EventTime>),
        at: EventTime,
        arrived: EventTime,
    ) {
        let sign = sign(&mut self.processes, process, at, arrived);
        let apart = sign.beat.map(|before| at.since(before));
        sign.every = sign.every.max(apart.unwrap_or_default().min(EVERY_MAX));
        let first = sign.beat.replace(at).is_none();
        let beat = sign.counter.beat;
        self.change_each(|call| {
            let of_it = call.of.process == Some(process) && !call.is_over();
            if of_it {
                call.of.alive = call.of.alive.max(Some(at));
                call.of.beat = beat;
            }
            of_it
        });
        let Some(began) = began else { return };
        // Processes that have been silent since before this one began have ended.
        let known = self.processes.clone();
        self.end_each(
            |call| {
                let silence = sign_of(&known, call).map_or(SILENT, Sign::silence);
                let last = last_alive(&known, call);
                let of_another = call.of.process.is_some_and(|other| other != process);
                of_another && began >= last && at >= last.plus(silence)
            },
            |call| call.end_with_process(Some(last_alive(&known, call)), arrived),
        );
        if first {
            self.end_processes_before(Some(began), arrived);
        }
    }

    /// Ends the calls for which two consecutive heartbeats left no channel. `channels` is the
    /// process's number of live channels. No channel is left if it is zero, or if known channels
    /// account for all of it and all known channels of the call have hung up.
    pub(super) fn end_forgotten(
        &mut self,
        process: u64,
        channels: usize,
        at: EventTime,
        arrived: EventTime,
    ) {
        let keys = self.calls.keys_of(|call| call.of.process == Some(process));
        let mut known = 0;
        for &key in &keys {
            let call = self.calls.get(key);
            known += call.map_or(0, |call| {
                call.legs.values().filter(|leg| leg.is_up()).count()
            });
        }
        for key in keys {
            let Some(call) = self.calls.get_mut(key).filter(|call| !call.is_over()) else {
                continue;
            };
            let has_room = if call.has_hung_up() {
                channels > known
            } else {
                channels > 0
            };
            let is_forgotten = !has_room && at >= call.times.latest.plus(BEFORE_COUNT);
            let was_forgotten = std::mem::replace(&mut call.gaps.forgotten, is_forgotten);
            if is_forgotten && was_forgotten {
                call.end_with_process(None, arrived);
                self.update_settling(key);
            }
            if is_forgotten || was_forgotten {
                self.changes.insert(key);
            }
        }
    }

    /// Emits the known parts of the calls of processes whose heartbeats have stopped. The calls
    /// stay open.
    pub(super) fn emit_silent(&mut self, now: EventTime) {
        let Reception::Arriving { since } = self.reception else {
            return;
        };
        let mut silent = Vec::new();
        for (&process, sign) in &mut self.processes {
            let over = now >= sign.arrived.max(since).plus(sign.silence() * 3);
            if over && sign.beat.is_some() && !sign.given_up {
                sign.given_up = true;
                silent.push(process);
            }
        }
        if silent.is_empty() {
            return;
        }
        let keys = self.calls.keys_of(|call| {
            let process = call.of.process;
            process.is_some_and(|process| silent.contains(&process))
        });
        for key in keys {
            self.emit_open(key, OpenCall::alive_at);
        }
    }

    /// Notes an event or a heartbeat of a process at the moment `at` by the process's clock. If it
    /// shows that this clock was set back, notes that in the open calls. Only a heartbeat reports
    /// when the process `began`.
    pub(super) fn on_sign(
        &mut self,
        process: u64,
        stamp: Option<EventStamp>,
        began: Option<EventTime>,
        at: EventTime,
        arrived: EventTime,
    ) {
        let sign = sign(&mut self.processes, process, at, arrived);
        let Some(stamp) = stamp else { return };
        let by_number = sign.counter.counts(stamp);
        let by_time = match began {
            Some(began) => sign.counter.note_beat(stamp, began),
            None => sign.counter.is_stamped_before(at, stamp),
        };
        if !by_number && !by_time {
            return;
        }
        // From here on, count the process's silence by the clock that was set back.
        sign.at = stamp.at;
        for key in self.calls.keys() {
            self.asks_set_back(key, process);
        }
    }

    /// Notes in the call `key` if the clock of this process was set back after the call began.
    pub(super) fn asks_set_back(&mut self, key: u64, process: u64) {
        let known = self.processes.get(&process).zip(self.calls.get_mut(key));
        let Some((sign, of)) = known.map(|(sign, call)| (sign, &mut call.of)) else {
            return;
        };
        if let Some(first) = of.first_number
            && of.process == Some(process)
            && of.set_back.is_none()
            && let Some(set_back) = sign
                .counter
                .set_backs
                .iter()
                .find(|set_back| first < set_back.until)
        {
            of.set_back = Some(*set_back);
            self.changes.insert(key);
        }
    }
}

/// Times that run back by more than this show that a clock was set back.
const AT_ONCE: Duration = Duration::from_millis(500);
/// An event that more events than this have overtaken says nothing about the clock. It can be from
/// a parallel recording, which has its own numbers.
const OVERTAKEN_MAX: u64 = 16;
/// Maximum number of set-backs that are remembered per process, for events that are still to
/// arrive.
const SET_BACKS_MAX: usize = 8;

/// The latest event of a process by its number, and the times at which its clock was set back.
#[derive(Clone, Debug, Default)]
struct Counter {
    last: Option<EventStamp>,
    /// Last heartbeat with an uptime, and the start of the process by the clock at that time.
    beat: Option<(EventStamp, EventTime)>,
    set_backs: VecDeque<SetBack>,
}

impl Counter {
    /// Processes an event by its number. Returns `true` if it shows that the clock was set back.
    fn counts(&mut self, stamp: EventStamp) -> bool {
        let last = self.last.unwrap_or(stamp);
        if stamp.number.saturating_add(OVERTAKEN_MAX) < last.number {
            return false;
        }
        let (earlier, later) = if stamp.number < last.number {
            (stamp, last)
        } else {
            (last, stamp)
        };
        self.last = Some(later);
        earlier.at.since(later.at) > AT_ONCE && self.was_set_back(earlier.number, later.number)
    }

    /// Returns `true` if the event happened (`at`) after it was sent (`stamp`), which shows a
    /// set-back that was not known yet.
    fn is_stamped_before(&mut self, at: EventTime, stamp: EventStamp) -> bool {
        let from = stamp.number.saturating_sub(1);
        let until = stamp.number.saturating_add(1);
        at.since(stamp.at) > AT_ONCE && self.was_set_back(from, until)
    }

    /// Processes a heartbeat of a process that started at `began` by its clock. Returns `true` if
    /// the heartbeat shows that the clock was set back.
    fn note_beat(&mut self, stamp: EventStamp, began: EventTime) -> bool {
        let (before, begun) = self.beat.unwrap_or((stamp, began));
        if stamp.number < before.number {
            return false;
        }
        self.beat = Some((stamp, began));
        begun.since(began) > AT_ONCE && self.was_set_back(before.number, stamp.number)
    }

    /// Notes that the clock was set back between the events with these two numbers. Returns `false`
    /// if a set-back between them is known already.
    fn was_set_back(&mut self, from: u64, until: u64) -> bool {
        let is_known = self
            .set_backs
            .iter()
            .any(|known| known.from >= from && known.until <= until);
        if is_known {
            return false;
        }
        if self.set_backs.len() == SET_BACKS_MAX {
            self.set_backs.pop_front();
        }
        self.set_backs.push_back(SetBack { from, until });
        true
    }
}
