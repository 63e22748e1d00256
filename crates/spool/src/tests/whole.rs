//! Is a whole state of the released schema read, every value of it?
//!
//! `schema_8.sql` was written by that schema's own code, by every operation there is, and is never
//! changed. A later schema gets a file of its own beside it.

use super::frozen::{contents, tables, texts};
use crate::folder::FILE;
use crate::tables::schema;
use crate::tables::schema::MIGRATIONS;
use crate::{CallFilter, Guard, Handle, LetterFilter, Row, RowId, Settings, State, open, tables};
use callbridge_call::trunk::Endpoints;
use callbridge_call::{Assembler, Settings as Assembling};
use callbridge_leads::directory::backfill::Backfill;
use callbridge_testkit::Wait as _;
use rusqlite::Connection;
use std::collections::BTreeSet;
use std::path::Path;

/// The schema of the first release, and a state of it.
const RELEASED: usize = 8;
const WHOLE: &str = include_str!("schema_8.sql");

fn frozen(dir: &Path) -> Connection {
    let db = Connection::open(dir.join(FILE)).expect("made");
    db.execute_batch(WHOLE).expect("the script is whole");
    db
}

fn opened(dir: &Path) -> (Handle, Guard) {
    frozen(dir).close().expect("closed");
    open(dir, Settings::default()).expect("a file of the released schema opens")
}

/// All calls.
fn rows(handle: &Handle) -> Vec<Row> {
    let row = |id| {
        handle
            .read(move |store| tables::calls::row(store, RowId(id)))
            .wait()
    };
    let rows = (1..200).filter_map(|id| row(id).expect("readable"));
    rows.collect()
}

#[test]
fn the_steps_up_to_it_are_never_changed() {
    let schema = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL
                  AND name NOT LIKE 'sqlite%' ORDER BY name";
    let dir = tempfile::tempdir().expect("a folder");
    let made = Connection::open_in_memory().expect("memory");
    schema::migrate(&made, &MIGRATIONS[..RELEASED]).expect("made");
    assert_eq!(texts(&made, schema), texts(&frozen(dir.path()), schema));
}

#[test]
fn no_table_is_empty_no_state_is_missing_and_no_value_is_lost() {
    let dir = tempfile::tempdir().expect("a folder");
    let db = frozen(dir.path());
    let tables = tables(&db);
    let mut before = contents(&db, &tables);
    db.close().expect("closed");
    let empty: Vec<&String> = before
        .iter()
        .filter(|(_, rows)| rows.is_empty())
        .map(|(name, _)| name)
        .collect();
    assert_eq!(empty, [] as [&String; 0]);
    let (handle, guard) = open(dir.path(), Settings::default()).expect("opens");
    let states: BTreeSet<State> = rows(&handle).iter().map(|row| row.state).collect();
    // No call was forwarded in those days.
    let known = State::ALL
        .iter()
        .copied()
        .filter(|it| *it != State::Forwarded);
    assert_eq!(states, known.collect());
    guard.close();
    let db = Connection::open(dir.path().join(FILE)).expect("opens");
    let mut after = contents(&db, &tables);
    // The spool's own notes are not the user's.
    for contents in [&mut before, &mut after] {
        let meta = contents.get_mut("meta").expect("a table");
        let own = |key: &str| key.starts_with("spool.");
        meta.retain(|row| !matches!(&row[0], rusqlite::types::Value::Text(key) if own(key)));
    }
    for (name, rows) in &before {
        assert_eq!(rows, &after[name], "{name}");
    }
}

#[test]
fn every_call_and_letter_of_it_is_understood_and_the_books_agree() {
    let dir = tempfile::tempdir().expect("a folder");
    let (handle, _guard) = opened(dir.path());
    let rows = rows(&handle);
    let read = handle
        .read(|store| Ok((store.books(), tables::books::recount(store)?)))
        .wait();
    let (books, recount) = read.expect("readable");
    assert_eq!(recount, []);
    assert_eq!(books.finished, 77, "four of them are purged");
    let count = |state| rows.iter().filter(|row| row.state == state).count() as u64;
    assert_eq!(count(State::Dead) + count(State::Parked), 28);
    assert_eq!(count(State::Sending), books.sending);
    let letters = handle
        .read(|store| tables::letters::letters(store, &LetterFilter::default()))
        .wait();
    let letters = letters.expect("readable");
    let bytes = letters.iter().filter(|letter| letter.bytes.is_some());
    assert_eq!(
        (letters.len() - bytes.count()) as u64,
        books.dead + books.parked
    );
    let by_hand = rows.iter().find_map(|row| row.record.by_hand_words());
    let words = "answered, 80 s of talk; the PBX reported: not answered";
    assert_eq!(by_hand.as_deref(), Some(words));
    let notices = handle
        .read(|store| tables::outbox::notices(store, 100))
        .wait();
    let notices = notices.expect("readable");
    let told: BTreeSet<&str> = notices.iter().map(|notice| &*notice.state).collect();
    let wants = ["dead", "discarded", "parked", "released", "retried"];
    assert_eq!(told.into_iter().collect::<Vec<_>>(), wants);
    assert!(notices.iter().all(|notice| notice.at.is_some()));
}

#[test]
fn what_stands_beside_the_calls_is_understood() {
    let dir = tempfile::tempdir().expect("a folder");
    let (handle, _guard) = opened(dir.path());
    let read = handle
        .read(|store| {
            assert_ne!(
                tables::backfill::backfill(store)?,
                Some(Backfill::default())
            );
            assert!(
                tables::backfill::backfill(store)?.is_some()
                    && tables::shows::catalogue(store)?.is_some()
            );
            assert_eq!(
                tables::meta::meta(store, "pbx-timezone")?.as_deref(),
                Some("Asia/Tashkent")
            );
            assert!(
                tables::meta::binding(store)?.company.is_some()
                    && tables::deliveries::hooked(store)?.is_some()
            );
            assert_eq!(tables::slots::slots(store)?.len(), 1);
            assert!(tables::shows::leads_to_show(store)? <= 1);
            let source = "file:///var/log/asterisk/cel-custom/Master.csv";
            assert_eq!(
                tables::resume::position(store, source)?.expect("one")["offset"],
                52_428_800
            );
            let all = CallFilter::default();
            let (internal, _) = tables::listed::listed_internal(store, &all, all.beginning())?;
            assert_eq!(internal.len(), 1);
            tables::resume::all_open_calls(store)
        })
        .wait();
    let open = read.expect("readable");
    let [(pbx, key, snapshot)] = &open[..] else {
        panic!("{} open calls", open.len());
    };
    assert_eq!((pbx.as_str(), *key), ("pbx1", u64::MAX));
    let mut assembler = Assembler::new(Assembling::new(Endpoints::default()));
    assembler.restore(*key, snapshot).expect("an open call");
}
