//! What the sender chooses from.

use super::step::LAST_TURN;
use super::{deliveries, lead_requests, meta};
use crate::{
    CONFIRMABLE_MAX, Confirmable, DUE_POLLS_MAX, Db, Due, Error, HELD_MAX, LIVE_FOR, QueueQuery,
    RECONCILE_MAX, Store, Unconfirmed, WorkQueue, count,
};
use callbridge_call::EventTime;
use callbridge_model::TokenFingerprint;
use serde::Deserialize;

const UNCONFIRMED: &str = "SELECT id AS row, uuid, linkedid, trunk, started, request_id, token,
    submitted_at, coalesce(first_sent, submitted_at) AS first_sent, polls, next_poll, absent,
    absent_at, resubmits,
    coalesce(if_absent, 'resubmit') AS if_absent, message FROM calls WHERE state = 'submitted'";

/// Returns the requests that can be made now, and the time of the next ones.
pub fn head(store: &Store, ask: &QueueQuery) -> Result<WorkQueue, Error> {
    let books = store.books();
    let mut head = WorkQueue {
        ready: books.ready,
        sending: books.sending,
        submitted: books.submitted,
        webhook_pace: deliveries::webhook_pace(store)?,
        silence: store.hub.as_ref().and_then(|hub| hub.silence.clone()),
        lead_requests: lead_requests::lead_requests(store, ask)?,
        ..WorkQueue::default()
    };
    if books.ready > 0 {
        let had_turn = meta::meta(store, LAST_TURN)?.unwrap_or_default();
        let newest = next_ready(store, true, &had_turn, ask)?;
        let other = next_ready(store, false, &had_turn, ask)?;
        let (live, late) = match newest {
            Some(call) if call.is_live(ask.now) => (Some(call), None),
            late => (None, late),
        };
        let backlog = first_in_backlog(late, other, &had_turn);
        // A branch with endless calls must also let the backlog of the others pass.
        let waits = live.as_ref().is_some_and(|call| call.turn == had_turn);
        let passes = backlog
            .as_ref()
            .filter(|call| waits && call.turn != had_turn);
        head.live = passes.or(live.as_ref()).map(|call| call.due);
        head.backlog = backlog.map(|call| call.due);
        head.retried = next_retried(store, ask.now)?;
        head.next_not_before = next_held(store, ask.now)?;
    }
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

/// Returns the calls that a reconciliation looks for. These are submitted calls that no two
/// reconciliations have missed, the one accepted first at the front, and those that this token
/// cannot poll, however often they were missed.
pub fn to_reconcile(db: &Db, ask: &QueueQuery) -> Result<Vec<Unconfirmed>, Error> {
    let limit = count(RECONCILE_MAX);
    let text = format!("{UNCONFIRMED} AND absent < 2 ORDER BY submitted_at LIMIT ?1");
    let mut calls: Vec<Unconfirmed> = db.query_all(&text, [limit])?;
    for token in other_tokens(db, &ask.tokens)? {
        let text =
            format!("{UNCONFIRMED} AND absent >= 2 AND token = ?1 ORDER BY next_poll LIMIT ?2");
        calls.extend(db.query_all::<Unconfirmed>(&text, (&token, limit))?);
    }
    Ok(calls)
}

/// A call that can be sent, and the branch or PBX in whose turn it is sent.
#[derive(Deserialize)]
struct ReadyCall {
    due: Due,
    turn: String,
}

impl ReadyCall {
    /// It was stored in the last few minutes. A time ahead was stored before the clock was set
    /// back.
    fn is_live(&self, now: EventTime) -> bool {
        let since = self.due.since;
        since.plus(LIVE_FOR) >= now && since <= now.plus(LIVE_FOR)
    }
}

/// Returns the newer of two calls. A branch that had its turn lets the others pass.
fn first_in_backlog(
    one: Option<ReadyCall>,
    two: Option<ReadyCall>,
    had_turn: &str,
) -> Option<ReadyCall> {
    let calls = one.into_iter().chain(two);
    calls.max_by_key(|call| (call.turn != had_turn, call.due.row))
}

/// Returns the newest call of the branch whose turn it is, of calls that were never held back. Or
/// returns a call that was held back long enough, if it is newer. While requests fail, calls that
/// were never held back go first, and then those with the fewest failures.
fn next_ready(
    db: &Db,
    live: bool,
    had_turn: &str,
    ask: &QueueQuery,
) -> Result<Option<ReadyCall>, Error> {
    let ready = "SELECT true AS due, id AS row, uuid, since, turn FROM calls WHERE state = 'ready'";
    let turn = format!(
        "{ready} AND not_before = 0 AND live = ?1 AND turn = (
             SELECT min(turn) FROM calls
             WHERE state = 'ready' AND not_before = 0 AND live = ?1 AND turn > ?2)
         ORDER BY id DESC LIMIT 1"
    );
    let mut fresh: Option<ReadyCall> = db.query_first(&turn, (live, had_turn))?;
    if fresh.is_none() {
        // after the last branch comes the first, and no branch has an empty name
        fresh = db.query_first(&turn, (live, ""))?;
    }
    if ask.untried_first && fresh.is_some() {
        return Ok(fresh);
    }
    let order = if ask.untried_first {
        "failures, not_before"
    } else {
        "not_before"
    };
    let mut found = Vec::from_iter(fresh);
    for (range, moment) in [("<=", ask.now.micros()), (">", latest(ask.now))] {
        let held = format!(
            "{ready} AND not_before {range} ?2 AND not_before > 0 AND live = ?1
             ORDER BY {order} LIMIT 1"
        );
        found.extend(db.query_first(&held, (live, moment))?);
    }
    Ok(found.into_iter().max_by_key(|call| call.due.row))
}

