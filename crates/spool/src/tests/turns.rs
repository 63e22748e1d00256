//! The order of calls if several PBXs have calls that wait.

use super::call::{ask, at, journal};
use crate::{Due, Op, Settings, Step, Store, tables};
use callbridge_model::CallUuid;

/// Returns the PBX of each call, by the uuid that it has here.
fn pbx_of(n: u32) -> &'static str {
    match n {
        0..100 => "loop",
        100..200 => "quiet",
        _ => "small",
    }
}

fn comes(n: u32, live: bool) -> Op {
    let mut call = journal(n);
    call.judged.record.pbx = pbx_of(n).to_owned();
    call.judged.live = live;
    Op::Finish(Box::new(call))
}

fn uuid(n: u32) -> CallUuid {
    journal(n).judged.record.uuid.expect("a uuid")
}

/// Returns the numbers of the next calls, each sent before the next is chosen. All are old.
fn turns(store: &mut Store, many: usize) -> Vec<u32> {
    let mut sent = Vec::new();
    for _ in 0..many {
        let head = tables::work_queue::head(store, &ask(at(2_000))).expect("a head");
        let Due {
            row, uuid: next, ..
        } = head.live.or(head.backlog).expect("one that is ready");
        let (step, at) = (Step::Send, at(2_000));
        store.write(vec![Op::Step { row, step, at }]).expect("sent");
        let number = (0..300).find(|n| uuid(*n) == next);
        sent.push(number.expect("one of them"));
    }
    sent
}

#[test]
fn branch_that_calls_without_end_keeps_no_other_waiting() {
    let mut store = super::store(Settings::default());
    let looping = (0..50).map(|n| comes(n, true));
    let others = [100, 101, 200].map(|n| comes(n, true));
    let late = [102, 103].map(|n| comes(n, false));
    let all = looping.chain(others).chain(late);
    store.write(all.collect()).expect("stored");
    // Each PBX has its turn, and its newest call goes first.
    assert_eq!(turns(&mut store, 5), [103, 200, 102, 49, 101]);
    assert_eq!(turns(&mut store, 6), [48, 100, 47, 46, 45, 44]);
}

#[test]
fn pbx_sends_its_newest_calls_first() {
    let mut store = super::store(Settings::default());
    let backlog = (0..3).map(|n| comes(n, false));
    let live = (3..6).map(|n| comes(n, true));
    store.write(backlog.chain(live).collect()).expect("stored");
    assert_eq!(turns(&mut store, 6), [5, 4, 3, 2, 1, 0]);
}
