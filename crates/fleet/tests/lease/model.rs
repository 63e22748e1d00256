//! Processes with a [`Claim`] each, around a quorum queue with a single active consumer.
//!
//! The broker is a log: what is committed has one order, one consumer is fed at a time, what it
//! has not acknowledged goes back to the front when it is fed no more. All that a real one may do
//! happens by chance, from one seed: ticks take long or are lost, deliveries and acknowledgements
//! are late, the queue passes from one to the next without a word to either, and back; a consumer
//! on the minority side is fed nothing new and told nothing; processes freeze, die, begin anew;
//! each clock runs at a rate of its own.

use callbridge_fleet::lease::claim::{Claim, Delivered, TICK_EVERY, Terms};
use callbridge_fleet::lease::tick::{SlotAges, TickId, TurnId};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// One step of true time.
pub const STEP: Duration = Duration::from_millis(50);
/// Clocks run apart by so much: each by 1 in 100 of true time, either way.
const DRIFT_PER_MILLE: u64 = 10;
/// A last tick may be on its way for as long as others need to take over and to hold.
const LAST_LATE_MILLIS: u64 = 250_000;

/// xorshift: the same seed is the same run.
pub struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, most: u64) -> u64 {
        self.next() % most.max(1)
    }

    /// One time in so many.
    pub fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }
}

#[derive(Clone, Debug)]
struct Message {
    tick: TickId,
    turn: Option<TurnId>,
    slots: Option<SlotAges>,
    handed_on: bool,
}

/// Of one connection of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Consumer {
    process: usize,
    connection: u32,
}

/// What the majority has agreed on.
#[derive(Default)]
struct Queue {
    returned: VecDeque<Message>,
    ready: VecDeque<Message>,
    /// The first of them is fed.
    consumers: VecDeque<Consumer>,
    /// What the one that is fed was given and has not acknowledged, by its tag.
    given: VecDeque<(u64, Message)>,
    tags: BTreeMap<Consumer, u64>,
}

impl Queue {
    /// Whoever was fed is fed no more, and is behind all others or gone.
    fn pass_on(&mut self, gone: bool) {
        let Some(before) = self.consumers.pop_front() else {
            return;
        };
        while let Some((_, message)) = self.given.pop_back() {
            self.returned.push_front(Message {
                handed_on: true,
                ..message
            });
        }
        if !gone {
            self.consumers.push_back(before);
        }
    }

    fn leave(&mut self, consumer: Consumer) {
        if self.consumers.front() == Some(&consumer) {
            self.pass_on(true);
        } else {
            self.consumers.retain(|it| *it != consumer);
        }
    }

    fn acknowledge(&mut self, consumer: Consumer, through: u64) {
        if self.consumers.front() == Some(&consumer) {
            self.given.retain(|(tag, _)| *tag > through);
        }
    }

    /// The next delivery, what was handed back first.
    fn feed(&mut self) -> Option<(Consumer, Delivered)> {
        let consumer = *self.consumers.front()?;
        let message = self.returned.pop_front();
        let message = message.or_else(|| self.ready.pop_front())?;
        let tag = self.tags.entry(consumer).or_default();
        *tag += 1;
        self.given.push_back((*tag, message.clone()));
        let delivered = Delivered {
            tag: *tag,
            tick: Some(message.tick),
            turn: message.turn,
            slots: message.slots,
            redelivered: message.handed_on,
        };
        Some((consumer, delivered))
    }
}

/// One process, by its own clock.
struct Process {
    claim: Claim,
    connection: u32,
    /// It has one; else it opens one when it turns next.
    connected: bool,
    frozen_until: Duration,
    /// The own clock is this far ahead, and runs at so many per mille of true time.
    ahead: Duration,
    rate: u64,
    next_tick: Duration,
    /// Deliveries on their way, with when they come at the earliest; their order is kept.
    coming: VecDeque<(Duration, Delivered)>,
    /// Acknowledgements on their way.
    going: VecDeque<(Duration, u64)>,
    /// Leave as it was last given out; it is asked for by the own clock.
    leave: Option<Duration>,
    /// When requests ended that another has left, by the own clock.
    inherited: Vec<Duration>,
    /// How often it was started again.
    lives: u32,
}

impl Process {
    fn new(terms: Terms, chance: &mut Chance) -> Self {
        Self {
            claim: Claim::new(terms),
            connection: 0,
            connected: true,
            frozen_until: Duration::ZERO,
            ahead: Duration::from_secs(chance.below(100_000)),
            rate: 1000 - DRIFT_PER_MILLE + chance.below(2 * DRIFT_PER_MILLE + 1),
            next_tick: Duration::ZERO,
            coming: VecDeque::new(),
            going: VecDeque::new(),
            leave: None,
            inherited: Vec::new(),
            lives: 0,
        }
    }

