//! The whole chain under the virtual clock: collectors, their spools, a stream, the intakes that
//! read it, the lease, and the senders' world behind it. Real cores, no socket.
//!
//! ```text
//! PBX ─▶ spool ─▶ message ─▶ stream ─▶ intake ─▶ spool ─▶ sender ─▶ CRM
//!        └── of each collector ──┘ ▲     └──── of each sender ────┘
//!                                  └──── outcomes ─────┘   ▲
//!                                       quorum queue ─▶ claim ─▶ leave
//! ```
//! Each may die at each step; [`ChainPath`] lists the ways, each of which a run has to meet. What
//! may become of the stream itself stands in `stream_weather`.

mod collectors;
mod handover;
mod stream_weather;

use collectors::SimCollector;

use crate::calls::{self, Dice};
use crate::chain_paths::ChainPath;
use crate::disk::{Disk, Health};
use crate::model::{BrokerWeather, LeaseModel, STEP};
use crate::senders::WaitingSender;
use crate::stream::{Stream, StreamMessage, StreamReader, fresh};
use crate::strikes::{Blow, Moment, Trap};
use crate::world::World;
use callbridge_call::EventTime;
use callbridge_fleet::lease::Terms;
use callbridge_formats::message::MessageKind;
use callbridge_model::CallUuid;
use callbridge_sandbox as sandbox;
use callbridge_sender::Settings;
use callbridge_spool::{self as spool, Finished, Op, PeerOutcome, Store, tables};
use callbridge_testbed::expected;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Of a hundred batches of calls that are read so many times more meet a death than of other steps.
const READ_HARDER: u64 = 5;
/// A death of who sends costs everybody two minutes: of so many thousand of its steps as of a
/// hundred of others' steps one meets something.
const HOLDER_RARER: u64 = 4_000;
/// The same of outcomes that are told, which are few: of a hundred times.
const TOLD_HARDER: u64 = 6;
/// And of seconds with requests under way: of a thousand.
const UNDER_WAY_OF: u64 = 1_000;
/// A turn of the chain.
const TURN: Duration = Duration::from_secs(1);
/// Outcomes are told so often, in turns.
const LOG_EVERY: u64 = 3;
const OUTCOMES_AT_ONCE: usize = 500;
/// A sender that is stopped waits for answers for so long.
const FINISH: Duration = Duration::from_secs(8);
/// How long a disk fails.
const FAILS_FOR: u32 = 6;

/// The queue passes on by itself every ten minutes or so; all else is the chain's to do.
const WEATHER: BrokerWeather = BrokerWeather {
    processes: 2,
    passes: 12_000,
    mishaps: 0,
    delay: 4_000,
    tells_redelivered: true,
};

/// See the module.
pub struct Chain {
    /// With the sender that goes on at the moment.
    pub world: World,
    waiting: Vec<WaitingSender>,
    /// By process.
    readers: Vec<StreamReader>,
    lease: LeaseModel,
    /// How far the lease's time has come.
    lease_at: EventTime,
    /// Who sent last, and who is dead, and started when it thaws.
    holder: Option<usize>,
    down: BTreeSet<usize>,
    /// Who is being stopped in order, and until when it waits for answers.
    stopping: Option<(usize, EventTime)>,
    /// Who died, or froze with requests under way, since it had the turn last.
    died: BTreeSet<usize>,
    froze: BTreeSet<usize>,
    collectors: Vec<SimCollector>,
    stream: Stream,
    /// Every call there was.
    pub calls: BTreeMap<String, Finished>,
    pub met: BTreeMap<ChainPath, u64>,
    /// Times that a sender began anew, or that the turn passed to another.
    pub changes: u64,
    dice: Dice,
    broker_away: u32,
    disk_fails: u32,
    turns: u64,
    /// Of a hundred turns of a PBX so many end a call.
    pub told_percent: u64,
}

impl Chain {
    /// So many collectors, whose PBXs have so many calls to tell of, all at once.
    pub fn new(seed: u64, collectors: u32, calls: u32, terms: Terms) -> Self {
        let mut world = World::new(seed, Settings::default(), sandbox::Settings::default());
        // Something is under way at most moments.
        world.network.delay = Duration::from_millis(300);
        world.network.jitter = Duration::from_millis(1_500);
        let now = world.now.wall;
        let mut own = world.another(0, fresh(now));
        world.switch(&mut own);
        let standby = fresh(now);
        let readers = vec![
            StreamReader::begin(&world.disk, now),
            StreamReader::begin(&standby, now),
        ];
        let waiting = vec![world.another(1, standby)];
        let mut chain = Self {
            readers,
            waiting,
            lease: LeaseModel::new(seed, WEATHER, terms),
            lease_at: world.truth,
            holder: None,
            down: BTreeSet::new(),
            stopping: None,
            died: BTreeSet::new(),
            froze: BTreeSet::new(),
            world,
            collectors: Vec::new(),
            stream: Stream::default(),
            told_percent: 100,
            calls: BTreeMap::new(),
            met: BTreeMap::new(),
            changes: 0,
            dice: Dice::new(seed ^ 0x5eed),
            broker_away: 0,
            disk_fails: 0,
            turns: 0,
        };
        for n in 0..collectors {
            let told = (n..calls).step_by(usize::try_from(collectors).expect("few"));
            let untold = told.map(|call| chain.call(call, n, now)).collect();
            let store = Store::in_memory(spool::Settings::default()).expect("a store");
            chain.collectors.push(SimCollector { untold, store });
        }
        chain
    }

