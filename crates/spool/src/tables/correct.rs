//! An incomplete call is told again, and better: its letter is corrected, as long as nobody has
//! sent it. Never are there two of one call.

use super::{missed, outbox, step};
use crate::finished::Finished;
use crate::{Done, Error, Left, RowId, State, Store};
use callbridge_call::UniqueId;
use callbridge_model::Reason;

/// The counter of letters that were corrected.
const CORRECTED: &str = "corrected";

/// A letter `incomplete` that waits for somebody.
const WAITS: &str = "state = 'dead' AND reason = 'incomplete'";

/// Corrects the letter `incomplete` of the same uuid; `None` if there is none, or if it knows
/// as much as the new account.
pub(crate) fn corrected(store: &mut Store, new: &Finished) -> Result<Option<Done>, Error> {
    let found = store.query_first(
        &format!(
            "SELECT id, CAST(json_extract(call, '$.ended') - json_extract(call, '$.started')
                             AS INTEGER), phone
             FROM calls WHERE uuid = ?1 AND {WAITS}"
        ),
        [new.uuid()],
        |row| Ok((row.get::<_, RowId>(0)?, row.get(1)?, row.get(2)?)),
    )?;
    let Some((row, span, phone)) = found else {
        return Ok(None);
    };
    if new.judged.reason == Some(Reason::Incomplete) && new.span_micros() <= span {
        return Ok(None);
    }
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
            new.judged.judged_at.micros(),
            new.started(),
            new.phone(),
            new.raw_number(),
            &new.record_json,
            &new.call_json,
            new.judged.reason.filter(|_| letter).map(Reason::word),
            if letter { &new.judged.message } else { "" },
        ),
    )?;
    store.tally.shift(State::Dead, state);
    store.tally.count(CORRECTED, 1);
    store.tally.moved(row);
    if letter && new.judged.reason != Some(Reason::Incomplete) {
        step::letter_appeared(store, row)?;
    }
    if let Some(before) = before {
        outbox::queue_leave(store, &before, Left::Released, new.judged.judged_at)?;
    }
    weigh(store, new, phone)?;
    Ok(Some(Done::Corrected(row)))
}

/// Weighs anew who waits for a call back: the call had another number, or has other facts now.
fn weigh(store: &Store, new: &Finished, before: Option<String>) -> Result<(), Error> {
    let other = before
        .as_deref()
        .filter(|_| before.as_deref() != new.phone());
    for phone in other.into_iter().chain(new.phone()) {
        missed::anew(store, phone, new.judged.judged_at)?;
    }
    Ok(())
}

/// Letters `incomplete` under other uuids, which were parts of this call: they are given up,
/// lest somebody sends them, too.
pub(crate) fn give_up_parts(store: &mut Store, new: &Finished) -> Result<(), Error> {
    if new.judged.reason == Some(Reason::Incomplete) {
        return Ok(());
    }
    let record = &new.judged.record;
    let mut parts = std::collections::BTreeSet::new();
    let aliases = new.call.also_known_as.iter().map(UniqueId::as_str);
    for id in aliases.chain([record.linkedid.as_str()]) {
        let text = format!(
            "SELECT id FROM calls WHERE uuid != ?3 AND {WAITS} AND uuid IN
                (SELECT uuid FROM tombstones WHERE pbx = ?1 AND id = ?2)"
        );
        parts.extend(store.first_value::<RowId>(&text, (&record.pbx, id, new.uuid()))?);
    }
    for part in parts {
        let message = format!(
            "it was a part of {}, which was received whole later",
            record.linkedid
        );
        let before = outbox::before_it_leaves(store, part)?;
        store.execute(
            "UPDATE calls SET state = 'discarded', since = ?2, message = ?3 WHERE id = ?1",
            (part.0, new.judged.judged_at.micros(), message),
        )?;
        store.tally.shift(State::Dead, State::Discarded);
        store.tally.moved(part);
        if let Some(before) = before {
            outbox::queue_leave(store, &before, Left::Discarded, new.judged.judged_at)?;
        }
        let phone = store.value("SELECT phone FROM calls WHERE id = ?1", [part.0])?;
        weigh(store, new, phone)?;
    }
    Ok(())
}
