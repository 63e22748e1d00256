//! Tests what happens when the disk is full.

use super::call::journal;
use crate::dispatch::prepare;
use crate::writer::start;
use crate::{Done, Error, Op, Settings, Store, tables};
use callbridge_model::ExitCode as _;
use callbridge_testkit::Wait as _;

fn finish_op(n: u32) -> Op {
    Op::Finish(Box::new(journal(n)))
}

fn full_store() -> (Store, u32) {
    let mut store = Store::in_memory(Settings::default()).expect("memory");
    store.limit_pages(88);
    for n in 0..1000 {
        match store.write(vec![finish_op(n)]) {
            Ok(_) => {}
            Err(Error::Full { .. }) => return (store, n),
            Err(other) => panic!("{other}"),
        }
    }
    panic!("it never filled");
}

#[test]
fn write_to_full_disk_is_retryable_and_keeps_stored_calls() {
    let (mut store, taken) = full_store();
    let error = store.write(vec![finish_op(taken)]).expect_err("still full");
    assert!(error.is_retryable());
    assert_eq!(error.exit_code().number(), 73);
    assert_eq!(store.books().ready, u64::from(taken));
    assert_eq!(tables::books::recount(&store).expect("a recount"), []);
    assert!(store.is_settled(), "a transaction was left open");
    let linkedid = journal(taken).judged.record.linkedid;
    assert_eq!(
        tables::seen_calls::seen_call(&store, "pbx1", &linkedid),
        Ok(None),
        "half a call was kept"
    );
}

#[test]
fn writes_succeed_again_when_the_disk_has_room() {
    let (mut store, taken) = full_store();
    store.limit_pages(10_000);
    let done = store.write(vec![finish_op(taken)]).expect("room");
    assert!(matches!(done[..], [Done::New(_)]));
    assert_eq!(store.books().ready, u64::from(taken) + 1);
    assert_eq!(tables::books::recount(&store).expect("a recount"), []);
}

#[test]
fn group_write_on_full_disk_stores_only_accepted_requests() {
    let (mut store, taken) = full_store();
    let small = Op::Count {
        counter: "small".into(),
        by: 1,
    };
    let requests = vec![vec![small], (taken..taken + 50).map(finish_op).collect()];
    let works: Result<Vec<_>, Error> = requests.into_iter().map(prepare).collect();
    let answers = store.write_group(&works.expect("storable"));
    assert!(
        matches!(answers[1], Err(Error::Full { .. })),
        "{:?}",
        answers[1]
    );
    assert_eq!(answers[0].is_ok(), store.counters().contains_key("small"));
    assert_eq!(store.books().ready, u64::from(taken));
    assert_eq!(tables::books::recount(&store).expect("a recount"), []);
    assert!(store.is_settled());
}

#[test]
fn full_disk_error_stays_until_data_is_written() {
    let (mut store, taken) = full_store();
    // Fill up the last free bytes so that not even a single row fits.
    for n in 0.. {
        let small = Op::Meta {
            key: format!("corner {n}"),
            value: "full".into(),
        };
        if store.write(vec![small]).is_err() {
            break;
        }
    }
    let (handle, guard) = start(store, None).expect("a thread");
    let error = handle
        .write(vec![finish_op(taken)])
        .wait()
        .expect_err("full");
    assert_eq!(handle.health().trouble, Some(error.clone()));
    assert_eq!(handle.write(Vec::new()).wait(), Err(error.clone()));
    assert_eq!(handle.health().trouble, Some(error));
    let room = handle
        .read(|store| {
            store.limit_pages(10_000);
            Ok(())
        })
        .wait();
    room.expect("read");
    assert_eq!(handle.write(Vec::new()).wait(), Ok(Vec::new()));
    handle.write(vec![finish_op(taken)]).wait().expect("room");
    assert_eq!(handle.health().trouble, None);
    guard.close();
}

#[test]
fn full_disk_error_survives_empty_write_with_little_room() {
    let (store, taken) = full_store();
    store.limit_pages(92);
    let (handle, guard) = start(store, None).expect("a thread");
    let many = (taken..taken + 50).map(finish_op).collect();
    let error = handle.write(many).wait().expect_err("no room for fifty");
    assert_eq!(handle.write(Vec::new()).wait(), Ok(Vec::new()));
    assert_eq!(handle.health().trouble, Some(error));
    guard.close();
}
