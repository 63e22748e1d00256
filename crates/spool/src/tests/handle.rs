//! Tests what the spool's thread guarantees to its callers.

use super::call::{journal, time_at};
use crate::{Done, Error, Op, RowId, Settings, State, Step, tables};
use callbridge_call::EpochSeconds;
use callbridge_leads::directory::{ChangeKind, FirstPhone, LeadNews};
use callbridge_model::{LeadId, Phone};
use callbridge_testkit::Wait as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, mpsc};

fn call(n: u32) -> Op {
    Op::Finish(Box::new(journal(n)))
}

fn step_of_missing_row() -> Op {
    Op::Step {
        row: RowId(1_000_000),
        step: Step::Send,
        at: time_at(0),
    }
}

#[test]
fn queued_writes_share_one_commit_with_separate_answers() {
    let commits = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&commits);
    let settings = Settings {
        on_commit: Some(Arc::new(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
        })),
        ..Settings::default()
    };
    let place = super::place();
    let (handle, guard) = place.open(settings);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        // Keep the thread busy with a read until all requests are queued.
        let (reading, is_reading) = tokio::sync::oneshot::channel();
        let (release, released) = mpsc::sync_channel::<()>(1);
        let holder = handle.clone();
        let hold = tokio::spawn(async move {
            let held = holder.read(move |_| {
                reading.send(()).ok();
                released.recv().ok();
                Ok(())
            });
            held.await
        });
        is_reading.await.expect("it reads");
        let asked = (0..20).map(|n| {
            let ops = if n == 7 {
                vec![call(n), step_of_missing_row()]
            } else {
                vec![call(n)]
            };
            let handle = handle.clone();
            tokio::spawn(async move { handle.write(ops).await })
        });
        let asked: Vec<_> = asked.collect();
        // On a single thread, every task runs until it has to wait for its response, before this
        // one continues.
        tokio::task::yield_now().await;
        release.send(()).expect("it waits");
        hold.await.expect("joined").expect("read");
        for (n, answer) in asked.into_iter().enumerate() {
            let answer = answer.await.expect("joined");
            match n {
                7 => assert!(matches!(answer, Err(Error::NoRow { .. })), "{answer:?}"),
                _ => assert!(
                    matches!(answer.as_deref(), Ok([Done::New(_)])),
                    "{n}: {answer:?}"
                ),
            }
        }
        let books = handle.read(|store| Ok(store.books())).await.expect("books");
        assert_eq!(books.ready, 19);
    });
    assert_eq!(commits.load(Ordering::Relaxed), 1);
    guard.close();
}

#[tokio::test]
async fn commit_wakes_watchers_and_refused_write_does_not() {
    let place = super::place();
    let (handle, _guard) = place.open(Settings::default());
    let mut changed = handle.changed();
    changed.mark_unchanged();
    handle.write(vec![call(1)]).await.expect("stored");
    assert!(changed.has_changed().expect("open"));
    changed.mark_unchanged();
    handle
        .write(vec![step_of_missing_row()])
        .await
        .expect_err("no such row");
    assert!(
        !changed.has_changed().expect("open"),
        "nothing was committed"
    );
}

#[tokio::test]
async fn read_sees_every_write_queued_before_it() {
    let place = super::place();
    let (handle, guard) = place.open(Settings::default());
    let write = handle.write(vec![call(1)]);
    let read = handle.read(|store| tables::calls::row(store, RowId(1)));
    let (written, row) = tokio::join!(write, read);
    written.expect("stored");
    assert_eq!(
        row.expect("readable").map(|row| row.state),
        Some(State::Ready)
    );
    // If the guard is dropped inside an async task, the thread still shuts down cleanly.
    drop(guard);
    assert_eq!(handle.write(vec![call(2)]).await, Err(Error::Closed));
    handle.closed().await;
}

#[tokio::test]
async fn writes_queued_at_close_are_still_stored() {
    let place = super::place();
    let (handle, guard) = place.open(Settings::default());
    // Keep the thread busy with a read until the guard tells it to stop.
    let stop = Arc::clone(&guard.stop);
    let (reading, is_reading) = tokio::sync::oneshot::channel();
    let holder = handle.clone();
    let hold = tokio::spawn(async move {
        let held = holder.read(move |_| {
            reading.send(()).ok();
            while !stop.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            Ok(())
        });
        held.await
    });
    is_reading.await.expect("it reads");
    let mut asked = Vec::new();
    for n in 0..8 {
        let handle = handle.clone();
        asked.push(tokio::spawn(
            async move { handle.write(vec![call(n)]).await },
        ));
    }
    // On a single thread, every task runs until it has to wait for its response, before this one
    // continues.
    tokio::task::yield_now().await;
    guard.close();
    hold.await.expect("joined").expect("read");
    for answer in asked {
        answer.await.expect("joined").expect("stored");
    }
    drop(handle);
    let (handle, _guard) = place.open(Settings::default());
    let books = handle.read(|store| Ok(store.books())).await.expect("books");
    assert_eq!(books.ready, 8);
}

#[test]
fn writes_that_race_with_close_are_stored_if_confirmed() {
    let place = super::place();
    let (handle, guard) = place.open(Settings::default());
    let writers = 8;
    let ready = Arc::new(Barrier::new(writers as usize + 1));
    let asked: Vec<_> = (0..writers)
        .map(|writer| {
            let (handle, ready) = (handle.clone(), Arc::clone(&ready));
            std::thread::spawn(move || {
                let first = handle.write(vec![call(writer * 1000)]).wait();
                first.expect("stored before the close");
                ready.wait();
                let calls = (writer * 1000 + 1..).map(|n| handle.write(vec![call(n)]).wait());
                1 + calls.take_while(Result::is_ok).count() as u64
            })
        })
        .collect();
    ready.wait();
    guard.close();
    let stored: u64 = asked
        .into_iter()
        .map(|asked| asked.join().expect("joined"))
        .sum();
    let (handle, _guard) = place.open(Settings::default());
    let books = handle
        .read(|store| Ok(store.books()))
        .wait()
        .expect("books");
    assert_eq!(books.ready, stored);
    assert!(stored >= u64::from(writers), "{stored}");
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_see_every_earlier_commit() {
    let place = super::place();
    let (handle, guard) = place.open(Settings::default());
    let (leads, mut finished_calls) = (place.leads(), place.finished_calls());
    let phone = Phone::from_e164("+998901110001").expect("a number");
    let lead = LeadId::new(4_001).expect("positive");
    let linkedid = journal(1).judged.record.linkedid;
    assert_eq!(finished_calls.finished("pbx1", &linkedid), None);
    assert!(leads.find(&phone).expect("readable").leads().is_empty());
    let first = FirstPhone::Is(phone.clone());
    let news = LeadNews::new(lead, EpochSeconds::new(1), ChangeKind::Created, first);
    let ops = vec![call(1), Op::Learn(Box::new(news))];
    handle.write(ops).await.expect("stored");
    let known = finished_calls.finished("pbx1", &linkedid);
    assert!(known.expect("a finished call").own);
    assert_eq!(leads.find(&phone).expect("readable").leads(), [lead]);
    guard.close();
}
