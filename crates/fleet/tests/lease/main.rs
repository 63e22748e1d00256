//! Do two processes ever have leave at once, or one so soon after the other that a window could
//! hold the requests of both?

#[allow(dead_code, reason = "the simulation of the whole chain uses the rest")]
mod model;
mod requests;

use callbridge_fleet::lease::claim::{HOLDS_FOR, TICK_EVERY, Terms};
use model::{BrokerWeather, LeaseModel, STEP};
use requests::{LIMIT, Requests};
use std::collections::BTreeSet;
use std::time::Duration;

const REQUEST: Duration = Duration::from_secs(35);
const WINDOW: Duration = Duration::from_secs(60);
/// What a run came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    /// Requests that left too soon after another's, and directly after leave was asked for.
    faults: u32,
    /// The same of requests that were frozen between the two.
    late: u32,
    /// Times that leave passed from one to another.
    takeovers: u32,
    /// Steps in which somebody had leave.
    held: u32,
}

struct World {
    model: LeaseModel,
    /// Processes freeze between asking for leave and writing.
    freezes_before_write: bool,
    /// They froze after they had asked for leave, and before the bytes left.
    writes_late: BTreeSet<usize>,
    /// Who had leave last, and when.
    last: Option<(usize, Duration)>,
    seen: Seen,
}

impl World {
    fn new(seed: u64, weather: BrokerWeather) -> Self {
        Self {
            model: LeaseModel::new(seed, weather, Terms::new(REQUEST, WINDOW)),
            freezes_before_write: false,
            writes_late: BTreeSet::new(),
            last: None,
            seen: Seen::default(),
        }
    }

    /// A request of another may still arrive, or be counted in the window of this one.
    fn is_too_soon(&self, now: Duration, at: usize) -> bool {
        let last = self.last.filter(|(before, _)| *before != at);
        last.is_some_and(|(_, last)| now < last + REQUEST + WINDOW)
    }

    /// Whoever has leave sends: nobody else may, nor may have a while ago.
    fn judge(&mut self, now: Duration) {
        for at in 0..self.model.processes() {
            if !self.model.is_frozen(now, at) && self.writes_late.remove(&at) {
                self.seen.late += u32::from(self.is_too_soon(now, at));
            }
            if self.model.leave(now, at).is_none() {
                continue;
            }
            if self.freezes_before_write && self.model.chance.one_in(2_000) {
                let seconds = self.model.chance.below(300);
                self.model.freeze(at, now + Duration::from_secs(seconds));
                self.writes_late.insert(at);
                continue;
            }
            self.seen.held += 1;
            self.seen.faults += u32::from(self.is_too_soon(now, at));
            let another = self.last.is_some_and(|(before, _)| before != at);
            self.seen.takeovers += u32::from(another);
            self.last = Some((at, now));
        }
    }

    fn run(mut self, time: Duration) -> Seen {
        let mut now = Duration::ZERO;
        while now < time {
            now += STEP;
            self.model.step(now);
            self.judge(now);
        }
        self.seen
    }
}

const CALM: BrokerWeather = BrokerWeather {
    processes: 2,
    passes: 20_000,
    mishaps: 20_000,
    delay: 2_000,
    tells_redelivered: true,
};

fn all(seeds: u64, weather: impl Fn(u64) -> BrokerWeather) -> Seen {
    let mut sum = Seen::default();
    for seed in 1..=seeds {
        let weather = weather(seed);
        let seen = World::new(seed, weather).run(Duration::from_secs(3600));
        assert_eq!(seen.faults, 0, "seed {seed}, {weather:?}: {seen:?}");
        sum.takeovers += seen.takeovers;
        sum.held += seen.held;
    }
    sum
}

