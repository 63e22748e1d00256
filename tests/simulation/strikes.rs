//! What befalls the process and its machine: kills at the worst moments, stalls, reboots, an
//! orderly stop, a clock that is set, a snapshot restored.

use crate::simulation::disk::Disk;
use crate::simulation::paths::Hardship;
use crate::simulation::way::Event;
use crate::simulation::world::World;
use callbridge_call::{EpochSeconds, EventTime};
use callbridge_model::Now;
use callbridge_sender::core::Core;
use callbridge_sender::plan::Known;
use callbridge_spool::{Op, tables};
use std::time::Duration;

/// What left before the process ended can still arrive for so long.
const STRAGGLER: Duration = Duration::from_secs(5);

/// How long an orderly stop waits for what is under way.
const FINISH: Duration = Duration::from_secs(8);

/// The worst moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A request is chosen, its row not read.
    Chosen,
    /// Slot and step are being written.
    Writing,
    /// Slot and step are committed, the request is not sent.
    Committed,
    /// The answer came, what it means is not committed.
    Answered,
    /// The process has started, nothing is committed.
    Started,
}

impl Moment {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Chosen,
        Self::Writing,
        Self::Committed,
        Self::Answered,
        Self::Started,
    ];
}

/// What happens at such a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blow {
    /// The process is killed and started again after this long.
    Kill(Duration),
    /// Killed while the disk failed: the writer saw an error, and the write is there all the same.
    KillInDoubt(Duration),
    /// The machine loses its power.
    Reboot(Duration),
    /// Nothing runs for this long, but the clocks do.
    Stall(Duration),
}

/// One that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trap {
    pub at: Moment,
    pub blow: Blow,
}

impl World {
    /// What waits for this moment happens; `true` when the process did not survive it.
    pub(crate) fn struck(&mut self, at: Moment) -> bool {
        let Some(trap) = self.trap.filter(|trap| trap.at == at) else {
            return false;
        };
        self.trap = None;
        self.met.hardship(Hardship::at(at));
        match trap.blow {
            Blow::Stall(time) => {
                self.stall(time);
                false
            }
            Blow::Kill(down) | Blow::KillInDoubt(down) => {
                self.kill(down, false);
                true
            }
            Blow::Reboot(down) => {
                self.kill(down, true);
                true
            }
        }
    }

    /// The same while these are being written: none, or all of them, are there afterwards.
    pub(crate) fn struck_writing(&mut self, ops: &[Op]) -> bool {
        if let Some(Trap {
            at: Moment::Writing,
            blow: Blow::KillInDoubt(_),
        }) = self.trap
        {
            self.write(ops.to_vec()).ok();
            self.met.hardship(Hardship::WrittenInDoubt);
        }
        self.struck(Moment::Writing)
    }

    /// Nothing of ours runs for this long.
    pub fn stall(&mut self, time: Duration) {
        self.log.event(self.truth, format_args!("stalls {time:?}"));
        self.met.hardship(Hardship::Stalled);
        self.pass_to(self.truth.plus(time));
    }

    /// The process is killed, and started again after `down`; with `reboot` the machine is.
    pub fn kill(&mut self, down: Duration, reboot: bool) {
        self.log
            .event(self.truth, format_args!("killed, down {down:?}, {reboot}"));
        self.met.hardship(Hardship::Killed);
        if self.disk.store.books().sending > 0 {
            self.met.hardship(Hardship::KilledUnderWay);
        }
        self.end(down, reboot);
        self.start();
    }

