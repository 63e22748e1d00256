//! The number of requests in each window of the CRM, compared with simpler ways to keep the rate.
//!
//! Run it with `cargo bench --bench pace`. Everything runs in virtual time: an endless backlog, up
//! to four requests in flight, a network that delays them, and the sandbox's fixed window as the
//! judge. `a window` is the fullest window that the CRM opened, `any` the fullest 60 s with any
//! start. Both must stay at 60, and no answer may be a 429. Then the bench measures how
//! many requests a confirmed call needs, and how long the simulations of an hour and of a day take
//! (`-- --quick` leaves out both simulations).

#[path = "pace/backlog.rs"]
mod backlog;
#[path = "../tests/simulation/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the tests use more of it")]
mod simulation;
mod support {
    #[path = "../../tests/support/simulated_calls.rs"]
    #[allow(dead_code, reason = "the tests use more of it")]
    pub mod simulated_calls;
}
#[path = "support/table.rs"]
mod table;

use callbridge_call::EventTime;
use callbridge_sandbox::token::TokenKey;
use callbridge_sandbox::window::{Rate as Limit, Windows};
use callbridge_sender::Rate;
use callbridge_sender::pacer::{LOST_ARRIVE, Pace, Pacer};
use governor::clock::FakeRelativeClock;
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

/// Virtual time of each line.
const PLAYED: Duration = Duration::from_secs(6 * 3600);
/// Maximum requests in flight, as in the sender.
const UNDER_WAY_MAX: usize = 4;
/// Start of both clocks, so that no two times of a run are equal by rounding.
const BEGINS: i64 = 1_795_151_000;

/// Conditions of the network and the process.
#[derive(Clone, Copy)]
struct Weather {
    name: &'static str,
    /// Delay of each direction. Jitter adds up to `jitter_ms`.
    delay_ms: u64,
    jitter_ms: u64,
    /// One in this many messages stalls for 1 to 9 s.
    stall_one_in: Option<u64>,
    /// The process is killed and restarted at this interval.
    restart: Option<Duration>,
}

const WEATHERS: [Weather; 4] = [
    Weather {
        name: "0.5 s there and back",
        delay_ms: 250,
        jitter_ms: 0,
        stall_one_in: None,
        restart: None,
    },
    Weather {
        name: "jitter of 0 to 2 s",
        delay_ms: 20,
        jitter_ms: 1000,
        stall_one_in: None,
        restart: None,
    },
    Weather {
        name: "jitter, stalls of 1 to 9 s",
        delay_ms: 20,
        jitter_ms: 300,
        stall_one_in: Some(20),
        restart: None,
    },
    Weather {
        name: "the same, killed every 5 min",
        delay_ms: 20,
        jitter_ms: 300,
        stall_one_in: Some(20),
        restart: Some(Duration::from_secs(300)),
    },
];

/// A way to keep the rate. Times count from the start of the run.
trait Keeper {
    fn name(&self) -> &'static str;
    /// Takes a number for a request that can be sent now. The error is the time at which to ask
    /// again.
    fn take(&mut self, now: Duration) -> Result<u32, Option<Duration>>;
    fn answered(&mut self, number: u32, now: Duration);
    /// Restarts the process. It only knows what it has stored on disk.
    fn restart(&mut self, now: Duration);
}

struct OwnPacer(Pacer);

impl Keeper for OwnPacer {
    fn name(&self) -> &'static str {
        "callbridge"
    }

    fn take(&mut self, now: Duration) -> Result<u32, Option<Duration>> {
        self.0.take(now, Pace::Even)
    }

    fn answered(&mut self, number: u32, now: Duration) {
        self.0.note_end(number, now);
    }

    fn restart(&mut self, now: Duration) {
        let kept = self.0.uses(now).collect();
        self.0 = Pacer::start(Rate::SERVICE, kept, now, LOST_ARRIVE);
    }
}

/// `Quota::per_minute(60)`, used as in its manual.
struct Governor {
    clock: FakeRelativeClock,
    at: Duration,
    limiter: RateLimiter<NotKeyed, InMemoryState, FakeRelativeClock, NoOpMiddleware<Nanos>>,
}

type Nanos = governor::nanos::Nanos;

