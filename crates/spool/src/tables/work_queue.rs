//! Queries for the pending work from which the sender chooses its next request.

use super::ready::{READY, ReadyCall};
use super::step::LAST_TURN;
use super::trials::TrialQuestions;
use super::{branches, deliveries, lead_requests, meta};
use crate::db::Asked;
use crate::value::ToValue;
use crate::{
    CONFIRMABLE_MAX, Confirmable, DUE_POLLS_MAX, Db, Due, Error, HELD_MAX, QueueQuery,
    RECONCILE_MAX, Store, Unconfirmed, WorkQueue, count,
};
use callbridge_call::EventTime;
use callbridge_model::TokenFingerprint;

const UNCONFIRMED: &str = "SELECT id AS row, uuid, linkedid, trunk, turn, true AS parties, lead,
    employee, started, request_id, token,
    submitted_at, coalesce(first_sent, submitted_at) AS first_sent, polls, next_poll, absent,
    absent_at, resubmits,
    coalesce(if_absent, 'resubmit') AS if_absent, message FROM calls WHERE state = 'submitted'";

/// Returns the requests that could be made now, and when the next ones are due. This takes two
/// round trips: one for most of the queries, and another for those that depend on an earlier
/// result.
pub fn head(store: &Store, ask: &QueueQuery) -> Result<WorkQueue, Error> {
    let books = store.books();
    let pace = deliveries::ask_webhook_pace(store)?;
    let requests = lead_requests::ask_due(store)?;
    let mut ready = None;
    if books.ready > 0 {
        ready = Some(ReadyQuestions::ask(store, ask)?);
    }
    let mut submitted = None;
    if books.submitted > 0 {
        submitted = Some(SubmittedQuestions::ask(store, ask)?);
    }
    let mut turns = None;
    if let Some(questions) = ready {
        turns = Some(questions.ask_turns(store)?);
    }
    let mut unresolved = None;
    if let Some(questions) = submitted {
        unresolved = Some(questions.ask_unresolved(store, ask)?);
    }
    let mut head = WorkQueue {
        ready: books.ready,
        sending: books.sending,
        submitted: books.submitted,
        webhook_pace: deliveries::read_asked_pace(store, pace)?,
        silence: store.silence.clone(),
        split_by: store.hub.as_ref().and_then(|hub| hub.split_by.clone()),
        lead_requests: lead_requests::lead_requests_of(store, requests, ask)?,
        ..WorkQueue::default()
    };
    if !ask.suspended.branches.is_empty() {
        head.branches = branches::count(store)?;
    }
    if let Some(questions) = turns {
        questions.answer(store, ask, &mut head)?;
    }
    if let Some(questions) = unresolved {
        questions.answer(store, &mut head)?;
    }
    Ok(head)
}

/// Queries about ready calls, whose results are read later.
struct ReadyQuestions {
    had_turn: Asked<String>,
    /// Calls that were held back: first the live ones, then the others.
    held: [Vec<Asked<ReadyCall>>; 2],
    retried: Asked<Due>,
    trials: Vec<TrialQuestions>,
    next_held: Vec<Asked<EventTime>>,
}

/// The queries about ready calls, including those that depend on which branch had the last turn.
struct TurnQuestions {
    had_turn: String,
    /// The newest live call and the newest other call of the branch whose turn it is.
    fresh: [Asked<ReadyCall>; 2],
    held: [Vec<Asked<ReadyCall>>; 2],
    retried: Asked<Due>,
    trials: Vec<TrialQuestions>,
    next_held: Vec<Asked<EventTime>>,
}

impl ReadyQuestions {
    fn ask(db: &Db, ask: &QueueQuery) -> Result<Self, Error> {
        Ok(Self {
            had_turn: meta::ask_meta(db, LAST_TURN)?,
            held: [ask_held(db, true, ask)?, ask_held(db, false, ask)?],
            retried: ask_retried(db, ask.now)?,
            trials: TrialQuestions::ask(db, ask)?,
            next_held: ask_next_held(db, ask.now)?,
        })
    }

