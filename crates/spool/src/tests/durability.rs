//! Tests what is still stored after a process ends, and who can open it.

use super::call::journal;
use crate::folder::{FILE, LOCK};
use crate::{Done, Error, Handle, Integrity, Op, Settings, open};
use callbridge_model::ExitCode as _;
use callbridge_testkit::Wait as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

fn mode(path: &Path) -> u32 {
    let meta = std::fs::metadata(path).expect("there");
    meta.permissions().mode() & 0o777
}

#[test]
fn acknowledged_call_is_stored_at_the_next_start() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a folder");
    let state = dir.path().join("state");
    let (handle, guard) = open(&state, Settings::default()).expect("opens");
    let done = handle.write(vec![Op::Finish(Box::new(journal(1)))]).wait();
    assert!(matches!(done.as_deref(), Ok([Done::New(_)])), "{done:?}");
    assert_eq!(mode(&state), 0o700);
    for entry in state.read_dir().expect("readable") {
        assert_eq!(mode(&entry.expect("an entry").path()), 0o600);
    }
    guard.close();
    assert_eq!(handle.write(Vec::new()).wait(), Err(Error::Closed));
    let (handle, _guard) = open(&state, Settings::default()).expect("opens again");
    let books = handle.read(|store| Ok(store.books())).wait();
    assert_eq!(books.expect("books").ready, 1);
    assert_eq!(handle.health().integrity, Integrity::NotNeeded);
}

#[test]
fn locked_state_error_names_the_process_that_holds_it() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a folder");
    let (_handle, guard) = open(dir.path(), Settings::default()).expect("opens");
    let error = open(dir.path(), Settings::default()).expect_err("it is locked");
    assert_eq!(error.exit_code().number(), 75);
    let pid = Some(std::process::id());
    assert!(matches!(&error, Error::Locked(_, found) if *found == pid));
    guard.close();
    assert!(dir.path().join(LOCK).exists());
    open(dir.path(), Settings::default()).expect("free again");
}

/// Text from the refusal, and a function that makes the file unacceptable.
type Case = (&'static str, fn(&Path));

/// Promise: A newer, foreign, or damaged state is refused and kept.
#[test]
fn newer_foreign_or_damaged_spool_is_refused_unchanged() {
    let cases: [Case; 3] = [
        ("schema 99", |file| {
            open(file.parent().expect("a folder"), Settings::default()).expect("made");
            let db = rusqlite::Connection::open(file).expect("opens");
            db.execute_batch("PRAGMA user_version = 99").expect("set");
        }),
        ("was not written by callbridge", |file| {
            let db = rusqlite::Connection::open(file).expect("opens");
            db.execute_batch("CREATE TABLE cookies (x)").expect("made");
        }),
        ("damaged", |file| {
            std::fs::write(file, "no database ".repeat(1000)).expect("written");
        }),
    ];
    for (expected_text, make) in cases {
        let dir = tempfile::tempdir_in("/var/tmp").expect("a folder");
        let file = dir.path().join(FILE);
        make(&file);
        let before = std::fs::read(&file).expect("readable");
        let error = open(dir.path(), Settings::default()).expect_err(expected_text);
        assert_eq!(error.exit_code().number(), 78, "{error}");
        assert!(error.to_string().contains(expected_text), "{error}");
        let after = std::fs::read(&file).expect("still there");
        assert!(before == after, "{expected_text}: the file was touched");
    }
}

#[test]
fn missing_state_is_not_created_if_create_is_off() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a folder");
    let settings = Settings {
        create: false,
        ..Settings::default()
    };
    let error = open(dir.path(), settings).expect_err("nothing is there");
    assert_eq!(error.exit_code().number(), 69);
    assert_eq!(dir.path().read_dir().expect("readable").count(), 0);
}

#[test]
fn uncreatable_state_folder_error_names_the_state_flag() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a folder");
    let file = dir.path().join("file");
    std::fs::write(&file, "").expect("written");
    let error = open(&file.join("state"), Settings::default()).expect_err("below a file");
    assert_eq!(error.exit_code().number(), 73);
    let message = error.to_string();
    let folder = file.join("state").display().to_string();
    assert!(
        message.contains(&folder) && message.contains("--state"),
        "{message}"
    );
}

/// Creates a state with many calls, in the condition in which a kill would leave it.
fn database_after_kill(dir: &Path) -> rusqlite::Connection {
    let (handle, guard) = open(dir, Settings::default()).expect("opens");
    let calls = (0..300).map(|n| Op::Finish(Box::new(journal(n))));
    handle.write(calls.collect()).wait().expect("stored");
    guard.close();
    let db = rusqlite::Connection::open(dir.join(FILE)).expect("opens");
    let gone = db.execute("DELETE FROM meta WHERE key = 'spool.clean'", []);
    assert_eq!(gone.expect("a table"), 1);
    db
}

