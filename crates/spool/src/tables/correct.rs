//! An incomplete call is told again, and better: its letter is corrected, as long as nobody has
//! sent it. Never are there two of one call.

use super::finish::FinishRow;
use super::missed;
use super::outbox;
use super::step;
use crate::Store;
use crate::op::{Done, RowId};
use crate::state::State;
use crate::tables::books::Book;
use crate::{Error, Left};
use callbridge_model::Reason;
use rusqlite::OptionalExtension as _;

/// The counter of letters that were corrected.
const CORRECTED: &str = "corrected";

/// A letter `incomplete` that waits for somebody.
const WAITS: &str = "state = 'dead' AND reason = 'incomplete'";

/// Corrects the letter `incomplete` of the same uuid; `None` if there is none, or if it knows
/// as much as the new account.
pub(crate) fn corrected(store: &mut Store, new: &FinishRow) -> Result<Option<Done>, Error> {
    let uuid = new.uuid.map(|uuid| uuid.0.into_bytes());
    let found = store
        .prepare(&format!(
            "SELECT id, CAST(json_extract(call, '$.ended') - json_extract(call, '$.started')
                             AS INTEGER), phone
             FROM calls WHERE uuid = ?1 AND {WAITS}"
        ))?
        .query_row([uuid], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional();
    let found: Option<(i64, i64, Option<String>)> = store.sql(found)?;
    let Some((row, span, phone)) = found else {
        return Ok(None);
    };
    if new.reason == Some(Reason::Incomplete) && new.span_micros <= span {
        return Ok(None);
    }
    let row = RowId(row);
    let state = new.state();
    let letter = matches!(state, State::Dead | State::Parked);
    let before = outbox::before_it_leaves(store, row)?.filter(|_| !letter);
    store.execute(
        "UPDATE calls SET state = ?2, since = ?3, started = ?4, phone = ?5, heard = ?6,
                          record = ?7, call = ?8, reason = ?9, message = ?10, live = 0
         WHERE id = ?1",
        (
            row.0,
            state.word(),
            new.at.micros(),
            new.started,
            &new.phone,
            &new.heard,
            &new.record,
            &new.call,
            new.reason.filter(|_| letter).map(Reason::word),
            if letter { new.message.as_str() } else { "" },
        ),
    )?;
    store.tally.add(Book::Of(State::Dead), -1);
    store.tally.add(Book::Of(state), 1);
    store.tally.count(CORRECTED, 1);
    store.tally.moved(row);
    if letter && new.reason != Some(Reason::Incomplete) {
        step::letter_appeared(store, row)?;
    }
    if let Some(before) = before {
        outbox::queue_leave(store, &before, Left::Released, new.at)?;
    }
    weigh(store, new, phone)?;
    Ok(Some(Done::Corrected(row)))
}

/// Who waits for a call back may be others now: the call had another number, or was told otherwise.
fn weigh(store: &Store, new: &FinishRow, before: Option<String>) -> Result<(), Error> {
    let other = before.filter(|before| Some(before) != new.phone.as_ref());
    for phone in other.iter().chain(&new.phone) {
        missed::anew(store, phone, new.at)?;
    }
    Ok(())
}

/// Letters `incomplete` under other uuids, which were parts of this call: they are given up,
/// lest somebody sends them, too.
pub(crate) fn give_up_parts(store: &mut Store, new: &FinishRow) -> Result<(), Error> {
    if new.reason == Some(Reason::Incomplete) {
        return Ok(());
    }
    let uuid = new.uuid.map(|uuid| uuid.0.into_bytes());
    let mut parts = std::collections::BTreeSet::new();
    for id in new.aliases.iter().chain([&new.linkedid]) {
        let found = store
            .prepare(&format!(
                "SELECT id FROM calls WHERE uuid != ?3 AND {WAITS} AND uuid IN
                    (SELECT uuid FROM tombstones WHERE pbx = ?1 AND id = ?2)"
            ))?
            .query_row((&new.pbx, id, uuid), |row| row.get::<_, i64>(0))
            .optional();
        parts.extend(store.sql(found)?);
    }
    for part in parts {
        let message = format!(
            "it was a part of {}, which was told whole later",
            new.linkedid
        );
        let before = outbox::before_it_leaves(store, RowId(part))?;
        store.execute(
            "UPDATE calls SET state = 'discarded', since = ?2, message = ?3 WHERE id = ?1",
            (part, new.at.micros(), message),
        )?;
        store.tally.add(Book::Of(State::Dead), -1);
        store.tally.add(Book::Of(State::Discarded), 1);
        if let Some(before) = before {
            outbox::queue_leave(store, &before, Left::Discarded, new.at)?;
        }
        let phone = store.value("SELECT phone FROM calls WHERE id = ?1", [part])?;
        weigh(store, new, phone)?;
    }
    Ok(())
}
