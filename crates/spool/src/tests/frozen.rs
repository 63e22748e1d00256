//! Does a file of the first schema stay readable, with everything in it, for ever?
//!
//! `schema_1.sql` was written by the first schema's own code and is never changed. A later schema
//! gets a file of its own beside it.

use super::call::{T0, ask, at, journal};
use crate::folder::FILE;
use crate::tables::schema;
use crate::tables::schema::MIGRATIONS;
use crate::{
    Done, Error, Guard, Handle, LetterFilter, Op, Row, RowId, Settings, State, Step, open, tables,
};
use callbridge_model::status::Books;
use callbridge_model::{ExitCode as _, LeadId, Phone, Reason, TokenFingerprint};
use callbridge_testkit::Wait as _;
use rusqlite::{Connection, types::Value};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// A state of the first schema.
const FIRST: &str = include_str!("schema_1.sql");

/// Every row of every table that is named, with the columns that are named.
pub(super) type Contents = BTreeMap<String, Vec<Vec<Value>>>;

pub(super) fn texts(db: &Connection, question: &str) -> Vec<String> {
    let mut found = db.prepare(question).expect("a question");
    let rows = found.query_map([], |row| row.get(0)).expect("rows");
    rows.map(|row| row.expect("text")).collect()
}

pub(super) fn tables(db: &Connection) -> BTreeMap<String, Vec<String>> {
    let names = texts(
        db,
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'",
    );
    let columns = |name: &String| {
        let question = format!("SELECT name FROM pragma_table_info('{name}')");
        texts(db, &question)
    };
    names
        .into_iter()
        .map(|name| (name.clone(), columns(&name)))
        .collect()
}

pub(super) fn contents(db: &Connection, tables: &BTreeMap<String, Vec<String>>) -> Contents {
    let read = |(name, columns): (&String, &Vec<String>)| {
        let columns_text = columns.join(", ");
        let mut found = db
            .prepare(&format!("SELECT {columns_text} FROM {name} ORDER BY 1, 2"))
            .expect("the table and its columns are still there");
        let row = |row: &rusqlite::Row<'_>| {
            (0..columns.len())
                .map(|at| row.get(at))
                .collect::<Result<Vec<Value>, _>>()
        };
        let rows = found.query_map([], row).expect("rows");
        (name.clone(), rows.map(|row| row.expect("a row")).collect())
    };
    tables.iter().map(read).collect()
}

/// A state folder with a file of the first schema.
fn first(dir: &Path) -> Connection {
    let db = Connection::open(dir.join(FILE)).expect("made");
    db.execute_batch(FIRST).expect("the script is whole");
    db
}

fn opened(dir: &Path) -> (Handle, Guard) {
    open(dir, Settings::default()).expect("a file of the first schema opens")
}

fn row(handle: &Handle, id: i64) -> Row {
    let found = handle
        .read(move |store| tables::calls::row(store, RowId(id)))
        .wait();
    found.expect("readable").expect("a row")
}

#[test]
fn the_first_step_of_the_migrations_is_the_first_schema_to_the_letter() {
    let schema = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL
                  AND name NOT LIKE 'sqlite%' ORDER BY name";
    let frozen = Connection::open_in_memory().expect("memory");
    frozen.execute_batch(FIRST).expect("the script is whole");
    let made = Connection::open_in_memory().expect("memory");
    schema::migrate(&made, &MIGRATIONS[..1]).expect("made");
    assert_eq!(texts(&made, schema), texts(&frozen, schema));
}

#[test]
fn a_migrated_file_has_the_tables_of_a_fresh_one_whatever_it_was_before() {
    let schema = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name";
    let fresh = Connection::open_in_memory().expect("memory");
    schema::migrate(&fresh, MIGRATIONS).expect("made");
    for version in 1..MIGRATIONS.len() {
        let older = Connection::open_in_memory().expect("memory");
        if version == 1 {
            older.execute_batch(FIRST).expect("the script is whole");
        } else {
            schema::migrate(&older, &MIGRATIONS[..version]).expect("made");
        }
        schema::migrate(&older, MIGRATIONS).expect("migrated");
        assert_eq!(texts(&older, schema), texts(&fresh, schema), "{version}");
    }
}

