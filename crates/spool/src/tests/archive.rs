//! Tests that a state is the same after export and import, and that damaged or malicious archives
//! are refused.

use crate::archive::{ArchiveError, ArchivedSecrets, MANIFEST, Manifest, ManifestFile};
use crate::folder::{FILE, LOCK};
use crate::{
    ConnectionChange, ConnectionStore, Error, Op, Settings, StatePlace, StoredConnection, export,
    import, open, tables,
};
use callbridge_model::{Code, ExitCode as _, Secret};
use ring::digest::{SHA256, digest};
use rusqlite::Connection;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use tar::{Archive, Builder, EntryType, Header};

fn export_folder(state: &Path, path: &Path) -> Result<Manifest, ArchiveError> {
    export_folder_with(state, path, false)
}

fn export_folder_with(state: &Path, path: &Path, secrets: bool) -> Result<Manifest, ArchiveError> {
    let mut how = OpenOptions::new();
    let mut to = how
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(path)
        .expect("a file");
    let program = ("0.1.0", 1_795_151_317);
    let place = StatePlace::Folder(state.to_path_buf());
    export(&place, secrets, (&mut to, path), program, &mut |_| ())
}

fn import_folder(path: &Path, state: &Path) -> Result<Manifest, ArchiveError> {
    let from = File::open(path).expect("a file");
    let place = StatePlace::Folder(state.to_path_buf());
    import(&place, (from, path), &mut |_| ())
}

/// Exports a state that's still open, after setting its `mark` to `here`.
async fn archive(folder: &Path) -> PathBuf {
    let (state, path) = (folder.join("state"), folder.join("exported"));
    let (handle, guard) = open(&state, Settings::default()).expect("open");
    let (key, value) = ("mark".to_owned(), "here".to_owned());
    let written = handle.write(vec![Op::Meta { key, value }]).await;
    written.expect("stored");
    export_folder(&state, &path).expect("exported");
    drop(handle);
    guard.close();
    path
}

#[tokio::test]
async fn state_exported_while_open_imports_with_owner_only_mode() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = archive(folder.path()).await;
    let state = folder.path().join("new");
    import_folder(&path, &state).expect("imported");
    let about = state.join(FILE).metadata().expect("imported");
    assert_eq!(about.permissions().mode() & 0o777, 0o600);
    let (handle, guard) = open(&state, Settings::default()).expect("open");
    let mark = handle.read(|store| tables::meta::meta(store, "mark")).await;
    assert_eq!(mark.expect("read").as_deref(), Some("here"));
    drop(handle);
    guard.close();
    let left = folder.path().join("state").read_dir().expect("a folder");
    let names: Vec<_> = left
        .map(|entry| entry.expect("a file").file_name())
        .collect();
    assert!(
        !names
            .iter()
            .any(|name| name.to_string_lossy().contains("export")),
        "{names:?}"
    );
}

#[tokio::test]
async fn import_into_used_or_nonempty_folder_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = archive(folder.path()).await;
    let state = folder.path().join("used");
    let (handle, guard) = open(&state, Settings::default()).expect("open");
    let error = import_folder(&path, &state).expect_err("in use");
    assert!(
        matches!(error, ArchiveError::State(Error::Locked { .. })),
        "{error}"
    );
    drop(handle);
    guard.close();
    let error = import_folder(&path, &state).expect_err("not empty");
    assert!(error.exit_code() == Code::Configuration && error.to_string().contains("not empty"));
}

/// Returns a connection whose secrets are easy to find.
fn connection() -> StoredConnection {
    StoredConnection {
        refresh_token: Secret::from("svcrt_hidden"),
        content: Secret::from(format!(
            "{{\"clientSecret\":\"{}\"}}",
            "hidden".repeat(2_000)
        )),
    }
}

