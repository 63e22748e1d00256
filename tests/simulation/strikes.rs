//! Failures of the process and its machine: kills at the worst moments, stalls, reboots, an orderly
//! stop, a clock that is set, and a restored snapshot.

use crate::simulation::disk::Disk;
use crate::simulation::paths::Hardship;
use crate::simulation::way::Event;
use crate::simulation::world::World;
use callbridge_call::{EpochSeconds, EventTime};
use callbridge_model::Now;
use callbridge_sender::core::Core;
use callbridge_sender::plan::Known;
use callbridge_spool::{Op, Silence, SilenceReason, tables};
use std::time::Duration;

/// A request that left before the process ended can still arrive this long after.
const STRAGGLER: Duration = Duration::from_secs(5);

/// How long an orderly stop waits for requests that are under way.
const FINISH: Duration = Duration::from_secs(8);

/// The worst moments for a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A request is chosen, and its row is not read yet.
    Chosen,
    /// Slot and step are being written.
    Writing,
    /// Slot and step are committed, and the request is not sent yet.
    Committed,
    /// The answer came, and its result is not committed yet.
    Answered,
    /// The process has started, and nothing is committed yet.
    Started,
}

impl Moment {
    pub const ALL: [Self; 5] = [
        Self::Chosen,
        Self::Writing,
        Self::Committed,
        Self::Answered,
        Self::Started,
    ];
}

/// A failure at such a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blow {
    /// The process is killed, and started again after this time.
    Kill(Duration),
    /// The process is killed while the disk fails. The writer got an error, but the write is
    /// stored.
    KillInDoubt(Duration),
    /// The machine loses its power for this time.
    Reboot(Duration),
    /// Nothing runs for this time, but the clocks continue.
    Stall(Duration),
}

/// A failure that waits for its moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trap {
    pub at: Moment,
    pub blow: Blow,
}