impl Governor {
    fn new() -> Self {
        let clock = FakeRelativeClock::default();
        let quota = Quota::per_minute(NonZeroU32::new(60).unwrap_or(NonZeroU32::MIN));
        Self {
            limiter: RateLimiter::direct_with_clock(quota, clock.clone()),
            clock,
            at: Duration::ZERO,
        }
    }
}

impl Keeper for Governor {
    fn name(&self) -> &'static str {
        "governor alone"
    }

    fn take(&mut self, now: Duration) -> Result<u32, Option<Duration>> {
        self.clock.advance(now.saturating_sub(self.at));
        self.at = now;
        let soon = now + Duration::from_millis(100);
        self.limiter.check().map(|()| 0).map_err(|_| Some(soon))
    }

    fn answered(&mut self, _: u32, _: Duration) {}

    fn restart(&mut self, _: Duration) {
        let at = self.at;
        *self = Self::new();
        self.clock.advance(at);
        self.at = at;
    }
}

/// A bucket of 60 tokens, which is refilled at the start of every minute.
#[derive(Default)]
struct Bucket {
    minute: u64,
    taken: u32,
}

impl Keeper for Bucket {
    fn name(&self) -> &'static str {
        "bucket, filled each minute"
    }

    fn take(&mut self, now: Duration) -> Result<u32, Option<Duration>> {
        if now.as_secs() / 60 != self.minute {
            (self.minute, self.taken) = (now.as_secs() / 60, 0);
        }
        if self.taken == 60 {
            return Err(Some(Duration::from_secs((self.minute + 1) * 60)));
        }
        self.taken += 1;
        Ok(0)
    }

    fn answered(&mut self, _: u32, _: Duration) {}

    fn restart(&mut self, _: Duration) {
        self.taken = 0;
    }
}

/// A list of the requests sent in the last minute.
#[derive(Default)]
struct Sendings(VecDeque<Duration>);

impl Keeper for Sendings {
    fn name(&self) -> &'static str {
        "sendings of the last minute"
    }

    fn take(&mut self, now: Duration) -> Result<u32, Option<Duration>> {
        let minute = Duration::from_secs(60);
        while self.0.front().is_some_and(|&at| at + minute <= now) {
            self.0.pop_front();
        }
        if self.0.len() == 60 {
            return Err(self.0.front().map(|&at| at + minute));
        }
        self.0.push_back(now);
        Ok(0)
    }

    fn answered(&mut self, _: u32, _: Duration) {}

    fn restart(&mut self, _: Duration) {
        self.0.clear();
    }
}

/// A random generator with the same numbers in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit.max(1)
    }

    fn delay(&mut self, weather: &Weather) -> Duration {
        let stalled = weather.stall_one_in.is_some_and(|n| self.below(n) == 0);
        let stall = if stalled { 1000 + self.below(8000) } else { 0 };
        Duration::from_millis(weather.delay_ms + self.below(weather.jitter_ms) + stall)
    }
}

enum Event {
    /// A request reaches the CRM. `None` if its sender was killed, so no answer is expected.
    Arrival(Option<u32>),
    Answer(u32),
    Kill,
}

/// Requests that the CRM accepted and refused.
#[derive(Default)]
struct RequestCounts {
    accepted: u64,
    refused: u64,
}

/// The state of a client, the network, and the CRM.
struct Run<'k> {
    keeper: &'k mut dyn Keeper,
    weather: Weather,
    now: Duration,
    events: BTreeMap<(Duration, u64), Event>,
    order: u64,
    under_way: usize,
    dice: Dice,
    windows: Windows,
    token: TokenKey,
    seen: RequestCounts,
}

impl<'k> Run<'k> {
    fn new(keeper: &'k mut dyn Keeper, weather: Weather) -> Self {
        let mut run = Self {
            keeper,
            weather,
            now: Duration::ZERO,
            events: BTreeMap::new(),
            order: 0,
            under_way: 0,
            dice: Dice(0x9e37_79b9_7f4a_7c15),
            windows: Windows::new(Limit::default()),
            token: TokenKey::from_value("svc_pat_bench"),
            seen: RequestCounts::default(),
        };
        if let Some(every) = weather.restart {
            run.add(every, Event::Kill);
        }
        run
    }

