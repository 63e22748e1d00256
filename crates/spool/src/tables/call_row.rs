//! The row of a finished call, and its place in the books.

use super::reason_counts;
use crate::finished::last_four;
use crate::value::{Columns, ToValue, values};
use crate::{Book, Db, Error, Finished, Json, RowId, State, Store};
use callbridge_call::{FinishedCall, UniqueId};
use callbridge_mapping::journal::figures::Figures;
use callbridge_model::{EmployeeId, LeadId, Outcome, Reason};
use serde::Deserialize;

/// Condition for an `incomplete` dead letter that needs manual attention.
pub(super) const WAITS: &str = "state = 'dead' AND reason = 'incomplete'";

/// A stored call to compare with a new one that has the same UUID.
#[derive(Deserialize)]
pub(super) struct DuplicateCandidate {
    pub(super) id: RowId,
    started: i64,
    phone: Option<String>,
    raw: Option<String>,
    /// The call as reported by its source, without any corrections made since.
    call: Json<FinishedCall>,
}

/// Columns of a [`DuplicateCandidate`].
pub(super) const CANDIDATE: &str = "id, started, phone, raw_phone AS raw, call";

impl DuplicateCandidate {
    /// Returns the dead letter's message if `new` conflicts with the stored call, or `None` if it's
    /// merely a repeat.
    pub(super) fn conflict_with(&self, new: &Finished) -> Option<String> {
        if !self.is_same_call(new) {
            return Some(reused_id(new));
        }
        let Json(known) = &self.call;
        let how = if new.is_revision && known.estimate {
            "a CDR that arrived late changes this call"
        } else if new.is_message() && known.given.is_some() {
            "the PBX reported this call twice with different values"
        } else {
            return None;
        };
        if !contradicts(&new.call, known) {
            return None;
        }
        let (now, earlier) = (figures(&new.call), figures(known));
        Some(format!("{how}: now {now}, but earlier {earlier}"))
    }

    /// Returns `true` if both calls have the same start and number, where an unknown number matches
    /// any.
    fn is_same_call(&self, new: &Finished) -> bool {
        let phone = compare_numbers(self.phone.as_deref(), new.phone());
        let raw = compare_numbers(self.raw.as_deref(), new.raw_number());
        let number = phone == raw && raw.is_none() || [phone, raw].contains(&Some(true));
        number && new.same_start(self.started)
    }
}

/// Compares two numbers, returning `None` if one of them is unknown.
fn compare_numbers(known: Option<&str>, new: Option<&str>) -> Option<bool> {
    Some(known? == new?)
}

/// Returns `true` if `new` would be journaled differently than `known`. Since an incomplete call is
/// expected to lack something, it contradicts another one only if it has more.
fn contradicts(new: &FinishedCall, known: &FinishedCall) -> bool {
    let [new_values, known_values] = [new, known].map(|call| {
        let figures = Figures::from_call(call, call.ended);
        (call.answered, figures.duration_sec, figures.talk_time_sec)
    });
    if new.incomplete.is_none() {
        return new_values != known_values;
    }
    let (answered, duration, talk) = new_values;
    answered && !known_values.0 || duration > known_values.1 || talk > known_values.2
}

/// Describes the values that [`contradicts`] compares: `answered, 48 s of talk in 60 s`.
fn figures(call: &FinishedCall) -> String {
    let Figures {
        duration_sec,
        talk_time_sec,
        ..
    } = Figures::from_call(call, call.ended);
    if call.answered {
        format!("answered, {talk_time_sec} s of talk in {duration_sec} s")
    } else {
        format!("not answered in {duration_sec} s")
    }
}

/// Returns the message for a call whose ID already belongs to another one.
pub(super) fn reused_id(new: &Finished) -> String {
    format!(
        "the PBX {} reuses IDs: it has already reported another call with the ID {}, which has a \
         different start or number",
        new.judged.record.pbx, new.judged.record.linkedid
    )
}

/// Returns the IDs of the call's channels, followed by its linkedid, from which the uuid is
/// derived.
pub(super) fn ids_of(new: &Finished) -> impl Iterator<Item = &str> {
    let own = new.judged.record.linkedid.as_str();
    let aliases = new.call.also_known_as.iter().map(UniqueId::as_str);
    aliases.filter(move |id| *id != own).chain([own])
}

