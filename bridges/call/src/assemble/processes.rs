//! Tracks the processes of a PBX whose messages identify their process. Every few seconds, a
//! heartbeat reports that a process is alive. When the heartbeats stop, the process has ended, and
//! so have its channels.
//!
//! ```text
//! process A  ──call────♥────♥────♥──✝                      its calls ended at its last ♥
//! process B                            ├─♥────♥────♥──▶    began after it, and A is silent
//! ```
//! If there's no other process, the silence may be caused by the connection. In that case, what's
//! known of the calls is emitted, and they stay open.
//!
//! A process's events also show when the PBX's clock is set back during a call. Event numbers and
//! the reported uptime only ever increase, no matter what the clock shows and in which order the
//! events arrive.
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

/// Maximum number of processes to track.
const PROCESSES_MAX: usize = 64;
/// How long a process must have sent nothing before it counts as ended, which is three heartbeats
/// at the usual interval of 20 s.
const SILENT: Duration = Duration::from_secs(60);
/// A call is included in a process's channel count if the call's last event is at least this much
/// older than the count.
const BEFORE_COUNT: Duration = Duration::from_secs(1);
/// Longest accepted heartbeat interval. Administrators can make heartbeats less frequent than
/// usual, up to this interval.
const EVERY_MAX: Duration = Duration::from_secs(300);

/// A process's last event and last heartbeat.
#[derive(Clone, Debug, Default)]
pub(super) struct Sign {
    at: EventTime,
    arrived: EventTime,
    /// Time of the last heartbeat. Without heartbeats, a process that sends nothing is no cause for
    /// suspicion, because other events aren't regular.
    beat: Option<EventTime>,
    /// Longest interval seen between two heartbeats, up to `EVERY_MAX`.
    every: Duration,
    /// Whether the process's calls have been emitted because it stopped sending anything.
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

/// Records an event or a heartbeat of a process, and returns the process's entry. If too many
/// processes are known, the one that has been silent the longest is dropped.
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
    /// Returns the time of the call's last event or of its process's last heartbeat, whichever is
    /// later.
    fn alive_at(&self) -> EventTime {
        let alive = self.of.alive.unwrap_or(self.times.latest);
        alive.max(self.times.latest)
    }
}

impl Assembler {
    /// Sets whether events are currently arriving. If they aren't, a call or process without any
    /// events is no cause for suspicion.
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

    /// Restores a process's state from a restored open call.
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

    /// Processes a heartbeat, including when the process `began` if that's reported. Ends the calls
    /// of other processes that haven't been heard from since before that time.
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
        // Processes that haven't been heard from since before this one began have ended.
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

    /// Ends the calls that have no channels left according to two consecutive heartbeats.
    ///
    /// `channels` is how many live channels the process reports. None are left for a call if the
    /// number is zero, or if all of the call's known channels have hung up and other known channels
    /// account for the whole number.
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

    /// Emits what is known of the calls of processes whose heartbeats have stopped. The calls stay
    /// open.
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

    /// Records an event or a heartbeat of a process at time `at` by its own clock. If it shows that
    /// this clock was set back, that's recorded in the open calls. Only a heartbeat reports when
    /// the process `began`.
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
        // From now on, measure the process's silence by the clock that was set back.
        sign.at = stamp.at;
        for key in self.calls.keys() {
            self.asks_set_back(key, process);
        }
    }

    /// Records in the call `key` whether this process's clock was set back after the call began.
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

/// How far times must run backward to show that a clock was set back.
const SET_BACK_BY: Duration = Duration::from_millis(500);
/// An event that has been overtaken by more than this many others says nothing about the clock. It
/// may come from a parallel recording with its own numbering.
const OVERTAKEN_MAX: u64 = 16;
/// How many set-backs to remember per process, for events that are yet to arrive.
const SET_BACKS_MAX: usize = 8;

/// The process's latest event by number, and when its clock was set back.
#[derive(Clone, Debug, Default)]
struct Counter {
    last: Option<EventStamp>,
    /// Last heartbeat with an uptime, and when the process started by the clock at that time.
    beat: Option<(EventStamp, EventTime)>,
    set_backs: VecDeque<SetBack>,
}

impl Counter {
    /// Processes an event by its number, returning `true` if it shows that the clock was set back.
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
        earlier.at.since(later.at) > SET_BACK_BY && self.was_set_back(earlier.number, later.number)
    }

    /// Returns `true` if the event seems to have happened (`at`) after it was sent (`stamp`), which
    /// reveals a set-back that wasn't known yet.
    fn is_stamped_before(&mut self, at: EventTime, stamp: EventStamp) -> bool {
        let from = stamp.number.saturating_sub(1);
        let until = stamp.number.saturating_add(1);
        at.since(stamp.at) > SET_BACK_BY && self.was_set_back(from, until)
    }

    /// Processes a heartbeat of a process that started at `began` by its own clock, returning
    /// `true` if it shows that the clock was set back.
    fn note_beat(&mut self, stamp: EventStamp, began: EventTime) -> bool {
        let (before, begun) = self.beat.unwrap_or((stamp, began));
        if stamp.number < before.number {
            return false;
        }
        self.beat = Some((stamp, began));
        begun.since(began) > SET_BACK_BY && self.was_set_back(before.number, stamp.number)
    }

    /// Records that the clock was set back between the events with these two numbers, returning
    /// `false` if a set-back between them is already known.
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