impl World {
    /// Applies the failure that waits for this moment. Returns `true` if it ended the process.
    pub(crate) fn strike(&mut self, at: Moment) -> bool {
        let Some(trap) = self.trap.filter(|trap| trap.at == at) else {
            return false;
        };
        self.trap = None;
        self.met.count_hardship(Hardship::from_moment(at));
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

    /// Applies a failure while these operations are written. Afterwards, all or none of them are
    /// stored.
    pub(crate) fn strike_while_writing(&mut self, ops: &[Op]) -> bool {
        if let Some(Trap {
            at: Moment::Writing,
            blow: Blow::KillInDoubt(_),
        }) = self.trap
        {
            self.write(ops.to_vec()).ok();
            self.met.count_hardship(Hardship::WrittenInDoubt);
        }
        self.strike(Moment::Writing)
    }

    /// Stops the process for this time.
    pub fn stall(&mut self, time: Duration) {
        self.log.event(self.truth, format_args!("stalls {time:?}"));
        self.met.count_hardship(Hardship::Stalled);
        self.pass_to(self.truth.plus(time));
    }

    /// Kills the process and starts it again after `down`. With `reboot`, restarts the machine.
    pub fn kill(&mut self, down: Duration, reboot: bool) {
        self.log
            .event(self.truth, format_args!("killed, down {down:?}, {reboot}"));
        self.met.count_hardship(Hardship::Killed);
        if self.disk.store.books().sending > 0 {
            self.met.count_hardship(Hardship::KilledUnderWay);
        }
        self.end(down, reboot);
        self.start();
    }

    /// Ends the process without a stop.
    fn end(&mut self, down: Duration, reboot: bool) {
        for row in tables::calls::sending(&self.disk.store).expect("rows") {
            self.witness.excuse(&row.uuid.to_string());
        }
        // Unwritten data is lost, and a time from a wrong clock has no meaning later.
        let forgot = !self.unwritten.is_empty() || self.now.wall != self.truth;
        self.witness.begin_life(forgot);
        self.waits.clear();
        self.landed
            .retain(|(number, _)| self.waits.contains_key(number));
        self.unwritten.clear();
        self.trouble = false;
        // A request that left before can still arrive, but no later event of the process happens.
        let closed = self.truth.plus(STRAGGLER);
        let waits = &self.waits;
        self.events.retain(|(at, _), event| match event {
            Event::Arrives(number, _) => *at < closed || waits.contains_key(number),
            Event::Answered(number, _) => waits.contains_key(number),
            Event::Look => false,
            Event::Cycle | Event::Delivery(_) => true,
        });
        self.set_receiving(false);
        self.pass_to(self.truth.plus(down));
        self.set_receiving(true);
        if reboot {
            self.met.count_hardship(Hardship::Rebooted);
            self.boots += 1;
            // Some kernels have no boot id.
            let has_boot_id = !self.dice.chance(10);
            self.boot_id = has_boot_id.then(|| format!("boot-{}", self.boots));
            self.now.boot = Duration::from_secs(5);
        }
    }

    /// Sends SIGTERM, waits for requests that are under way, and starts it again after `down`.
    pub fn stop(&mut self, down: Duration) {
        self.log.event(self.truth, format_args!("stopped"));
        self.met.count_hardship(Hardship::Stopped);
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

    /// Starts the sender with the stored state.
    pub(crate) fn start(&mut self) {
        self.lives += 1;
        let mut known = Known::read(&self.disk.store, self.boot_id.clone()).expect("readable");
        if self.disk.restored {
            known.silence = Some(Silence::to_begin(SilenceReason::Copied));
        }
        let (core, mut ops) = Core::start(self.settings.clone(), known, self.now);
        self.core = core;
        let sending = tables::calls::sending(&self.disk.store).expect("rows");
        ops.extend(self.core.interrupted(&sending, self.now));
        self.unwritten.push_back(ops);
        self.use_token();
        self.strike(Moment::Started);
    }

    /// Puts another token, or none, into the file. The sender reads it within a second.
    pub fn put_token(&mut self, token: &str) {
        self.log.event(self.truth, format_args!("token {token}"));
        self.token = token.to_owned();
        self.older = None;
        let wait = Duration::from_millis(self.dice.below(1000));
        self.events.insert((self.truth.plus(wait), 0), Event::Look);
    }

    /// Puts a refreshed token into the file. The previous one stays valid until then.
    pub fn take_refreshed_token(&mut self, token: &str, until: EpochSeconds) {
        let older = (!self.token.is_empty()).then(|| (self.token.clone(), until));
        self.put_token(token);
        self.older = older;
    }

    /// Sets the machine's wall clock this many seconds ahead of the true time.
    pub fn set_clock(&mut self, ahead_sec: i64) {
        self.log
            .event(self.truth, format_args!("clock {ahead_sec} s ahead"));
        if ahead_sec != 0 {
            self.met.count_hardship(if ahead_sec > 0 {
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

    /// Returns a snapshot of the disk that can be restored later.
    pub fn snapshot(&self) -> usize {
        self.disk.history.as_ref().map_or(0, Vec::len)
    }

    /// Kills the process and deletes its state before it starts again after `down`.
    pub fn delete_state(&mut self, down: Duration) {
        self.log.event(self.truth, format_args!("state deleted"));
        self.witness.excuse_all();
        self.end(down, false);
        self.disk = Disk::new();
        self.disk.history = Some(Vec::new());
        self.witness.begin_life(true);
        self.start();
    }

    /// Starts the machine from a snapshot. Sources report again the calls that it does not have.
    pub fn restore(&mut self, snapshot: usize) {
        self.log
            .event(self.truth, format_args!("snapshot restored"));
        self.met.count_hardship(Hardship::SnapshotRestored);
        self.witness.excuse_all();
        self.end(Duration::from_secs(20), true);
        self.disk.restore(snapshot);
        self.witness.begin_life(true);
        self.start();
    }
}
