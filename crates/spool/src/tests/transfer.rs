//! Tests that a state is unchanged after being moved to another place and back, and that it's in
//! exactly one place at any time.

use super::place::{Engine, Place};
use super::sqlite::suite::acts::{ACTS, fill, settings};
use super::sqlite::suite::acts_hub::HUB;
use super::sqlite::suite::acts_lead_requests::LEAD_ACTS;
use super::sqlite::suite::acts_listed::LISTED;
use crate::archive::ArchivedSecrets;
use crate::held::{HeldState, Use};
use crate::marks::refuse_unusable;
use crate::state_move::move_rows;
use crate::transfer::Copied;
use crate::{
    ConnectionChange, ConnectionStore, Error, NewBranch, Op, Settings, SilenceReason, StatePlace,
    Store, StoredConnection, export, import, move_state, tables,
};
use callbridge_call::EpochSeconds;
use callbridge_model::{ExposeSecret as _, Secret};
use callbridge_testbed::postgres::Postgres;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const ENGINES: [Engine; 2] = [Engine::Sqlite, Engine::Postgres];

fn state_place(place: &Place) -> StatePlace {
    match place {
        Place::Folder(dir) => StatePlace::Folder(dir.path().to_path_buf()),
        Place::Schema(schema) => {
            let url = Postgres::shared().url(schema);
            StatePlace::in_database(&url, "/run/callbridge".as_ref()).expect("a URL")
        }
    }
}

