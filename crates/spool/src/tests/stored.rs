//! Calls in the form in which they're stored.

use crate::{Db, RowId, State};
use serde::Deserialize;

/// Every column of a call except its IDs and its two JSON columns.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
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

/// Returns all calls as stored, ordered by ID.
pub fn columns(db: &Db) -> Vec<(RowId, Stored)> {
    let text = "SELECT true AS stored, id AS row, state, live, since, started, not_before,
                request_id, token, submitted_at, next_poll, polls, resubmits, times_dead, reason,
                message, errors, attempts, first_sent, failures, absent, absent_at, if_absent,
                settled_externally
         FROM calls ORDER BY id";
    let rows: Vec<StoredRow> = db.query_all(text, ()).expect("rows");
    rows.into_iter()
        .map(|found| (found.row, found.stored))
        .collect()
}

#[derive(Deserialize)]
struct StoredRow {
    row: RowId,
    stored: Stored,
}