#[test]
fn what_an_older_version_kept_of_a_login_counts_among_what_it_may_fill() {
    let db = Connection::open_in_memory().expect("memory");
    let before = MIGRATIONS
        .iter()
        .position(|it| it.contains("unreadable_logins"));
    schema::migrate(&db, &MIGRATIONS[..before.expect("a step")]).expect("made");
    db.execute_batch(
        "INSERT INTO unreadable (source, pbx, why, at, length, bytes, user) VALUES
         ('s', '', 'w', 1, 2, x'0102', NULL), ('s', '', 'w', 1, 1, x'01', ''),
         ('s', '', 'w', 1, 3, x'010203', 'b7'), ('s', '', 'w', 1, 1, x'01', 'b7')",
    )
    .expect("kept");
    schema::migrate(&db, MIGRATIONS).expect("migrated");
    let sums = "SELECT login || ' ' || letters || ' ' || bytes FROM unreadable_logins ORDER BY 1";
    assert_eq!(texts(&db, sums), [" 2 3", "b7 2 4"]);
    db.execute("DELETE FROM unreadable WHERE length(bytes) != 3", [])
        .expect("settled");
    assert_eq!(texts(&db, sums), ["b7 1 3"]);
}

#[test]
fn a_file_of_the_first_schema_is_migrated_and_keeps_every_value_of_every_row() {
    let dir = tempfile::tempdir().expect("a folder");
    let db = first(dir.path());
    let tables = tables(&db);
    let mut before = contents(&db, &tables);
    db.close().expect("closed");
    assert!(
        before.values().all(|rows| !rows.is_empty()),
        "a table is empty"
    );
    let (_handle, guard) = opened(dir.path());
    guard.close();
    let db = Connection::open(dir.path().join(FILE)).expect("opens");
    let version: i64 = db
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .expect("a version");
    assert_eq!(version, MIGRATIONS.len() as i64);
    let mut after = contents(&db, &tables);
    // The spool's own notes are not the user's.
    for contents in [&mut before, &mut after] {
        let meta = contents.get_mut("meta").expect("a table");
        meta.retain(|row| !matches!(&row[0], Value::Text(key) if key.starts_with("spool.")));
    }
    for (name, rows) in &before {
        assert_eq!(rows, &after[name], "{name}");
    }
    let sound: String = db
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .expect("an answer");
    assert_eq!(sound, "ok");
}

#[test]
fn the_books_of_the_first_schema_balance_and_agree_with_its_rows() {
    let dir = tempfile::tempdir().expect("a folder");
    first(dir.path());
    let (handle, _guard) = opened(dir.path());
    let read = handle
        .read(|store| {
            Ok((
                store.books(),
                tables::books::recount(store)?,
                store.counters(),
            ))
        })
        .wait();
    let (books, recount, counters) = read.expect("readable");
    let expected = Books {
        finished: 20,
        ready: 3,
        sending: 1,
        submitted: 3,
        journaled: 3,
        dead: 6,
        parked: 3,
        discarded: 1,
        forwarded: 0,
        internal: 1,
        skipped: 1,
        unreadable: 3,
    };
    assert_eq!(books, expected);
    assert_eq!(recount, []);
    assert_eq!(
        counters,
        [("clamped".into(), 3), ("repeats".into(), 1)].into()
    );
}

#[test]
fn rows_of_the_first_schema_say_what_they_said() {
    let dir = tempfile::tempdir().expect("a folder");
    first(dir.path());
    let (handle, _guard) = opened(dir.path());
    let ready = row(&handle, 1);
    let call = journal(1);
    assert_eq!((ready.state, ready.live), (State::Ready, true));
    assert_eq!(ready.uuid, call.judged.record.uuid.expect("one"));
    assert_eq!((ready.record, ready.call), (call.judged.record, call.call));
    assert!(!row(&handle, 2).live, "of the backlog");
    let held = row(&handle, 3);
    assert_eq!(
        (held.state, held.not_before),
        (State::Ready, at(99).micros())
    );
    let words: Vec<_> = held.attempts.iter().map(|attempt| &attempt.words).collect();
    assert_eq!(words, ["503 Service Unavailable"; 2]);
    assert_eq!(row(&handle, 4).state, State::Sending);
    let polled = row(&handle, 6);
    assert_eq!((polled.state, polled.polls), (State::Submitted, 2));
    assert_eq!(
        (polled.submitted_at, polled.next_poll),
        (Some(at(33)), Some(at(55)))
    );
    assert_eq!(polled.request_id.as_deref(), Some("f3b0c442-6"));
    assert_eq!(polled.token, Some(TokenFingerprint::of("token")));
    assert_eq!((row(&handle, 7).resubmits, row(&handle, 7).polls), (1, 0));
    assert_eq!(row(&handle, 9).state, State::Journaled);
    let dead = row(&handle, 12);
    assert_eq!(dead.reason, Some(Reason::ServerError));
    assert_eq!(dead.message, "Лид 4999 не найден");
    assert_eq!(dead.record.lead_id, LeadId::new(4002));
    let errors = dead.errors.as_deref().unwrap_or_default();
    let errors: serde_json::Value = serde_json::from_str(errors).expect("JSON");
    assert_eq!(errors[0]["message"], "NOT_FOUND");
    assert_eq!(row(&handle, 19).state, State::Discarded);
}