    fn ask_turns(self, db: &Db) -> Result<TurnQuestions, Error> {
        let had_turn = self.had_turn.first(db)?.unwrap_or_default();
        Ok(TurnQuestions {
            fresh: [
                ask_turn(db, true, &had_turn)?,
                ask_turn(db, false, &had_turn)?,
            ],
            had_turn,
            held: self.held,
            retried: self.retried,
            trials: self.trials,
            next_held: self.next_held,
        })
    }
}

impl TurnQuestions {
    fn answer(self, db: &Db, ask: &QueueQuery, head: &mut WorkQueue) -> Result<(), Error> {
        let had_turn = self.had_turn;
        let [live, backlog] = self.fresh;
        let [held_live, held_backlog] = self.held;
        let live = skip_suspended(db, live.first(db)?, true, ask)?;
        let backlog = skip_suspended(db, backlog.first(db)?, false, ask)?;
        let newest = next_ready(db, live, held_live, ask)?;
        let other = next_ready(db, backlog, held_backlog, ask)?;
        let (live, late) = match newest {
            Some(call) if call.is_live(ask.now) => (Some(call), None),
            late => (None, late),
        };
        let backlog = first_in_backlog(late, other, &had_turn);
        // Even if a branch never runs out of live calls, other branches' backlog has to get
        // through.
        let waits = live.as_ref().is_some_and(|call| call.turn == had_turn);
        let passes = backlog
            .as_ref()
            .filter(|call| waits && call.turn != had_turn);
        head.live = passes.or(live.as_ref()).map(|call| call.due);
        head.backlog = backlog.map(|call| call.due);
        head.retried = self.retried.first(db)?;
        for (asked, branch) in self.trials.into_iter().zip(&ask.suspended.branches) {
            if let Some(due) = asked.choose(db, branch)? {
                head.trials.insert(branch.turn.clone(), due);
            }
        }
        for next in self.next_held {
            let earliest = head.next_not_before.into_iter().chain(next.first(db)?);
            head.next_not_before = earliest.min();
        }
        Ok(())
    }
}

/// Queries about submitted calls, whose results are read later.
struct SubmittedQuestions {
    /// Calls that are due for polling, followed by those whose polling time was set before the
    /// clock was set back.
    polls: [Vec<Asked<Unconfirmed>>; 2],
    next_poll: Asked<EventTime>,
    first_accepted: Vec<Asked<Unconfirmed>>,
    ending: Vec<Asked<Unconfirmed>>,
    confirmable: Asked<Confirmable>,
    alone: Vec<Asked<Unconfirmed>>,
    tokens: Asked<String>,
}

/// The queries about submitted calls, including those that depend on their tokens.
struct UnresolvedQuestions {
    polls: [Vec<Asked<Unconfirmed>>; 2],
    next_poll: Asked<EventTime>,
    first_accepted: Vec<Asked<Unconfirmed>>,
    ending: Vec<Asked<Unconfirmed>>,
    confirmable: Asked<Confirmable>,
    alone: Vec<Asked<Unconfirmed>>,
    unresolved: Vec<Asked<Unconfirmed>>,
}

impl SubmittedQuestions {
    fn ask(db: &Db, ask: &QueueQuery) -> Result<Self, Error> {
        Ok(Self {
            polls: [ask_due_polls(db, ask)?, ask_polls_beyond(db, ask)?],
            next_poll: ask_next_poll(db, ask.now)?,
            first_accepted: ask_first_accepted(db, ask)?,
            ending: ask_ending(db, ask)?,
            confirmable: ask_confirmable(db, ask)?,
            alone: ask_alone(db, ask)?,
            tokens: db.ask(TOKENS, ())?,
        })
    }

    fn ask_unresolved(self, db: &Db, ask: &QueueQuery) -> Result<UnresolvedQuestions, Error> {
        let tokens = expired_tokens(self.tokens.all(db)?, &ask.tokens);
        Ok(UnresolvedQuestions {
            polls: self.polls,
            next_poll: self.next_poll,
            first_accepted: self.first_accepted,
            ending: self.ending,
            confirmable: self.confirmable,
            alone: self.alone,
            unresolved: ask_unresolved(db, &tokens, ask)?,
        })
    }
}

