//! What the sender chooses from.

use super::{Store, sql};
use crate::journal::CallUuid;
use crate::spool::{DUE_POLLS_MAX, Due, Error, Head, RowId, TokenPrint, Unconfirmed};
use callbridge_call::EventTime;
use rusqlite::OptionalExtension as _;

const UNCONFIRMED: &str = "id, uuid, request_id, token, submitted_at, polls, next_poll";

fn due(row: &rusqlite::Row<'_>) -> rusqlite::Result<Due> {
    Ok(Due {
        row: RowId(row.get(0)?),
        uuid: CallUuid(uuid::Uuid::from_bytes(row.get(1)?)),
        since: EventTime::from_micros(row.get(2)?),
    })
}

fn unconfirmed(row: &rusqlite::Row<'_>) -> rusqlite::Result<Unconfirmed> {
    Ok(Unconfirmed {
        row: RowId(row.get(0)?),
        uuid: CallUuid(uuid::Uuid::from_bytes(row.get(1)?)),
        request_id: row.get(2)?,
        token: TokenPrint::stored(row.get(3)?),
        submitted_at: EventTime::from_micros(row.get(4)?),
        polls: row.get(5)?,
        next_poll: EventTime::from_micros(row.get(6)?),
    })
}

impl Store {
    /// What could be requested now, and when there will be more.
    ///
    /// # Errors
    /// The disk, or a damaged file.
    pub fn head(&self, now: EventTime) -> Result<Head, Error> {
        let books = self.books();
        let mut head = Head {
            ready: books.ready,
            sending: books.sending,
            submitted: books.submitted,
            ..Head::default()
        };
        if books.ready > 0 {
            head.live = self.oldest_ready(true, now)?;
            head.backlog = self.oldest_ready(false, now)?;
            head.next_not_before = self.next_held(now)?;
        }
        if books.submitted > 0 {
            head.polls = self.due_polls(now)?;
            head.next_poll = self.next_poll(now)?;
            head.oldest_submitted = self.submitted(1)?.pop();
        }
        Ok(head)
    }

    /// Calls that wait to be confirmed, the one accepted first at the front.
    ///
    /// # Errors
    /// The disk, or a damaged file.
    pub fn submitted(&self, limit: usize) -> Result<Vec<Unconfirmed>, Error> {
        let mut found = self.prepare(&format!(
            "SELECT {UNCONFIRMED} FROM calls WHERE state = 'submitted'
             ORDER BY submitted_at LIMIT ?1"
        ))?;
        let rows = found
            .query_map([count(limit)], unconfirmed)
            .and_then(Iterator::collect);
        sql(self, rows)
    }

    /// The lower id of the first one never held back and the first one held back long enough.
    fn oldest_ready(&self, live: bool, now: EventTime) -> Result<Option<Due>, Error> {
        let mut fresh = self.prepare(
            "SELECT id, uuid, since FROM calls
             WHERE state = 'ready' AND not_before = 0 AND live = ?1 ORDER BY id LIMIT 1",
        )?;
        let fresh = sql(self, fresh.query_row([live], due).optional())?;
        let mut held = self.prepare(
            "SELECT id, uuid, since FROM calls
             WHERE state = 'ready' AND not_before > 0 AND live = ?1 AND not_before <= ?2
             ORDER BY not_before LIMIT 1",
        )?;
        let held = sql(self, held.query_row((live, now.micros()), due).optional())?;
        Ok(fresh.into_iter().chain(held).min_by_key(|due| due.row))
    }

    fn next_held(&self, now: EventTime) -> Result<Option<EventTime>, Error> {
        let mut earliest = None;
        for live in [true, false] {
            let mut next = self.prepare(
                "SELECT min(not_before) FROM calls
                 WHERE state = 'ready' AND not_before > 0 AND live = ?1 AND not_before > ?2",
            )?;
            let next: Option<i64> =
                sql(self, next.query_row((live, now.micros()), |row| row.get(0)))?;
            earliest = earliest.into_iter().chain(next).min();
        }
        Ok(earliest.map(EventTime::from_micros))
    }

    fn due_polls(&self, now: EventTime) -> Result<Vec<Unconfirmed>, Error> {
        let mut found = self.prepare(&format!(
            "SELECT {UNCONFIRMED} FROM calls WHERE state = 'submitted' AND next_poll <= ?1
             ORDER BY next_poll LIMIT ?2"
        ))?;
        let limits = (now.micros(), count(DUE_POLLS_MAX));
        let rows = found
            .query_map(limits, unconfirmed)
            .and_then(Iterator::collect);
        sql(self, rows)
    }

    fn next_poll(&self, now: EventTime) -> Result<Option<EventTime>, Error> {
        let mut found = self.prepare(
            "SELECT min(next_poll) FROM calls WHERE state = 'submitted' AND next_poll > ?1",
        )?;
        let next: Option<i64> = sql(self, found.query_row([now.micros()], |row| row.get(0)))?;
        Ok(next.map(EventTime::from_micros))
    }
}

/// A limit as SQLite takes it.
pub(super) fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
