//! What each process sends, and when it arrives: whatever happens, no window of the service may
//! hold more than it allows.

use crate::model::{Chance, LeaseModel};
use callbridge_fleet::lease::claim::HOLDS_FOR;
use std::time::Duration;

/// So many requests in one window.
pub const LIMIT: usize = 5;
pub const WINDOW: Duration = Duration::from_secs(60);
/// A request without an answer is given up, and arrives within [`STRAGGLER`] of that.
const TIME_OUT: Duration = Duration::from_secs(30);
const STRAGGLER: Duration = Duration::from_secs(5);
/// A process that is stopped waits for answers for so long.
const FINISH: Duration = Duration::from_secs(8);

/// A request under way, in true time.
#[derive(Clone, Copy, Debug)]
struct Flight {
    arrives: Duration,
    ends: Duration,
}

/// Of one process. Its own slots are counted without a fault of its clock, which is not what is
/// asked about here; what it inherits is counted by its clock.
#[derive(Clone, Debug, Default)]
struct Sender {
    lives: u32,
    flights: Vec<Flight>,
    /// True times at which requests ended.
    ended: Vec<Duration>,
    /// By the own clock.
    inherited: Vec<Duration>,
    stops_at: Option<Duration>,
}

/// All of them, and what arrived.
pub struct Requests {
    senders: Vec<Sender>,
    arrivals: Vec<Duration>,
    /// One step in so many, who sends is stopped; never where it is 0.
    stops: u64,
    /// Stops in order.
    pub stopped: u32,
    /// Turns that were taken over without silence.
    pub inherited: u32,
}

impl Requests {
    pub fn new(processes: usize, stops: u64) -> Self {
        Self {
            senders: vec![Sender::default(); processes],
            arrivals: Vec::new(),
            stops,
            stopped: 0,
            inherited: 0,
        }
    }

    /// A step to this moment of everybody.
    pub fn step(&mut self, now: Duration, model: &mut LeaseModel) {
        for at in 0..self.senders.len() {
            let sender = &mut self.senders[at];
            if sender.lives != model.lives(at) {
                // killed: what is under way arrives or does not
                self.arrivals
                    .extend(sender.flights.iter().map(|it| it.arrives));
                *sender = Sender {
                    lives: model.lives(at),
                    ..Sender::default()
                };
            }
            sender.land(now, &mut self.arrivals);
            if model.is_frozen(now, at) {
                continue;
            }
            let inherited = model.take_inherited(at);
            self.inherited += u32::from(!inherited.is_empty());
            sender.inherited.extend(inherited);
            let may_send = model.leave(now, at).is_some();
            if let Some(stops_at) = sender.stops_at {
                if sender.flights.is_empty() || now >= stops_at {
                    let ended = sender.left(now, model, at);
                    self.arrivals
                        .extend(sender.given_up(now, &mut model.chance));
                    let again = now + Duration::from_secs(model.chance.below(400));
                    self.stopped += 1;
                    model.stop(now, at, &ended, again);
                }
            } else if may_send && self.stops > 0 && model.chance.one_in(self.stops) {
                sender.stops_at = Some(now + FINISH);
            } else if may_send && sender.used(now, model.clock(now, at)) < LIMIT {
                sender.flights.push(Flight::new(now, &mut model.chance));
            }
        }
    }

    /// The most that arrived in one window, wherever it begins.
    pub fn highest_window(&self) -> usize {
        let mut arrivals = self.arrivals.clone();
        arrivals.sort_unstable();
        let from = |(first, at): (usize, &Duration)| {
            let within = arrivals[first..]
                .iter()
                .take_while(|it| **it < *at + WINDOW);
            within.count()
        };
        arrivals.iter().enumerate().map(from).max().unwrap_or(0)
    }
}

impl Flight {
    fn new(now: Duration, chance: &mut Chance) -> Self {
        let millis = |it: Duration| u64::try_from(it.as_millis()).expect("short");
        let (within, ends) = match chance.below(20) {
            0 => (TIME_OUT + STRAGGLER, TIME_OUT + STRAGGLER),
            1 | 2 => {
                let ends = Duration::from_millis(chance.below(millis(TIME_OUT)));
                (ends, ends)
            }
            _ => (Duration::from_millis(200), Duration::from_millis(200)),
        };
        let arrives = now + Duration::from_millis(chance.below(millis(within) + 1));
        Self {
            arrives,
            ends: now + ends,
        }
    }
}

impl Sender {
    fn land(&mut self, now: Duration, arrivals: &mut Vec<Duration>) {
        for flight in self.flights.extract_if(.., |it| it.ends <= now) {
            arrivals.push(flight.arrives);
            self.ended.push(flight.ends);
        }
    }

    fn used(&mut self, now: Duration, own: Duration) -> usize {
        self.ended.retain(|ended| *ended + WINDOW > now);
        self.inherited.retain(|ended| *ended + WINDOW > own);
        self.flights.len() + self.ended.len() + self.inherited.len()
    }

    /// When all that may still count ended, by the own clock.
    fn left(&mut self, now: Duration, model: &LeaseModel, at: usize) -> Vec<Duration> {
        let own = model.clock(now, at);
        self.used(now, own);
        let ended = self.ended.iter().map(|it| model.clock(*it, at));
        let under_way = self.flights.iter().map(|_| own + STRAGGLER);
        let inherited = self.inherited.iter().copied();
        ended.chain(under_way).chain(inherited).collect()
    }

    /// Requests whose connections are closed now: when they arrive.
    fn given_up(&mut self, now: Duration, chance: &mut Chance) -> Vec<Duration> {
        let flights = std::mem::take(&mut self.flights);
        let latest = now + Duration::from_secs(chance.below(STRAGGLER.as_secs()));
        flights.iter().map(|it| it.arrives.min(latest)).collect()
    }
}

const _: () = assert!(HOLDS_FOR.as_secs() > FINISH.as_secs());
