//! Stores a finished call according to its outcome. A better account of an incomplete call corrects
//! its dead letter, unless that was already sent. No call has two rows.

use super::call_row::{
    CANDIDATE, DuplicateCandidate, WAITS, count_in_books, count_without_row, ids_of, put, reused_id,
};
use super::intake::{Intake, Traces};
use super::{listed, missed, outbox, reason_counts, seen_calls, step, trunk_calls};
use crate::db::Asked;
use crate::finished::{SAME_START_SEC, span_micros};
use crate::{Db, Done, Error, Finished, Json, Left, RowId, State, Store, count};
use callbridge_call::FinishedCall;
use callbridge_model::{Outcome, Reason};
use std::collections::BTreeSet;

/// Name of the counter for repeated calls.
const REPEATS: &str = "repeats";
/// Name of the counter for dead letters corrected by a better account.
const CORRECTED: &str = "corrected";
/// Name of the counter for conflicting calls that weren't kept.
const NOT_KEPT: &str = "conflicts_not_kept";
/// Maximum number of `uuid_conflict` dead letters with one UUID and one start. A new call is
/// compared with all of them.
pub(crate) const CONFLICTS_MAX: usize = 100;

/// Stores a call. `intake` may already know earlier calls with the same IDs.
pub(crate) fn finish(
    store: &mut Store,
    new: &Finished,
    intake: &mut Intake,
) -> Result<Done, Error> {
    match intake.traces_of(store, new)? {
        Traces::None => return intake.take(store, new),
        Traces::Repeat(row) => return count_repeat(store, row),
        Traces::Unknown => intake.begin_alone(store)?,
    }
    let seen = seen_calls::mark_seen(store, new)?;
    let done = if new.judged.outcome.is_kept() {
        keep(store, new, seen)
    } else {
        count_only(store, new, seen)
    }?;
    if done.is_new_call() {
        missed::note(store, new)?;
        trunk_calls::note(store, new)?;
    }
    Ok(done)
}

/// Counts a call that gets no row. `seen` is when the earlier call with the same linkedid started,
/// if there is one.
fn count_only(store: &mut Store, new: &Finished, seen: Option<i64>) -> Result<Done, Error> {
    match seen {
        Some(started) if new.same_start(started) => return count_repeat(store, None),
        Some(_) if new.uuid().is_some() => return conflict(store, new, &reused_id(new)),
        Some(_) | None => {}
    }
    if new.judged.outcome == Outcome::Internal {
        listed::keep_internal(store, new)?;
    }
    count_without_row(store, new);
    Ok(Done::Counted)
}

fn keep(store: &mut Store, new: &Finished, seen: Option<i64>) -> Result<Done, Error> {
    if seen.is_none() {
        give_up_parts(store, new)?;
        if let Some(row) = insert(store, new, None)? {
            return Ok(Done::New(row));
        }
        // The call's seen IDs have expired, but it still has a row.
    } else if let Some(done) = correct_incomplete(store, new)? {
        seen_calls::mark_aliases_seen(store, new)?;
        give_up_parts(store, new)?;
        return Ok(done);
    }
    match same_uuid(store, new)? {
        Some(known) => match known.conflict_with(new) {
            Some(message) => conflict(store, new, &message),
            None => count_repeat(store, Some(known.id)),
        },
        None if seen.is_some_and(|started| new.same_start(started)) => count_repeat(store, None),
        None => conflict(store, new, &reused_id(new)),
    }
}

fn count_repeat(store: &mut Store, row: Option<RowId>) -> Result<Done, Error> {
    store.tally.count(REPEATS, 1);
    Ok(Done::Repeat(row))
}

