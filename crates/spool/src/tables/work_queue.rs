//! What the sender chooses from.

use super::peer_outcomes::{self, due};
use super::step::HAD_TURN;
use super::{deliveries, lead_requests, meta};
use crate::{
    CONFIRMABLE_MAX, Columns as _, Confirmable, DUE_POLLS_MAX, Db, Due, Error, HELD_MAX,
    QueueQuery, RECONCILE_MAX, Store, Unconfirmed, WorkQueue, count,
};
use callbridge_call::{EpochSeconds, EventTime};
use callbridge_model::TokenFingerprint;
use rusqlite::Params;

const UNCONFIRMED: &str = "SELECT id, uuid, json_extract(record, '$.linkedid'),
    json_extract(record, '$.trunk'), started, request_id, token, submitted_at,
    ifnull(first_sent, submitted_at), polls, next_poll, absent, absent_at, resubmits, fate, message
    FROM calls WHERE state = 'submitted'";

fn read_unconfirmed(row: &rusqlite::Row<'_>) -> rusqlite::Result<Unconfirmed> {
    Ok(Unconfirmed {
        row: row.get(0)?,
        uuid: row.uuid(1)?,
        linkedid: row.get(2)?,
        trunk: row.get(3)?,
        started: EpochSeconds::new(row.get(4)?),
        request_id: row.get(5)?,
        token: TokenFingerprint::stored(row.get(6)?),
        submitted_at: row.moment(7)?,
        first_sent: row.moment(8)?,
        polls: row.get(9)?,
        next_poll: row.moment(10)?,
        absent: row.get(11)?,
        absent_at: row.maybe_moment(12)?,
        resubmits: row.get(13)?,
        fate: row.get::<_, Option<_>>(14)?.unwrap_or_default(),
        message: row.get(15)?,
    })
}

/// Returns what could be requested now, and when there will be more.
pub fn head(store: &Store, ask: &QueueQuery) -> Result<WorkQueue, Error> {
    let books = store.books();
    let mut head = WorkQueue {
        ready: books.ready,
        sending: books.sending,
        submitted: books.submitted,
        hooked: deliveries::hooked(store)?,
        ..WorkQueue::default()
    };
    head.possibly_sent = peer_outcomes::possibly_sent_calls(store)?;
    if books.ready > 0 {
        let had_turn = meta::meta(store, HAD_TURN)?.unwrap_or_default();
        let live = next_ready(store, true, &had_turn, ask)?;
        let backlog = next_ready(store, false, &had_turn, ask)?;
        let released = head.possibly_sent.released;
        // One PBX that calls without end lets the backlog of the others pass, too.
        let passes = |it: &&ReadyCall| it.1 != had_turn;
        let other = backlog.as_ref().filter(passes).map(|(due, _)| *due);
        let waits = live.as_ref().is_some_and(|(_, pbx)| *pbx == had_turn);
        head.live = other.filter(|_| waits).or(live.map(|(due, _)| due));
        head.backlog = backlog.map(|(due, _)| due).or(released);
        head.next_not_before = next_held(store, ask.now)?;
    }
    head.lead_requests = lead_requests::lead_requests(store, ask)?;
    if books.submitted > 0 {
        head.polls = due_polls(store, ask)?;
        head.next_poll = next_poll(store, ask.now)?;
        head.oldest_submitted = first_accepted(store, ask)?;
        head.confirmable = confirmable(store, ask)?;
        head.alone = alone(store, ask)?;
        head.unresolved = due_unresolved(store, ask)?;
    }
    Ok(head)
}

