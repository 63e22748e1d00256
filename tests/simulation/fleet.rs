//! A thousand collectors and a burst of ten thousand calls for one token with two senders and a
//! lease, with deaths at every step: none lost, none doubled, no window over 60, and few requests
//! more than calls.

use crate::chain::Chain;
use crate::chain_paths::ChainPath;
use crate::drain::compare;
use crate::way::TIME_OUT;
use callbridge_crm::Endpoint;
use callbridge_fleet::lease::Terms;
use callbridge_fleet::lease::claim::HOLDS_FOR;
use callbridge_model::CallUuid;
use callbridge_sandbox::ViolationKind;
use callbridge_spool::{State, tables};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Of a hundred steps so many meet something.
const PERCENT: u64 = 4;
/// Virtual seconds after which everything has drained.
const DRAINED_WITHIN: u32 = 40_000;
/// Between two losses of a state.
const STATE_LOST_EVERY: u32 = 1_300;
/// Calls in hand when a sender dies, or loses its turn, may be sent once more.
const IN_HAND: usize = 70;

/// A request can arrive until its time-out, and a little later.
fn terms() -> Terms {
    Terms::new(TIME_OUT + Duration::from_secs(5), Duration::from_secs(60))
}

/// Runs it to its end, and judges it; things happen in the first `troubled` seconds.
fn campaign(seed: u64, collectors: u32, calls: u32, troubled: u32) -> Chain {
    let mut chain = Chain::new(seed, collectors, calls, terms());
    for second in 1..=troubled {
        if second % STATE_LOST_EVERY == 300 {
            chain.lose_state();
        }
        chain.turn(PERCENT);
    }
    finish(seed, &mut chain);
    chain
}

/// Nothing happens any more until all is done, and then it is judged.
fn finish(seed: u64, chain: &mut Chain) {
    chain.world.trap = None;
    let mut turns = 0;
    while !chain.is_drained() {
        turns += 1;
        let books = chain.world.disk.store.books();
        assert!(turns < DRAINED_WITHIN, "seed {seed}: {books:?}");
        chain.turn(0);
    }
    chain.count_settled();
    judge(chain);
}

fn judge(chain: &mut Chain) {
    // What a death left open is asked for with the same uuid, and what no page shows yet.
    chain
        .world
        .assert_never_wrong(&[ViolationKind::RepeatAfter200]);
    chain.assert_collectors_balance();
    let mut seen = BTreeSet::new();
    for record in chain.world.sandbox.records() {
        let uuid = &record.call.uuid;
        assert!(seen.insert(uuid.clone()), "doubled: {uuid}");
        let call = chain.calls.get(uuid);
        assert!(call.is_some(), "invented: {record:?}");
    }
    assert_eq!(seen.len(), chain.calls.len(), "lost");
    let records = chain.world.sandbox.records().to_vec();
    let (calls, fields) = (chain.calls.clone(), chain.world.settings.fields.clone());
    let store = &chain.holders_disk().store;
    for record in &records {
        let id = CallUuid(record.call.uuid.parse().expect("a uuid"));
        let row = tables::calls::row_of(store, id).expect("readable");
        let row = tables::calls::row(store, row.expect("a row"));
        let row = row.expect("readable").expect("a row");
        assert_eq!(row.state, State::Journaled, "{}", row.uuid);
        let told = &calls[&record.call.uuid].judged.record;
        compare(&row.record, told, record, &fields);
    }
    let submitted = submissions(chain);
    let most = chain.calls.len() + IN_HAND * usize::try_from(chain.changes).expect("few");
    assert!(submitted <= most, "{submitted} submissions, {most} at most");
}

fn submissions(chain: &Chain) -> usize {
    let word = Endpoint::Submit.word();
    let sent = chain.world.sent.iter();
    sent.filter(|(_, sent)| *sent == word).count()
}

/// `tests/run simulate` sets it: a thousand collectors, ten thousand calls.
const FULL: &str = "CALLBRIDGE_SIM_FLEET";