    /// The process ends as it is.
    fn end(&mut self, down: Duration, reboot: bool) {
        for row in tables::calls::sending(&self.disk.store).expect("rows") {
            self.witness.excuse(&row.uuid.to_string());
        }
        // what was not written is forgotten, and a time of a wrong clock says nothing later
        let forgot = !self.unwritten.is_empty() || self.now.wall != self.truth;
        self.witness.restarted(forgot);
        self.waits.clear();
        self.landed
            .retain(|(number, _)| self.waits.contains_key(number));
        self.unwritten.clear();
        self.trouble = false;
        // what left before may still arrive, but nothing that comes later
        let closed = self.truth.plus(STRAGGLER);
        let waits = &self.waits;
        self.events.retain(|(at, _), event| match event {
            Event::Arrives(number, _) => *at < closed || waits.contains_key(number),
            Event::Answered(number, _) => waits.contains_key(number),
            Event::Look => false,
            Event::Cycle | Event::Delivery(_) => true,
        });
        self.receives(false);
        self.pass_to(self.truth.plus(down));
        self.receives(true);
        if reboot {
            self.met.hardship(Hardship::Rebooted);
            self.boots += 1;
            // some kernels tell no boot id
            let told = !self.dice.chance(10);
            self.boot_id = told.then(|| format!("boot-{}", self.boots));
            self.now.boot = Duration::from_secs(5);
        }
    }

    /// SIGTERM, and started again after `down`: what is under way is waited for.
    pub fn stop(&mut self, down: Duration) {
        self.log.event(self.truth, format_args!("stopped"));
        self.met.hardship(Hardship::Stopped);
        let last = self.truth.plus(FINISH);
        while !self.waits.is_empty() && self.truth < last {
            let next = self.events.keys().next().map_or(last, |(at, _)| *at);
            self.pass_to(next.min(last));
            self.land_all();
        }
        self.write_all();
        self.end(down, false);
        self.start();
    }

    /// Starts the sender on what is stored.
    pub(crate) fn start(&mut self) {
        self.lives += 1;
        let known = Known::read(&self.disk.store, self.boot_id.clone()).expect("readable");
        let known = Known {
            restored: self.disk.restored || known.restored,
            ..known
        };
        let (core, mut ops) = Core::start(self.settings.clone(), known, self.now);
        self.core = core;
        let sending = tables::calls::sending(&self.disk.store).expect("rows");
        ops.extend(self.core.interrupted(&sending, self.now));
        self.unwritten.push_back(ops);
        self.use_token();
        self.struck(Moment::Started);
    }

    /// Another token, or none, is put into the file; it is looked at within a second.
    pub fn put_token(&mut self, token: &str) {
        self.log.event(self.truth, format_args!("token {token}"));
        self.token = token.to_owned();
        self.older = None;
        let wait = Duration::from_millis(self.dice.below(1000));
        self.events.insert((self.truth.plus(wait), 0), Event::Look);
    }

    /// The token was refreshed: the one before lives on until then.
    pub fn refreshed(&mut self, token: &str, until: EpochSeconds) {
        let older = (!self.token.is_empty()).then(|| (self.token.clone(), until));
        self.put_token(token);
        self.older = older;
    }

    /// Our machine's wall clock is set, by so many seconds against the truth.
    pub fn set_clock(&mut self, ahead_sec: i64) {
        self.log
            .event(self.truth, format_args!("clock {ahead_sec} s ahead"));
        if ahead_sec != 0 {
            self.met.hardship(if ahead_sec > 0 {
                Hardship::ClockForward
            } else {
                Hardship::ClockBack
            });
        }
        let wall = self.truth.micros() + ahead_sec * 1_000_000;
        self.now = Now {
            wall: EventTime::from_micros(wall),
            ..self.now
        };
    }

    /// From here on a snapshot of the disk can be restored.
    pub fn snapshot(&self) -> usize {
        self.disk.history.as_ref().map_or(0, Vec::len)
    }

    /// The process is killed, and its state deleted before it starts again after `down`.
    pub fn delete_state(&mut self, down: Duration) {
        self.log.event(self.truth, format_args!("state deleted"));
        self.witness.excuse_all();
        self.end(down, false);
        self.disk = Disk::new();
        self.disk.history = Some(Vec::new());
        self.witness.restarted(true);
        self.start();
    }

    /// The machine starts from a snapshot; sources tell again what it does not know.
    pub fn restore(&mut self, snapshot: usize) {
        self.log
            .event(self.truth, format_args!("snapshot restored"));
        self.met.hardship(Hardship::SnapshotRestored);
        self.witness.excuse_all();
        self.end(Duration::from_secs(20), true);
        self.disk.restore(snapshot);
        self.witness.restarted(true);
        self.start();
    }
}
