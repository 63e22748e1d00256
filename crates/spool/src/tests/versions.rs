//! Tests of files with a different schema version.

use super::call::journal;
use crate::folder::FILE;
use crate::tables::schema::{Found, MIGRATIONS, migrate};
use crate::{Done, Error, Op, RowId, Settings, open, tables};
use callbridge_model::ExitCode as _;
use callbridge_testkit::Wait as _;
use rusqlite::Connection;
use std::path::Path;

/// Creates a state with one call, and closes it.
fn state_with_a_call(dir: &Path) {
    let (handle, guard) = open(dir, Settings::default()).expect("a new state");
    let finish = Op::Finish(Box::new(journal(1)));
    let done = handle.write(vec![finish]).wait().expect("stored");
    assert_eq!(done, [Done::New(RowId(1))]);
    guard.close();
}

#[test]
fn newer_schema_error_names_the_version_and_keeps_the_file() {
    let dir = tempfile::tempdir().expect("a folder");
    state_with_a_call(dir.path());
    let file = dir.path().join(FILE);
    let db = Connection::open(&file).expect("opens");
    let newer = MIGRATIONS.len() + 1;
    db.execute_batch(&format!("PRAGMA user_version = {newer}"))
        .expect("set");
    db.close().expect("closed");
    let before = std::fs::read(&file).expect("readable");
    let error = open(dir.path(), Settings::default()).expect_err("a newer schema");
    assert!(matches!(error, Error::NewerSchema { .. }), "{error}");
    assert!(error.to_string().contains(&newer.to_string()), "{error}");
    assert_eq!(error.exit_code().number(), 78);
    let after = std::fs::read(&file).expect("readable");
    assert!(before == after, "the file was touched");
}

#[test]
fn next_version_migrates_a_state_and_keeps_its_calls() {
    let dir = tempfile::tempdir().expect("a folder");
    state_with_a_call(dir.path());
    let file = dir.path().join(FILE);
    let mut next = MIGRATIONS.to_vec();
    next.push("ALTER TABLE calls ADD COLUMN later TEXT; UPDATE calls SET later = state;");
    let db = Connection::open(&file).expect("opens");
    let from = i64::try_from(MIGRATIONS.len()).expect("a few");
    assert_eq!(migrate(&db, &next), Ok(Found::Migrated(from)));
    let later: String = db
        .query_row("SELECT later FROM calls", [], |row| row.get(0))
        .expect("the call");
    assert_eq!(later, "ready");
    // The schema version is set back, but the new column stays.
    db.execute_batch(&format!("PRAGMA user_version = {from}"))
        .expect("set");
    db.close().expect("closed");
    let (handle, _guard) = open(dir.path(), Settings::default()).expect("opens");
    let row = handle.read(|store| tables::calls::row(store, RowId(1)));
    assert!(row.wait().expect("readable").is_some());
}
