//! A thousand collectors and a burst of ten thousand calls for one token with two senders and a
//! lease, with deaths at every step: none lost, none doubled, no window over 60, and few requests
//! more than calls.

use crate::chain::Chain;
use crate::chain_paths::ChainPath;
use crate::drain::compare;
use crate::way::TIME_OUT;
use callbridge_crm::Endpoint;
use callbridge_lease::Terms;
use callbridge_lease::claim::HOLDS_FOR;
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
    chain.world.trap = None;
    let mut turns = 0;
    while !chain.is_drained() {
        turns += 1;
        let books = chain.world.disk.store.books();
        assert!(turns < DRAINED_WITHIN, "seed {seed}: {books:?}");
        chain.turn(0);
    }
    chain.count_settled();
    judge(&mut chain);
    chain
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
    let full = std::env::var_os(FULL).is_some();
    let runs = match full {
        true => [(14, 1_000, 10_000, 9_000)].to_vec(),
        // The same deaths find fewer calls.
        false => (14..18).map(|seed| (seed, 100, 500, 1_500)).collect(),
    };
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

#[test]
#[should_panic(expected = "arrivals within")]
fn a_standby_that_keeps_no_silence_overfills_a_window_and_is_found_out() {
    // The old leave is waited for, and no more.
    let silence = HOLDS_FOR + Duration::from_secs(1);
    let mut chain = Chain::new(15, 50, 500, Terms { silence });
    for second in 0..330 {
        // The first of each is silent by itself, for its state is fresh.
        if second % 80 == 79 {
            chain.pass_on();
        }
        chain.turn(0);
    }
}
