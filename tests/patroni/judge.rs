//! Tries faults one after the other while the hubs send at the full rate. At the end, counts the
//! CRM's records by uuid, and its requests in each window.

use crate::fault::Fault;
use crate::stage::Stage;
use callbridge_call::Linkedid;
use callbridge_mapping::journal::figures::uuid;
use callbridge_sandbox::ViolationKind;
use callbridge_testbed::wait::{pass, until, until_within};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// A hub must store calls again within this time after a fault.
const SERVES_WITHIN: Duration = Duration::from_secs(60);
const WINDOW: Duration = Duration::from_secs(60);
/// The silence after a takeover: a window and 45 s.
const SILENCE: Duration = Duration::from_secs(105);
/// Nothing is sent for this time after a call was stored. A call is stored some seconds after the
/// takeover.
const SILENT_AT_LEAST: Duration = Duration::from_secs(90);
/// Time for the first request after the silence.
const FIRST_REQUEST: Duration = Duration::from_secs(10);
/// Calls that wait for the CRM when a fault begins: more than a window holds.
const BACKLOG: u64 = 150;
/// Requests of a full window, without the requests that wait for an answer.
const FULL: u64 = 55;
/// Time for all calls to be journaled after the last fault.
const DRAIN: Duration = Duration::from_secs(1_800);

/// The result of one fault.
struct Strike {
    fault: Fault,
    serves: Duration,
    sends: Duration,
}

/// Tries each fault `rounds` times. Returns `true` if all checks passed.
pub async fn judge(faults: &[Fault], rounds: u32) -> bool {
    let begun = Instant::now();
    let mut stage = Stage::start().await;
    println!("cluster and hubs: {:.0?}", begun.elapsed());
    let mut strikes = Vec::new();
    for round in 1..=rounds {
        for fault in faults {
            let strike = strike(&mut stage, *fault, round).await;
            println!(
                "round {round}, {:14} serves after {:5.1} s, sends after {:5.1} s",
                fault.name(),
                strike.serves.as_secs_f64(),
                strike.sends.as_secs_f64()
            );
            strikes.push(strike);
        }
    }
    stage.wait_until_all_journaled(DRAIN).await;
    let is_right = count(&stage).await;
    let is_in_time = table(faults, &strikes);
    if !(is_right && is_in_time) {
        eprintln!("{}\n{}", stage.logs(), stage.cluster.logs());
    }
    is_right && is_in_time
}

async fn strike(stage: &mut Stage, fault: Fault, round: u32) -> Strike {
    stage.cluster.is_whole().await;
    let primary = stage.cluster.primary().expect("a primary");
    if fault.has_leader() {
        stage.lead_from(primary).await;
    }
    let leader = stage.wait_until_paired().await;
    wait_for_full_pace(stage, leader).await;
    let (sent, begun) = (requests(stage), Instant::now());
    fault.begin(&stage.cluster, primary);
    let stored_by = stage.post_until_stored().await;
    let serves = begun.elapsed();
    let before = requests(stage);
    stage.end_calls(10);
    // The old primary comes back at different moments of the silence.
    pass(Duration::from_secs(u64::from(round) * 5)).await;
    fault.end(&stage.cluster, primary);
    let within = SILENCE + FIRST_REQUEST + SERVES_WITHIN;
    until_within(within, "a request after the silence", async || {
        requests(stage) > before
    })
    .await;
    let sends = begun.elapsed();
    println!(
        "  primary {primary}, stored by {stored_by}, {} requests until then",
        before - sent
    );
    stage.wait_until_paired().await;
    stage.return_home().await;
    Strike {
        fault,
        serves,
        sends,
    }
}

/// Waits until calls wait for the CRM and its window is full.
async fn wait_for_full_pace(stage: &mut Stage, leader: usize) {
    let status = stage.hubs[leader].status().await.expect("a status");
    let waiting = status.backlog.calls;
    let missing = BACKLOG.saturating_sub(waiting);
    stage.end_calls(u32::try_from(missing).expect("few"));
    let within = SILENCE + 2 * SERVES_WITHIN;
    // The number of earlier requests at the time of each check.
    let mut looks = VecDeque::new();
    until_within(within, "a full window", async || {
        looks.push_back((Instant::now(), requests(stage)));
        while looks.front().is_some_and(|look| look.0.elapsed() > WINDOW) {
            looks.pop_front();
        }
        let first = looks.front().map_or(0, |look| look.1);
        requests(stage) - first >= FULL
    })
    .await;
}

fn requests(stage: &Stage) -> u64 {
    let counts = stage.crm.admin(|crm, _| crm.counts().clone());
    counts.values().sum()
}

/// Counts records by uuid and requests by window. Returns `true` if the counts are right.
async fn count(stage: &Stage) -> bool {
    let mut wanted = Vec::new();
    for (pbx, calls) in stage.expected() {
        for n in 0..calls {
            let id = Linkedid::new(format!("call.{n}")).expect("an id");
            wanted.push(uuid(&pbx, &id).to_string());
        }
    }
    let mut records: BTreeMap<String, u32> = BTreeMap::new();
    until("the CRM has written all", async || {
        records.clear();
        for record in stage.crm.journal() {
            *records.entry(record.call.uuid.clone()).or_default() += 1;
        }
        records.len() >= wanted.len()
    })
    .await;
    let doubled = records.values().filter(|count| **count > 1).count();
    let lost = wanted
        .iter()
        .filter(|uuid| records.remove(*uuid).is_none())
        .count();
    let violations = stage.crm.violations();
    let exceeded = violations
        .iter()
        .filter(|violation| violation.kind == ViolationKind::WindowExceeded)
        .count();
    let fullest = stage.crm.admin(|crm, _| crm.fullest());
    println!(
        "{} calls: lost {lost}, doubled {doubled}, invented {}; highest window {}, in any 60 s {}",
        wanted.len(),
        records.len(),
        fullest.in_a_window,
        fullest.in_any_span,
    );
    let is_within_rate = exceeded == 0 && fullest.in_a_window <= 60 && fullest.in_any_span <= 60;
    lost == 0 && doubled == 0 && records.is_empty() && is_within_rate
}

/// Prints the table. Returns `true` if each fault was over in time and each silence was kept.
fn table(faults: &[Fault], strikes: &[Strike]) -> bool {
    println!("| fault | count | serves again, median | worst | sends again, median | worst |");
    println!("|---|---|---|---|---|---|");
    let is_silent = strikes
        .iter()
        .all(|strike| strike.sends >= strike.serves + SILENT_AT_LEAST);
    let mut is_soon = true;
    for fault in faults {
        let of_fault = strikes.iter().filter(|strike| strike.fault == *fault);
        let mut serves: Vec<Duration> = of_fault.clone().map(|strike| strike.serves).collect();
        let mut sends: Vec<Duration> = of_fault.map(|strike| strike.sends).collect();
        serves.sort();
        sends.sort();
        let middle = serves.len() / 2;
        let last = serves.len() - 1;
        println!(
            "| {} | {} | {:.1} s | {:.1} s | {:.1} s | {:.1} s |",
            fault.story(),
            serves.len(),
            serves[middle].as_secs_f64(),
            serves[last].as_secs_f64(),
            sends[middle].as_secs_f64(),
            sends[last].as_secs_f64()
        );
        is_soon &= serves[last] <= SERVES_WITHIN;
        is_soon &= sends[last] <= SERVES_WITHIN + SILENCE + FIRST_REQUEST;
    }
    is_silent && is_soon
}
