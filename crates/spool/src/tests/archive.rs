//! Is a state that was exported and imported the same, and is all else refused?

use crate::archive::{ArchiveError, ArchivePart, StateArchive, export, import};
use crate::folder::FILE;
use crate::{Error, Op, Settings, open, tables};
use callbridge_model::{Code, ExitCode as _};
use ring::digest::{SHA256, digest};
use rusqlite::Connection;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

const BESIDE: [&str; 2] = ["connection.json", "shown-once.json"];

fn exported(state: &Path, path: &Path) -> Result<(), ArchiveError> {
    let mut how = OpenOptions::new();
    let mut to = how
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(path)
        .expect("a file");
    export(state, &BESIDE, (&mut to, path), ("0.1.0", 1_795_151_317)).map(|_| ())
}

fn imported(path: &Path, state: &Path) -> Result<(), ArchiveError> {
    let from = File::open(path).expect("a file");
    import(state, &BESIDE, (from, path)).map(|_| ())
}

/// A state with a mark in it, exported while it is open.
async fn archive(folder: &Path) -> PathBuf {
    let (state, path) = (folder.join("state"), folder.join("exported"));
    let (handle, guard) = open(&state, Settings::default()).expect("open");
    let (key, value) = ("mark".to_owned(), "here".to_owned());
    let written = handle.write(vec![Op::Meta { key, value }]).await;
    written.expect("stored");
    std::fs::write(state.join("connection.json"), "{\"pair\":1}").expect("written");
    exported(&state, &path).expect("exported");
    drop(handle);
    guard.close();
    path
}

/// In a container every command has the same number: an export that was killed must not be in the
/// way of the next.
#[tokio::test]
async fn what_an_export_that_was_killed_has_left_is_in_nobodys_way() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = archive(folder.path()).await;
    let left = format!(".export.db.{}", std::process::id());
    std::fs::write(folder.path().join("state").join(left), "half").expect("written");
    std::fs::remove_file(&path).expect("removed");
    exported(&folder.path().join("state"), &path).expect("exported");
}

#[tokio::test]
async fn a_state_exported_while_it_is_open_comes_back_whole_and_for_its_owner_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = archive(folder.path()).await;
    let state = folder.path().join("new");
    imported(&path, &state).expect("imported");
    for name in [FILE, "connection.json"] {
        let mode = state
            .join(name)
            .metadata()
            .expect(name)
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let (handle, guard) = open(&state, Settings::default()).expect("open");
    let mark = handle.read(|store| tables::meta::meta(store, "mark")).await;
    assert_eq!(mark.expect("read").as_deref(), Some("here"));
    drop(handle);
    guard.close();
    let left = folder.path().join("state").read_dir().expect("a folder");
    let names: Vec<_> = left.map(|it| it.expect("a file").file_name()).collect();
    assert!(
        !names
            .iter()
            .any(|it| it.to_string_lossy().contains("export")),
        "{names:?}"
    );
}

#[tokio::test]
async fn a_folder_in_use_or_not_empty_is_refused_and_nothing_is_put_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = archive(folder.path()).await;
    let state = folder.path().join("used");
    let (handle, guard) = open(&state, Settings::default()).expect("open");
    let error = imported(&path, &state).expect_err("in use");
    assert!(
        matches!(error, ArchiveError::State(Error::Locked { .. })),
        "{error}"
    );
    drop(handle);
    guard.close();
    let error = imported(&path, &state).expect_err("not empty");
    assert!(error.exit_code() == Code::Configuration && error.to_string().contains("not empty"));
    assert!(!state.join("connection.json").exists());
}

#[tokio::test]
async fn what_is_cut_changed_newer_or_names_another_file_is_refused_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = archive(folder.path()).await;
    let whole = std::fs::read(&path).expect("read");
    let text = String::from_utf8_lossy(&whole).into_owned();
    let header = text.lines().nth(1).expect("a header").to_owned();
    let replaced = |from: &str, to: &str| {
        assert!(header.contains(from) || text.starts_with(from), "{header}");
        let at = whole
            .windows(from.len())
            .position(|it| it == from.as_bytes());
        let at = at.expect("it is there");
        [&whole[..at], to.as_bytes(), &whole[at + from.len()..]].concat()
    };
    let mut changed = whole.clone();
    *changed.last_mut().expect("bytes") ^= 1;
    let schema = format!("\"schema\":{}", tables::schema::MIGRATIONS.len());
    for (name, bytes, code) in [
        ("cut", whole[..whole.len() - 1].to_vec(), Code::Input),
        ("changed", changed, Code::Input),
        ("another", b"SQLite format 3\0".to_vec(), Code::Input),
        ("empty", Vec::new(), Code::Input),
        (
            "outside",
            replaced("connection.json", "../../etc/passw"),
            Code::Input,
        ),
        (
            "shape",
            replaced("callbridge-state 1", "callbridge-state 2"),
            Code::Configuration,
        ),
        (
            "schema",
            replaced(&schema, "\"schema\":999"),
            Code::Configuration,
        ),
    ] {
        let (file, state) = (
            folder.path().join(name),
            folder.path().join(format!("of-{name}")),
        );
        std::fs::write(&file, bytes).expect("written");
        let error = imported(&file, &state).expect_err(name);
        assert_eq!(error.exit_code(), code, "{name}: {error}");
        assert!(!state.join(FILE).exists(), "{name}");
    }
    let error = exported(&folder.path().join("nowhere"), &folder.path().join("x"));
    assert!(matches!(
        error,
        Err(ArchiveError::State(Error::Missing { .. }))
    ));
}

