//! `tests/run fleet`: collectors, a cluster of three brokers, senders that stand by for each other,
//! three tokens and a thousand PBXs, of which everything may die; a judge outside counts by uuid.
//!
//! ```text
//!  20 collectors ──┐   ┌─ node ─┐   ┌──▶ sender, standby ──▶ CRM (sandbox), token 1
//!  driver as 1,000 ┼──▶│  node  │──▶┼──▶ sender, standby ──▶ CRM (sandbox), token 2
//!  PBXs ───────────┘   └─ node ─┘   └──▶ sender, standby ──▶ CRM (sandbox), token 3
//!        └── what was given ──▶ judge ◀── journals, windows ──┘
//! ```
//! Needs root: each node lives in a network of its own, so that nodes can be cut from each other
//! while their clients reach all of them.

mod branch;
mod cluster;
mod company;
mod driver;
mod fault;
mod ledger;
mod line;
mod outage;
#[path = "../e2e/program.rs"]
#[allow(dead_code, reason = "each test binary uses its own part of it")]
mod program;
mod random;
mod stage;
mod table;
mod unit;

use callbridge_testbed::{broker, calls, expected, wait};

use self::fault::{FleetFault, strike};
use self::outage::outages;
use self::random::SeededRandom;
use self::stage::{FleetStage, Wishes};
use self::table::FaultTable;
use std::process::ExitCode;
use std::time::Instant;

const USAGE: &str = "fleet: --minutes M (30), --calls N (20000), --seed S (1), --alone (one sender \
                     for each token in place of two), --outages (in place of all that may die: no \
                     broker for ten minutes, then no CRM for an hour, of 80 minutes; 6000 calls)";

fn wishes() -> Option<Wishes> {
    let outages = std::env::args().any(|word| word == "--outages");
    let (minutes, calls) = if outages {
        (80.0, 6_000)
    } else {
        (30.0, 20_000)
    };
    let mut wishes = Wishes {
        minutes,
        calls,
        seed: 1,
        senders: 2,
        outages,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--minutes" => wishes.minutes = words.next()?.parse().ok()?,
            "--calls" => wishes.calls = words.next()?.parse().ok()?,
            "--seed" => wishes.seed = words.next()?.parse().ok()?,
            "--alone" => wishes.senders = 1,
            "--outages" => {}
            _ => return None,
        }
    }
    let usable = (0.5..=10_000.0).contains(&wishes.minutes) && wishes.calls >= 200;
    usable.then_some(wishes)
}

/// One fault after another: each of these once, then any of them until the time is over.
async fn lane(
    stage: &FleetStage,
    kinds: &[FleetFault],
    mut random: SeededRandom,
    end: Instant,
    table: &FaultTable,
) {
    let mut in_turn = kinds.iter();
    loop {
        let fault = match in_turn.next() {
            Some(fault) => *fault,
            None if Instant::now() < end => kinds[random.index(kinds.len())],
            None => return,
        };
        wait::pass(random.seconds(1, 6)).await;
        println!("       {} …", fault.words());
        let outcome = strike(stage, fault, &mut random).await;
        let recovered = outcome.recovered.as_secs_f64();
        println!("       {}: recovered after {recovered:.1} s", fault.words());
        table.add(fault, outcome);
    }
}

async fn run(wishes: Wishes) -> bool {
    println!("fleet: {wishes:?}");
    let stage = FleetStage::set(&wishes).await;
    stage.start().await;
    let table = FaultTable::default();
    let end = Instant::now() + wishes.time();
    let mut drained = false;
    let work = async {
        let lane = |kinds, salt| {
            let random = SeededRandom::new(wishes.seed.wrapping_mul(1_000_003) + salt);
            lane(&stage, kinds, random, end, &table)
        };
        if wishes.outages {
            outages(&stage, wishes.time(), &table).await;
        } else {
            tokio::join!(
                lane(&FleetFault::OF_PROCESSES, 1),
                lane(&FleetFault::OF_BROKERS, 2)
            );
        }
        stage.mend().await;
        drained = stage.drained().await;
    };
    stage.run(wishes.seed, work).await;
    let (found, mut wrong) = stage.judge().await;
    if !drained {
        wrong.push("nothing moved any more before all calls were journaled".to_owned());
    }
    wrong.extend(if wishes.outages {
        table.unhit(&FleetFault::OUTAGES)
    } else {
        let kinds = [&FleetFault::OF_PROCESSES[..], &FleetFault::OF_BROKERS].concat();
        table.unhit(&kinds)
    });
    print!("{}", table.show(found, stage.fullest()));
    wrong.iter().for_each(|words| println!("WRONG  {words}"));
    stage.end().await;
    let well = wrong.is_empty() && found.is_clean();
    println!("{}", if well { "well" } else { "not well" });
    well
}

fn main() -> ExitCode {
    let Some(wishes) = wishes() else {
        eprintln!("{USAGE}");
        return ExitCode::from(64);
    };
    if !rustix::process::geteuid().is_root() {
        eprintln!("fleet: run it as root, for each broker needs a network of its own");
        return ExitCode::from(77);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.enable_all().worker_threads(2).build();
    let well = runtime.expect("a runtime").block_on(run(wishes));
    ExitCode::from(u8::from(!well))
}