    fn call(&mut self, n: u32, collector: u32, now: EventTime) -> Finished {
        let mut call = calls::call(n, now, 4_001 + i64::from(n % 900), false);
        let record = &mut call.judged.record;
        record.pbx = format!("site-{collector}");
        let uuid = expected::uuid(&record.pbx, &record.linkedid);
        record.uuid = Some(CallUuid(uuid.parse().expect("a uuid")));
        let before = self.calls.insert(uuid, call.clone());
        assert!(before.is_none(), "no two calls share a uuid");
        call
    }

    fn meet(&mut self, path: ChainPath) {
        *self.met.entry(path).or_default() += 1;
    }

    /// A second of everybody's life, in which things happen with a chance of `percent`.
    pub fn turn(&mut self, percent: u64) {
        self.turns += 1;
        self.start_again();
        if percent > 0 && self.dice.chance(2) {
            self.broker_away = 3;
            self.meet(ChainPath::BrokerAway);
        }
        self.broker_away = self.broker_away.saturating_sub(1);
        if self.broker_away == 0 {
            self.collect(percent);
            for process in self.living() {
                self.goes_on(process);
                self.read(percent);
            }
            if self.turns.is_multiple_of(LOG_EVERY) {
                for process in self.living() {
                    self.goes_on(process);
                    self.tell(percent);
                }
            }
        }
        self.pass(percent);
        self.misfortunes(percent);
    }

    /// The senders that are neither dead nor frozen.
    fn living(&self) -> Vec<usize> {
        let now = self.lease_time();
        let all = 0..self.lease.processes();
        all.filter(|it| !self.lease.is_frozen(now, *it)).collect()
    }

    /// The world is this sender's.
    fn goes_on(&mut self, process: usize) {
        let waits = self.waiting.iter_mut().find(|it| it.process == process);
        if let Some(waits) = waits {
            self.world.switch(waits);
        }
    }

    /// Whether this sender meets something at a step.
    fn is_struck(&mut self, percent: u64) -> bool {
        match self.holder == Some(self.world.process) {
            true => self.dice.below(HOLDER_RARER) < percent,
            false => self.dice.chance(percent),
        }
    }

    /// Who goes on takes messages in.
    fn read(&mut self, percent: u64) {
        let (now, process) = (self.world.now.wall, self.world.process);
        if self.world.disk.health != Health::Sound {
            return;
        }
        let Some(ops) = self.readers[process].on_event(&self.stream, now) else {
            return;
        };
        let repeats = self.world.disk.store.books().finished;
        let told = ops.iter().filter(|op| matches!(op, Op::Finish(_))).count();
        let marks = |op: &Op| matches!(op, Op::PeerOutcome(PeerOutcome::PossiblySent(..)));
        let marked = ops.iter().any(marks);
        let struck = match told > 0 {
            true => self.dice.chance(percent * READ_HARDER),
            false => self.is_struck(percent),
        };
        match struck.then(|| self.dice.below(3)) {
            Some(0) => self.die(ChainPath::DeliveredUnwritten),
            Some(1) if marked => self.die(ChainPath::MarkUnwritten),
            Some(1) => self.die(ChainPath::CommitLost),
            Some(_) => {
                self.world.write(ops).expect("written");
                self.die(ChainPath::CommitKept);
            }
            None => {
                self.world.write(ops).expect("written");
                self.readers[process].intake.committed();
                let new = self.world.disk.store.books().finished - repeats;
                if new < u64::try_from(told).expect("few") {
                    self.meet(ChainPath::ReadTwice);
                }
            }
        }
    }

