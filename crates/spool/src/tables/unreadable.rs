//! Bytes of a source that nobody could read.

use super::meta;
use super::outbox;
use crate::Store;
use crate::op::{Done, RowId};
use crate::state::{Refused, State, Step};
use crate::tables::books::Book;
use crate::{Error, Left, UNREADABLE_BYTES_MAX, UNREADABLE_LETTERS_MAX};
use callbridge_call::EventTime;

pub(crate) fn keep_unreadable(
    store: &mut Store,
    source: &str,
    pbx: &str,
    bytes: &[u8],
    why: &str,
    at: EventTime,
) -> Result<Done, Error> {
    store.tally.add(Book::Unreadable, 1);
    if unreadable_kept(store) >= UNREADABLE_LETTERS_MAX {
        return Ok(Done::Unreadable(None));
    }
    let id = store.new_id();
    let length = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
    let first = &bytes[..bytes.len().min(UNREADABLE_BYTES_MAX)];
    store.execute(
        "INSERT INTO unreadable (id, source, pbx, why, at, length, bytes)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        (id.0, source, pbx, why, at.micros(), length, first),
    )?;
    store.tally.add(Book::UnreadableKept, 1);
    outbox::queue_notice(store, id)?;
    Ok(Done::Unreadable(Some(id)))
}

/// How many of them there are.
pub(crate) fn unreadable_kept(store: &Store) -> u64 {
    u64::try_from(store.tally.get(Book::UnreadableKept)).unwrap_or(0)
}

/// Only `Discard` exists for such a letter: it is forgotten.
pub(crate) fn step_unreadable(
    store: &mut Store,
    row: RowId,
    step: &Step,
    at: EventTime,
) -> Result<Done, Error> {
    let discard = matches!(step, Step::Discard);
    if !discard {
        let mut found = store.prepare("SELECT 1 FROM unreadable WHERE id = ?1")?;
        if store.sql(found.exists([row.0]))? {
            let state = State::Dead;
            let step = step.name();
            let refused = Refused { state, step };
            return Err(Error::Refused { row, refused });
        }
        return Err(Error::NoRow { row });
    }
    let letter = outbox::before_it_leaves(store, row)?;
    if store.execute("DELETE FROM unreadable WHERE id = ?1", [row.0])? == 0 {
        return Err(Error::NoRow { row });
    }
    meta::remember_highest_id(store)?;
    store.tally.add(Book::UnreadableKept, -1);
    if let Some(letter) = letter {
        outbox::queue_leave(store, &letter, Left::Discarded, at)?;
    }
    Ok(Done::Stepped(State::Discarded))
}