/// Returns the calls that a reconciliation looks for: submitted calls that no two reconciliations
/// have missed, the one accepted first at the front; and those that this token cannot poll, however
/// often they were missed.
pub fn to_reconcile(db: &Db, ask: &QueueQuery) -> Result<Vec<Unconfirmed>, Error> {
    let limit = count(RECONCILE_MAX);
    let text = format!("{UNCONFIRMED} AND absent < 2 ORDER BY submitted_at LIMIT ?1");
    let mut calls = unconfirmed(db, &text, [limit])?;
    for token in other_tokens(db, &ask.tokens)? {
        let text =
            format!("{UNCONFIRMED} AND absent >= 2 AND token = ?1 ORDER BY next_poll LIMIT ?2");
        calls.extend(unconfirmed(db, &text, (&token, limit))?);
    }
    Ok(calls)
}

fn unconfirmed(db: &Db, text: &str, values: impl Params) -> Result<Vec<Unconfirmed>, Error> {
    db.query_all(text, values, read_unconfirmed)
}

/// A call that may be sent, and its PBX.
type ReadyCall = (Due, String);

fn ready_call(row: &rusqlite::Row<'_>) -> rusqlite::Result<ReadyCall> {
    Ok((due(row)?, row.get(3)?))
}

/// Returns the first of the PBX whose turn it is, of calls that were never held back; or the first
/// that was held back long enough, where that has the lower id.
fn next_ready(
    db: &Db,
    live: bool,
    had_turn: &str,
    ask: &QueueQuery,
) -> Result<Option<ReadyCall>, Error> {
    const PBX: &str = "json_extract(record, '$.pbx')";
    let now = ask.now;
    let ready = format!("SELECT id, uuid, since, {PBX} FROM calls WHERE state = 'ready'");
    let fresh = format!(
        "{ready} AND not_before = 0 AND live = ?1 AND {PBX} > ?2 ORDER BY {PBX}, id LIMIT 1"
    );
    let mut turn = db.query_first(&fresh, (live, had_turn), ready_call)?;
    if turn.is_none() {
        // behind the last of them is the first; no PBX is called nothing
        turn = db.query_first(&fresh, (live, ""), ready_call)?;
    }
    if ask.untried_first && turn.is_some() {
        return Ok(turn);
    }
    let held = format!(
        "{ready} AND not_before > 0 AND live = ?1 AND not_before <= ?2
         ORDER BY not_before LIMIT 1"
    );
    let held = db.query_first(&held, (live, now.micros()), ready_call)?;
    let beyond = format!(
        "{ready} AND not_before > ?2 AND not_before > 0 AND live = ?1 ORDER BY not_before LIMIT 1"
    );
    let beyond = db.query_first(&beyond, (live, latest(now)), ready_call)?;
    let all = turn.into_iter().chain(held).chain(beyond);
    Ok(all.min_by_key(|(due, _)| due.row))
}

fn next_held(db: &Db, now: EventTime) -> Result<Option<EventTime>, Error> {
    let mut earliest = None;
    for live in [true, false] {
        // SQLite looks for the first of two bounds: that has to be the narrower one.
        let text = "SELECT min(not_before) FROM calls
             WHERE state = 'ready' AND not_before > ?2 AND not_before > 0 AND live = ?1";
        let next: Option<i64> = db.value(text, (live, now.micros()))?;
        earliest = earliest.into_iter().chain(next).min();
    }
    Ok(earliest.map(EventTime::from_micros))
}

fn due_polls(db: &Db, ask: &QueueQuery) -> Result<Vec<Unconfirmed>, Error> {
    let due = format!("{UNCONFIRMED} AND next_poll <= ?1 AND token = ?2");
    let beyond = format!("{UNCONFIRMED} AND next_poll > ?1 AND token = ?2");
    for (text, moment) in [(due, ask.now.micros()), (beyond, latest(ask.now))] {
        let text = format!("{text} ORDER BY next_poll LIMIT ?3");
        let mut polls = Vec::new();
        for token in &ask.tokens {
            let values = (moment, token.as_str(), count(DUE_POLLS_MAX));
            polls.extend(unconfirmed(db, &text, values)?);
        }
        if !polls.is_empty() {
            polls.sort_by_key(|call| call.next_poll);
            polls.truncate(DUE_POLLS_MAX);
            return Ok(polls);
        }
    }
    Ok(Vec::new())
}

