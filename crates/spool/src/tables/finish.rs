//! A judged call comes in.

use super::{correct, listed, missed, outbox, seen_calls, trunk_calls};
use crate::finished::Finished;
use crate::tally::Book;
use crate::{Db, Done, Error, RowId, State, Store};
use callbridge_model::{Outcome, Reason};

/// The counter of calls that came again.
const REPEATS: &str = "repeats";

/// Facts by which two calls of one uuid are distinguished. A number that is not known is no other
/// number.
struct DuplicateCandidate {
    row: RowId,
    started: i64,
    phone: Option<String>,
    raw: Option<String>,
}

impl DuplicateCandidate {
    fn is(&self, new: &Finished) -> bool {
        let same = |a: &Option<String>, b: Option<&str>| Some(a.as_deref()? == b?);
        let numbers = (
            same(&self.phone, new.phone()),
            same(&self.raw, new.raw_number()),
        );
        let number = match numbers {
            (None, None) => true,
            (phone, raw) => phone == Some(true) || raw == Some(true),
        };
        number && new.same_start(self.started)
    }
}

pub(crate) fn finish(store: &mut Store, new: &Finished) -> Result<Done, Error> {
    let seen = seen_calls::mark_seen(store, new)?;
    let done = match new.judged.outcome {
        Outcome::Internal | Outcome::Skipped => count_only(store, new, seen),
        Outcome::Journal | Outcome::DeadLetter => keep(store, new, seen),
    }?;
    if matches!(done, Done::New(_) | Done::Counted | Done::Conflict(_)) {
        missed::note(store, new)?;
        trunk_calls::note(store, new)?;
    }
    Ok(done)
}

/// `seen`: its id was known before, with that start.
fn count_only(store: &mut Store, new: &Finished, seen: Option<i64>) -> Result<Done, Error> {
    let book = if new.judged.outcome == Outcome::Internal {
        Book::Internal
    } else {
        Book::Skipped
    };
    match seen {
        Some(started) if new.same_start(started) => repeated(store, None),
        Some(_) if new.uuid().is_some() => conflict(store, new),
        Some(_) | None => {
            store.tally.add(book, 1);
            if new.judged.outcome == Outcome::Internal {
                listed::keep_internal(store, new)?;
            }
            Ok(Done::Counted)
        }
    }
}

fn keep(store: &mut Store, new: &Finished, seen: Option<i64>) -> Result<Done, Error> {
    if let Some(started) = seen {
        if let Some(done) = correct::corrected(store, new)? {
            seen_calls::mark_aliases_seen(store, new)?;
            correct::give_up_parts(store, new)?;
            return Ok(done);
        }
        return match known(store, new, "uuid")?.pop() {
            Some(known) if known.is(new) => repeated(store, Some(known.row)),
            Some(_) => conflict(store, new),
            None if new.same_start(started) => repeated(store, None),
            None => conflict(store, new),
        };
    }
    correct::give_up_parts(store, new)?;
    if let Some(row) = insert(
        store,
        new,
        new.state(),
        new.judged.reason,
        &new.judged.message,
        false,
    )? {
        return Ok(Done::New(row));
    }
    // Its tombstone is gone, its row is not.
    match known(store, new, "uuid")?.pop() {
        Some(known) if known.is(new) => repeated(store, Some(known.row)),
        Some(_) | None => conflict(store, new),
    }
}

fn repeated(store: &mut Store, row: Option<RowId>) -> Result<Done, Error> {
    store.tally.count(REPEATS, 1);
    Ok(Done::Repeat(row))
}

/// Makes a letter of another call under a known uuid. If it came before, it is a repeat of that
/// letter.
fn conflict(store: &mut Store, new: &Finished) -> Result<Done, Error> {
    for candidate in known(store, new, "twin")? {
        if candidate.is(new) {
            return repeated(store, Some(candidate.row));
        }
    }
    let message = format!(
        "another call from {} came under the same id {} with another start or number",
        new.judged.record.pbx, new.judged.record.linkedid
    );
    let reason = Some(Reason::UuidConflict);
    let row = insert(store, new, State::Dead, reason, &message, true)?;
    row.map(Done::Conflict)
        .ok_or_else(|| store.damaged("a letter without a uuid met another's".into()))
}

/// Inserts the call's row; `None` when the uuid is taken.
fn insert(
    store: &mut Store,
    new: &Finished,
    state: State,
    reason: Option<Reason>,
    message: &str,
    is_duplicate: bool,
) -> Result<Option<RowId>, Error> {
    let id = store.new_id();
    let uuid = new.uuid();
    let letter = matches!(state, State::Dead | State::Parked);
    let added = store.execute(
        "INSERT INTO calls (id, uuid, twin, state, live, since, started, phone, heard, record,
                            call, deaths, reason, message)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
         ON CONFLICT (uuid) DO NOTHING",
        (
            id.0,
            if is_duplicate { None } else { uuid },
            if is_duplicate { uuid } else { None },
            state.word(),
            new.judged.live,
            new.judged.judged_at.micros(),
            new.started(),
            new.phone(),
            new.raw_number(),
            &new.record_json,
            &new.call_json,
            i64::from(letter),
            reason.filter(|_| letter).map(Reason::word),
            if letter { message } else { "" },
        ),
    )?;
    if added == 0 {
        return Ok(None);
    }
    store.tally.add(Book::Finished, 1);
    store.tally.add(Book::of(state), 1);
    store.tally.moved(id);
    if letter {
        outbox::queue_notice(store, id)?;
    }
    Ok(Some(id))
}

/// The calls whose column is this one's uuid.
fn known(db: &Db, new: &Finished, column: &str) -> Result<Vec<DuplicateCandidate>, Error> {
    db.query_all(
        &format!("SELECT id, started, phone, heard FROM calls WHERE {column} = ?1"),
        [new.uuid()],
        |row| {
            Ok(DuplicateCandidate {
                row: row.get(0)?,
                started: row.get(1)?,
                phone: row.get(2)?,
                raw: row.get(3)?,
            })
        },
    )
}
