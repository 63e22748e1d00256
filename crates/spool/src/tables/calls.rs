//! A stored call, read back.

use crate::store::{Store, sql};
use crate::{Attempt, Error, Row, RowId, State};
use callbridge_call::EventTime;
use callbridge_model::TokenPrint;
use callbridge_model::{CallUuid, Reason};
use rusqlite::OptionalExtension as _;

const COLUMNS: &str = "id, ifnull(uuid, twin), state, record, call, request_id, token, attempts, \
     submitted_at, polls, next_poll, resubmits, not_before, live, reason, message, errors, since, \
     failures";

/// The columns of a row as SQLite has them.
struct Raw {
    id: i64,
    uuid: [u8; 16],
    state: String,
    record: String,
    call: String,
    request_id: Option<String>,
    token: Option<String>,
    attempts: String,
    submitted_at: Option<i64>,
    polls: u32,
    next_poll: Option<i64>,
    resubmits: u32,
    not_before: i64,
    live: bool,
    reason: Option<String>,
    message: String,
    errors: Option<String>,
    since: i64,
    failures: u32,
}

fn raw(row: &rusqlite::Row<'_>) -> rusqlite::Result<Raw> {
    Ok(Raw {
        id: row.get(0)?,
        uuid: row.get(1)?,
        state: row.get(2)?,
        record: row.get(3)?,
        call: row.get(4)?,
        request_id: row.get(5)?,
        token: row.get(6)?,
        attempts: row.get(7)?,
        submitted_at: row.get(8)?,
        polls: row.get(9)?,
        next_poll: row.get(10)?,
        resubmits: row.get(11)?,
        not_before: row.get(12)?,
        live: row.get(13)?,
        reason: row.get(14)?,
        message: row.get(15)?,
        errors: row.get(16)?,
        since: row.get(17)?,
        failures: row.get(18)?,
    })
}

impl Store {
    /// One call; `None` for an id that is none, or a letter's of unreadable bytes.
    ///
    /// # Errors
    /// The disk, or a damaged file.
    pub fn row(&self, row: RowId) -> Result<Option<Row>, Error> {
        let mut found = self.prepare(&format!("SELECT {COLUMNS} FROM calls WHERE id = ?1"))?;
        let raw = sql(self, found.query_row([row.0], raw).optional())?;
        raw.map(|raw| self.complete(raw)).transpose()
    }

    /// The call with this uuid; of several the one that is no `uuid_conflict`.
    ///
    /// # Errors
    /// The disk, or a damaged file.
    pub fn row_of(&self, uuid: CallUuid) -> Result<Option<RowId>, Error> {
        let mut found = self.prepare("SELECT id FROM calls WHERE uuid = ?1")?;
        let row = found.query_row([uuid.0.into_bytes()], |row| row.get(0));
        Ok(sql(self, row.optional())?.map(RowId))
    }

    /// The stored call of this uuid, or of this linkedid or unique id on any PBX.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn find_call(&self, id: &str) -> Result<Option<Row>, Error> {
        let uuid = match uuid::Uuid::try_parse(id) {
            Ok(uuid) => Some(CallUuid(uuid)),
            Err(_) => self.uuid_by_any_id(id)?,
        };
        let Some(uuid) = uuid else { return Ok(None) };
        let Some(row) = self.row_of(uuid)? else {
            return Ok(None);
        };
        self.row(row)
    }

    /// The first stored calls, oldest first, at most `limit`.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn oldest(&self, limit: usize) -> Result<Vec<Row>, Error> {
        let mut found =
            self.prepare(&format!("SELECT {COLUMNS} FROM calls ORDER BY id LIMIT ?1"))?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = found.query_map([limit], raw).and_then(Iterator::collect);
        let rows: Vec<Raw> = sql(self, rows)?;
        rows.into_iter().map(|raw| self.complete(raw)).collect()
    }

    /// Calls whose request was under way when the process ended, oldest first.
    ///
    /// # Errors
    /// The disk, or a damaged file.
    pub fn sending(&self) -> Result<Vec<Row>, Error> {
        let mut found = self.prepare(&format!(
            "SELECT {COLUMNS} FROM calls WHERE state = 'sending' ORDER BY id"
        ))?;
        let rows = found.query_map([], raw).and_then(Iterator::collect);
        let rows: Vec<Raw> = sql(self, rows)?;
        rows.into_iter().map(|raw| self.complete(raw)).collect()
    }

    fn complete(&self, raw: Raw) -> Result<Row, Error> {
        let id = RowId(raw.id);
        Ok(Row {
            id,
            uuid: CallUuid(uuid::Uuid::from_bytes(raw.uuid)),
            state: self.read_state(id, &raw.state)?,
            record: self.read_json(id, &raw.record)?,
            call: self.read_json(id, &raw.call)?,
            request_id: raw.request_id,
            token: raw.token.map(TokenPrint::stored),
            attempts: self.read_json::<Vec<Attempt>>(id, &raw.attempts)?,
            submitted_at: raw.submitted_at.map(EventTime::from_micros),
            polls: raw.polls,
            next_poll: raw.next_poll.map(EventTime::from_micros),
            resubmits: raw.resubmits,
            failures: raw.failures,
            not_before: (raw.not_before > 0).then(|| EventTime::from_micros(raw.not_before)),
            live: raw.live,
            reason: raw
                .reason
                .map(|word| self.read_reason(id, &word))
                .transpose()?,
            message: raw.message,
            errors: self.read_errors(id, raw.errors.as_deref())?,
            since: EventTime::from_micros(raw.since),
        })
    }

    pub(crate) fn read_state(&self, id: RowId, word: &str) -> Result<State, Error> {
        State::from_word(word).ok_or_else(|| self.damaged(format!("{id} has the state {word}")))
    }

    pub(crate) fn read_reason(&self, id: RowId, word: &str) -> Result<Reason, Error> {
        Reason::from_word(word).ok_or_else(|| self.damaged(format!("{id} has the reason {word}")))
    }

    pub(crate) fn read_errors(
        &self,
        id: RowId,
        text: Option<&str>,
    ) -> Result<serde_json::Value, Error> {
        text.map_or(Ok(serde_json::Value::Null), |text| self.read_json(id, text))
    }

    pub(crate) fn read_json<T>(&self, id: RowId, text: &str) -> Result<T, Error>
    where
        T: serde::de::DeserializeOwned,
    {
        serde_json::from_str(text).map_err(|error| self.damaged(format!("{id}: {error}")))
    }
}
