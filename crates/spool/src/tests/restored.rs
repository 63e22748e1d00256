//! Tests that a copy of a state can be told apart from the state itself.

use super::call::time_at;
use crate::folder::{FILE, LOCK};
use crate::{ConnectionStore, Error, Integrity, Op, Settings, SlotRow, open};
use callbridge_model::TokenFingerprint;
use callbridge_testkit::Wait as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Name of SQLite's log, which exists while the database is open and after a kill.
const LOG: &str = "spool.db-wal";

fn slot() -> Op {
    Op::Slot(SlotRow {
        slot: 0,
        token: TokenFingerprint::of("token"),
        boot_id: "boot".into(),
        sent: Duration::from_secs(1),
        answered: None,
        wall_sent: time_at(1),
    })
}

/// Opens the state, checks whether it was restored, makes a request if asked to, and shuts down
/// cleanly.
fn is_restored(dir: &Path, request: bool) -> bool {
    let (handle, guard) = open(dir, Settings::default()).expect("opens");
    let restored = handle.read(|store| Ok(store.silence().is_some())).wait();
    if request {
        handle.write(vec![slot()]).wait().expect("stored");
    }
    guard.close();
    restored.expect("readable")
}

/// Creates a directory in which requests have been made, and a path for its backup.
fn used_folder(root: &Path) -> (PathBuf, PathBuf) {
    let (state, backup) = (root.join("state"), root.join("backup"));
    assert!(!is_restored(&state, true), "a fresh file is no copy");
    assert!(!is_restored(&state, true), "a used state is no copy");
    (state, backup)
}

/// Makes a request and leaves the directory as a kill would, with no stamp in the lock file and no
/// clean shutdown in the database, but with the log. `tests/kill` kills real processes.
fn kill(dir: &Path) {
    let (handle, guard) = open(dir, Settings::default()).expect("opens");
    handle.write(vec![slot()]).wait().expect("stored");
    let lock = dir.join(LOCK);
    let lock_text = std::fs::read_to_string(&lock).expect("a lock");
    assert_eq!(lock_text.lines().count(), 1, "{lock_text}");
    guard.close();
    let db = rusqlite::Connection::open(dir.join(FILE)).expect("opens");
    let gone = db.execute("DELETE FROM meta WHERE key = 'spool.clean'", []);
    assert_eq!(gone.expect("a table"), 1);
    db.close().expect("closed");
    std::fs::write(&lock, lock_text).expect("written");
    std::fs::write(dir.join(LOG), "").expect("written");
}

/// Copies the way `cp -r from/. to/` does, overwriting existing files in place.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("made");
    for entry in from.read_dir().expect("readable") {
        let name = entry.expect("an entry").file_name();
        let bytes = std::fs::read(from.join(&name)).expect("readable");
        std::fs::write(to.join(&name), bytes).expect("written");
    }
}

#[test]
fn folder_restored_from_a_backup_is_detected_as_a_copy() {
    let root = tempfile::tempdir().expect("a folder");
    let (state, backup) = used_folder(root.path());
    copy(&state, &backup);
    is_restored(&state, true);
    std::fs::remove_dir_all(&state).expect("removed");
    copy(&backup, &state);
    assert!(is_restored(&state, true));
    assert!(!is_restored(&state, true), "it is used here now");
}

#[test]
fn folder_overwritten_in_place_is_detected_as_a_copy() {
    let root = tempfile::tempdir().expect("a folder");
    let (state, backup) = used_folder(root.path());
    copy(&state, &backup);
    is_restored(&state, true);
    copy(&backup, &state);
    assert!(is_restored(&state, true));
}

/// Returns a directory whose process was killed before `cp` copied a backup over the database.
fn killed_and_overwritten(root: &Path) -> PathBuf {
    let (state, backup) = used_folder(root);
    copy(&state, &backup);
    kill(&state);
    std::fs::remove_file(state.join(LOG)).expect("removed");
    std::fs::copy(backup.join(FILE), state.join(FILE)).expect("copied");
    state
}

/// A killed process leaves no stamp to compare with, and `cp` updates the same timestamps as a
/// write.
#[test]
fn backup_copied_in_place_after_a_kill_is_a_copy() {
    let root = tempfile::tempdir().expect("a folder");
    let state = killed_and_overwritten(root.path());
    assert!(is_restored(&state, false));
    assert!(is_restored(&state, true), "doubt remains until a request");
    assert!(!is_restored(&state, true));
}

#[test]
fn backup_of_a_running_daemon_with_old_times_is_a_copy() {
    let root = tempfile::tempdir().expect("a folder");
    let (state, backup) = used_folder(root.path());
    let (_handle, guard) = open(&state, Settings::default()).expect("opens");
    copy(&state, &backup);
    guard.close();
    copy(&backup, &state);
    let file = std::fs::File::options()
        .write(true)
        .open(state.join(FILE))
        .expect("there");
    let earlier = std::fs::metadata(backup.join(FILE)).and_then(|meta| meta.modified());
    let earlier = earlier.expect("a time") - Duration::from_secs(60);
    file.set_modified(earlier).expect("as cp -a does");
    assert!(is_restored(&state, true));
}

#[test]
fn folder_moved_or_left_by_a_kill_is_no_copy() {
    let root = tempfile::tempdir().expect("a folder");
    let (state, elsewhere) = used_folder(root.path());
    std::fs::rename(&state, &elsewhere).expect("moved");
    assert!(!is_restored(&elsewhere, true));
    kill(&elsewhere);
    assert!(!is_restored(&elsewhere, true));
    // `run` looks for a connection before it opens the state.
    kill(&elsewhere);
    let connection = ConnectionStore::new(&elsewhere).read();
    assert_eq!(connection, Ok(None));
    assert!(!is_restored(&elsewhere, true));
}

/// A process that ends before its first commit mustn't make a copy look like the original state.
#[test]
fn copy_that_could_not_be_opened_remains_a_copy() {
    let root = tempfile::tempdir().expect("a folder");
    let state = killed_and_overwritten(root.path());
    assert_eq!(ConnectionStore::new(&state).read(), Ok(None));
    let in_the_way = state.join("spool.db-journal");
    std::fs::create_dir(&in_the_way).expect("made");
    let opened = open(&state, Settings::default());
    assert!(matches!(opened, Err(Error::NotPlain(..))), "{opened:?}");
    std::fs::remove_dir(&in_the_way).expect("removed");
    assert!(is_restored(&state, true));
}

#[test]
fn restore_doubt_remains_until_a_request_is_made() {
    let root = tempfile::tempdir().expect("a folder");
    let (state, backup) = used_folder(root.path());
    copy(&state, &backup);
    assert!(is_restored(&backup, false), "a command looked");
    assert!(is_restored(&backup, false), "another one");
    assert!(is_restored(&backup, true), "the daemon, which waits first");
    assert!(!is_restored(&backup, true));
}

#[test]
fn interrupted_check_is_repeated_and_not_seen_as_restore() {
    let root = tempfile::tempdir().expect("a folder");
    let (state, _) = used_folder(root.path());
    let (handle, guard) = open(&state, Settings::default()).expect("opens");
    assert_eq!(handle.health().integrity, Integrity::NotNeeded);
    let broken_off = Integrity::Unknown("interrupted".to_owned());
    handle
        .health
        .send_modify(|health| health.integrity = broken_off);
    guard.close();
    let (handle, guard) = open(&state, Settings::default()).expect("opens");
    assert_ne!(handle.health().integrity, Integrity::NotNeeded);
    let restored = handle.read(|store| Ok(store.silence().is_some())).wait();
    assert!(!restored.expect("readable"));
    guard.close();
}