fn next_retried(db: &Db, now: EventTime) -> Result<Option<Due>, Error> {
    let text = "SELECT id AS row, uuid, since FROM calls
         WHERE state = 'ready' AND retried = 1 AND not_before <= ?1 ORDER BY id LIMIT 1";
    db.query_first(text, [now.micros()])
}

fn next_held(db: &Db, now: EventTime) -> Result<Option<EventTime>, Error> {
    let mut earliest = None;
    for live in [true, false] {
        // SQLite uses the first of two bounds, so that must be the narrower one.
        let text = "SELECT min(not_before) FROM calls
             WHERE state = 'ready' AND not_before > ?2 AND not_before > 0 AND live = ?1";
        let next: Option<EventTime> = db.query_one(text, (live, now.micros()))?;
        earliest = earliest.into_iter().chain(next).min();
    }
    Ok(earliest)
}

fn due_polls(db: &Db, ask: &QueueQuery) -> Result<Vec<Unconfirmed>, Error> {
    let due = format!("{UNCONFIRMED} AND next_poll <= ?1 AND token = ?2");
    let beyond = format!("{UNCONFIRMED} AND next_poll > ?1 AND token = ?2");
    for (text, moment) in [(due, ask.now.micros()), (beyond, latest(ask.now))] {
        let text = format!("{text} ORDER BY next_poll LIMIT ?3");
        let mut polls = Vec::new();
        for token in &ask.tokens {
            let values = (moment, token.as_str(), count(DUE_POLLS_MAX));
            polls.extend(db.query_all::<Unconfirmed>(&text, values)?);
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
    let first = ask
        .tokens
        .iter()
        .map(|token| db.query_first(&text, [token.as_str()]));
    first.filter_map(Result::transpose).collect()
}

fn confirmable(db: &Db, ask: &QueueQuery) -> Result<Confirmable, Error> {
    let values = (
        ask.confirmable_before.micros(),
        ask.now.micros(),
        latest(ask.now),
        CONFIRMABLE_MAX,
    );
    let text = "SELECT count(*) AS calls, min(submitted_at) AS oldest FROM (
             SELECT submitted_at FROM calls
             WHERE state = 'submitted' AND absent < 2 AND submitted_at <= ?1
             AND (next_poll <= ?2 OR next_poll > ?3) ORDER BY submitted_at LIMIT ?4)";
    db.query_one(text, values)
}

fn alone(db: &Db, ask: &QueueQuery) -> Result<Option<Unconfirmed>, Error> {
    let text = format!(
        "{UNCONFIRMED} AND absent >= 2 AND next_poll <= ?1 AND token = ?2
         ORDER BY next_poll LIMIT 1"
    );
    let mut alone: Vec<Unconfirmed> = Vec::new();
    for token in &ask.tokens {
        alone.extend(db.query_first(&text, (ask.now.micros(), token.as_str()))?);
    }
    Ok(alone.into_iter().min_by_key(|call| call.next_poll))
}

/// Unresolved calls are those that no valid token of ours made.
fn due_unresolved(db: &Db, ask: &QueueQuery) -> Result<Option<Unconfirmed>, Error> {
    for token in other_tokens(db, &ask.tokens)? {
        for range in ["next_poll <= ?2", "next_poll > ?3"] {
            let text = format!("{UNCONFIRMED} AND token = ?1 AND {range} AND ?2 < ?3 LIMIT 1");
            let values = (&token, ask.now.micros(), latest(ask.now));
            let call = db.query_first(&text, values)?;
            if call.is_some() {
                return Ok(call);
            }
        }
    }
    Ok(None)
}

/// The tokens of the waiting calls, except for those that are valid. It skips from one token to the
/// next, because each can have many calls.
fn other_tokens(db: &Db, living: &[TokenFingerprint]) -> Result<Vec<String>, Error> {
    let text = "WITH RECURSIVE each(token) AS (
             SELECT min(token) FROM calls WHERE state = 'submitted'
             UNION ALL
             SELECT (SELECT min(token) FROM calls
                     WHERE state = 'submitted' AND token > each.token)
             FROM each WHERE each.token IS NOT NULL)
         SELECT token FROM each WHERE token IS NOT NULL";
    let mut tokens: Vec<String> = db.query_all(text, [])?;
    tokens.retain(|token| living.iter().all(|print| print.as_str() != token));
    Ok(tokens)
}

fn next_poll(db: &Db, now: EventTime) -> Result<Option<EventTime>, Error> {
    let text = "SELECT min(next_poll) FROM calls WHERE state = 'submitted' AND next_poll > ?1";
    db.query_one(text, [now.micros()])
}

/// Returns the latest time that a call can wait for. Anything later was written before the clock
/// was set back.
fn latest(now: EventTime) -> i64 {
    now.plus(HELD_MAX).micros()
}