/// Promise: An exported state has no tokens unless they are asked for.
#[tokio::test]
async fn secrets_are_exported_only_on_request() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let state = folder.join("state");
    let (handle, guard) = open(&state, Settings::default()).expect("open");
    let none = export_folder_with(&state, &folder.join("none"), true).expect("exported");
    assert_eq!(none.secrets, ArchivedSecrets::None);
    let store = ConnectionStore::new(&state);
    let connect = ConnectionChange {
        from: None,
        to: Some(connection()),
    };
    assert!(store.change(&connect).expect("connected"));
    let shown = Secret::from("hidden webhook secret");
    store.keep_shown_once(&shown).expect("kept");
    for (name, wanted, secrets) in [
        ("without", false, ArchivedSecrets::LeftOut),
        ("with", true, ArchivedSecrets::Included),
    ] {
        let path = folder.join(name);
        let manifest = export_folder_with(&state, &path, wanted).expect("exported");
        assert_eq!(manifest.secrets, secrets);
        let archive = std::fs::read(&path).expect("read");
        let holds = archive.windows(6).any(|bytes| bytes == b"hidden");
        assert_eq!(holds, wanted, "{name}");
        let new = folder.join(format!("state {name}"));
        assert_eq!(import_folder(&path, &new).expect("imported"), manifest);
        let store = ConnectionStore::new(&new);
        let stored = store.read().expect("readable");
        assert_eq!(stored, wanted.then(connection));
        let kept = store.shown_once().expect("readable");
        assert_eq!(kept.is_some(), wanted);
    }
    drop(handle);
    guard.close();
    let left = state.read_dir().expect("a folder");
    let mut names: Vec<_> = left
        .map(|entry| entry.expect("a file").file_name())
        .collect();
    names.sort();
    assert_eq!(names, [FILE, LOCK]);
}

#[tokio::test]
async fn export_is_a_tar_file_with_its_manifest_first() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = archive(folder.path()).await;
    let mut archive = Archive::new(File::open(&path).expect("a file"));
    let mut names = Vec::new();
    for entry in archive.entries().expect("a tar file") {
        let entry = entry.expect("an entry");
        assert_eq!(entry.header().mode().expect("a mode"), 0o600);
        names.push(entry.path().expect("a name").display().to_string());
        if names.len() == 1 {
            let manifest: Manifest = serde_json::from_reader(entry).expect("JSON");
            assert_eq!(manifest.program, "0.1.0");
            assert_eq!(manifest.exported_at, 1_795_151_317);
            let listed = manifest.files.iter().map(|file| file.name.as_str());
            assert_eq!(Vec::from_iter(listed), [FILE]);
        }
    }
    assert_eq!(names, [MANIFEST, FILE]);
}

#[tokio::test]
async fn cut_or_changed_archive_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let path = archive(folder).await;
    let whole = std::fs::read(&path).expect("read");
    // Every entry starts with a 512-byte block, and the manifest fits into the second block.
    for (cut, text) in [
        (0, "manifest.json is missing in it"),
        (1, "not a complete tar"),
        (511, "not a complete tar"),
        (512, "manifest.json in it: EOF"),
        (1024, "spool.db is missing in it"),
        (5000, "was changed after the export"),
        (whole.len() / 2, "was changed after the export"),
        (whole.len() - 1, "its end is missing"),
    ] {
        assert_refused(folder, &format!("cut to {cut}"), &whole[..cut], text);
    }
    let mut last_changed = whole.clone();
    *last_changed.last_mut().expect("bytes") ^= 1;
    assert_refused(folder, "last byte", &last_changed, "more bytes at its end");
    let more = [&whole[..], &[0; 512], b"x"].concat();
    assert_refused(folder, "more", &more, "more bytes at its end");
    let twice = [&whole[..], &whole[..]].concat();
    assert_refused(folder, "twice", &twice, "more bytes at its end");
    assert_refused(folder, "sqlite", b"SQLite format 3\0", "not a complete tar");

    let at = whole.windows(8).position(|bytes| bytes == b"markhere");
    let mut content = whole.clone();
    content[at.expect("the mark")] ^= 1;
    assert_refused(folder, "content", &content, "was changed after the export");
    // Tar pads a file to whole records with zeros.
    let file = folder.join("padded");
    std::fs::write(&file, [&whole[..], &[0; 10_240]].concat()).expect("written");
    import_folder(&file, &folder.join("state of padded")).expect("imported");
}

#[tokio::test]
async fn export_without_a_state_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let error = export_folder(&folder.path().join("nowhere"), &folder.path().join("x"));
    assert!(matches!(
        error,
        Err(ArchiveError::State(Error::Missing { .. }))
    ));
}

/// A tar file entry, which may be malicious.
#[derive(Clone)]
struct TarEntry {
    name: String,
    kind: EntryType,
    link: &'static str,
    bytes: Vec<u8>,
}

impl TarEntry {
    fn file(name: &str, bytes: &[u8]) -> Self {
        Self {
            name: name.to_owned(),
            kind: EntryType::Regular,
            link: "",
            bytes: bytes.to_vec(),
        }
    }

