//! The calls that a collector forwards to a hub.

use super::calls::newest_ready;
use crate::{Book, Db, Error, Offer, Row, State, Store, count};
use callbridge_call::{EpochSeconds, EventTime};

/// Maximum number of calls that a single statement makes ready.
const OFFERED_MAX: usize = 10_000;

pub(crate) fn offer(store: &mut Store, offer: Offer, at: EventTime) -> Result<(), Error> {
    let states: &[State] = match offer {
        Offer::Forwarded => &[State::Forwarded],
        Offer::Unconfirmed => &[State::Sending, State::Submitted],
    };
    for state in states {
        let text = format!(
            "UPDATE calls SET state = 'ready', live = 0, not_before = 0, since = ?1
             WHERE id IN (SELECT id FROM calls WHERE state = '{}' LIMIT ?2)",
            state.word()
        );
        loop {
            let calls = store.execute(&text, (at.micros(), count(OFFERED_MAX)))?;
            let shifted = count(calls);
            store.tally.add(Book::for_state(*state), -shifted);
            store.tally.add(Book::Ready, shifted);
            if calls < OFFERED_MAX {
                break;
            }
        }
    }
    if offer == Offer::Unconfirmed {
        // A hub never refuses individual calls, so no call is held back. Listing both values of
        // `live` lets the index be used.
        let text = "UPDATE calls SET not_before = 0
             WHERE state = 'ready' AND live IN (0, 1) AND not_before > 0";
        store.run(text, ())?;
    }
    Ok(())
}

/// Returns the calls to forward next, with live calls before the backlog and newer ones first.
pub fn next_calls(db: &Db, limit: usize) -> Result<Vec<Row>, Error> {
    let mut calls = newest_ready(db, true, limit)?;
    if calls.len() < limit {
        calls.extend(newest_ready(db, false, limit - calls.len())?);
    }
    Ok(calls)
}

/// Returns the earlier of two start times, those of the oldest live call and of the oldest other
/// call waiting to be forwarded, or `None` if no call is waiting.
pub fn oldest_ready(db: &Db) -> Result<Option<EpochSeconds>, Error> {
    let mut oldest: Option<EpochSeconds> = None;
    for live in [true, false] {
        // With `live = …`, PostgreSQL would scan all calls.
        let text = "SELECT started FROM calls
             WHERE state = 'ready' AND not_before = 0 AND live >= ?1 AND live <= ?1
             ORDER BY live, id LIMIT 1";
        let started: Option<EpochSeconds> = db.query_first(text, [live])?;
        oldest = oldest.into_iter().chain(started).min();
    }
    Ok(oldest)
}
