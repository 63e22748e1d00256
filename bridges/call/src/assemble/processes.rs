//! The processes of a PBX whose messages name them, and say every few seconds that they live: one
//! that does so no more has taken its channels with it.
//!
//! ```text
//! process A  ──call────♥────♥────♥──✝                      its calls ended at its last ♥
//! process B                            ├─♥────♥────♥──▶    began after it, and A is silent
//! ```
//! Without another process the silence may be that of the way between: its calls are given out as
//! far as they are known, and stay open.

use super::Assembler;
use super::set_back::Counter;
use crate::facts::open::OpenCall;
use crate::units::EventTime;
use std::collections::BTreeMap;
use std::time::Duration;

/// Processes that are told apart.
const PROCESSES_MAX: usize = 64;
/// Three signs of life, of one every 20 s as is usual.
const SILENT: Duration = Duration::from_secs(60);
/// Longest distance of signs of life that is believed: an administrator may have them come rarer
/// than usual, but not rarer than this.
const EVERY_MAX: Duration = Duration::from_secs(300);

/// The last sign of life of a process.
#[derive(Clone, Debug)]
struct Sign {
    at: EventTime,
    arrived: EventTime,
    /// Time of its last message that it lives: events alone are no promise of more.
    beat: Option<EventTime>,
    /// Longest distance seen between two such messages, up to `EVERY_MAX`.
    every: Duration,
    /// Set once the calls of the process were given out for its silence.
    given_up: bool,
    counter: Counter,
}

impl Sign {
    fn silence(&self) -> Duration {
        SILENT.max(self.every * 3)
    }
}

/// All that were heard of, by number.
#[derive(Debug, Default)]
pub(super) struct Processes {
    known: BTreeMap<u64, Sign>,
    /// Nobody listens, so that silence says nothing.
    deaf: bool,
}

impl Processes {
    fn sign(&mut self, process: u64, at: EventTime, arrived: EventTime) -> Option<&mut Sign> {
        if self.known.len() >= PROCESSES_MAX && !self.known.contains_key(&process) {
            let oldest = self.known.iter().min_by_key(|(_, sign)| sign.arrived);
            let oldest = oldest.map(|(&process, _)| process)?;
            self.known.remove(&oldest);
        }
        let sign = self.known.entry(process).or_insert(Sign {
            at,
            arrived,
            beat: None,
            every: Duration::ZERO,
            given_up: false,
            counter: Counter::default(),
        });
        (sign.at, sign.arrived) = (sign.at.max(at), sign.arrived.max(arrived));
        sign.given_up = false;
        Some(sign)
    }

    pub(super) fn counter(&mut self, process: u64) -> Option<&mut Counter> {
        Some(&mut self.known.get_mut(&process)?.counter)
    }

    /// Sets the time of the last sign of life anew, by the process's clock, which was set back.
    pub(super) fn set_back(&mut self, process: u64, at: EventTime) {
        if let Some(sign) = self.known.get_mut(&process) {
            sign.at = at;
        }
    }
}

impl OpenCall {
    /// The last sign of life of its process, or of itself.
    pub(crate) fn alive_at(&self) -> EventTime {
        let alive = self.of.alive.unwrap_or(self.times.latest);
        alive.max(self.times.latest)
    }
}

impl Assembler {
    /// Sets whether the source of the events is connected: else silence says nothing of a process.
    pub fn listens(&mut self, listens: bool, now: EventTime) {
        self.processes.deaf = !listens;
        for sign in self.processes.known.values_mut().filter(|_| listens) {
            sign.arrived = sign.arrived.max(now);
        }
    }

    /// An event of one of its channels: the process lives.
    pub(super) fn is_alive(&mut self, process: Option<u64>, at: EventTime, arrived: EventTime) {
        if let Some(process) = process {
            self.processes.sign(process, at, arrived);
        }
    }

    /// An open call of this process was restored.
    pub(super) fn was_alive(&mut self, key: u64) {
        let call = self.calls.get(key);
        let Some((call, process)) = call.and_then(|it| Some((it, it.of.process?))) else {
            return;
        };
        let (at, of) = (call.alive_at(), &call.of);
        if let Some(sign) = self.processes.sign(process, at, call.times.latest_arrived) {
            sign.beat = sign.beat.max(of.alive);
            sign.counter.restored(of.last_stamp, of.beat);
        }
    }

    /// A process says that it lives, and since when: those before it do not.
    pub(super) fn beats(
        &mut self,
        (process, began): (u64, Option<EventTime>),
        at: EventTime,
        arrived: EventTime,
    ) {
        let (mut first, mut beat) = (true, None);
        if let Some(sign) = self.processes.sign(process, at, arrived) {
            let apart = sign.beat.map(|before| at.since(before));
            sign.every = sign.every.max(apart.unwrap_or_default().min(EVERY_MAX));
            first = sign.beat.replace(at).is_none();
            beat = sign.counter.beat;
        }
        self.change_each(|call| {
            let of_it = call.of.process == Some(process) && !call.is_over();
            if of_it {
                call.of.alive = call.of.alive.max(Some(at));
                call.of.beat = beat;
            }
            of_it
        });
        if let Some(began) = began {
            self.end_those_before(process, began, at, arrived);
            if first {
                self.ends_before(Some(began), arrived);
            }
        }
    }

    /// Ends the calls of processes that were silent before this one began, and since.
    fn end_those_before(
        &mut self,
        process: u64,
        began: EventTime,
        at: EventTime,
        arrived: EventTime,
    ) {
        for key in self.calls.keys() {
            let Some(call) = self.calls.get_mut(key).filter(|call| !call.is_over()) else {
                continue;
            };
            let Some(other) = call.of.process.filter(|other| *other != process) else {
                continue;
            };
            let sign = self.processes.known.get(&other);
            let last = sign.map_or(call.alive_at(), |sign| sign.at.max(call.alive_at()));
            let silence = sign.map_or(SILENT, Sign::silence);
            if began < last || at < last.plus(silence) {
                continue;
            }
            call.end_with_process(last, arrived);
            self.changes.insert(key);
            self.settle_or_not(key);
        }
    }

    /// Gives out the calls of processes that say no more that they live.
    pub(super) fn give_out_silent(&mut self, now: EventTime) {
        if self.processes.deaf {
            return;
        }
        let mut silent = Vec::new();
        for (&process, sign) in &mut self.processes.known {
            let over = now >= sign.arrived.plus(sign.silence() * 3);
            if over && sign.beat.is_some() && !sign.given_up {
                sign.given_up = true;
                silent.push(process);
            }
        }
        if silent.is_empty() {
            return;
        }
        for key in self.calls.keys() {
            let call = self.calls.get(key);
            let process = call.and_then(|call| call.of.process);
            if process.is_some_and(|process| silent.contains(&process)) {
                self.give_out_open(key, OpenCall::alive_at);
            }
        }
    }
}
