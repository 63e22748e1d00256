//! Tests in which order calls are sent when several PBXs have calls waiting.

use super::call::{ask, journal, time_at};
use crate::{Due, Op, Settings, Step, Store, tables};
use callbridge_model::CallUuid;

/// Returns the nth call's PBX.
fn pbx_of(n: u32) -> &'static str {
    match n {
        0..100 => "loop",
        100..200 => "quiet",
        _ => "small",
    }
}

fn finish_op(n: u32, live: bool) -> Op {
    let mut call = journal(n);
    call.judged.record.pbx = pbx_of(n).to_owned();
    call.judged.live = live;
    Op::Finish(Box::new(call))
}

fn uuid(n: u32) -> CallUuid {
    journal(n).judged.record.uuid.expect("a uuid")
}

/// Returns the numbers of the next calls at second 2,000, by which time all calls are old. Each
/// call is sent before the next one is chosen.
fn next_calls(store: &mut Store, many: usize) -> Vec<u32> {
    let mut sent = Vec::new();
    for _ in 0..many {
        let head = tables::work_queue::head(store, &ask(time_at(2_000))).expect("a head");
        let Due {
            row, uuid: next, ..
        } = head.live.or(head.backlog).expect("one that is ready");
        let (step, at) = (Step::Send, time_at(2_000));
        store.write(vec![Op::Step { row, step, at }]).expect("sent");
        let number = (0..300).find(|n| uuid(*n) == next);
        sent.push(number.expect("one of them"));
    }
    sent
}

#[test]
fn busy_pbx_does_not_delay_the_calls_of_other_pbxs() {
    let mut store = super::store(Settings::default());
    let looping = (0..50).map(|n| finish_op(n, true));
    let others = [100, 101, 200].map(|n| finish_op(n, true));
    let late = [102, 103].map(|n| finish_op(n, false));
    let all = looping.chain(others).chain(late);
    store.write(all.collect()).expect("stored");
    // The PBXs take turns, each sending its newest call first.
    assert_eq!(next_calls(&mut store, 5), [103, 200, 102, 49, 101]);
    assert_eq!(next_calls(&mut store, 6), [48, 100, 47, 46, 45, 44]);
}

#[test]
fn pbx_sends_its_newest_calls_first() {
    let mut store = super::store(Settings::default());
    let backlog = (0..3).map(|n| finish_op(n, false));
    let live = (3..6).map(|n| finish_op(n, true));
    store.write(backlog.chain(live).collect()).expect("stored");
    assert_eq!(next_calls(&mut store, 6), [5, 4, 3, 2, 1, 0]);
}