#[test]
fn no_two_have_leave_at_once_nor_within_a_request_and_a_window_of_each_other() {
    let processes = |seed| 2 + usize::try_from(seed % 3).expect("small");
    let calm = all(16, |seed| BrokerWeather {
        processes: processes(seed),
        ..CALM
    });
    assert!(calm.takeovers > 10, "{calm:?}");
    let hours = 16 * 3600 * 20;
    assert!(calm.held > hours / 2, "{calm:?}");
    let rough = all(16, |seed| BrokerWeather {
        processes: processes(seed),
        passes: 4_000,
        mishaps: 4_000,
        delay: 12_000,
        ..CALM
    });
    assert!(rough.takeovers > 5, "{rough:?}");
}

/// Both are fed often enough for ticks to count all along: only what is handed on tells them.
#[test]
fn a_queue_that_passes_to_and_fro_every_few_seconds_gives_leave_to_nobody() {
    for passes in [20, 60, 100] {
        let torn = all(6, |_| BrokerWeather { passes, ..CALM });
        assert_eq!((torn.held, torn.takeovers), (0, 0), "{passes}: {torn:?}");
    }
}

/// The rules rest on redelivery being told: a broker that hides it is found out here, and so is a
/// simulation that could not tell.
#[test]
fn a_broker_that_did_not_tell_of_redelivery_would_let_two_send() {
    let mut faults = 0;
    for seed in 1..=20 {
        let weather = BrokerWeather {
            passes: 60,
            tells_redelivered: false,
            ..CALM
        };
        let seen = World::new(seed, weather).run(Duration::from_secs(3600));
        faults += seen.faults;
    }
    assert!(faults > 0);
}

/// What is left: a process that is frozen between asking and writing. Nothing else comes too soon
/// then either.
#[test]
fn only_what_is_frozen_between_asking_and_writing_comes_too_soon() {
    let mut late = 0;
    for seed in 1..=10 {
        let world = World {
            freezes_before_write: true,
            ..World::new(seed, CALM)
        };
        let seen = world.run(Duration::from_secs(3600));
        assert_eq!(seen.faults, 0, "seed {seed}: {seen:?}");
        late += seen.late;
    }
    assert!(late > 0);
}

/// An hour of this weather in which who sends is stopped in order, one step in so many.
fn with_stops(seed: u64, weather: BrokerWeather, stops: u64) -> Requests {
    let mut model = LeaseModel::new(seed, weather, Terms::new(REQUEST, WINDOW));
    let mut requests = Requests::new(weather.processes, stops);
    let mut now = Duration::ZERO;
    while now < Duration::from_secs(3600) {
        now += STEP;
        model.step(now);
        requests.step(now, &mut model);
    }
    requests
}

/// The last tick of who stops is lost, late by minutes or doubled; the queue passes meanwhile, and
/// others die, freeze and reconnect.
#[test]
fn whoever_is_stopped_in_order_is_followed_without_silence_and_no_window_holds_more() {
    let (mut stopped, mut inherited) = (0, 0);
    let rough = BrokerWeather {
        passes: 6_000,
        mishaps: 6_000,
        delay: 12_000,
        ..CALM
    };
    let torn = BrokerWeather {
        passes: 1_500,
        ..CALM
    };
    for (name, weather, seeds) in [("calm", CALM, 24), ("rough", rough, 40), ("torn", torn, 24)] {
        for seed in 1..=seeds {
            let processes = 2 + usize::try_from(seed % 3).expect("small");
            let weather = BrokerWeather {
                processes,
                ..weather
            };
            let requests = with_stops(seed, weather, 1_500);
            let highest = requests.highest_window();
            assert!(
                highest <= LIMIT,
                "{name}, seed {seed}: {highest} in a window"
            );
            stopped += requests.stopped;
            inherited += requests.inherited;
        }
    }
    println!("{stopped} stops, {inherited} turns taken over without silence");
    assert!(
        inherited > 300 && stopped > inherited,
        "{stopped} {inherited}"
    );
}

#[test]
fn the_same_seed_is_the_same_run() {
    let run = || World::new(7, CALM).run(Duration::from_secs(1200));
    assert_eq!(run(), run());
    assert!(HOLDS_FOR > 3 * TICK_EVERY);
}