/// Counts a call without a row in the books.
pub(super) fn count_without_row(store: &mut Store, new: &Finished) {
    let book = match new.judged.outcome {
        Outcome::Internal => Book::Internal,
        Outcome::Skipped | Outcome::Journal | Outcome::DeadLetter => Book::Skipped,
    };
    store.tally.add(book, 1);
}

/// Counts a new row in the books.
pub(super) fn count_in_books(
    store: &mut Store,
    id: RowId,
    state: State,
    reason: Option<Reason>,
) -> Result<(), Error> {
    store.tally.add(Book::Finished, 1);
    store.tally.add(Book::for_state(state), 1);
    reason_counts::change(store, state, reason, 1)?;
    store.tally.moved.push(id);
    Ok(())
}

/// Inserts the call's row, returning how many rows were written. `rule` is the SQL after `ON
/// CONFLICT`. With the message `conflict`, the row is a `uuid_conflict` dead letter.
pub(super) fn put(
    db: &Db,
    id: RowId,
    new: &Finished,
    conflict: Option<&str>,
    rule: &str,
) -> Result<usize, Error> {
    let text = format!("{INSERT} ON CONFLICT {rule}");
    with_row(id, new, conflict, |values| db.execute(&text, values))
}

/// Adds the row of a call that isn't known yet to `rows`, for [`insert_rows`].
pub(super) fn add_row(id: RowId, new: &Finished, rows: &mut Columns) {
    with_row(id, new, None, |values| rows.push(values));
}

/// Inserts the rows collected by [`add_row`] into PostgreSQL's table.
pub(super) fn insert_rows(db: &Db, rows: Columns) -> Result<(), Error> {
    let (columns, _) = INSERT.split_once("VALUES").unwrap_or_default();
    let mut arrays = Vec::new();
    for (number, kind) in (1..).zip(ROW_TYPES) {
        arrays.push(format!("?{number}::{kind}[]"));
    }
    let text = format!("{columns} SELECT * FROM unnest({})", arrays.join(", "));
    let count = rows.rows();
    db.run_many(&text, rows, Some(count))
}

/// Calls `write` with the values of a call's row, in the order of [`INSERT`]. With the message
/// `conflict`, the row is a `uuid_conflict` dead letter.
fn with_row<T>(
    id: RowId,
    new: &Finished,
    conflict: Option<&str>,
    write: impl FnOnce([&dyn ToValue; ROW_TYPES.len()]) -> T,
) -> T {
    let (uuid, conflicting_uuid, state, reason) = match conflict {
        Some(_) => (None, new.uuid(), State::Dead, Some(Reason::UuidConflict)),
        None => (new.uuid(), None, new.state(), new.judged.reason),
    };
    let letter = state.is_letter();
    let reason = if letter { reason } else { None };
    let message = match conflict {
        Some(message) => message,
        None if letter => &new.judged.message,
        None => "",
    };
    let record = &new.judged.record;
    write(values![
        id.0,
        uuid,
        conflicting_uuid,
        state.word(),
        new.judged.live,
        new.judged.judged_at.micros(),
        record.pbx,
        new.branch.as_deref().unwrap_or(&record.pbx),
        record.linkedid,
        record.trunk,
        record.direction.word(),
        record.answered,
        new.started(),
        new.end(),
        new.phone(),
        new.phone().map(last_four),
        new.raw_number(),
        record.employee,
        record.employee_id.map(EmployeeId::get),
        record.lead_id.map(LeadId::get),
        new.record_json,
        new.call_json,
        letter,
        reason.map(Reason::word),
        message,
    ])
}

const INSERT: &str = "INSERT INTO calls (id, uuid, conflicting_uuid, state, live, since, pbx, turn,
                        linkedid, trunk, direction, answered, started, ended, phone, phone_ending,
                        raw_phone, extension, employee, lead, record, call, times_dead, reason,
                        message)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19,
             ?20, ?21, ?22, ?23, ?24, ?25)";

/// PostgreSQL's types for the columns of [`INSERT`].
const ROW_TYPES: [&str; 25] = [
    "bigint", "bytea", "bytea", "text", "bigint", "bigint", "text", "text", "text", "text", "text",
    "bigint", "bigint", "bigint", "text", "text", "text", "text", "bigint", "bigint", "text",
    "text", "bigint", "text", "text",
];
