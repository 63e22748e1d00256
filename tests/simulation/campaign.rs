//! Runs many seeds on all cores, and reports the paths that they met together.
//!
//! | variable | meaning |
//! |---|---|
//! | `CALLBRIDGE_SIM_SEEDS` | number of seeds |
//! | `CALLBRIDGE_SIM_SEED` | the only seed |
//! | `CALLBRIDGE_SIM_HOURS` | hours of 600 calls, instead of one |
//! | `CALLBRIDGE_SIM_DAYS` | saturated days of 86,400 calls instead |
//! | `CALLBRIDGE_SIM_LOG` | a file for the event log of the only seed |
//!
//! `tests/run simulate` sets these variables.

use crate::simulation::paths::Met;
use crate::simulation::scenario::{Length, Run};
use std::io::{IsTerminal as _, Write as _};
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Number of seeds in a plain `cargo test`.
const SEEDS: u64 = 8;

/// The first seed.
const FIRST: u64 = 304;

/// The variable with the seed of a process that prints only the hash of that seed.
const CHILD: &str = "CALLBRIDGE_SIM_CHILD";

/// Time between two displays of the progress on a terminal.
const SHOWN_EVERY: Duration = Duration::from_millis(500);

/// The result of a seed.
struct SeedResult {
    hash: u64,
    events: u64,
    met: Met,
}

fn run(seed: u64, length: Length) -> SeedResult {
    let mut run = Run::new(seed, length);
    if let (Some(_), Ok(path)) = (only_seed(), std::env::var("CALLBRIDGE_SIM_LOG")) {
        run.world.log.write_to(std::path::Path::new(&path));
    }
    run.faults();
    run.drain();
    run.judge();
    run.world.met.assert_possible();
    SeedResult {
        hash: run.world.log.hash(),
        events: run.world.log.events(),
        met: run.world.met,
    }
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

fn only_seed() -> Option<u64> {
    number("CALLBRIDGE_SIM_SEED")
}

fn length() -> Length {
    match (
        number("CALLBRIDGE_SIM_HOURS"),
        number("CALLBRIDGE_SIM_DAYS"),
    ) {
        (_, Some(days)) => Length {
            hours: 24 * days,
            calls_an_hour: 3600,
        },
        (Some(hours), None) => Length {
            hours,
            ..Length::default()
        },
        (None, None) => Length::default(),
    }
}

/// Returns the seeds of a run of this length.
pub fn seeds(length: Length) -> Range<u64> {
    if let Some(seed) = only_seed() {
        return seed..seed + 1;
    }
    let days = length.calls_an_hour > Length::default().calls_an_hour;
    let few = if days { 1 } else { SEEDS };
    FIRST..FIRST + number("CALLBRIDGE_SIM_SEEDS").unwrap_or(few)
}

/// Returns the command that runs this seed again.
fn replay(seed: u64, length: Length) -> String {
    let mut line = format!("tests/run simulate --seed {seed}");
    if length.calls_an_hour > 600 {
        line.push_str(&format!(" --days {}", length.hours / 24));
    } else if length != Length::default() {
        line.push_str(&format!(" --hours {}", length.hours));
    }
    line
}

/// The state that the threads share.
struct Shared {
    next: u64,
    end: u64,
    done: u64,
    met: Met,
    failed: Option<(u64, String)>,
    began: Instant,
    shown: Instant,
}

impl Shared {
    fn take(&mut self) -> Option<u64> {
        let seed = self.next;
        let more = seed < self.end && self.failed.is_none();
        self.next += u64::from(more);
        more.then_some(seed)
    }

    fn progress(&mut self, all: u64) {
        if !std::io::stderr().is_terminal() || self.shown.elapsed() < SHOWN_EVERY {
            return;
        }
        self.shown = Instant::now();
        let rate = self.done as f64 / self.began.elapsed().as_secs_f64().max(0.001);
        let left = (all - self.done) as f64 / rate.max(0.001);
        let line = format!(
            "{} of {all} seeds, {rate:.1} a second, {left:.0} s left",
            self.done
        );
        write!(std::io::stderr(), "\r{line}  ").ok();
    }
}

fn work(shared: &Mutex<Shared>, all: u64, length: Length) {
    loop {
        let Some(seed) = shared.lock().expect("not poisoned").take() else {
            return;
        };
        let ended = std::panic::catch_unwind(AssertUnwindSafe(|| run(seed, length)));
        let mut shared = shared.lock().expect("not poisoned");
        match ended {
            Ok(ended) => {
                println!(
                    "seed {seed}: {:016x} of {} events",
                    ended.hash, ended.events
                );
                shared.met.add(&ended.met);
                shared.done += 1;
                shared.progress(all);
            }
            Err(panic) => {
                let words = panic.downcast_ref::<String>().cloned();
                let words = words.or_else(|| panic.downcast_ref().map(|s: &&str| (*s).to_owned()));
                shared.failed = Some((seed, words.unwrap_or_default()));
            }
        }
    }
}

/// Promise: Every finished call is journaled once or becomes a dead letter, whatever fails.
/// Promise: No 60 seconds hold more than 60 requests.
#[test]
fn every_seed_journals_each_call_once_within_rate_limit() {
    let length = length();
    let seeds = seeds(length);
    let all = seeds.end - seeds.start;
    let now = Instant::now();
    let shared = Mutex::new(Shared {
        next: seeds.start,
        end: seeds.end,
        done: 0,
        met: Met::default(),
        failed: None,
        began: now,
        shown: now,
    });
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| work(&shared, all, length));
        }
    });
    let shared = shared.into_inner().expect("not poisoned");
    if std::io::stderr().is_terminal() {
        eprintln!();
    }
    if let Some((seed, words)) = &shared.failed {
        panic!(
            "seed {seed} of callbridge {} ({}) failed with {length:?}: {words}\n\
             replay it with:\n    {}",
            callbridge::VERSION,
            callbridge::COMMIT,
            replay(*seed, length)
        );
    }
    if only_seed().is_none() {
        report(&shared.met, all);
    }
}

/// Prints the table of paths. Paths that no seed met are an error if there were enough seeds.
fn report(met: &Met, seeds: u64) {
    let unmet = met.unmet();
    println!("paths met:\n{}", met.table());
    for path in &unmet {
        println!("     unmet  {path}");
    }
    let missed = unmet.into_iter().filter(|path| path.is_due(seeds));
    let missed: Vec<String> = missed.map(|path| path.to_string()).collect();
    assert!(missed.is_empty(), "no seed met {missed:#?}");
}

/// The test runs itself in other processes, which each run one seed and print its hash.
#[test]
fn same_seed_is_the_same_run_in_another_process() {
    if let Some(seed) = number(CHILD) {
        let ended = run(seed, Length::default());
        println!("hash {:016x} {}", ended.hash, ended.events);
        return;
    }
    let once = run_child(FIRST);
    assert_eq!(once, run_child(FIRST));
    assert_ne!(once, run_child(FIRST + 1));
}

/// Runs a seed in another process. Returns the hash and the number of events of the run.
fn run_child(seed: u64) -> String {
    let me = std::env::current_exe().expect("this test");
    let output = Command::new(me)
        .args([
            "--exact",
            "simulation::campaign::same_seed_is_the_same_run_in_another_process",
        ])
        .arg("--nocapture")
        .env(CHILD, seed.to_string())
        .env_remove("CALLBRIDGE_SIM_SEED")
        .output()
        .expect("a child");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find_map(|line| line.split_once("hash "));
    line.expect("a hash").1.to_owned()
}