    /// The own clock at this true time.
    fn clock(&self, now: Duration) -> Duration {
        let micros = now.as_micros() * u128::from(self.rate) / 1000;
        self.ahead + Duration::from_micros(u64::try_from(micros).expect("small"))
    }

    /// Until when it has leave, in true time.
    fn leave(&self, now: Duration) -> Option<Duration> {
        let own = self.leave.filter(|until| self.clock(now) < *until)?;
        let micros = (own - self.ahead).as_micros() * 1000 / u128::from(self.rate);
        Some(Duration::from_micros(u64::try_from(micros).expect("small")))
    }

    fn check(&mut self, now: Duration) {
        let own = self.clock(now);
        self.claim.check(own);
        self.leave = self.claim.leave(own);
    }
}

/// How rough it is.
#[derive(Clone, Copy, Debug)]
pub struct BrokerWeather {
    pub processes: usize,
    /// One step in so many: the queue passes on without a word.
    pub passes: u64,
    /// One step in so many for each process: it freezes, loses its line, dies. Never where it is 0.
    pub mishaps: u64,
    /// The longest that a message is under way, in milliseconds.
    pub delay: u64,
    /// What was delivered before is told as such; without it the rules have nothing to stand on.
    pub tells_redelivered: bool,
}

/// The next of what has come by now.
fn due<T>(coming: &mut VecDeque<(Duration, T)>, now: Duration) -> Option<T> {
    coming.front().filter(|(at, _)| *at <= now)?;
    coming.pop_front().map(|(_, it)| it)
}

/// See the module.
pub struct LeaseModel {
    pub chance: Chance,
    weather: BrokerWeather,
    terms: Terms,
    queue: Queue,
    processes: Vec<Process>,
    /// Ticks on their way to the queue, with when they are committed.
    published: Vec<(Duration, Message)>,
    next_id: u128,
}

impl LeaseModel {
    /// All of its processes begin at once.
    pub fn new(seed: u64, weather: BrokerWeather, terms: Terms) -> Self {
        let mut chance = Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let processes = (0..weather.processes).map(|_| Process::new(terms, &mut chance));
        let processes = processes.collect();
        let mut model = Self {
            chance,
            weather,
            terms,
            queue: Queue::default(),
            processes,
            published: Vec::new(),
            next_id: 0,
        };
        for process in 0..weather.processes {
            model.connect(Duration::ZERO, process);
        }
        model
    }

    /// A step to this moment.
    pub fn step(&mut self, now: Duration) {
        self.mishaps(now);
        self.broker(now);
        for at in 0..self.processes.len() {
            self.process(now, at);
        }
    }

    /// How many processes there are.
    pub fn processes(&self) -> usize {
        self.processes.len()
    }

    /// Until when this one may send, where it may.
    pub fn leave(&self, now: Duration, at: usize) -> Option<Duration> {
        let process = &self.processes[at];
        (now >= process.frozen_until).then(|| process.leave(now))?
    }

    /// It does nothing now.
    pub fn is_frozen(&self, now: Duration, at: usize) -> bool {
        now < self.processes[at].frozen_until
    }

    /// The queue feeds the next from now on, without a word to anybody.
    pub fn pass_on(&mut self) {
        self.queue.pass_on(false);
    }

    /// The own clock of this one.
    pub fn clock(&self, now: Duration, at: usize) -> Duration {
        self.processes[at].clock(now)
    }

    /// How often this one was started again.
    pub fn lives(&self, at: usize) -> u32 {
        self.processes[at].lives
    }

    /// When requests ended that another has left to this one, by its own clock; told once.
    pub fn take_inherited(&mut self, at: usize) -> Vec<Duration> {
        std::mem::take(&mut self.processes[at].inherited)
    }

    /// It is stopped in order, with requests that ended then by its own clock, and is started
    /// again at `again`. Its last tick is lost, late or doubled by chance.
    pub fn stop(&mut self, now: Duration, at: usize, ended: &[Duration], again: Duration) {
        let process = &self.processes[at];
        let own = process.clock(now);
        if let Some(turn) = process.claim.turn(own) {
            let slots = SlotAges::new(self.terms.window, ended, own);
            self.next_id += 1;
            let last = Message {
                tick: TickId(uuid::Uuid::from_u128(self.next_id)),
                turn: Some(turn),
                slots,
                handed_on: false,
            };
            let times = match self.chance.below(6) {
                0 => 0,
                1 => 2,
                _ => 1,
            };
            for _ in 0..times {
                let late = match self.chance.one_in(3) {
                    true => Duration::from_millis(self.chance.below(LAST_LATE_MILLIS)),
                    false => Duration::ZERO,
                };
                let committed = self.soon(now) + late;
                self.published.push((committed, last.clone()));
            }
        }
        self.die(at, again);
    }

    /// It does nothing until then.
    pub fn freeze(&mut self, at: usize, until: Duration) {
        self.processes[at].frozen_until = until;
    }

