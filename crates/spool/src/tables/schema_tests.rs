use super::*;
fn version(db: &Connection) -> i64 {
    db.query_row("PRAGMA user_version", [], |row| row.get(0))
        .expect("a version")
}

/// Returns the value of a pragma as text, such as `wal`, or `Integer(2)` for a number.
fn pragma_text(store: &crate::store::Store, pragma: &str) -> String {
    let connection = store.sqlite_connection().expect("SQLite");
    let found = connection.pragma_query_value(None, pragma, |row| row.get(0));
    match found.expect("a value") {
        rusqlite::types::Value::Text(text) => text,
        other => format!("{other:?}"),
    }
}

fn table_names(db: &Connection) -> Vec<String> {
    let mut query = db
        .prepare("SELECT name FROM sqlite_master ORDER BY name")
        .expect("a query");
    let names = query
        .query_map([], |row| row.get::<_, String>(0))
        .expect("rows");
    names.map(|name| name.expect("a name")).collect()
}

#[test]
fn commits_are_synced_into_a_write_ahead_log() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("spool");
    let db = Connection::open(&path).expect("opens");
    let store =
        crate::store::Store::from_connection(db, &path, Default::default()).expect("a store");
    // 2 stands for FULL, which syncs the log before reporting a commit.
    assert_eq!(pragma_text(&store, "synchronous"), "Integer(2)");
    assert_eq!(pragma_text(&store, "journal_mode"), "wal");
}

#[test]
fn older_file_gets_only_the_missing_migration_steps() {
    let db = Connection::open_in_memory().expect("memory");
    let first = "CREATE TABLE a (x);";
    assert_eq!(migrate(&db, &[first]), Ok(Found::New));
    let both = [
        first,
        "ALTER TABLE a ADD COLUMN y; INSERT INTO a VALUES (1, 2);",
    ];
    assert_eq!(migrate(&db, &both), Ok(Found::Migrated(1)));
    assert_eq!(migrate(&db, &both), Ok(Found::Current));
    assert_eq!(version(&db), 2);
    let rows: i64 = db
        .query_row("SELECT count(*) FROM a", [], |row| row.get(0))
        .expect("a count");
    assert_eq!(rows, 1);
}

#[test]
fn failed_migration_step_leaves_the_file_unchanged() {
    let db = Connection::open_in_memory().expect("memory");
    migrate(&db, &["CREATE TABLE a (x);"]).expect("the first step");
    let steps = [
        "CREATE TABLE a (x);",
        "CREATE TABLE b (x); CREATE TABLE a (x);",
    ];
    assert!(migrate(&db, &steps).is_err());
    assert!(db.is_autocommit());
    assert_eq!(version(&db), 1);
    assert!(
        db.prepare("SELECT * FROM b").is_err(),
        "half a step was kept"
    );
}

#[test]
fn newer_and_foreign_files_are_left_unchanged() {
    let db = Connection::open_in_memory().expect("memory");
    let steps = ["CREATE TABLE a (x);", "CREATE TABLE b (x);"];
    migrate(&db, &steps).expect("both steps");
    assert_eq!(migrate(&db, &steps[..1]), Ok(Found::Newer(2)));
    assert_eq!(version(&db), 2);
    assert_eq!(table_names(&db), ["a", "b"]);
    let db = Connection::open_in_memory().expect("memory");
    db.execute_batch("CREATE TABLE cookies (x)")
        .expect("a table");
    assert_eq!(migrate(&db, &steps), Ok(Found::Foreign));
    assert_eq!(version(&db), 0);
    assert_eq!(table_names(&db), ["cookies"]);
}