    fn add(&mut self, at: Duration, event: Event) {
        self.order += 1;
        self.events.insert((at, self.order), event);
    }

    fn play(&mut self) {
        while self.now < PLAYED {
            let again = self.send();
            let next = self.events.keys().next().map(|(at, _)| *at);
            let Some(moment) = next.into_iter().chain(again).min() else {
                return;
            };
            self.now = moment.max(self.now);
            while let Some(entry) = self.events.first_entry() {
                if entry.key().0 > self.now {
                    break;
                }
                let event = entry.remove();
                self.handle(event);
            }
        }
    }

    /// Sends all requests that can be sent. Returns when to ask again, if that is known.
    fn send(&mut self) -> Option<Duration> {
        while self.under_way < UNDER_WAY_MAX {
            match self.keeper.take(self.now) {
                Ok(number) => {
                    self.under_way += 1;
                    let delay = self.dice.delay(&self.weather);
                    self.add(self.now + delay, Event::Arrival(Some(number)));
                }
                Err(again) => return again,
            }
        }
        None
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrival(number) => {
                let wall = EventTime::from_seconds(BEGINS).plus(self.now);
                let within = self.windows.count(self.token, wall).within;
                self.seen.accepted += u64::from(within);
                self.seen.refused += u64::from(!within);
                if let Some(number) = number {
                    let delay = self.dice.delay(&self.weather);
                    self.add(self.now + delay, Event::Answer(number));
                }
            }
            Event::Answer(number) => {
                self.under_way -= 1;
                self.keeper.answered(number, self.now);
            }
            Event::Kill => {
                self.keeper.restart(self.now);
                self.under_way = 0;
                // Requests that were sent can still arrive, but only within 5 s.
                let closed = self.now + Duration::from_secs(5);
                self.events.retain(|(at, _), event| match event {
                    Event::Arrival(number) => {
                        *number = None;
                        *at < closed
                    }
                    Event::Answer(_) | Event::Kill => false,
                });
                let every = self.weather.restart.unwrap_or(PLAYED);
                self.add(self.now + every, Event::Kill);
            }
        }
    }
}

fn main() {
    let mut alone = Duration::ZERO;
    println!(
        "{:<30} {:<28} {:>8} {:>5} {:>7} {:>11}   to reach",
        "network and process", "pace kept by", "a window", "any", "429s", "accepted/min"
    );
    for weather in &WEATHERS {
        let start = Pacer::start(Rate::SERVICE, BTreeMap::new(), Duration::ZERO, LOST_ARRIVE);
        let keepers: [&mut dyn Keeper; 4] = [
            &mut OwnPacer(start),
            &mut Governor::new(),
            &mut Bucket::default(),
            &mut Sendings::default(),
        ];
        let mut shown = Vec::new();
        for (at, keeper) in keepers.into_iter().enumerate() {
            let name = if at == 0 { weather.name } else { "" };
            let by = keeper.name();
            let mut run = Run::new(keeper, *weather);
            let began = Instant::now();
            run.play();
            if at == 0 {
                alone += began.elapsed();
            }
            let (seen, fullest) = (&run.seen, run.windows.fullest);
            let minutes = PLAYED.as_secs_f64() / 60.0;
            let goal = if at == 0 { "60, 60, 0" } else { "" };
            println!(
                "{name:<30} {by:<28} {:>8} {:>5} {:>7} {:>11.1}   {goal}",
                fullest.in_a_window,
                fullest.in_any_span,
                seen.refused,
                seen.accepted as f64 / minutes,
            );
            shown.push(format!(
                "{}, {}, {}; {:.1} a minute",
                fullest.in_a_window,
                fullest.in_any_span,
                seen.refused,
                seen.accepted as f64 / minutes
            ));
        }
        let what = format!("fullest, 429s: {}", weather.name);
        let plain = format!("governor alone: {}; bucket: {}", shown[1], shown[2]);
        table::row("pace", &what, &shown[0], "60, 60, 0", &plain);
    }
    backlog::measure_confirmations();
    if !std::env::args().any(|word| word == "--quick") {
        let hours = 6 * WEATHERS.len();
        let alone = alone.as_secs_f64();
        backlog::measure_simulations(&format!("{hours} hours of the pacer alone: {alone:.2} s"));
    }
}