    /// It dies, and another is started in its place then.
    pub fn die(&mut self, at: usize, again: Duration) {
        let (connection, clock) = {
            let it = &self.processes[at];
            (it.connection, (it.ahead, it.rate))
        };
        let mut new = Process::new(self.terms, &mut self.chance);
        (new.connection, (new.ahead, new.rate)) = (connection, clock);
        new.lives = self.processes[at].lives + 1;
        (new.connected, new.frozen_until) = (false, again);
        self.processes[at] = new;
        self.hang_up(at);
    }

    fn consumer(&self, process: usize) -> Consumer {
        let connection = self.processes[process].connection;
        Consumer {
            process,
            connection,
        }
    }

    fn hang_up(&mut self, at: usize) {
        let before = self.consumer(at);
        // the broker may hear of the end later than the process
        if self.chance.one_in(2) {
            self.queue.leave(before);
        }
        let process = &mut self.processes[at];
        process.connection += 1;
        process.coming.clear();
        process.going.clear();
    }

    fn connect(&mut self, now: Duration, at: usize) {
        self.hang_up(at);
        let process = &mut self.processes[at];
        process.connected = true;
        process.claim.channel_opened();
        process.next_tick = now;
        let consumer = self.consumer(at);
        self.queue.consumers.push_back(consumer);
    }

    fn soon(&mut self, now: Duration) -> Duration {
        // most are quick, some take as long as they like
        let most = if self.chance.one_in(20) {
            self.weather.delay
        } else {
            100
        };
        now + Duration::from_millis(self.chance.below(most + 1))
    }

    fn mishaps(&mut self, now: Duration) {
        if self.chance.one_in(self.weather.passes) {
            let fed = self.queue.consumers.front().copied();
            let gone = self.chance.one_in(3);
            self.queue.pass_on(gone);
            let told = fed.filter(|it| gone && *it == self.consumer(it.process));
            if let Some(consumer) = told {
                self.connect(now, consumer.process);
            }
        }
        // the broker finds out that a connection has ended
        let living: Vec<Consumer> = (0..self.processes.len())
            .map(|it| self.consumer(it))
            .collect();
        let dead = self.queue.consumers.iter().copied();
        let dead: Vec<Consumer> = dead.filter(|it| !living.contains(it)).collect();
        for consumer in dead {
            if self.chance.one_in(100) {
                self.queue.leave(consumer);
            }
        }
        for at in 0..self.processes.len() {
            if self.weather.mishaps == 0 || !self.chance.one_in(self.weather.mishaps) {
                continue;
            }
            match self.chance.below(4) {
                0 => {
                    let seconds = self.chance.below(40);
                    self.freeze(at, now + Duration::from_secs(seconds));
                }
                1 | 2 => self.connect(now, at),
                _ => self.die(at, now),
            }
        }
    }

    fn broker(&mut self, now: Duration) {
        let (committed, waiting) = std::mem::take(&mut self.published)
            .into_iter()
            .partition(|(at, _)| *at <= now);
        self.published = waiting;
        let committed: Vec<(Duration, Message)> = committed;
        let committed = committed.into_iter().map(|(_, message)| message);
        self.queue.ready.extend(committed);
        while let Some((consumer, mut delivered)) = self.queue.feed() {
            delivered.redelivered &= self.weather.tells_redelivered;
            let at = self.soon(now);
            let process = &mut self.processes[consumer.process];
            if process.connection == consumer.connection {
                let last = process.coming.back().map_or(at, |(last, _)| *last);
                process.coming.push_back((at.max(last), delivered));
            }
        }
    }

    fn process(&mut self, now: Duration, at: usize) {
        if now < self.processes[at].frozen_until {
            return;
        }
        if !self.processes[at].connected {
            self.connect(now, at);
        }
        self.processes[at].check(now);
        if self.processes[at].next_tick <= now {
            self.next_id += 1;
            let id = TickId(uuid::Uuid::from_u128(self.next_id));
            let committed = self.soon(now);
            let process = &mut self.processes[at];
            let own = process.clock(now);
            let turn = process.claim.publishing(own, id);
            process.next_tick = now + TICK_EVERY;
            // some are lost on the way
            if !self.chance.one_in(50) {
                let tick = Message {
                    tick: id,
                    turn,
                    slots: None,
                    handed_on: false,
                };
                self.published.push((committed, tick));
            }
        }
        while let Some(delivered) = due(&mut self.processes[at].coming, now) {
            let when = self.soon(now);
            let process = &mut self.processes[at];
            let own = process.clock(now);
            let receipt = process.claim.received(own, delivered);
            process
                .inherited
                .extend(receipt.inherited.unwrap_or_default());
            if let Some(through) = receipt.ack_through {
                let last = process.going.back().map_or(when, |(last, _)| *last);
                process.going.push_back((when.max(last), through));
            }
            process.check(now);
        }
        let consumer = self.consumer(at);
        while let Some(through) = due(&mut self.processes[at].going, now) {
            self.queue.acknowledge(consumer, through);
        }
    }
}
