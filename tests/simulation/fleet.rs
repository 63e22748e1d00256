//! A thousand collectors and a burst of ten thousand calls for one token, with deaths at every
//! step: none lost, none doubled, no window over 60.

use crate::chain::{Chain, ChainPath, SILENCE};
use crate::drain::compare;
use callbridge_model::CallUuid;
use callbridge_sandbox::ViolationKind;
use callbridge_spool::{State, tables};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Seconds in which things happen; later all is well, and everything drains.
const TROUBLED: u32 = 600;
/// Of a hundred steps so many meet something.
const PERCENT: u64 = 4;
/// Virtual seconds after which everything has drained.
const DRAINED_WITHIN: u32 = 40_000;

/// Runs it to its end, and judges it.
fn campaign(seed: u64, collectors: u32, calls: u32) -> Chain {
    let mut chain = Chain::new(seed, collectors, calls);
    for second in 0..TROUBLED {
        match second {
            120 => chain.lose_state(),
            240 | 420 => chain.take_over(SILENCE),
            _ => {}
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
    judge(&chain);
    chain
}

fn judge(chain: &Chain) {
    let world = &chain.world;
    // What a death left open is asked for with the same uuid, and so is all of a state made anew.
    world.assert_never_wrong(&[ViolationKind::RepeatAfter200]);
    chain.assert_collectors_balance();
    let mut seen = BTreeSet::new();
    for record in world.sandbox.records() {
        let uuid = &record.call.uuid;
        assert!(seen.insert(uuid.clone()), "doubled: {uuid}");
        let call = chain.calls.get(uuid);
        let call = call.unwrap_or_else(|| panic!("invented: {record:?}"));
        let id = CallUuid(uuid.parse().expect("a uuid"));
        let store = &world.disk.store;
        let row = tables::calls::row_of(store, id).expect("readable");
        let row = tables::calls::row(store, row.expect("a row")).expect("readable");
        let row = row.expect("a row");
        assert_eq!(row.state, State::Journaled, "{uuid}");
        compare(
            &row.record,
            &call.judged.record,
            record,
            &world.settings.fields,
        );
    }
    assert_eq!(seen.len(), chain.calls.len(), "lost");
}

/// `tests/run simulate` sets it: a thousand collectors, ten thousand calls.
const FULL: &str = "CALLBRIDGE_SIM_FLEET";

#[test]
fn a_burst_of_a_thousand_collectors_is_journaled_once_whoever_dies_at_whatever_step() {
    let full = std::env::var_os(FULL).is_some();
    let runs = match full {
        true => [(14, 1_000, 10_000)].to_vec(),
        // The same deaths find fewer calls.
        false => (14..18).map(|seed| (seed, 100, 500)).collect(),
    };
    let mut met = BTreeMap::new();
    for (seed, collectors, calls) in runs {
        let chain = campaign(seed, collectors, calls);
        let requests = chain.world.sent.len();
        println!("seed {seed}: {collectors} collectors, {calls} calls, {requests} requests");
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
    let mut chain = Chain::new(15, 50, 500);
    for second in 0..330 {
        // The second begins with the silence of a fresh state, the first is not fresh any more.
        if second == 100 || second == 230 {
            chain.take_over(Duration::ZERO);
        }
        chain.turn(0);
    }
}