fn ignore(_: Copied<'_>) {}

fn move_between(from: &Place, to: &Place) -> Result<crate::Transfer, Error> {
    move_state(&state_place(from), &state_place(to), &mut ignore)
}

/// Returns every row in a state as text, by table. This even works for a state that was moved away.
fn dump(place: &Place) -> String {
    let held = HeldState::open(&state_place(place), Use::From, "test").expect("opens");
    let text = crate::transfer::dump(&held).expect("readable");
    held.close();
    text
}

/// Compares two dumps, showing only the first line that differs, since dumps are long.
#[track_caller]
fn assert_same(found: &str, expected: &str) {
    let lines = found.lines().zip(expected.lines());
    if let Some((found, expected)) = lines.clone().find(|(one, other)| one != other) {
        panic!("{found}\n  and not\n{expected}");
    }
    assert_eq!(found.lines().count(), expected.lines().count());
}

/// Creates a state with rows of every kind.
fn filled_place(engine: Engine, count: u32) -> Place {
    let place = Place::new(engine);
    let mut store = place.store(settings());
    let rows = fill(&mut store, count);
    if count >= 8 {
        for (_, act) in ACTS.iter().chain(LEAD_ACTS).chain(LISTED).chain(HUB) {
            act(&mut store, &rows);
        }
    }
    let branch = NewBranch {
        name: "bukhara".to_owned(),
        token: "02".to_owned(),
        pbxs: vec!["bukhara".to_owned()],
        at: EpochSeconds::new(1),
    };
    if count >= 8 {
        store.write(vec![Op::AddBranch(branch)]).expect("stored");
    }
    drop(store);
    connect(&place.connections(), "svcrt_first");
    place
        .connections()
        .keep_shown_once(&Secret::from("{\"webhook\":\"hidden\"}"))
        .expect("kept");
    place
}

fn connect(connections: &ConnectionStore, refresh_token: &str) {
    let change = ConnectionChange {
        from: connections.read().expect("readable"),
        to: Some(StoredConnection {
            refresh_token: Secret::from(refresh_token),
            content: Secret::from("{\"hidden\":1}"),
        }),
    };
    assert!(connections.change(&change).expect("writable"));
}

/// Promise: A state that is moved to a database and back has the same rows.
#[test]
fn state_moved_away_and_back_has_the_same_rows() {
    for (first, second) in [
        (Engine::Sqlite, Engine::Postgres),
        (Engine::Postgres, Engine::Sqlite),
        (Engine::Sqlite, Engine::Sqlite),
        (Engine::Postgres, Engine::Postgres),
    ] {
        let origin = filled_place(first, 20);
        let target = Place::new(second);
        let before = dump(&origin);
        for table in [
            "calls",
            "unreadable",
            "branches",
            "connection",
            "shown_once",
            "notices",
        ] {
            assert!(before.contains(&format!("\n{table} ")), "{table}");
        }
        let there = move_between(&origin, &target).expect("moved");
        assert!(there.rows["calls"] > 200, "{there:?}");
        assert_same(&dump(&target), &before);
        let refused = origin
            .try_open(Settings::default())
            .expect_err("moved away");
        let Error::Moved(_, to) = &refused else {
            panic!("{refused}");
        };
        assert!(to.contains(&new_place(&target)), "{refused}");
        let refused = origin.connections().read().expect_err("moved away");
        assert!(matches!(refused, Error::Moved(..)), "{refused}");
        let again = move_between(&origin, &Place::new(second)).expect_err("moved away");
        assert!(matches!(again, Error::Moved(..)), "{again}");
        move_between(&target, &origin).expect("moved back");
        assert_same(&dump(&origin), &before);
        let refused = target
            .try_open(Settings::default())
            .expect_err("moved back");
        assert!(matches!(refused, Error::Moved(..)), "{refused}");
        move_between(&origin, &target).expect("moved there again");
        assert_same(&dump(&target), &before);
        let (handle, guard) = target.open(Settings::default());
        let recount = block_on(handle.read(tables::books::recount));
        assert_eq!(recount.expect("a recount"), []);
        drop(handle);
        guard.close();
    }
}

/// Returns the bit of a place that shows up in messages.
fn new_place(place: &Place) -> String {
    match place {
        Place::Folder(dir) => dir.path().display().to_string(),
        Place::Schema(schema) => format!("schema={schema}"),
    }
}

#[test]
fn move_target_with_another_state_is_refused_and_unchanged() {
    for engine in ENGINES {
        let origin = filled_place(Engine::Sqlite, 4);
        let other = filled_place(engine, 4);
        let before = dump(&other);
        let refused = move_between(&origin, &other).expect_err("it has rows");
        assert!(matches!(refused, Error::NotEmpty(..)), "{refused}");
        let elsewhere = Place::new(engine);
        move_between(&other, &elsewhere).expect("moved");
        let refused =
            move_between(&origin, &other).expect_err("another state was moved away from it");
        assert!(matches!(refused, Error::Moved(..)), "{refused}");
        assert_same(&dump(&other), &before);
        let refused = move_between(&origin, &origin).expect_err("the same place");
        assert!(matches!(refused, Error::SamePlace(_)), "{refused}");
        origin.store(Settings::default());
    }
}

#[test]
fn move_of_a_missing_or_used_state_is_refused() {
    for engine in ENGINES {
        let origin = filled_place(engine, 4);
        let target = Place::new(engine);
        let nothing = Place::new(engine);
        let missing = move_between(&nothing, &target).expect_err("no state");
        assert!(matches!(missing, Error::Missing(_)), "{missing}");
        let (handle, guard) = origin.open(Settings::default());
        let used = move_between(&origin, &target).expect_err("in use");
        match engine {
            Engine::Sqlite => assert!(matches!(used, Error::Locked(..)), "{used}"),
            Engine::Postgres => {
                assert!(
                    matches!(&used, Error::InUse(_, Some(name)) if name == "test"),
                    "{used}"
                );
            }
        }
        drop(handle);
        guard.close();
        move_between(&origin, &target).expect("free");
    }
}

/// The settings of a state that was never used don't make it count as a state.
#[test]
fn move_target_without_calls_is_replaced() {
    for engine in ENGINES {
        let (origin, target) = (filled_place(Engine::Sqlite, 4), Place::new(engine));
        let before = dump(&origin);
        let mut store = target.store(Settings::default());
        store
            .write(vec![Op::meta("bound.address", "https://other.example")])
            .expect("stored");
        drop(store);
        move_between(&origin, &target).expect("moved");
        assert_same(&dump(&target), &before);
    }
}

/// Returns the rows of a state, provided that `run` would open it.
fn usable_rows(place: &Place) -> Result<String, Error> {
    let held = HeldState::open(&state_place(place), Use::To, "test").expect("free");
    let text = refuse_unusable(&held).and_then(|()| crate::transfer::dump(&held));
    held.close();
    text
}

/// Returns a hook that loses the session before the nth statement, counting both states together.
fn session_loss_hook(n: u64, count: &Arc<AtomicU64>) -> crate::StatementHook {
    let count = Arc::clone(count);
    Arc::new(move |_| count.fetch_add(1, Ordering::Relaxed) + 1 < n)
}

/// Moves a state, losing the session before the nth statement, and returns the number of
/// statements.
fn try_move(from: &Place, to: &Place, n: u64) -> Result<u64, Error> {
    let mut source = HeldState::open(&state_place(from), Use::From, "test")?;
    let mut target = HeldState::open(&state_place(to), Use::To, "test")?;
    let count = Arc::new(AtomicU64::new(0));
    source.set_hook(session_loss_hook(n, &count));
    target.set_hook(session_loss_hook(n, &count));
    move_rows(&source, &target, &mut ignore)?;
    source.close();
    target.close();
    Ok(count.load(Ordering::Relaxed))
}

/// How far apart the statements are that are tried. The other tables are all copied in the same
/// way, so there's no need to try every statement there.
const STATEMENTS_APART: u64 = 9;
/// Number of statements at either end that are all tried.
const EACH_AT_ENDS: u64 = 30;

/// Promise: A move that is interrupted leaves the state usable in one place.
#[test]
fn move_interrupted_at_any_statement_leaves_one_state() {
    for (first, second) in [
        (Engine::Sqlite, Engine::Postgres),
        (Engine::Postgres, Engine::Sqlite),
    ] {
        let (origin, target) = (filled_place(first, 1), Place::new(second));
        let before = dump(&origin);
        try_move(&origin, &target, u64::MAX).expect("moved");
        move_between(&target, &origin).expect("moved back");
        // Later moves don't check for rows in the target.
        let all = try_move(&origin, &target, u64::MAX).expect("moved again");
        move_between(&target, &origin).expect("moved back");
        assert!(all > 180, "{all} statements are too few");
        let mut was_last_step_missing = false;
        let mut n = 0;
        loop {
            let is_at_end = n < EACH_AT_ENDS || n + EACH_AT_ENDS > all;
            n += if is_at_end { 1 } else { STATEMENTS_APART };
            if try_move(&origin, &target, n).is_ok() {
                break;
            }
            if let Ok(text) = usable_rows(&target) {
                assert!(!text.contains("\ncalls "), "statement {n}: a part");
            }
            match usable_rows(&origin) {
                Ok(text) => assert_same(&text, &before),
                Err(Error::Moved(..)) => {
                    was_last_step_missing = true;
                    move_between(&origin, &target).expect("finished");
                    assert_same(&usable_rows(&target).expect("usable"), &before);
                    move_between(&target, &origin).expect("moved back");
                }
                Err(error) => panic!("statement {n}: {error}"),
            }
        }
        assert!(was_last_step_missing);
        assert_same(&usable_rows(&target).expect("usable"), &before);
    }
}

#[test]
fn tokens_stored_during_a_move_are_moved() {
    for (first, second) in [
        (Engine::Sqlite, Engine::Postgres),
        (Engine::Postgres, Engine::Sqlite),
    ] {
        let (origin, target) = (filled_place(first, 2), Place::new(second));
        let (from, to) = (state_place(&origin), state_place(&target));
        let connections = origin.connections();
        let mut is_done = false;
        let moved = move_state(&from, &to, &mut |copied: Copied<'_>| {
            if copied.table == "unreadable" && !is_done {
                connect(&connections, "svcrt_second");
                is_done = true;
            }
        });
        moved.expect("moved");
        assert!(is_done);
        let stored = target
            .connections()
            .read()
            .expect("readable")
            .expect("connected");
        assert_eq!(stored.refresh_token.expose_secret(), "svcrt_second");
    }
}