/// Waits for the result of the check while writes continue.
fn wait_for_check(dir: &Path) -> Integrity {
    let (handle, _guard) = open(dir, Settings::default()).expect("opens");
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while handle.health().integrity == Integrity::Checking {
        assert!(std::time::Instant::now() < deadline, "never done");
        handle.write(Vec::new()).wait().expect("works meanwhile");
    }
    handle.health().integrity
}

#[test]
fn spool_file_is_checked_in_background_after_unclean_stop() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a folder");
    drop(database_after_kill(dir.path()));
    assert_eq!(wait_for_check(dir.path()), Integrity::Sound);
    assert_eq!(
        wait_for_check(dir.path()),
        Integrity::NotNeeded,
        "the last process ended in order"
    );
}

/// Returns the first page below `root` that holds rows. In an interior page (type 5), the header is
/// followed by the offset of the first cell, which begins with the number of its left child page.
fn first_leaf(file: &[u8], root: u64) -> u64 {
    let mut page = root;
    loop {
        let at = usize::try_from((page - 1) * 4096).expect("in memory");
        if file[at] != 5 {
            return page;
        }
        let cell = file[at + 12..at + 14].try_into().expect("two bytes");
        let cell = at + usize::from(u16::from_be_bytes(cell));
        let below = file[cell..cell + 4].try_into().expect("four bytes");
        page = u64::from(u32::from_be_bytes(below));
    }
}

#[test]
fn integrity_check_reports_a_torn_page_and_keeps_the_file() {
    let dir = tempfile::tempdir_in("/var/tmp").expect("a folder");
    let db = database_after_kill(dir.path());
    let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'calls'";
    let root = db.query_row(root, [], |row| row.get::<_, i64>(0));
    let root = root.map(i64::cast_unsigned).expect("a page");
    // Move the contents of the log into the file.
    db.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
        .expect("folded");
    db.close().expect("closed");
    let file = dir.path().join(FILE);
    let page = first_leaf(&std::fs::read(&file).expect("readable"), root);
    let torn = std::fs::OpenOptions::new()
        .write(true)
        .open(&file)
        .expect("opens");
    std::os::unix::fs::FileExt::write_all_at(&torn, &[0xff; 2048], (page - 1) * 4096)
        .expect("torn");
    let before = std::fs::read(&file).expect("readable");
    let found = wait_for_check(dir.path());
    assert!(matches!(found, Integrity::Damaged(_)), "{found:?}");
    // Startup writes a settings page of its own, but leaves the torn page exactly as it was.
    let after = std::fs::read(&file).expect("readable");
    let start = usize::try_from((page - 1) * 4096).expect("in memory");
    assert!(after[start..start + 4096] == before[start..start + 4096]);
}

fn store_call(handle: &Handle, n: u32) -> Result<Vec<Done>, Error> {
    handle.write(vec![Op::Finish(Box::new(journal(n)))]).wait()
}

fn count_files(folder: &Path) -> Option<usize> {
    folder.read_dir().map(Iterator::count).ok()
}

/// A way for a state directory to disappear while it's in use.
type Removal = fn(&Path);

#[test]
fn state_deleted_or_replaced_in_use_is_not_created_again() {
    let removals: [(Removal, &str); 6] = [
        (
            |state| std::fs::remove_dir_all(state).expect("deleted"),
            "spool.db is missing",
        ),
        (
            |state| std::fs::rename(state, state.with_extension("moved")).expect("moved"),
            "spool.db is missing",
        ),
        (
            |state| std::fs::remove_file(state.join(FILE)).expect("deleted"),
            "spool.db is missing",
        ),
        (
            |state| {
                let copy = state.join("copy");
                std::fs::copy(state.join(FILE), &copy).expect("copied");
                std::fs::rename(copy, state.join(FILE)).expect("moved");
            },
            "spool.db was replaced",
        ),
        (
            |state| std::fs::remove_file(state.join("spool.db-wal")).expect("deleted"),
            "spool.db-wal is missing",
        ),
        (
            |state| std::fs::remove_file(state.join(LOCK)).expect("deleted"),
            "spool.lock is missing",
        ),
    ];
    for (remove, what) in removals {
        let dir = tempfile::tempdir_in("/var/tmp").expect("a folder");
        let state = dir.path().join("state");
        let (handle, _guard) = open(&state, Settings::default()).expect("opens");
        assert!(store_call(&handle, 1).is_ok());
        remove(&state);
        let before = count_files(&state);
        let gone = Err(Error::Gone(state.clone(), what.to_owned()));
        assert_eq!(store_call(&handle, 2), gone);
        assert_eq!(handle.write(Vec::new()).wait(), gone, "an empty write");
        assert_eq!(count_files(&state), before, "{what}");
    }
}
