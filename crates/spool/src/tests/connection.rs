//! Tests that the connection is private, and that it outlives its process.

use crate::{ConnectionChange, ConnectionStore, Error, Op, Settings, StoredConnection, open};
use callbridge_model::Secret;
use std::os::unix::fs::PermissionsExt as _;

pub(super) fn stored_connection(name: &str) -> StoredConnection {
    StoredConnection {
        refresh_token: Secret::from(format!("svcrt_{name}_hidden")),
        content: Secret::from(format!("{{\"{name}\":\"hidden\"}}")),
    }
}

pub(super) fn change(from: Option<&str>, to: Option<&str>) -> ConnectionChange {
    ConnectionChange {
        from: from.map(stored_connection),
        to: to.map(stored_connection),
    }
}

#[tokio::test]
async fn connection_outlives_its_process_in_private_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = ConnectionStore::new(folder.path());
    assert_eq!(store.read(), Ok(None), "no state");
    let connect = change(None, Some("a"));
    assert_eq!(
        store.change(&connect),
        Err(Error::Missing(folder.path().to_path_buf()))
    );
    assert_eq!(folder.path().read_dir().expect("a folder").count(), 0);
    let (handle, guard) = open(folder.path(), Settings::default()).expect("open");
    assert_eq!(store.change(&connect), Ok(true));
    drop(handle);
    guard.close();
    // The connection can be read and changed in the same file without any other process.
    assert_eq!(store.read(), Ok(Some(stored_connection("a"))));
    let about = folder.path().join("spool.db").metadata().expect("there");
    assert_eq!(about.permissions().mode() & 0o777, 0o600);
    let (handle, guard) = open(folder.path(), Settings::default()).expect("open");
    let silence = handle.read(|store| Ok(store.silence().cloned())).await;
    assert_eq!(silence, Ok(None));
    drop(handle);
    guard.close();
}

#[test]
fn secrets_appear_in_no_debug_output_or_error() {
    let change = change(Some("a"), Some("b"));
    let op = Op::Connection(Box::new(change.clone()));
    let shown = format!("{change:?} {op:?} {:?}", stored_connection("a"));
    assert!(!shown.contains("hidden"), "{shown}");
    let folder = tempfile::tempdir().expect("a folder");
    let (_handle, guard) = open(folder.path(), Settings::default()).expect("open");
    guard.close();
    let file = folder.path().join("spool.db");
    let db = rusqlite::Connection::open(&file).expect("a database");
    db.execute_batch(
        "DROP TABLE connection; CREATE TABLE connection (id INTEGER PRIMARY KEY CHECK (id > 1),
         refresh_token TEXT NOT NULL, content TEXT NOT NULL)",
    )
    .expect("changed");
    drop(db);
    let store = ConnectionStore::new(folder.path());
    let connect = ConnectionChange {
        from: None,
        ..change
    };
    let error = store.change(&connect).expect_err("a constraint");
    let shown = format!("{error} {error:?}");
    assert!(
        shown.contains("CHECK") && !shown.contains("hidden"),
        "{shown}"
    );
}