    /// Who goes on tells the stream what became of its calls.
    fn tell(&mut self, percent: u64) {
        let store = &self.world.disk.store;
        let due = tables::outbox::outcomes(store, OUTCOMES_AT_ONCE).expect("readable");
        let Some((due, through)) = due else { return };
        let told = Op::PeerOutcome(PeerOutcome::Published(through));
        let struck = self.dice.chance(percent * TOLD_HARDER);
        let struck = struck.then(|| self.dice.below(2));
        if struck == Some(0) {
            self.die(ChainPath::OutcomesLost);
            return;
        }
        self.stream.push(StreamMessage {
            kind: MessageKind::Outcomes,
            body: due.write(),
            at: self.world.now.wall,
        });
        match struck {
            Some(_) => self.die(ChainPath::OutcomesTwice),
            None => drop(self.world.write(vec![told])),
        }
    }

    /// Who goes on dies; it is started again a while later.
    fn die(&mut self, path: ChainPath) {
        self.meet(path);
        self.world.strike_down();
        self.is_down();
    }

    fn is_down(&mut self) {
        let again = self.again();
        self.lease.die(self.world.process, again);
        self.has_ended();
    }

    /// When one that ends now is started again.
    fn again(&mut self) -> Duration {
        let seconds = match self.dice.chance(20) {
            true => 200,
            false => 1 + self.dice.below(20),
        };
        self.lease_time() + Duration::from_secs(seconds)
    }

    fn has_ended(&mut self) {
        let process = self.world.process;
        if self.stopping.is_some_and(|(it, _)| it == process) {
            self.stopping = None;
        }
        self.down.insert(process);
        self.died.insert(process);
        self.changes += 1;
        self.world.trap = None;
        self.world.disk.health = Health::Sound;
    }

    fn lease_time(&self) -> Duration {
        self.lease_at.since(calls::epoch())
    }

    fn set_trap(&mut self, percent: u64) {
        let possibly_sent =
            tables::peer_outcomes::possibly_sent_calls(&self.world.disk.store).expect("readable");
        let struck = match possibly_sent.is_searching {
            true => percent > 0 && self.dice.chance(10),
            false => self.is_struck(percent),
        };
        if self.world.trap.is_some() || !struck {
            return;
        }
        let at = [
            Moment::Chosen,
            Moment::Writing,
            Moment::Committed,
            Moment::Answered,
        ];
        let at = *self.dice.pick(&at);
        let blow = match at == Moment::Committed && self.dice.chance(50) {
            true => Blow::Stall(Duration::from_secs(12 + self.dice.below(30))),
            false => Blow::Kill(Duration::ZERO),
        };
        self.world.trap = Some(Trap { at, blow });
    }

    /// A second passes, in spans in which the turn is nobody else's.
    fn pass(&mut self, percent: u64) {
        let until = self.world.truth.plus(TURN);
        while self.lease_at < until {
            self.start_again();
            let before = self.turns_to_send();
            while self.lease_at < until {
                self.lease_at = self.lease_at.plus(STEP);
                let now = self.lease_time();
                self.lease.step(now);
                if self.turns_to_send().keys().ne(before.keys()) {
                    break;
                }
            }
            self.run_senders(&before, percent);
        }
    }

    /// Who may send now, and until when.
    fn turns_to_send(&self) -> BTreeMap<usize, EventTime> {
        let now = self.lease_time();
        let leave = |process| {
            let until = self.lease.leave(now, process)?;
            Some((process, calls::epoch().plus(until)))
        };
        let turns: BTreeMap<_, _> = (0..self.lease.processes()).filter_map(leave).collect();
        assert!(turns.len() <= 1, "two have leave at {now:?}");
        turns
    }

    /// Everybody lives until where the lease's time has come.
    fn run_senders(&mut self, turns: &BTreeMap<usize, EventTime>, percent: u64) {
        let at = self.lease_at;
        for (process, until) in turns {
            self.goes_on(*process);
            self.has_turn(*process);
            self.inherit(*process);
            if self.stopping.is_some_and(|(it, _)| it == *process) {
                continue;
            }
            if let Some(turn) = &mut self.world.turn {
                turn.until = Some(*until);
            }
            self.set_trap(percent);
            let (trap, lives, kept) = (self.world.trap, self.world.lives, self.world.kept_back);
            self.world.run(at);
            if let (Some(trap), None) = (trap, self.world.trap)
                && self.world.lives != lives
            {
                self.meet(ChainPath::of(trap.at, self.world.searches));
                self.is_down();
            }
            if self.world.kept_back > kept {
                self.meet(ChainPath::LeaveEnded);
            }
            self.caught_up(*process);
        }
        self.world.pass_to(at);
        for process in self.living() {
            let stops = self.stopping.filter(|(it, _)| *it == process);
            if stops.is_some() || !turns.contains_key(&process) {
                self.goes_on(process);
                if let Some(turn) = &mut self.world.turn {
                    turn.until = None;
                }
                self.world.on_event();
            }
            if stops.is_some_and(|(_, until)| at >= until || !self.world.is_under_way()) {
                self.stop();
            }
        }
    }