#[test]
fn predecessor_after_a_move_to_a_folder_is_the_database_leader() {
    let origin = Place::new(Engine::Postgres);
    let (handle, guard) = origin.open(Settings::default());
    drop(handle);
    guard.close();
    let target = Place::new(Engine::Sqlite);
    move_between(&origin, &target).expect("moved");
    for _ in 0..2 {
        let (handle, guard) = target.open(Settings::default());
        let silence = block_on(handle.read(|store| Ok(store.silence().cloned())));
        let silence = silence.expect("readable").expect("a silence");
        assert_eq!(silence.why, SilenceReason::TakenOver("test".to_owned()));
        drop(handle);
        guard.close();
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(work)
}

#[test]
fn move_progress_counts_the_rows_of_each_table() {
    let (origin, target) = (
        filled_place(Engine::Sqlite, 60),
        Place::new(Engine::Postgres),
    );
    let mut reports: BTreeMap<String, Vec<(u64, u64)>> = BTreeMap::new();
    let (from, to) = (state_place(&origin), state_place(&target));
    let done = move_state(&from, &to, &mut |copied: Copied<'_>| {
        let table = copied.table.to_owned();
        reports
            .entry(table)
            .or_default()
            .push((copied.rows, copied.of));
    });
    let rows = done.expect("moved").rows;
    assert!(reports["calls"].len() > 1, "{reports:?}");
    for (table, all) in rows {
        let of_table = &reports[&table];
        assert!(of_table.is_sorted(), "{table}: {of_table:?}");
        let (copied, of) = of_table.last().copied().expect("one report");
        assert_eq!(copied, all, "{table}");
        // Settings that belong to the place are counted in `of` but not copied.
        assert!(of == all || table == "meta", "{table}: {of} and not {all}");
    }
}