impl UnresolvedQuestions {
    fn answer(self, db: &Db, head: &mut WorkQueue) -> Result<(), Error> {
        for asked in self.polls {
            let mut polls = Vec::new();
            for polls_of_token in asked {
                polls.extend(polls_of_token.all(db)?);
            }
            if head.polls.is_empty() {
                polls.sort_by_key(|call: &Unconfirmed| call.next_poll);
                polls.truncate(DUE_POLLS_MAX);
                head.polls = polls;
            }
        }
        head.next_poll = self.next_poll.first(db)?;
        for first in self.first_accepted {
            head.oldest_submitted.extend(first.first(db)?);
        }
        for ending in self.ending {
            head.ending.extend(ending.all(db)?);
        }
        head.confirmable = self.confirmable.first(db)?.unwrap_or_default();
        let mut alone = Vec::new();
        for first in self.alone {
            alone.extend(first.first(db)?);
        }
        head.alone = alone.into_iter().min_by_key(|call| call.next_poll);
        for first in self.unresolved {
            let found = first.first(db)?;
            head.unresolved = head.unresolved.take().or(found);
        }
        Ok(())
    }
}

/// Returns the calls that a reconciliation looks for.
///
/// First come submitted calls that have been missing from fewer than two reconciliations, in the
/// order in which they were accepted. They're followed by other submitted calls that can't be
/// polled with any token in `ask`.
pub fn to_reconcile(db: &Db, ask: &QueueQuery) -> Result<Vec<Unconfirmed>, Error> {
    let limit = count(RECONCILE_MAX);
    let text = format!("{UNCONFIRMED} AND absent < 2 ORDER BY submitted_at LIMIT ?1");
    let mut calls: Vec<Unconfirmed> = db.query_all(&text, [limit])?;
    for token in expired_tokens(db.query_all(TOKENS, ())?, &ask.tokens) {
        let text =
            format!("{UNCONFIRMED} AND absent >= 2 AND token = ?1 ORDER BY next_poll LIMIT ?2");
        calls.extend(db.query_all::<Unconfirmed>(&text, (&token, limit))?);
    }
    Ok(calls)
}

/// Returns the call to send first. Any call of the branch or PBX that had the last turn
/// (`had_turn`) goes last. Otherwise, the newer call goes first.
fn first_in_backlog(
    one: Option<ReadyCall>,
    two: Option<ReadyCall>,
    had_turn: &str,
) -> Option<ReadyCall> {
    let calls = one.into_iter().chain(two);
    calls.max_by_key(|call| (call.turn != had_turn, call.due.row))
}

/// Sends the query for the newest call of the branch whose turn it is, considering only calls that
/// were never held back.
///
/// The turn passes to the branch whose name follows `had_turn`, and from the last branch back to
/// the first. No branch has an empty name. The order matches the index. With `turn = …`, PostgreSQL
/// would scan all calls backward.
fn ask_turn(db: &Db, live: bool, had_turn: &str) -> Result<Asked<ReadyCall>, Error> {
    let turn = format!(
        "{READY} AND not_before = 0 AND live = ?1 AND turn > coalesce((
             SELECT ?2 FROM calls
             WHERE state = 'ready' AND not_before = 0 AND live = ?1 AND turn > ?2
             ORDER BY turn LIMIT 1), '')
         ORDER BY turn, id DESC LIMIT 1"
    );
    db.ask(&turn, (live, had_turn))
}

/// Replaces a suspended branch's call with a call of the next branch that isn't suspended. Asking
/// for one branch after another skips all calls of a branch at once.
fn skip_suspended(
    db: &Db,
    mut fresh: Option<ReadyCall>,
    live: bool,
    ask: &QueueQuery,
) -> Result<Option<ReadyCall>, Error> {
    if ask.suspended.all {
        return Ok(None);
    }
    for _ in &ask.suspended.branches {
        match &fresh {
            Some(call) if ask.suspended.contains(&call.turn) => {
                fresh = ask_turn(db, live, &call.turn)?.first(db)?;
            }
            Some(_) | None => break,
        }
    }
    Ok(fresh.filter(|call| !ask.suspended.contains(&call.turn)))
}