/// Stores a call whose UUID is already in use as a `uuid_conflict` dead letter, unless it repeats
/// an existing one. Beyond [`CONFLICTS_MAX`], only counts it.
fn conflict(store: &mut Store, new: &Finished, message: &str) -> Result<Done, Error> {
    let known = same_conflicting_uuid(store, new)?.into_iter();
    let repeated = known.filter(|known| known.conflict_with(new).is_none());
    // The order of the rows is up to the database.
    if let Some(first) = repeated.map(|known| known.id).min() {
        return count_repeat(store, Some(first));
    }
    if has_too_many_conflicts(store, new)? {
        store.tally.count(NOT_KEPT, 1);
        return Ok(Done::NotKept);
    }
    let row = insert(store, new, Some(message))?.map(Done::Conflict);
    row.ok_or_else(|| store.damaged("a dead letter without a uuid has the uuid of another".into()))
}

/// Inserts the call's row, or a `uuid_conflict` dead letter if there's a message in `conflict`.
/// Returns `None` if a row already has the uuid.
fn insert(
    store: &mut Store,
    new: &Finished,
    conflict: Option<&str>,
) -> Result<Option<RowId>, Error> {
    let id = store.new_id();
    let state = conflict.map_or_else(|| new.state(), |_| State::Dead);
    if put(store, id, new, conflict, "(uuid) DO NOTHING")? == 0 {
        return Ok(None);
    }
    let reason = conflict.map_or(new.judged.reason, |_| Some(Reason::UuidConflict));
    count_row(store, id, state, reason)?;
    Ok(Some(id))
}

/// Counts a new row in the books, and queues a notification for a dead letter or a waiting call.
fn count_row(
    store: &mut Store,
    id: RowId,
    state: State,
    reason: Option<Reason>,
) -> Result<(), Error> {
    count_in_books(store, id, state, reason)?;
    if state.is_letter() {
        outbox::queue_notice(store, id)?;
    }
    Ok(())
}

/// Finds the stored call with the uuid of `new`.
fn same_uuid(db: &Db, new: &Finished) -> Result<Option<DuplicateCandidate>, Error> {
    let text = format!("SELECT {CANDIDATE} FROM calls WHERE uuid = ?1");
    db.query_first(&text, [new.uuid()])
}

/// Finds the `uuid_conflict` dead letters that `new` might repeat, since they have the same UUID,
/// start, and number. Without the start and the number, a PBX that reuses one ID for many calls
/// would cause each of them to be compared with all earlier ones.
fn same_conflicting_uuid(db: &Db, new: &Finished) -> Result<Vec<DuplicateCandidate>, Error> {
    let text = format!(
        "SELECT {CANDIDATE} FROM calls
         WHERE conflicting_uuid = ?1 AND started BETWEEN ?2 AND ?3
             AND (phone = ?4 OR raw_phone = ?5
                 OR (phone IS NULL OR ?4 IS NULL) AND (raw_phone IS NULL OR ?5 IS NULL))"
    );
    let (from, until) = same_starts(new);
    let values = (new.uuid(), from, until, new.phone(), new.raw_number());
    db.query_all(&text, values)
}

fn has_too_many_conflicts(db: &Db, new: &Finished) -> Result<bool, Error> {
    let text = "SELECT 1 FROM calls WHERE conflicting_uuid = ?1 AND started BETWEEN ?2 AND ?3
         LIMIT 1 OFFSET ?4";
    let (from, until) = same_starts(new);
    db.exists(text, (new.uuid(), from, until, count(CONFLICTS_MAX - 1)))
}

/// Returns the first and the last start that count as the start of `new`.
fn same_starts(new: &Finished) -> (i64, i64) {
    let started = new.started();
    (
        started.saturating_sub_unsigned(SAME_START_SEC),
        started.saturating_add_unsigned(SAME_START_SEC),
    )
}