#[test]
fn partially_copied_state_is_not_opened_or_moved() {
    for engine in ENGINES {
        let place = Place::new(engine);
        let mut store = place.store(Settings::default());
        store
            .write(vec![Op::meta("spool.unfinished", "copy")])
            .expect("stored");
        drop(store);
        let refused = place.try_open(Settings::default()).expect_err("unfinished");
        assert!(matches!(refused, Error::Unfinished(_)), "{refused}");
        let refused = move_between(&place, &Place::new(engine)).expect_err("unfinished");
        assert!(matches!(refused, Error::Unfinished(_)), "{refused}");
    }
}

fn export_place(place: &Place, path: &Path, secrets: bool) -> ArchivedSecrets {
    let mut to = OpenOptions::new()
        .create_new(true)
        .write(true)
        .open(path)
        .expect("a file");
    let place = state_place(place);
    let written = export(&place, secrets, (&mut to, path), ("0.1.0", 1), &mut ignore);
    written.expect("exported").secrets
}

fn import_place(place: &Place, path: &Path) -> Result<(), crate::archive::ArchiveError> {
    let from = File::open(path).expect("a file");
    import(&state_place(place), (from, path), &mut ignore).map(drop)
}

/// Returns a dump without the silence, since a copy starts one of its own.
fn without_silence(dump: &str) -> String {
    let lines = dump.lines().filter(|line| !line.starts_with("silence "));
    lines.collect::<Vec<_>>().join("\n")
}

