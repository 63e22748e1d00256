//! Is a state that was copied to the other engine, and back, the same?

use super::place::{Engine, Place};
use super::sqlite::suite::acts::{ACTS, fill, settings};
use crate::transfer::{compare, transfer};
use crate::{Error, Handle, Op, Settings};

/// Every row of a state as text, by table.
async fn dump(handle: &Handle) -> String {
    let read = handle.read(|store| crate::transfer::dump(store));
    read.await.expect("readable")
}

#[tokio::test(flavor = "multi_thread")]
async fn state_moved_there_and_back_is_the_same() {
    let (first, there, back) = (
        Place::new(Engine::Sqlite),
        Place::new(Engine::Postgres),
        Place::new(Engine::Sqlite),
    );
    let mut store = first.store(settings());
    let rows = fill(&mut store, 20);
    for (_, act) in ACTS {
        act(&mut store, &rows);
    }
    drop(store);
    let mut dumps = Vec::new();
    for (from, to) in [(&first, &there), (&there, &back)] {
        let (source, source_guard) = from.open(Settings::default());
        let (target, target_guard) = to.open(Settings::default());
        let moved = transfer(&source, &target, &[]).await.expect("copied");
        assert!(moved.rows["calls"] > 200, "{moved:?}");
        let refused = transfer(&source, &target, &[])
            .await
            .expect_err("it has rows");
        assert!(matches!(refused, Error::NotEmpty(..)), "{refused}");
        target_guard.close();
        let (target, target_guard) = to.open(Settings::default());
        compare(&target, &moved.books)
            .await
            .expect("the same books");
        dumps.extend([dump(&source).await, dump(&target).await]);
        // New rows get new ids.
        let open = Op::Open {
            pbx: "pbx1".into(),
            key: 99,
            snapshot: Some(vec![1]),
        };
        let gone = Op::Open {
            pbx: "pbx1".into(),
            key: 99,
            snapshot: None,
        };
        target.write(vec![open, gone]).await.expect("stored");
        source_guard.close();
        target_guard.close();
    }
    assert!(dumps.iter().all(|dump| *dump == dumps[0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn state_with_a_part_of_another_is_not_opened() {
    for engine in [Engine::Sqlite, Engine::Postgres] {
        let place = Place::new(engine);
        let (handle, guard) = place.open(Settings::default());
        handle
            .keep_meta("spool.unfinished", "yes".to_owned())
            .await
            .expect("stored");
        guard.close();
        let refused = place.try_open(Settings::default()).expect_err("unfinished");
        assert!(matches!(refused, Error::Unfinished(_)), "{refused}");
    }
}