/// An archive that is whole by its own words, with this database in it.
fn packed(database: &[u8]) -> Vec<u8> {
    let sha256 = digest(&SHA256, database);
    let hex = sha256.as_ref().iter().map(|byte| format!("{byte:02x}"));
    let archive = StateArchive {
        program: "0.1.0".to_owned(),
        schema: 1,
        exported_at: 1_795_151_317,
        parts: vec![ArchivePart {
            name: FILE.to_owned(),
            bytes: database.len() as u64,
            sha256: hex.collect(),
        }],
    };
    let header = serde_json::to_string(&archive).expect("JSON");
    [
        format!("callbridge-state 1\n{header}\n").as_bytes(),
        database,
    ]
    .concat()
}

/// The database of a state, after these statements.
fn changed(folder: &Path, name: &str, statements: &str) -> Vec<u8> {
    let state = folder.join(format!("from-{name}"));
    let (handle, guard) = open(&state, Settings::default()).expect("open");
    drop(handle);
    guard.close();
    let file = state.join(FILE);
    let db = Connection::open(&file).expect("a database");
    db.execute_batch(&format!("PRAGMA journal_mode = DELETE; {statements}"))
        .expect(name);
    drop(db);
    std::fs::read(&file).expect("read")
}

#[test]
fn a_database_that_no_callbridge_has_made_is_refused_though_the_file_is_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let hostile = [
        (
            "a trigger of its own",
            "CREATE TRIGGER more AFTER INSERT ON meta BEGIN DELETE FROM calls; END;",
            "has a trigger `more`",
        ),
        (
            "a view in place of a table",
            "DROP TABLE reason_counts;
             CREATE VIEW reason_counts AS SELECT 'dead' AS state, '' AS reason, 0 AS count;",
            "has a view `reason_counts`",
        ),
        (
            "a table of another program",
            "CREATE TABLE more (x CHECK (x > 0));",
            "has a table `more`",
        ),
        (
            "a table that is missing",
            "DROP TABLE reason_counts;",
            "lacks the ",
        ),
        (
            "another program's",
            "PRAGMA application_id = 7;",
            "is not callbridge's",
        ),
        (
            "one of a newer version that its header keeps back",
            "PRAGMA user_version = 999;",
            "schema 999",
        ),
        (
            "one of an older version by its number alone",
            "PRAGMA user_version = 0;",
            "that no callbridge makes",
        ),
    ];
    for (name, statements, words) in hostile {
        let database = changed(folder, name, statements);
        refused(folder, name, &database, words);
    }
    let whole = changed(folder, "whole", "");
    let mut damaged = whole.clone();
    let last = damaged.len() - 4096;
    damaged[last..].fill(0xff);
    refused(folder, "damaged", &damaged, "spool.db in it");
    refused(folder, "cut", &whole[..whole.len() / 2], "spool.db in it");
    refused(folder, "no database", b"#!/bin/sh\n", "cannot be read");
    refused(folder, "empty", b"", "is not callbridge's");
    // The same way leads a whole one in.
    let path = folder.join("packed");
    std::fs::write(&path, packed(&whole)).expect("written");
    imported(&path, &folder.join("taken % over?#")).expect("imported");
}

fn refused(folder: &Path, name: &str, database: &[u8], words: &str) {
    let path = folder.join(format!("archive of {name}"));
    std::fs::write(&path, packed(database)).expect("written");
    let state = folder.join(format!("state of {name}"));
    let error = imported(&path, &state).expect_err(name).to_string();
    assert!(error.contains(words), "{name}: {error}");
    let left = state.read_dir().expect("a folder");
    let left: Vec<_> = left.map(|it| it.expect("a file").file_name()).collect();
    assert_eq!(left, ["spool.lock"], "{name}");
}