/// Promise: A database can be exported while a hub uses it, and imported into another place.
#[test]
fn database_exported_in_use_is_imported_into_any_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let origin = filled_place(Engine::Postgres, 10);
    let (handle, guard) = origin.open(Settings::default());
    let path = folder.path().join("with");
    assert_eq!(
        export_place(&origin, &path, true),
        ArchivedSecrets::Included
    );
    let without = folder.path().join("without");
    assert_eq!(
        export_place(&origin, &without, false),
        ArchivedSecrets::LeftOut
    );
    for (path, has_secrets) in [(&path, true), (&without, false)] {
        let archive = std::fs::read(path).expect("readable");
        let found = archive.windows(6).any(|bytes| bytes == b"hidden");
        assert_eq!(found, has_secrets);
    }
    let left: Vec<_> = folder.path().read_dir().expect("readable").collect();
    assert_eq!(left.len(), 2, "{left:?}");
    drop(handle);
    guard.close();
    let before = without_silence(&dump(&origin));
    for engine in ENGINES {
        let place = Place::new(engine);
        import_place(&place, &path).expect("imported");
        let refused = import_place(&place, &path).expect_err("not empty");
        assert!(refused.to_string().contains("not empty"), "{refused}");
        assert_same(&without_silence(&dump(&place)), &before);
        let (handle, guard) = place.open(Settings::default());
        let silence = block_on(handle.read(|store| Ok(store.silence().cloned())));
        let why = silence.expect("readable").map(|silence| silence.why);
        assert_eq!(why, Some(SilenceReason::Copied));
        drop(handle);
        guard.close();
        let bare = Place::new(engine);
        import_place(&bare, &without).expect("imported");
        assert_eq!(bare.connections().read().expect("readable"), None);
    }
}

#[test]
fn export_is_a_snapshot_of_one_moment() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("exported");
    let origin = filled_place(Engine::Postgres, 2);
    let mut store: Store = origin.store(Settings::default());
    let before = store.books();
    let mut to = File::create_new(&path).expect("a file");
    let place = state_place(&origin);
    let written = export(
        &place,
        true,
        (&mut to, &path),
        ("0.1.0", 1),
        &mut |_: Copied<'_>| {
            let call = super::call::journal(70_000);
            store
                .write(vec![Op::Finish(Box::new(call))])
                .expect("stored");
        },
    );
    written.expect("exported");
    assert!(store.books().ready > before.ready);
    drop(store);
    let copy = Place::new(Engine::Sqlite);
    import_place(&copy, &path).expect("imported");
    assert_eq!(copy.store(Settings::default()).books(), before);
}

#[test]
fn state_that_was_moved_away_is_not_exported() {
    let folder = tempfile::tempdir().expect("a folder");
    for engine in ENGINES {
        let (origin, target) = (filled_place(engine, 2), Place::new(Engine::Sqlite));
        move_between(&origin, &target).expect("moved");
        let path = folder.path().join("exported");
        let mut to = File::create(&path).expect("a file");
        let place = state_place(&origin);
        let refused = export(&place, true, (&mut to, &path), ("0.1.0", 1), &mut ignore);
        let refused = refused.expect_err("an old copy");
        assert!(
            refused.to_string().contains("was moved: give --state"),
            "{refused}"
        );
    }
}

#[test]
fn move_into_a_database_in_use_is_refused() {
    let origin = filled_place(Engine::Sqlite, 2);
    let target = Place::new(Engine::Postgres);
    let (handle, guard) = target.open(Settings::default());
    let refused = move_between(&origin, &target).expect_err("another process leads");
    assert!(matches!(refused, Error::InUse(..)), "{refused}");
    drop(handle);
    guard.close();
    let Place::Schema(schema) = &target else {
        panic!("a schema");
    };
    let text = format!("SELECT count(*) FROM {schema}.meta WHERE key = 'spool.unfinished'");
    assert_eq!(Postgres::shared().sql(&text), "0");
    assert_eq!(
        tables::books::recount(&origin.store(Settings::default())).expect("a recount"),
        []
    );
}