#[test]
fn a_burst_of_a_thousand_collectors_is_journaled_once_whoever_dies_at_whatever_step() {
    // Each path is met by the short runs, in which a death finds requests under way more often.
    let mut runs: Vec<_> = (14..18).map(|seed| (seed, 100, 500, 1_500)).collect();
    if std::env::var_os(FULL).is_some() {
        runs.push((14, 1_000, 10_000, 9_000));
    }
    let mut met = BTreeMap::new();
    for (seed, collectors, calls, troubled) in runs {
        let chain = campaign(seed, collectors, calls, troubled);
        let (requests, submitted) = (chain.world.sent.len(), submissions(&chain));
        println!(
            "seed {seed}: {collectors} collectors, {calls} calls, {} deaths of senders and turns \
             passed, {requests} requests, {submitted} of them submissions",
            chain.changes
        );
        for (path, times) in chain.met {
            *met.entry(path).or_insert(0_u64) += times;
        }
    }
    for (path, times) in &met {
        println!("{times:>8}  {path:?}");
    }
    let unmet = ChainPath::ALL.iter().filter(|path| !met.contains_key(path));
    assert_eq!(unmet.collect::<Vec<_>>(), [] as [&ChainPath; 0]);
}

/// The witness of the CRM's windows ends the run where one holds too many.
#[test]
fn senders_that_are_stopped_one_after_the_other_in_a_burst_hand_over_their_slots() {
    let mut handed_on = 0;
    for seed in 15..19 {
        let mut chain = Chain::new(seed, 50, 500, terms());
        for second in 0..900 {
            if second % 50 == 49 {
                chain.stop_holder();
            }
            chain.turn(0);
        }
        handed_on += chain.met.get(&ChainPath::HandedOn).copied().unwrap_or(0);
    }
    println!("{handed_on} times");
    assert!(handed_on > 8, "{handed_on}");
}

#[test]
#[should_panic(expected = "arrivals within")]
fn a_standby_that_keeps_no_silence_overfills_a_window_and_is_found_out() {
    // The old leave is waited for, and no more.
    let silence = HOLDS_FOR + Duration::from_secs(1);
    let mut chain = Chain::new(15, 50, 500, Terms { silence, ..terms() });
    for second in 0..330 {
        // The first of each is silent by itself, for its state is fresh.
        if second % 80 == 79 {
            chain.pass_on();
        }
        chain.turn(0);
    }
}

/// Between two things that become of the stream.
const STREAM_MEETS_EVERY: u32 = 60;

#[test]
fn whatever_becomes_of_the_stream_no_call_is_lost_and_none_is_doubled() {
    let (calls, troubled) = (300, 1_200);
    let mut met = BTreeMap::new();
    for seed in 21..23 {
        let mut chain = Chain::new(seed, 20, calls, terms());
        // Calls end as long as things happen.
        chain.told_percent = 2;
        let mut due = ChainPath::STREAM.iter().cycle().peekable();
        let mut last = 0;
        for second in 1..=troubled {
            let path = due.peek().expect("endless");
            if second - last >= STREAM_MEETS_EVERY && chain.stream_meets(**path) {
                last = second;
                due.next();
            }
            chain.turn(PERCENT);
        }
        finish(seed, &mut chain);
        println!(
            "seed {seed}: {} requests, {:?}",
            chain.world.sent.len(),
            chain.met
        );
        for (path, times) in chain.met {
            *met.entry(path).or_insert(0_u64) += times;
        }
    }
    let unmet = ChainPath::STREAM
        .iter()
        .filter(|path| !met.contains_key(path));
    assert_eq!(unmet.collect::<Vec<_>>(), [] as [&ChainPath; 0]);
}

/// Calls are read, the stream becomes something else, and as many calls end after it.
fn read_over(path: ChainPath, believes: bool) {
    let mut chain = Chain::new(31, 10, 100, terms());
    if believes {
        chain.believe_names();
    }
    chain.told_percent = 5;
    for second in 0..400 {
        // What is lost with a power cut was published just before it.
        if second == 100 {
            assert!(chain.stream_meets(path));
        }
        chain.turn(0);
    }
    for process in 0..2 {
        let lost = chain.untaken(process);
        assert_eq!(
            lost, 0,
            "calls that sender {process} has lost over {path:?}"
        );
    }
}

#[test]
fn calls_that_end_after_a_stream_became_another_are_all_taken() {
    ChainPath::STREAM
        .iter()
        .for_each(|path| read_over(*path, false));
}

#[test]
#[should_panic(expected = "has lost over StreamAnew")]
fn a_sender_that_knows_a_stream_by_its_name_alone_loses_calls_and_is_found_out() {
    read_over(ChainPath::StreamAnew, true);
}

#[test]
#[should_panic(expected = "has lost over StreamRestored")]
fn the_same_of_a_stream_that_was_restored_from_a_copy() {
    read_over(ChainPath::StreamRestored, true);
}
