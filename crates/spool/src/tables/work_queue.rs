//! What the sender chooses from.

use crate::store::{Store, sql};
use crate::{
    Ask, DUE_POLLS_MAX, Due, Error, Fate, HELD_MAX, Head, RIPE_MAX, Ripe, RowId, SOUGHT_MAX,
    Unconfirmed,
};
use callbridge_call::{EpochSeconds, EventTime};
use callbridge_model::CallUuid;
use callbridge_model::TokenPrint;
use rusqlite::{OptionalExtension as _, Params};

const UNCONFIRMED: &str = "SELECT id, uuid, json_extract(record, '$.linkedid'),
    json_extract(record, '$.trunk'), started, request_id, token, submitted_at,
    ifnull(first_sent, submitted_at), polls, next_poll, absent, absent_at, resubmits, fate, message
    FROM calls WHERE state = 'submitted'";

fn due(row: &rusqlite::Row<'_>) -> rusqlite::Result<Due> {
    Ok(Due {
        row: RowId(row.get(0)?),
        uuid: uuid_in(row, 1)?,
        since: EventTime::from_micros(row.get(2)?),
    })
}

fn uuid_in(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<CallUuid> {
    Ok(CallUuid(uuid::Uuid::from_bytes(row.get(column)?)))
}

fn unconfirmed(row: &rusqlite::Row<'_>) -> rusqlite::Result<Unconfirmed> {
    let time = |column| row.get(column).map(EventTime::from_micros);
    let fate: Option<String> = row.get(14)?;
    Ok(Unconfirmed {
        row: RowId(row.get(0)?),
        uuid: uuid_in(row, 1)?,
        linkedid: row.get(2)?,
        trunk: row.get(3)?,
        started: EpochSeconds::new(row.get(4)?),
        request_id: row.get(5)?,
        token: TokenPrint::stored(row.get(6)?),
        submitted_at: time(7)?,
        first_sent: time(8)?,
        polls: row.get(9)?,
        next_poll: time(10)?,
        absent: row.get(11)?,
        absent_at: row.get::<_, Option<i64>>(12)?.map(EventTime::from_micros),
        resubmits: row.get(13)?,
        fate: fate
            .and_then(|word| Fate::from_word(&word))
            .unwrap_or_default(),
        message: row.get(15)?,
    })
}

impl Store {
    /// What could be requested now, and when there will be more.
    ///
    /// # Errors
    /// The disk, or a damaged file.
    pub fn head(&self, ask: &Ask) -> Result<Head, Error> {
        let books = self.books();
        let mut head = Head {
            ready: books.ready,
            sending: books.sending,
            submitted: books.submitted,
            hooked: self.hooked()?,
            ..Head::default()
        };
        if books.ready > 0 {
            head.live = self.oldest_ready(true, ask)?;
            head.backlog = self.oldest_ready(false, ask)?;
            head.next_not_before = self.next_held(ask.now)?;
        }
        head.errands = self.errands(ask)?;
        if books.submitted > 0 {
            head.polls = self.due_polls(ask)?;
            head.next_poll = self.next_poll(ask.now)?;
            head.oldest_submitted = self.first_accepted(ask)?;
            head.ripe = self.ripe(ask)?;
            head.alone = self.alone(ask)?;
            head.orphan = self.due_orphan(ask)?;
        }
        Ok(head)
    }

    /// What a sweep looks for: submitted calls that no two sweeps have missed, the one accepted
    /// first at the front; and those that this token cannot poll, however often they were missed.
    ///
    /// # Errors
    /// The disk, or a damaged file.
    pub fn sought(&self, ask: &Ask) -> Result<Vec<Unconfirmed>, Error> {
        let limit = count(SOUGHT_MAX);
        let text = format!("{UNCONFIRMED} AND absent < 2 ORDER BY submitted_at LIMIT ?1");
        let mut sought = self.unconfirmed(&text, [limit])?;
        for token in self.other_tokens(&ask.tokens)? {
            let text =
                format!("{UNCONFIRMED} AND absent >= 2 AND token = ?1 ORDER BY next_poll LIMIT ?2");
            sought.extend(self.unconfirmed(&text, (&token, limit))?);
        }
        Ok(sought)
    }

    fn unconfirmed(&self, text: &str, values: impl Params) -> Result<Vec<Unconfirmed>, Error> {
        let mut found = self.prepare(text)?;
        let rows = found
            .query_map(values, unconfirmed)
            .and_then(Iterator::collect);
        sql(self, rows)
    }

    /// The lower id of the first one never held back and the first one held back long enough.
    fn oldest_ready(&self, live: bool, ask: &Ask) -> Result<Option<Due>, Error> {
        let now = ask.now;
        let mut fresh = self.prepare(
            "SELECT id, uuid, since FROM calls
             WHERE state = 'ready' AND not_before = 0 AND live = ?1 ORDER BY id LIMIT 1",
        )?;
        let fresh = sql(self, fresh.query_row([live], due).optional())?;
        if ask.untried_first && fresh.is_some() {
            return Ok(fresh);
        }
        let mut held = self.prepare(
            "SELECT id, uuid, since FROM calls
             WHERE state = 'ready' AND not_before > 0 AND live = ?1 AND not_before <= ?2
             ORDER BY not_before LIMIT 1",
        )?;
        let held = sql(self, held.query_row((live, now.micros()), due).optional())?;
        let mut beyond = self.prepare(
            "SELECT id, uuid, since FROM calls
             WHERE state = 'ready' AND not_before > ?2 AND not_before > 0 AND live = ?1
             ORDER BY not_before LIMIT 1",
        )?;
        let beyond = beyond.query_row((live, latest(now)), due).optional();
        let beyond = sql(self, beyond)?;
        let all = fresh.into_iter().chain(held).chain(beyond);
        Ok(all.min_by_key(|due| due.row))
    }

    fn next_held(&self, now: EventTime) -> Result<Option<EventTime>, Error> {
        let mut earliest = None;
        for live in [true, false] {
            // SQLite looks for the first of two bounds: that has to be the narrower one.
            let mut next = self.prepare(
                "SELECT min(not_before) FROM calls
                 WHERE state = 'ready' AND not_before > ?2 AND not_before > 0 AND live = ?1",
            )?;
            let next: Option<i64> =
                sql(self, next.query_row((live, now.micros()), |row| row.get(0)))?;
            earliest = earliest.into_iter().chain(next).min();
        }
        Ok(earliest.map(EventTime::from_micros))
    }

    fn due_polls(&self, ask: &Ask) -> Result<Vec<Unconfirmed>, Error> {
        let due = format!("{UNCONFIRMED} AND next_poll <= ?1 AND token = ?2");
        let beyond = format!("{UNCONFIRMED} AND next_poll > ?1 AND token = ?2");
        for (text, moment) in [(due, ask.now.micros()), (beyond, latest(ask.now))] {
            let text = format!("{text} ORDER BY next_poll LIMIT ?3");
            let mut polls = Vec::new();
            for token in &ask.tokens {
                let values = (moment, token.as_str(), count(DUE_POLLS_MAX));
                polls.extend(self.unconfirmed(&text, values)?);
            }
            if !polls.is_empty() {
                polls.sort_by_key(|call| call.next_poll);
                polls.truncate(DUE_POLLS_MAX);
                return Ok(polls);
            }
        }
        Ok(Vec::new())
    }

    fn first_accepted(&self, ask: &Ask) -> Result<Vec<Unconfirmed>, Error> {
        let text = format!("{UNCONFIRMED} AND token = ?1 ORDER BY submitted_at LIMIT 1");
        let each = ask.tokens.iter().map(|token| {
            let first = self.unconfirmed(&text, [token.as_str()])?;
            Ok(first.into_iter().next())
        });
        each.filter_map(Result::transpose).collect()
    }

    fn ripe(&self, ask: &Ask) -> Result<Ripe, Error> {
        let mut found = self.prepare(
            "SELECT count(*), min(submitted_at) FROM (
                 SELECT submitted_at FROM calls
                 WHERE state = 'submitted' AND absent < 2 AND submitted_at <= ?1
                 AND (next_poll <= ?2 OR next_poll > ?3) ORDER BY submitted_at LIMIT ?4)",
        )?;
        let values = (
            ask.ripe_before.micros(),
            ask.now.micros(),
            latest(ask.now),
            RIPE_MAX,
        );
        let ripe = found.query_row(values, |row| {
            Ok(Ripe {
                calls: row.get(0)?,
                oldest: row.get::<_, Option<i64>>(1)?.map(EventTime::from_micros),
            })
        });
        sql(self, ripe)
    }

    fn alone(&self, ask: &Ask) -> Result<Option<Unconfirmed>, Error> {
        let text = format!(
            "{UNCONFIRMED} AND absent >= 2 AND next_poll <= ?1 AND token = ?2
             ORDER BY next_poll LIMIT 1"
        );
        let mut alone = Vec::new();
        for token in &ask.tokens {
            alone.extend(self.unconfirmed(&text, (ask.now.micros(), token.as_str()))?);
        }
        Ok(alone.into_iter().min_by_key(|call| call.next_poll))
    }

    /// Orphans are what no token of ours made that still lives.
    fn due_orphan(&self, ask: &Ask) -> Result<Option<Unconfirmed>, Error> {
        for token in self.other_tokens(&ask.tokens)? {
            for range in ["next_poll <= ?2", "next_poll > ?3"] {
                let text = format!("{UNCONFIRMED} AND token = ?1 AND {range} AND ?2 < ?3 LIMIT 1");
                let values = (&token, ask.now.micros(), latest(ask.now));
                if let Some(call) = self.unconfirmed(&text, values)?.pop() {
                    return Ok(Some(call));
                }
            }
        }
        Ok(None)
    }

    /// The tokens that made what waits, but for those that live: from one to the next, for there
    /// may be many calls of each.
    fn other_tokens(&self, living: &[TokenPrint]) -> Result<Vec<String>, Error> {
        let mut found = self.prepare(
            "WITH RECURSIVE each(token) AS (
                 SELECT min(token) FROM calls WHERE state = 'submitted'
                 UNION ALL
                 SELECT (SELECT min(token) FROM calls
                         WHERE state = 'submitted' AND token > each.token)
                 FROM each WHERE each.token IS NOT NULL)
             SELECT token FROM each WHERE token IS NOT NULL",
        )?;
        let rows = found.query_map([], |row| row.get(0));
        let mut tokens: Vec<String> = sql(self, rows.and_then(Iterator::collect))?;
        tokens.retain(|token| living.iter().all(|print| print.as_str() != token));
        Ok(tokens)
    }

    fn next_poll(&self, now: EventTime) -> Result<Option<EventTime>, Error> {
        let mut found = self.prepare(
            "SELECT min(next_poll) FROM calls WHERE state = 'submitted' AND next_poll > ?1",
        )?;
        let next: Option<i64> = sql(self, found.query_row([now.micros()], |row| row.get(0)))?;
        Ok(next.map(EventTime::from_micros))
    }
}

/// What is held beyond this moment was written before the clock was set back.
fn latest(now: EventTime) -> i64 {
    now.plus(HELD_MAX).micros()
}

/// A limit as SQLite takes it.
pub(crate) fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