    fn special(name: &str, kind: EntryType, link: &'static str) -> Self {
        Self {
            kind,
            link,
            ..Self::file(name, b"")
        }
    }
}

fn tar_of(entries: &[TarEntry]) -> Vec<u8> {
    let mut tar = Builder::new(Vec::new());
    for entry in entries {
        let mut header = Header::new_ustar();
        // `set_path` would reject some of these names.
        header.as_old_mut().name[..entry.name.len()].copy_from_slice(entry.name.as_bytes());
        header.as_old_mut().linkname[..entry.link.len()].copy_from_slice(entry.link.as_bytes());
        header.set_entry_type(entry.kind);
        header.set_size(entry.bytes.len() as u64);
        header.set_mode(0o4777);
        header.set_cksum();
        tar.append(&header, &*entry.bytes).expect("appended");
    }
    tar.into_inner().expect("ended")
}

fn manifest_file(name: &str, bytes: &[u8]) -> ManifestFile {
    let sha256 = digest(&SHA256, bytes);
    let hex = sha256.as_ref().iter().map(|byte| format!("{byte:02x}"));
    ManifestFile {
        name: name.to_owned(),
        bytes: bytes.len() as u64,
        sha256: hex.collect(),
    }
}

fn manifest(files: &[ManifestFile]) -> TarEntry {
    let manifest = Manifest {
        program: "0.1.0".to_owned(),
        schema: 1,
        exported_at: 1_795_151_317,
        secrets: ArchivedSecrets::None,
        files: files.to_vec(),
    };
    TarEntry::file(MANIFEST, &serde_json::to_vec(&manifest).expect("JSON"))
}

/// Packs this database into an archive that's complete according to its manifest.
fn pack_archive(database: &[u8]) -> Vec<u8> {
    tar_of(&[
        manifest(&[manifest_file(FILE, database)]),
        TarEntry::file(FILE, database),
    ])
}

#[test]
fn entries_other_than_the_listed_files_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let database = changed_database(folder, "whole", "");
    let all = manifest(&[manifest_file(FILE, &database)]);
    let db = TarEntry::file(FILE, &database);
    let other = b"{}";

    for (name, what) in [
        ("../../etc/passwd", "a name that leads out"),
        ("/etc/passwd", "an absolute name"),
        ("./spool.db", "another spelling"),
        ("spool.db/", "a folder's name"),
        ("other.json", "an unknown name"),
        ("spool.lock", "the lock"),
    ] {
        let file = TarEntry::file(name, other);
        let tar = tar_of(&[all.clone(), file.clone()]);
        assert_refused(folder, what, &tar, "spool.db must be");
        let tar = tar_of(&[all.clone(), db.clone(), file.clone()]);
        assert_refused(folder, &format!("{what}, too many"), &tar, "does not list");
        let lists_it = manifest(&[manifest_file(FILE, &database), manifest_file(name, other)]);
        let tar = tar_of(&[lists_it, db.clone(), file.clone()]);
        assert_refused(folder, &format!("{what}, listed"), &tar, "and not only");
        let lists_only_it = manifest(&[manifest_file(name, other)]);
        let tar = tar_of(&[lists_only_it, file]);
        assert_refused(folder, &format!("{what}, alone"), &tar, "and not only");
    }
    for (kind, what) in [
        (EntryType::Symlink, "a symbolic link"),
        (EntryType::Link, "a hard link"),
        (EntryType::Char, "a character device"),
        (EntryType::Block, "a block device"),
        (EntryType::Fifo, "a pipe"),
        (EntryType::Directory, "a folder"),
        (EntryType::Continuous, "a contiguous file"),
        (EntryType::GNUSparse, "a sparse file"),
        (EntryType::GNULongName, "a long name"),
        (EntryType::XHeader, "an extended header"),
    ] {
        let tar = tar_of(&[all.clone(), TarEntry::special(FILE, kind, "/etc/passwd")]);
        assert_refused(folder, what, &tar, "is not a regular file");
    }

    let tar = tar_of(&[all.clone(), db.clone(), db.clone()]);
    assert_refused(folder, "an entry too many", &tar, "does not list");
    let tar = tar_of(std::slice::from_ref(&all));
    assert_refused(folder, "an entry too few", &tar, "is missing");
    let tar = tar_of(&[db.clone(), all.clone()]);
    assert_refused(folder, "a late manifest", &tar, "manifest.json must be");
    let twice = manifest(&[
        manifest_file(FILE, &database),
        manifest_file(FILE, &database),
    ]);
    let tar = tar_of(&[twice, db.clone(), db.clone()]);
    assert_refused(folder, "a file listed twice", &tar, "and not only");
    let tar = tar_of(&[manifest(&[])]);
    assert_refused(folder, "no file", &tar, "and not only");
    assert_refused(folder, "no entry", &tar_of(&[]), "is missing");

    let mut longer = manifest_file(FILE, &database);
    longer.bytes += 1;
    let tar = tar_of(&[manifest(&[longer]), db.clone()]);
    assert_refused(
        folder,
        "another length",
        &tar,
        "was changed after the export",
    );
    let another = ManifestFile {
        sha256: manifest_file(FILE, other).sha256,
        ..manifest_file(FILE, &database)
    };
    let tar = tar_of(&[manifest(&[another]), db.clone()]);
    assert_refused(
        folder,
        "another digest",
        &tar,
        "was changed after the export",
    );

    let text = TarEntry::file(MANIFEST, b"no JSON");
    assert_refused(
        folder,
        "no JSON",
        &tar_of(&[text, db.clone()]),
        "manifest.json in it",
    );
    let long = TarEntry::file(MANIFEST, &[b' '; 70_000]);
    assert_refused(
        folder,
        "a long manifest",
        &tar_of(&[long, db.clone()]),
        "too long",
    );

    let path = folder.join("whole");
    std::fs::write(&path, tar_of(&[all, db])).expect("written");
    import_folder(&path, &folder.join("state of whole")).expect("imported");
}

