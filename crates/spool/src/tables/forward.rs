//! Calls of a collector on their way to a hub.

use super::calls::newest_ready;
use crate::{Book, Db, Error, Row, State, Store};
use callbridge_call::{EpochSeconds, EventTime};

/// The calls that are made ready for a hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// The hub has a new incarnation: every forwarded call that is still stored.
    Forwarded,
    /// A state that sent to a CRM becomes a collector's: calls whose outcome is not known. The CRM
    /// accepts a repeated uuid without a second record (§4.5.4).
    Unconfirmed,
}

pub(crate) fn offer(store: &mut Store, offer: Offer, at: EventTime) -> Result<(), Error> {
    let states: &[State] = match offer {
        Offer::Forwarded => &[State::Forwarded],
        Offer::Unconfirmed => &[State::Sending, State::Submitted],
    };
    for state in states {
        let text = format!(
            "UPDATE calls SET state = 'ready', live = 0, not_before = 0, since = ?1
             WHERE state = '{}'",
            state.word()
        );
        let calls = store.execute(&text, [at.micros()])?;
        let calls = i64::try_from(calls).unwrap_or(i64::MAX);
        store.tally.add(Book::of(*state), -calls);
        store.tally.add(Book::Ready, calls);
    }
    if offer == Offer::Unconfirmed {
        // A hub has no failures of single calls.
        let text = "UPDATE calls SET not_before = 0 WHERE state = 'ready' AND not_before > 0";
        store.run(text, [])?;
    }
    Ok(())
}

/// The calls to forward next: live calls first, then the backlog, each newest first.
pub fn next_calls(db: &Db, limit: usize) -> Result<Vec<Row>, Error> {
    let mut calls = newest_ready(db, true, limit)?;
    if calls.len() < limit {
        calls.extend(newest_ready(db, false, limit - calls.len())?);
    }
    Ok(calls)
}

/// Start of the oldest call that is not forwarded yet. It reads all ready calls.
pub fn oldest_ready(db: &Db) -> Result<Option<EpochSeconds>, Error> {
    db.query_one(
        "SELECT min(started) FROM calls WHERE state = 'ready' AND not_before = 0",
        [],
    )
}
