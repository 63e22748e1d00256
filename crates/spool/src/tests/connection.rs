//! Is a connection changed only by the holder of its refresh token, and by whatever process?

use crate::tables::connection;
use crate::{ConnectionChange, ConnectionStore, Done, Error, Op, Settings, StoredConnection, open};
use callbridge_model::Secret;
use std::os::unix::fs::PermissionsExt as _;

fn stored(name: &str) -> StoredConnection {
    StoredConnection {
        refresh_token: Secret::from(format!("svcrt_{name}_hidden")),
        content: Secret::from(format!("{{\"{name}\":\"hidden\"}}")),
    }
}

fn change(from: Option<&str>, to: Option<&str>) -> ConnectionChange {
    ConnectionChange {
        from: from.map(stored),
        to: to.map(stored),
    }
}

/// Each change with a name that is not stored is refused, by either way.
#[tokio::test]
async fn change_needs_the_stored_refresh_token() {
    let folder = tempfile::tempdir().expect("a folder");
    let (handle, guard) = open(folder.path(), Settings::default()).expect("open");
    let store = ConnectionStore::new(folder.path());
    let steps = [
        (None, None, true, None),
        (Some("a"), Some("b"), false, None),
        (Some("a"), None, true, None),
        (None, Some("a"), true, Some("a")),
        (None, Some("b"), false, Some("a")),
        (Some("b"), Some("c"), false, Some("a")),
        (Some("b"), None, false, Some("a")),
        (Some("a"), Some("b"), true, Some("b")),
        // the answer to the change before was lost, and it is made again
        (Some("a"), Some("b"), true, Some("b")),
        (Some("a"), Some("c"), false, Some("b")),
        (Some("b"), Some("b"), true, Some("b")),
        (Some("b"), None, true, None),
    ];
    for by_leader in [true, false] {
        for (from, to, done, left) in steps {
            let change = change(from, to);
            let what = format!("{from:?} to {to:?}, {by_leader}");
            if by_leader {
                let answer = handle.write(vec![Op::Connection(Box::new(change))]).await;
                assert_eq!(answer, Ok(vec![Done::Connection(done)]), "{what}");
            } else {
                assert_eq!(store.change(&change), Ok(done), "{what}");
            }
            let read = handle.read(|store| connection::connection(store)).await;
            assert_eq!(read, Ok(left.map(stored)), "{what}");
            assert_eq!(store.read(), Ok(left.map(stored)), "{what}");
        }
    }
    drop(handle);
    guard.close();
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
    // it is read and changed without any other process, and the file is still the same
    assert_eq!(store.read(), Ok(Some(stored("a"))));
    let about = folder.path().join("spool.db").metadata().expect("there");
    assert_eq!(about.permissions().mode() & 0o777, 0o600);
    let (handle, guard) = open(folder.path(), Settings::default()).expect("open");
    let restored = handle.read(|store| Ok(store.restored())).await;
    assert_eq!(restored, Ok(false));
    drop(handle);
    guard.close();
}

#[test]
fn secrets_show_in_no_debug_and_no_error() {
    let change = change(Some("a"), Some("b"));
    let op = Op::Connection(Box::new(change.clone()));
    let shown = format!("{change:?} {op:?} {:?}", stored("a"));
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