#[test]
fn newer_schema_in_manifest_is_refused_with_its_number() {
    let folder = tempfile::tempdir().expect("a folder");
    let json =
        br#"{"program":"9.0.0","schema":999,"exportedAt":1795151317,"secrets":"none","files":[]}"#;
    let path = folder.path().join("newer");
    std::fs::write(&path, tar_of(&[TarEntry::file(MANIFEST, json)])).expect("written");
    let error = import_folder(&path, &folder.path().join("state")).expect_err("newer");
    assert_eq!(error.exit_code(), Code::Configuration);
    let message = error.to_string();
    assert!(
        message.contains("newer callbridge (schema 999"),
        "{message}"
    );
    assert!(!folder.path().join("state").exists());
}

/// Returns a state's database after running these statements.
fn changed_database(folder: &Path, name: &str, statements: &str) -> Vec<u8> {
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
fn import_of_foreign_or_damaged_database_is_refused() {
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
            "was not written by callbridge",
        ),
        (
            "one of a newer version that its header keeps back",
            "PRAGMA user_version = 999;",
            "schema 999",
        ),
        (
            "one of an older version by its number alone",
            "PRAGMA user_version = 0;",
            "that callbridge does not create",
        ),
    ];
    for (name, statements, text) in hostile {
        let database = changed_database(folder, name, statements);
        assert_refused(folder, name, &pack_archive(&database), text);
    }
    let whole = changed_database(folder, "whole", "");
    let mut damaged = whole.clone();
    let last = damaged.len() - 4096;
    damaged[last..].fill(0xff);
    for (name, database, text) in [
        ("damaged", &damaged[..], "spool.db in it"),
        ("cut", &whole[..whole.len() / 2], "spool.db in it"),
        ("no database", b"#!/bin/sh\n", "cannot be read"),
        ("empty", b"", "was not written by callbridge"),
    ] {
        assert_refused(folder, name, &pack_archive(database), text);
    }
    // An intact archive can be imported in the same way.
    let path = folder.join("packed");
    std::fs::write(&path, pack_archive(&whole)).expect("written");
    import_folder(&path, &folder.join("taken % over?#")).expect("imported");
}

/// Checks that importing this archive fails with this message and leaves nothing in the directory.
fn assert_refused(folder: &Path, name: &str, archive: &[u8], text: &str) {
    let path = folder.join(format!("archive of {name}"));
    std::fs::write(&path, archive).expect("written");
    let state = folder.join(format!("state of {name}"));
    let error = import_folder(&path, &state).expect_err(name);
    let message = error.to_string();
    assert!(message.contains(text), "{name}: {message}");
    let Ok(left) = state.read_dir() else { return };
    let left: Vec<_> = left
        .map(|entry| entry.expect("a file").file_name())
        .collect();
    assert_eq!(left, ["spool.lock"], "{name}");
}
