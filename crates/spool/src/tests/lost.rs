//! Tests what happens when the lock is lost between two statements.

use super::call::{journal, time_at};
use crate::tests::place::Place;
use crate::{Done, Error, Op, RowId, Settings, State, Step, Store, tables};
use callbridge_model::TokenFingerprint;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Returns a call's requests until the CRM accepts it, with one request per commit.
fn requests(n: u32, row: RowId) -> [Vec<Op>; 3] {
    let accepted = Step::Accepted {
        request_id: "r".into(),
        token: TokenFingerprint::of("token"),
    };
    [
        finish(n),
        vec![Op::step(row, Step::Send, time_at(7))],
        vec![Op::step(row, accepted, time_at(7))],
    ]
}

/// Returns settings that make the store lose its session once, before the nth statement.
fn session_loss_settings(n: u64) -> (Settings, Arc<AtomicU64>) {
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    let settings = Settings {
        on_statement: Some(Arc::new(move |_| {
            counted.fetch_add(1, Ordering::Relaxed) + 1 != n
        })),
        ..Settings::default()
    };
    (settings, count)
}

/// Reacquires the lock. With PostgreSQL, a lost session never comes back.
fn regain(store: &mut Store, place: &Place) {
    match place {
        Place::Folder(_) => store.reload().expect("readable"),
        Place::Schema(_) => *store = place.store(Settings::default()),
    }
}

fn finish(n: u32) -> Vec<Op> {
    vec![Op::Finish(Box::new(journal(n)))]
}

/// Writes the requests and returns whether the session was lost, in which case the books are read
/// again and the request is repeated.
fn work(store: &mut Store, place: &Place, n: u32) -> bool {
    let mut was_lost = false;
    let row = RowId(store.next_id);
    for request in requests(n, row) {
        let answer = store.write(request.clone());
        let Err(error) = answer else {
            continue;
        };
        assert!(matches!(error, Error::SessionLost(..)), "{error}");
        assert!(store.is_lost());
        let refused = store.write(request.clone()).expect_err("no session");
        assert!(matches!(refused, Error::SessionLost(..)), "{refused}");
        regain(store, place);
        was_lost = true;
        assert_eq!(tables::books::recount(store).expect("a recount"), []);
        assert_eq!(
            store.next_id,
            row.0 + i64::from(request != requests(n, row)[0])
        );
        store
            .write(request)
            .expect("the lost request stored nothing");
    }
    if store.query_one::<i64>("SELECT 1", ()).is_err() {
        regain(store, place);
    }
    let stored = tables::calls::row(store, row).expect("readable");
    assert_eq!(stored.expect("a row").state, State::Submitted);
    was_lost
}

#[test]
fn lock_lost_before_any_statement_stores_nothing_of_the_request() {
    let place = super::place();
    drop(place.store(Settings::default()));
    for n in 1..1_000 {
        let (settings, count) = session_loss_settings(u64::MAX);
        let mut store = place.store(settings);
        let before = count.load(Ordering::Relaxed);
        drop(store);
        let (settings, _) = session_loss_settings(before + u64::from(n));
        store = place.store(settings);
        let was_lost = work(&mut store, &place, n);
        assert_eq!(store.books().submitted, u64::from(n));
        if !was_lost {
            assert!(n > 20, "{n} statements are too few");
            return;
        }
    }
    panic!("a run never passed untouched");
}

#[test]
fn reloaded_store_sees_writes_of_another_process() {
    let place = super::place();
    let is_taken = Arc::new(AtomicBool::new(false));
    let taken = Arc::clone(&is_taken);
    let settings = Settings {
        on_statement: Some(Arc::new(move |_| !taken.load(Ordering::Relaxed))),
        ..Settings::default()
    };
    let mut store = place.store(settings);
    store.write(finish(1)).expect("stored");
    let seen = (store.letters_so_far(), store.moves_so_far());
    is_taken.store(true, Ordering::Relaxed);
    let lost = store
        .write(finish(2))
        .expect_err("another process has the lock");
    assert!(matches!(lost, Error::SessionLost(..)), "{lost}");
    let mut another = place.store(Settings::default());
    another.write(finish(2)).expect("stored");
    drop(another);
    is_taken.store(false, Ordering::Relaxed);
    regain(&mut store, &place);
    if let Place::Folder(_) = place {
        let letters = tables::letters::letters_since(&store, seen.0, 10).expect("readable");
        assert_eq!(letters, None, "readers begin again");
        let moved = tables::listed::moved_since(&store, seen.1, 10).expect("readable");
        assert_eq!(moved, None);
    }
    assert_eq!(store.books().ready, 2);
    let done = store.write(finish(3)).expect("stored");
    assert_eq!(done, [Done::New(RowId(3))]);
}