    /// It stood still for longer than it was to run: the others and the brokers did not.
    fn caught_up(&mut self, process: usize) {
        if self.lease_at >= self.world.truth {
            return;
        }
        let stood = self.world.truth.since(calls::epoch());
        self.lease.freeze(process, stood);
        while self.lease_at < self.world.truth {
            self.lease_at = self.lease_at.plus(STEP);
            self.lease.step(self.lease_time());
            self.turns_to_send();
        }
    }

    fn has_turn(&mut self, process: usize) {
        let before = self.holder.replace(process);
        let Some(before) = before.filter(|it| *it != process) else {
            return;
        };
        self.changes += 1;
        if self.froze.remove(&before) {
            self.meet(ChainPath::Frozen);
        }
        match self.died.remove(&before) {
            true => self.meet(ChainPath::TurnInherited),
            false => self.meet(ChainPath::TurnPassed),
        }
        self.died.remove(&process);
        self.froze.remove(&process);
    }

    /// Who is to be started again reads on from the offset that its disk holds.
    fn start_again(&mut self) {
        for process in self.living() {
            if !self.down.remove(&process) {
                continue;
            }
            self.goes_on(process);
            self.world.strike_down();
            let now = self.world.now.wall;
            self.readers[process] = StreamReader::begin(&self.world.disk, now);
        }
    }

    /// What befalls who sends between two of its steps.
    fn misfortunes(&mut self, percent: u64) {
        self.disk_fails = self.disk_fails.saturating_sub(1);
        if self.disk_fails == 0 {
            self.mend_disks();
        }
        let holder = self.holder.filter(|it| self.living().contains(it));
        let Some(holder) = holder.filter(|_| percent > 0) else {
            return;
        };
        self.goes_on(holder);
        let searching = self.world.is_searching();
        if searching && self.dice.chance(10) {
            self.die(ChainPath::PageUnderWay);
        } else if searching && self.disk_fails == 0 && self.dice.chance(30) {
            self.meet(ChainPath::PageDiskFailed);
            self.disk_fails = FAILS_FOR;
            self.world.disk.health = Health::Failing;
        } else if self.world.is_under_way() && self.dice.below(UNDER_WAY_OF) < percent {
            self.die(ChainPath::UnderWay);
        } else if self.stopping.is_none() && self.dice.below(UNDER_WAY_OF) < percent {
            self.stop_holder();
        } else if self.world.is_under_way() && self.dice.below(UNDER_WAY_OF) < percent {
            let until = self.lease_time() + Duration::from_secs(20 + self.dice.below(200));
            self.lease.freeze(holder, until);
            self.froze.insert(holder);
        }
    }

    fn mend_disks(&mut self) {
        for process in 0..self.lease.processes() {
            self.goes_on(process);
            self.world.disk.health = Health::Sound;
        }
    }

    /// The queue feeds the other from now on, and neither is told.
    pub fn pass_on(&mut self) {
        self.lease.pass_on();
    }

    /// The machine of who sends, or sent last, is gone with its disk; another begins from nothing.
    pub fn lose_state(&mut self) {
        self.meet(ChainPath::StateLost);
        self.goes_on(self.holder.unwrap_or(0));
        let now = self.world.now.wall;
        self.world.lose_state(Duration::ZERO, fresh(now));
        self.is_down();
    }

    /// Nothing is under way anywhere; what a standby had sent when it lost its turn it will ask for
    /// when it has it again.
    pub fn is_drained(&mut self) -> bool {
        let told = self.collectors.iter().all(SimCollector::is_done);
        let read = self.readers.iter().all(|it| it.has_read(&self.stream));
        let all = u64::try_from(self.calls.len()).expect("few");
        let books = self.holders_disk().store.books();
        told && read && self.down.is_empty() && books.journaled >= all && books.settled()
    }

    /// The disk of who sent last.
    pub fn holders_disk(&mut self) -> &Disk {
        self.goes_on(self.holder.unwrap_or(0));
        &self.world.disk
    }

    /// What the spools have counted.
    pub fn count_settled(&mut self) {
        for process in 0..self.lease.processes() {
            self.goes_on(process);
            let counted = tables::peer_outcomes::possibly_sent_calls(&self.world.disk.store);
            let counted = counted.expect("readable");
            for (path, times) in [
                (ChainPath::PageSettled, counted.found),
                (ChainPath::OutcomeHeard, counted.settled),
            ] {
                if times > 0 {
                    *self.met.entry(path).or_default() += times;
                }
            }
            self.world.disk.recount();
            let books = self.world.disk.store.books();
            let kept = books.journaled + books.submitted + books.ready;
            assert_eq!(kept, self.calls.len() as u64, "{process}: {books:?}");
        }
    }
}