/// Sends the queries for a call that was held back but can be sent now. While requests are failing,
/// the call with the fewest failures goes first.
fn ask_held(db: &Db, live: bool, ask: &QueueQuery) -> Result<Vec<Asked<ReadyCall>>, Error> {
    let order = if ask.untried_first {
        "failures, not_before"
    } else {
        "not_before"
    };
    let mut asked = Vec::new();
    if ask.suspended.all {
        return Ok(asked);
    }
    let suspended = &ask.suspended.branches;
    let mut others = String::new();
    for number in (3..).take(suspended.len()) {
        others.push_str(&format!(" AND turn <> ?{number}"));
    }
    for (range, moment) in [("<=", ask.now.micros()), (">", latest(ask.now))] {
        let held = format!(
            "{READY} AND not_before {range} ?2 AND not_before > 0 AND live = ?1{others}
             ORDER BY {order} LIMIT 1"
        );
        let mut values: Vec<&dyn ToValue> = vec![&live, &moment];
        for branch in suspended {
            values.push(&branch.turn);
        }
        asked.push(db.ask(&held, &values[..])?);
    }
    Ok(asked)
}

/// Returns the newer of two calls: `fresh`, the newest call of the branch whose turn it is, or one
/// in `held`, which were held back but can be sent now. While requests are failing, `fresh` goes
/// first.
fn next_ready(
    db: &Db,
    fresh: Option<ReadyCall>,
    held: Vec<Asked<ReadyCall>>,
    ask: &QueueQuery,
) -> Result<Option<ReadyCall>, Error> {
    if ask.untried_first && fresh.is_some() {
        return Ok(fresh);
    }
    let mut found = Vec::from_iter(fresh);
    for call in held {
        found.extend(call.first(db)?);
    }
    Ok(found.into_iter().max_by_key(|call| call.due.row))
}

fn ask_retried(db: &Db, now: EventTime) -> Result<Asked<Due>, Error> {
    let text = "SELECT id AS row, uuid, since FROM calls
         WHERE state = 'ready' AND retried = 1 AND not_before <= ?1 ORDER BY id LIMIT 1";
    db.ask(text, [now.micros()])
}

fn ask_next_held(db: &Db, now: EventTime) -> Result<Vec<Asked<EventTime>>, Error> {
    // SQLite uses the first of two bounds, so the narrower one has to come first.
    let text = "SELECT not_before FROM calls
         WHERE state = 'ready' AND not_before > ?2 AND not_before > 0 AND live = ?1
         ORDER BY not_before LIMIT 1";
    let asked = [true, false].map(|live| db.ask(text, (live, now.micros())));
    asked.into_iter().collect()
}

fn ask_due_polls(db: &Db, ask: &QueueQuery) -> Result<Vec<Asked<Unconfirmed>>, Error> {
    let text =
        format!("{UNCONFIRMED} AND next_poll <= ?1 AND token = ?2 ORDER BY next_poll LIMIT ?3");
    ask_polls(db, &text, ask.now.micros(), &ask.tokens)
}

fn ask_polls_beyond(db: &Db, ask: &QueueQuery) -> Result<Vec<Asked<Unconfirmed>>, Error> {
    let text =
        format!("{UNCONFIRMED} AND next_poll > ?1 AND token = ?2 ORDER BY next_poll LIMIT ?3");
    ask_polls(db, &text, latest(ask.now), &ask.tokens)
}

fn ask_polls(
    db: &Db,
    text: &str,
    moment: i64,
    tokens: &[TokenFingerprint],
) -> Result<Vec<Asked<Unconfirmed>>, Error> {
    let limit = count(DUE_POLLS_MAX);
    let asked = tokens
        .iter()
        .map(|token| db.ask(text, (moment, token.as_str(), limit)));
    asked.collect()
}

fn ask_first_accepted(db: &Db, ask: &QueueQuery) -> Result<Vec<Asked<Unconfirmed>>, Error> {
    let text = format!("{UNCONFIRMED} AND token = ?1 ORDER BY submitted_at LIMIT 1");
    let tokens = ask.tokens.iter();
    tokens
        .map(|token| db.ask(&text, [token.as_str()]))
        .collect()
}