fn first_accepted(db: &Db, ask: &QueueQuery) -> Result<Vec<Unconfirmed>, Error> {
    let text = format!("{UNCONFIRMED} AND token = ?1 ORDER BY submitted_at LIMIT 1");
    let each = ask.tokens.iter();
    let each = each.map(|token| Ok(unconfirmed(db, &text, [token.as_str()])?.pop()));
    each.filter_map(Result::transpose).collect()
}

fn confirmable(db: &Db, ask: &QueueQuery) -> Result<Confirmable, Error> {
    let values = (
        ask.confirmable_before.micros(),
        ask.now.micros(),
        latest(ask.now),
        CONFIRMABLE_MAX,
    );
    let text = "SELECT count(*), min(submitted_at) FROM (
             SELECT submitted_at FROM calls
             WHERE state = 'submitted' AND absent < 2 AND submitted_at <= ?1
             AND (next_poll <= ?2 OR next_poll > ?3) ORDER BY submitted_at LIMIT ?4)";
    db.query_one(text, values, |row| {
        let (calls, oldest) = (row.get(0)?, row.maybe_moment(1)?);
        Ok(Confirmable { calls, oldest })
    })
}

fn alone(db: &Db, ask: &QueueQuery) -> Result<Option<Unconfirmed>, Error> {
    let text = format!(
        "{UNCONFIRMED} AND absent >= 2 AND next_poll <= ?1 AND token = ?2
         ORDER BY next_poll LIMIT 1"
    );
    let mut alone = Vec::new();
    for token in &ask.tokens {
        alone.extend(unconfirmed(db, &text, (ask.now.micros(), token.as_str()))?);
    }
    Ok(alone.into_iter().min_by_key(|call| call.next_poll))
}

/// Unresolved calls are what no token of ours made that still lives.
fn due_unresolved(db: &Db, ask: &QueueQuery) -> Result<Option<Unconfirmed>, Error> {
    for token in other_tokens(db, &ask.tokens)? {
        for range in ["next_poll <= ?2", "next_poll > ?3"] {
            let text = format!("{UNCONFIRMED} AND token = ?1 AND {range} AND ?2 < ?3 LIMIT 1");
            let values = (&token, ask.now.micros(), latest(ask.now));
            if let Some(call) = unconfirmed(db, &text, values)?.pop() {
                return Ok(Some(call));
            }
        }
    }
    Ok(None)
}

/// The tokens that made what waits, but for those that live: from one to the next, for there
/// may be many calls of each.
fn other_tokens(db: &Db, living: &[TokenFingerprint]) -> Result<Vec<String>, Error> {
    let text = "WITH RECURSIVE each(token) AS (
             SELECT min(token) FROM calls WHERE state = 'submitted'
             UNION ALL
             SELECT (SELECT min(token) FROM calls
                     WHERE state = 'submitted' AND token > each.token)
             FROM each WHERE each.token IS NOT NULL)
         SELECT token FROM each WHERE token IS NOT NULL";
    let mut tokens: Vec<String> = db.values(text, [])?;
    tokens.retain(|token| living.iter().all(|print| print.as_str() != token));
    Ok(tokens)
}

fn next_poll(db: &Db, now: EventTime) -> Result<Option<EventTime>, Error> {
    let text = "SELECT min(next_poll) FROM calls WHERE state = 'submitted' AND next_poll > ?1";
    let next: Option<i64> = db.value(text, [now.micros()])?;
    Ok(next.map(EventTime::from_micros))
}

/// Returns the latest moment that anything can be held to: what lies beyond was written before the
/// clock was set back.
fn latest(now: EventTime) -> i64 {
    now.plus(HELD_MAX).micros()
}