/// Corrects the `incomplete` dead letter with the same uuid. Returns `None` if there's no such dead
/// letter, or if `new` is also incomplete and doesn't cover a longer time.
fn correct_incomplete(store: &mut Store, new: &Finished) -> Result<Option<Done>, Error> {
    let text = format!("SELECT id, call, phone, answered FROM calls WHERE uuid = ?1 AND {WAITS}");
    let found: Option<(RowId, Json<FinishedCall>, Option<String>, bool)> =
        store.query_first(&text, [new.uuid()])?;
    let Some((row, Json(known), phone, was_answered)) = found else {
        return Ok(None);
    };
    let is_longer = span_micros(&new.call) > span_micros(&known);
    if new.judged.reason == Some(Reason::Incomplete) && !is_longer {
        return Ok(None);
    }
    let state = new.state();
    let letter = state.is_letter();
    let before = outbox::before_it_leaves(store, row)?;
    let rule = "(id) DO UPDATE SET state = excluded.state, since = excluded.since,
             trunk = excluded.trunk, direction = excluded.direction, answered = excluded.answered,
             started = excluded.started, ended = excluded.ended, phone = excluded.phone,
             phone_ending = excluded.phone_ending, raw_phone = excluded.raw_phone,
             extension = excluded.extension, employee = excluded.employee, lead = excluded.lead,
             record = excluded.record, call = excluded.call, reason = excluded.reason,
             message = excluded.message, live = 0";
    put(store, row, new, None, rule)?;
    reason_counts::change(store, State::Dead, Some(Reason::Incomplete), -1)?;
    reason_counts::change(store, state, new.judged.reason, 1)?;
    store.tally.shift(State::Dead, state);
    store.tally.count(CORRECTED, 1);
    store.tally.moved.push(row);
    if letter && new.judged.reason != Some(Reason::Incomplete) {
        step::letter_appeared(store, row)?;
    }
    if let Some(before) = before
        && !letter
    {
        outbox::queue_leave(store, &before, Left::Released, new.judged.judged_at)?;
    }
    // The incomplete call only affected its customer's wait if an employee talked with them.
    if let Some(phone) = &phone
        && was_answered
    {
        missed::recount(store, phone, new.judged.judged_at)?;
    }
    if !was_answered || phone.as_deref() != new.phone() {
        missed::apply(store, new)?;
    }
    Ok(Some(Done::Corrected(row)))
}

/// Sends the queries for `incomplete` dead letters with other uuids that belong to this call.
fn ask_parts(db: &Db, new: &Finished) -> Result<Vec<Asked<RowId>>, Error> {
    if new.judged.reason == Some(Reason::Incomplete) {
        return Ok(Vec::new());
    }
    let text = format!(
        // The cross join looks up the seen call first, and then its row.
        "SELECT calls.id FROM seen_calls CROSS JOIN calls
         WHERE seen_calls.pbx = ?1 AND seen_calls.id = ?2
             AND calls.uuid = seen_calls.uuid AND calls.uuid <> ?3 AND {WAITS}"
    );
    let pbx = &new.judged.record.pbx;
    let asked = ids_of(new).map(|id| db.ask(&text, (pbx, id, new.uuid())));
    asked.collect()
}

/// Discards `incomplete` dead letters with other uuids that belong to this call, so that no one
/// sends them as well.
fn give_up_parts(store: &mut Store, new: &Finished) -> Result<(), Error> {
    if new.judged.reason == Some(Reason::Incomplete) {
        return Ok(());
    }
    let record = &new.judged.record;
    let mut parts = BTreeSet::new();
    for part in ask_parts(store, new)? {
        parts.extend(part.first(store)?);
    }
    for part in parts {
        let message = format!(
            "it was a part of {}, which was received whole later",
            record.linkedid
        );
        let before = outbox::before_it_leaves(store, part)?;
        let text = "UPDATE calls SET state = 'discarded', since = ?2, message = ?3 WHERE id = ?1";
        store.run(text, (part.0, new.judged.judged_at.micros(), message))?;
        reason_counts::change(store, State::Dead, Some(Reason::Incomplete), -1)?;
        store.tally.shift(State::Dead, State::Discarded);
        store.tally.moved.push(part);
        if let Some(before) = before {
            outbox::queue_leave(store, &before, Left::Discarded, new.judged.judged_at)?;
        }
        let text = "SELECT phone FROM calls WHERE id = ?1 AND phone IS NOT NULL AND answered = 1";
        if let Some(phone) = store.query_first::<String>(text, [part.0])? {
            missed::recount(store, &phone, new.judged.judged_at)?;
        }
    }
    Ok(())
}
