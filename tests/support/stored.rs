//! Checks and reads a spool after a kill. Uses a copy, because opening the spool would repair it.

use crate::support::judge::left::{SpoolContents, Stored};
use rusqlite::{Connection, OptionalExtension as _};
use serde_json::Value;
use std::path::Path;
use uuid::Uuid;

/// Fails if SQLite finds the spool damaged. Before the first commit there is no spool.
pub fn assert_whole(state: &Path) {
    read(state);
}

/// Fails if the spool is damaged. Otherwise returns its contents.
pub fn read(state: &Path) -> SpoolContents {
    let Some((_folder, copy)) = copy_spool(state) else {
        return SpoolContents::default();
    };
    let checked = copy.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0));
    assert_eq!(checked.as_deref(), Ok("ok"), "{}", state.display());
    let tables = copy.query_row(
        "SELECT count(*) FROM sqlite_master WHERE name IN ('calls', 'meta')",
        [],
        |row| row.get::<_, u32>(0),
    );
    if tables != Ok(2) {
        return SpoolContents::default();
    }
    let mut calls = copy
        .prepare("SELECT uuid, state, request_id FROM calls WHERE uuid IS NOT NULL")
        .expect("the table");
    let calls = calls.query_map([], |row| {
        let uuid = Uuid::from_bytes(row.get(0)?).to_string();
        let (state, request_id) = (row.get(1)?, row.get(2)?);
        Ok((uuid, Stored { state, request_id }))
    });
    let calls = calls.expect("rows").map(|row| row.expect("a row"));
    SpoolContents {
        calls: calls.collect(),
        refused: refused_token(&copy),
    }
}

/// Returns the fingerprint of the refused token.
fn refused_token(copy: &Connection) -> Option<String> {
    let memory = copy
        .query_row(
            "SELECT value FROM meta WHERE key = 'sender.memory'",
            [],
            |row| row.get::<_, String>(0),
        )
        .optional();
    let memory: Value = serde_json::from_str(&memory.expect("the table")?).expect("JSON");
    memory["refused"]["token"].as_str().map(str::to_owned)
}

fn copy_spool(state: &Path) -> Option<(tempfile::TempDir, Connection)> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("spool.db");
    std::fs::copy(state.join("spool.db"), &file).ok()?;
    // There is no WAL file if the last change is already in the database.
    let _ = std::fs::copy(
        state.join("spool.db-wal"),
        folder.path().join("spool.db-wal"),
    );
    let database = Connection::open(file).expect("it opens");
    Some((folder, database))
}
