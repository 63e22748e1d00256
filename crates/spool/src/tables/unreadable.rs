//! Messages from a source that couldn't be read.

use super::{meta, outbox};
use crate::state::{Refused, State, Step};
use crate::tally::Book;
use crate::{Db, Done, Error, Left, RowId, SOURCE_LETTERS_MAX, Store, UnreadableBytes};
use crate::{UNREADABLE_BYTES_ALL, UNREADABLE_BYTES_MAX, UNREADABLE_LETTERS_MAX};
use callbridge_call::EventTime;
use std::collections::BTreeSet;

/// Name of the counter for messages that weren't kept because a limit was reached.
const NOT_KEPT: &str = "unreadable_not_kept";

/// Stores a source's unreadable message as a dead letter. Once a limit is reached, messages are
/// only counted.
pub(crate) fn keep_unreadable(store: &mut Store, unread: &UnreadableBytes) -> Result<Done, Error> {
    let bytes = &unread.bytes;
    let first = &bytes[..bytes.len().min(UNREADABLE_BYTES_MAX)];
    let length = unread.cut_from.unwrap_or(bytes.len() as u64);
    if let Some(file) = &unread.file {
        if let Some(id) = kept_as_is(store, unread, first, length)? {
            return Ok(Done::Unreadable(Some(id)));
        }
        settle_file(store, &unread.source, file, unread.at)?;
    }
    store.tally.add(Book::Unreadable, 1);
    if !has_room(store, first.len())? {
        store.tally.count(NOT_KEPT, 1);
        return Ok(Done::Unreadable(None));
    }
    let id = store.new_id();
    let text =
        "INSERT INTO unreadable (id, source, pbx, why, at, length, bytes, content_type, file)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    let values = (
        id.0,
        &unread.source,
        &unread.pbx,
        &unread.why,
        unread.at.micros(),
        length,
        first,
        &unread.content_type,
        &unread.file,
    );
    store.run(text, values)?;
    store.tally.add(Book::UnreadableKept, 1);
    let bytes = i64::try_from(first.len()).unwrap_or(i64::MAX);
    store.tally.add(Book::UnreadableBytes, bytes);
    outbox::queue_notice(store, id)?;
    Ok(Done::Unreadable(Some(id)))
}

/// For each of these messages from a source, returns whether it should be kept. It should if it
/// isn't kept yet and the source has fewer than [`SOURCE_LETTERS_MAX`] dead letters.
pub fn are_new(db: &Db, source: &str, messages: &[&[u8]]) -> Result<Vec<bool>, Error> {
    let counted = db.ask::<u64>(
        "SELECT count(*) FROM unreadable WHERE source = ?1",
        [source],
    )?;
    let mut asked = Vec::with_capacity(messages.len());
    for message in messages {
        let first = &message[..message.len().min(UNREADABLE_BYTES_MAX)];
        let text = "SELECT id FROM unreadable WHERE source = ?1 AND length = ?2 AND bytes = ?3";
        let length = message.len() as u64;
        asked.push(db.ask::<i64>(text, (source, length, first))?);
    }
    let mut kept = counted.first(db)?.unwrap_or_default();
    let (mut new, mut before) = (Vec::with_capacity(messages.len()), BTreeSet::new());
    for (message, found) in messages.iter().zip(asked) {
        let is_kept = found.first(db)?.is_some() || !before.insert(*message);
        let is_new = !is_kept && kept < SOURCE_LETTERS_MAX;
        kept += u64::from(is_new);
        new.push(is_new);
    }
    Ok(new)
}

/// Finds the dead letter for the same file with the same content, since files are read again after
/// a restart.
fn kept_as_is(
    store: &Store,
    unread: &UnreadableBytes,
    first: &[u8],
    length: u64,
) -> Result<Option<RowId>, Error> {
    let text = "SELECT id FROM unreadable
         WHERE source = ?1 AND file = ?2 AND why = ?3 AND length = ?4 AND bytes = ?5";
    let values = (&unread.source, &unread.file, &unread.why, length, first);
    let id: Option<i64> = store.query_first(text, values)?;
    Ok(id.map(RowId))
}

/// Deletes a file's dead letters, since the file has been read again.
pub(crate) fn settle_file(
    store: &mut Store,
    source: &str,
    file: &str,
    at: EventTime,
) -> Result<(), Error> {
    let text = "SELECT id FROM unreadable WHERE source = ?1 AND file = ?2";
    let letters: Vec<i64> = store.query_all(text, (source, file))?;
    for id in letters {
        leave(store, RowId(id), Left::Retried, at)?;
    }
    Ok(())
}

/// Returns `true` if there's room for another message of `more` bytes.
fn has_room(store: &Store, more: usize) -> Result<bool, Error> {
    if store.tally.get(Book::UnreadableKept) >= UNREADABLE_LETTERS_MAX {
        return Ok(false);
    }
    let kept = store.tally.get(Book::UnreadableBytes);
    Ok(kept.saturating_add(more as u64) <= UNREADABLE_BYTES_ALL)
}

/// Applies `Discard` or `Retry` to an unreadable dead letter, either of which deletes it. With
/// `Retry`, the same request has to store the call.
pub(crate) fn step_unreadable(
    store: &mut Store,
    row: RowId,
    step: &Step,
    at: EventTime,
) -> Result<Done, Error> {
    let (left, to) = match step {
        Step::Discard => (Left::Discarded, State::Discarded),
        Step::Retry { .. } => (Left::Retried, State::Ready),
        _ if store.exists("SELECT 1 FROM unreadable WHERE id = ?1", [row.0])? => {
            let refused = Refused {
                state: State::Dead,
                step: step.name(),
            };
            return Err(Error::Refused(row, refused));
        }
        _ => return Err(Error::NoRow(row)),
    };
    leave(store, row, left, at)?;
    Ok(Done::Stepped(to))
}

/// Deletes an unreadable dead letter, and queues a notification that it's gone.
fn leave(store: &mut Store, row: RowId, left: Left, at: EventTime) -> Result<(), Error> {
    let letter = outbox::before_it_leaves(store, row)?;
    let text = "DELETE FROM unreadable WHERE id = ?1 RETURNING length(bytes)";
    let Some(bytes) = store.query_first::<i64>(text, [row.0])? else {
        return Err(Error::NoRow(row));
    };
    meta::remember_highest_id(store)?;
    store.tally.add(Book::UnreadableKept, -1);
    store.tally.add(Book::UnreadableBytes, -bytes);
    if let Some(letter) = letter {
        outbox::queue_leave(store, &letter, left, at)?;
    }
    Ok(())
}