#[test]
fn what_stands_beside_the_calls_of_the_first_schema_is_read_too() {
    let dir = tempfile::tempdir().expect("a folder");
    first(dir.path());
    let (handle, _guard) = opened(dir.path());
    let read = handle
        .read(|store| {
            let source = "file:///var/log/asterisk/cel-custom/Master.csv";
            let tombstone =
                tables::seen_calls::tombstone(store, "pbx1", &format!("{T0}.5"))?.expect("one");
            assert_eq!((tombstone.own, tombstone.started.get()), (false, T0 + 2));
            assert_eq!(
                tables::resume::position(store, source)?.expect("one")["offset"],
                52_428_800
            );
            assert_eq!(
                tables::meta::meta(store, "pbx.id")?.as_deref(),
                Some("pbx-1f2e3d4c5b6a7988")
            );
            let binding = tables::meta::binding(store)?;
            assert_eq!(binding.address.as_deref(), Some("https://api.example.com"));
            assert_eq!(binding.company.as_deref(), Some("company-1"));
            let slots = tables::slots::slots(store)?;
            assert_eq!((slots.len(), slots[1].slot), (2, 59));
            assert_eq!(slots[0].answered, Some(Duration::new(101, 6)));
            let open = tables::resume::all_open_calls(store)?;
            assert_eq!(open[1], ("pbx2".into(), u64::MAX, vec![0, 1, 255]));
            let notices = tables::outbox::notices(store, 100)?;
            assert_eq!(notices.len(), 13, "the first one was sent");
            assert_eq!(notices[2].message_id, "12:2");
            let letters = tables::letters::letters(store, &LetterFilter::default())?;
            assert_eq!(letters.len(), 11);
            let bytes = letters[10].bytes.clone().expect("unreadable");
            assert_eq!(bytes.bytes, b"\xff\xfe\x00'quoted'");
            let number = Phone::from_e164("+998935550015").expect("a number");
            assert_eq!(
                tables::parked::waiting_by_phone(store, &number)?,
                [RowId(15), RowId(16)]
            );
            Ok(())
        })
        .wait();
    read.expect("readable");
}

/// Work goes on where it stood, and no id is given again.
#[test]
fn calls_of_the_first_schema_go_on_their_way() {
    let dir = tempfile::tempdir().expect("a folder");
    first(dir.path());
    let (handle, _guard) = opened(dir.path());
    let step = |row: i64, step: Step| {
        let row = RowId(row);
        let at = at(1000);
        handle.write(vec![Op::Step { row, step, at }]).wait()
    };
    let head = handle
        .read(|store| tables::work_queue::to_reconcile(store, &ask(at(500))))
        .wait();
    let waiting: Vec<i64> = head.expect("rows").iter().map(|call| call.row.0).collect();
    assert_eq!(waiting, [5, 6, 7]);
    assert_eq!(
        step(6, Step::Journaled(crate::OutcomeSource::Confirmation)),
        Ok(vec![Done::Stepped(State::Journaled)])
    );
    assert_eq!(step(1, Step::Send), Ok(vec![Done::Stepped(State::Sending)]));
    let record = journal(11).judged.record;
    let retried = step(
        11,
        Step::Retry {
            by_itself: false,
            record,
        },
    );
    assert_eq!(retried, Ok(vec![Done::Stepped(State::Ready)]));
    let finish = |n| handle.write(vec![Op::Finish(Box::new(journal(n)))]).wait();
    assert_eq!(finish(5), Ok(vec![Done::Repeat(Some(RowId(5)))]));
    assert_eq!(
        finish(22),
        Ok(vec![Done::Repeat(None)]),
        "purged, but remembered"
    );
    let new = finish(99).expect("stored");
    assert!(
        matches!(new[..], [Done::New(RowId(24))]),
        "{new:?}: 23 was given before, and purged"
    );
}

#[test]
fn a_file_of_a_later_schema_is_refused_and_not_touched() {
    let dir = tempfile::tempdir().expect("a folder");
    let db = first(dir.path());
    let later = MIGRATIONS.len() + 1;
    db.execute_batch(&format!(
        "PRAGMA user_version = {later}; PRAGMA journal_mode = WAL;"
    ))
    .expect("set");
    db.close().expect("closed");
    let before = std::fs::read(dir.path().join(FILE)).expect("readable");
    let error = open(dir.path(), Settings::default()).expect_err("it is of the future");
    assert!(matches!(error, Error::NewerSchema { .. }), "{error}");
    assert_eq!(error.exit_code().number(), 78);
    let after = std::fs::read(dir.path().join(FILE)).expect("readable");
    assert!(before == after, "the file was touched");
}