fn ask_ending(db: &Db, ask: &QueueQuery) -> Result<Vec<Asked<Unconfirmed>>, Error> {
    let text = format!(
        "{UNCONFIRMED} AND token = ?1 AND submitted_at <= ?2 AND next_poll <= ?3
         ORDER BY submitted_at LIMIT ?4"
    );
    let (ending, now) = (ask.ending_before.micros(), ask.now.micros());
    let limit = count(DUE_POLLS_MAX);
    let tokens = ask.tokens.iter();
    tokens
        .map(|token| db.ask(&text, (token.as_str(), ending, now, limit)))
        .collect()
}

fn ask_confirmable(db: &Db, ask: &QueueQuery) -> Result<Asked<Confirmable>, Error> {
    let values = (
        ask.confirmable_before.micros(),
        ask.now.micros(),
        latest(ask.now),
        CONFIRMABLE_MAX,
    );
    let text = "SELECT count(*) AS calls, min(submitted_at) AS oldest FROM (
             SELECT submitted_at FROM calls
             WHERE state = 'submitted' AND absent < 2 AND submitted_at <= ?1
             AND (next_poll <= ?2 OR next_poll > ?3) ORDER BY submitted_at LIMIT ?4) AS due";
    db.ask(text, values)
}

fn ask_alone(db: &Db, ask: &QueueQuery) -> Result<Vec<Asked<Unconfirmed>>, Error> {
    let text = format!(
        "{UNCONFIRMED} AND absent >= 2 AND next_poll <= ?1 AND token = ?2
         ORDER BY next_poll LIMIT 1"
    );
    let now = ask.now.micros();
    let tokens = ask.tokens.iter();
    tokens
        .map(|token| db.ask(&text, (now, token.as_str())))
        .collect()
}

/// Sends the queries for unresolved calls that are due. `tokens` are the tokens of submitted calls
/// that are no longer valid, which means that the requests for these calls can't be polled.
fn ask_unresolved(
    db: &Db,
    tokens: &[String],
    ask: &QueueQuery,
) -> Result<Vec<Asked<Unconfirmed>>, Error> {
    let mut asked = Vec::new();
    for token in tokens {
        for range in ["next_poll <= ?2", "next_poll > ?3"] {
            let text = format!("{UNCONFIRMED} AND token = ?1 AND {range} AND ?2 < ?3 LIMIT 1");
            let values = (token, ask.now.micros(), latest(ask.now));
            asked.push(db.ask(&text, values)?);
        }
    }
    Ok(asked)
}

/// Query for the distinct tokens of submitted calls. Since each token may have many calls, it skips
/// from one token to the next.
const TOKENS: &str = "WITH RECURSIVE each(token) AS (
         SELECT (SELECT token FROM calls WHERE state = 'submitted' AND token IS NOT NULL
                 ORDER BY token LIMIT 1)
         UNION ALL
         SELECT (SELECT token FROM calls WHERE state = 'submitted' AND token > each.token
                 ORDER BY token LIMIT 1)
         FROM each WHERE each.token IS NOT NULL)
     SELECT token FROM each WHERE token IS NOT NULL";

/// Returns those of `tokens` that aren't in `living`, the tokens that are still valid.
fn expired_tokens(mut tokens: Vec<String>, living: &[TokenFingerprint]) -> Vec<String> {
    tokens.retain(|token| living.iter().all(|print| print.as_str() != token));
    tokens
}

fn ask_next_poll(db: &Db, now: EventTime) -> Result<Asked<EventTime>, Error> {
    let text = "SELECT next_poll FROM calls WHERE state = 'submitted' AND next_poll > ?1
         ORDER BY next_poll LIMIT 1";
    db.ask(text, [now.micros()])
}

/// Returns the latest time that a call may be waiting for, in microseconds. Any later time was
/// written before the clock was set back.
fn latest(now: EventTime) -> i64 {
    now.plus(HELD_MAX).micros()
}
