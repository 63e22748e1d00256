//! Rows as they lie in the file.

use crate::{Db, RowId, State};

/// Every column of a call but its ids and its two texts of JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "as in the schema")]
pub struct Stored {
    pub state: State,
    pub live: bool,
    pub since: i64,
    pub started: i64,
    pub not_before: i64,
    pub request_id: Option<String>,
    pub token: Option<String>,
    pub submitted_at: Option<i64>,
    pub next_poll: Option<i64>,
    pub polls: u32,
    pub resubmits: u32,
    pub times_dead: u32,
    pub reason: Option<String>,
    pub message: String,
    pub errors: Option<String>,
    pub attempts: String,
    pub first_sent: Option<i64>,
    pub failures: u32,
    pub absent: u32,
    pub absent_at: Option<i64>,
    pub if_absent: Option<String>,
    pub settled_externally: bool,
}

impl Default for Stored {
    fn default() -> Self {
        Self {
            state: State::Ready,
            live: false,
            since: 0,
            started: 0,
            not_before: 0,
            request_id: None,
            token: None,
            submitted_at: None,
            next_poll: None,
            polls: 0,
            resubmits: 0,
            times_dead: 0,
            reason: None,
            message: String::new(),
            errors: None,
            attempts: String::new(),
            first_sent: None,
            failures: 0,
            absent: 0,
            absent_at: None,
            if_absent: None,
            settled_externally: false,
        }
    }
}

/// All calls as they lie there, by id.
pub fn columns(db: &Db) -> Vec<(RowId, Stored)> {
    let mut found = db
        .connection
        .prepare_cached(
            "SELECT id, state, live, since, started, not_before, request_id, token,
                        submitted_at, next_poll, polls, resubmits, times_dead, reason, message,
                        errors,
                        attempts, first_sent, failures, absent, absent_at, if_absent,
                        settled_externally
                 FROM calls ORDER BY id",
        )
        .expect("a question");
    let rows = found.query_map([], stored).expect("rows");
    rows.map(|row| row.expect("a row")).collect()
}

fn stored(row: &rusqlite::Row<'_>) -> rusqlite::Result<(RowId, Stored)> {
    let state: String = row.get(1)?;
    let stored = Stored {
        state: State::from_word(&state).expect("a state"),
        live: row.get(2)?,
        since: row.get(3)?,
        started: row.get(4)?,
        not_before: row.get(5)?,
        request_id: row.get(6)?,
        token: row.get(7)?,
        submitted_at: row.get(8)?,
        next_poll: row.get(9)?,
        polls: row.get(10)?,
        resubmits: row.get(11)?,
        times_dead: row.get(12)?,
        reason: row.get(13)?,
        message: row.get(14)?,
        errors: row.get(15)?,
        attempts: row.get(16)?,
        first_sent: row.get(17)?,
        failures: row.get(18)?,
        absent: row.get(19)?,
        absent_at: row.get(20)?,
        if_absent: row.get(21)?,
        settled_externally: row.get(22)?,
    };
    Ok((RowId(row.get(0)?), stored))
}
