//! Applies a step to a stored call.

use super::{calls, missed, outbox, reason_counts, shows, unknown_employees, unreadable};
use crate::finished::last_four;
use crate::state::{IfAbsent, State, Step, next};
use crate::value::values;
use crate::{Db, Done, Error, Left, Progress, RowId, Store, json};
use callbridge_call::EventTime;
use callbridge_model::TokenFingerprint;
use callbridge_model::{CallRecord, CallUuid, EmployeeId, LeadId, Phone, Reason};

/// Name of the setting that stores which branch or PBX had a call sent last. The next one by name
/// gets the next turn.
pub(super) const LAST_TURN: &str = "sender.last_turn";

const fn leave_kind(step: &Step, to: State) -> Left {
    match (to, step) {
        (State::Journaled, _) => Left::Journaled,
        (State::Discarded, _) => Left::Discarded,
        (_, Step::Retry { by_itself, .. }) if !*by_itself => Left::Retried,
        (_, Step::Recheck { .. }) => Left::Retried,
        _ => Left::Released,
    }
}

pub(crate) fn step(
    store: &mut Store,
    row: RowId,
    step: &Step,
    at: EventTime,
) -> Result<Done, Error> {
    let Some(mut progress) = calls::progress(store, row)? else {
        return unreadable::step_unreadable(store, row, step, at);
    };
    let from = progress.state;
    let settled = matches!(from, State::Journaled | State::Discarded | State::Forwarded);
    if settled && progress.settled_externally && step.is_answer() {
        return Ok(Done::Stepped(from));
    }
    if from != State::Dead && matches!(step, Step::Reopened { .. }) {
        return Ok(Done::Stepped(from));
    }
    let to = next(from, step).map_err(|refused| Error::Refused(row, refused))?;
    let leaves = from.is_letter() && !to.is_letter();
    let before = leaves.then(|| outbox::before_it_leaves(store, row));
    let letter = before.transpose()?.flatten();
    let reason_before = progress.reason;
    progress.take(step, to, at);
    set_progress(store, row, &progress)?;
    if (from, reason_before) != (to, progress.reason) {
        reason_counts::change(store, from, reason_before, -1)?;
        reason_counts::change(store, to, progress.reason, 1)?;
    }
    match step {
        Step::Send => had_turn(store, row)?,
        Step::Retry { record, .. } | Step::Recheck { record, .. } => {
            send_corrected(store, row, record, at)?
        }
        Step::Moved { record, .. } => set_record(store, row, record)?,
        _ => {}
    }
    if from != to {
        store.tally.shift(from, to);
        store.tally.moved.push(row);
    }
    if to == State::Journaled {
        shows::show_call(store, row, at)?;
        unknown_employees::employee_is_known(store, row)?;
    }
    let letter = letter.filter(|letter| letter.times_dead > 0);
    if let Some(letter) = &letter {
        outbox::queue_leave(store, letter, leave_kind(step, to), at)?;
    } else if to == State::Journaled && !leaves && progress.times_dead > 0 {
        outbox::queue_journaled(store, row, progress.times_dead, at)?;
    }
    let died = matches!(step, Step::Died { .. }) && !progress.is_listed_alone();
    let other = matches!(step, Step::Rejudged { .. } | Step::Expire) && from != to;
    if died || other {
        letter_appeared(store, row)?;
    }
    Ok(Done::Stepped(to))
}

pub(super) fn set_progress(db: &Db, row: RowId, progress: &Progress) -> Result<(), Error> {
    let history = progress
        .reroute_history
        .as_ref()
        .map(|history| json("the leads a call had", history))
        .transpose()?;
    let text = "UPDATE calls SET state = ?2, since = ?3, live = ?4, not_before = ?5,
                settled_externally = ?6,
                request_id = ?7, token = ?8, submitted_at = ?9, first_sent = ?10, next_poll = ?11,
                polls = ?12, absent = ?13, absent_at = ?14, resubmits = ?15, failures = ?16,
                if_absent = ?17, reroute_history = ?18, sent_again = ?19, reason = ?20,
                message = ?21, errors = ?22, finding = ?23, attempts = ?24, retried = ?25
         WHERE id = ?1";
    let values = values![
        row.0,
        progress.state.word(),
        progress.since.micros(),
        progress.live,
        progress.not_before,
        progress.settled_externally,
        progress.request_id,
        progress.token.as_ref().map(TokenFingerprint::as_str),
        progress.submitted_at.map(EventTime::micros),
        progress.first_sent.map(EventTime::micros),
        progress.next_poll.map(EventTime::micros),
        progress.polls,
        progress.absent,
        progress.absent_at.map(EventTime::micros),
        progress.resubmits,
        progress.failures,
        progress.if_absent.map(IfAbsent::word),
        history,
        progress.sent_again,
        progress.reason.map(Reason::word),
        progress.message,
        progress.errors,
        progress.finding,
        json("attempts", &progress.attempts)?,
        progress.retried,
    ];
    db.run(text, values)
}

pub(crate) fn letter_appeared(store: &mut Store, row: RowId) -> Result<(), Error> {
    let text = "UPDATE calls SET times_dead = times_dead + 1 WHERE id = ?1";
    store.run(text, [row.0])?;
    outbox::queue_notice(store, row)
}

/// Records that the call being sent uses up the turn of its branch or PBX.
fn had_turn(db: &Db, row: RowId) -> Result<(), Error> {
    let text = "INSERT INTO meta (key, value) SELECT ?2, turn FROM calls WHERE id = ?1
         ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    db.run(text, (row.0, LAST_TURN))
}

fn set_record(db: &Db, row: RowId, record: &CallRecord) -> Result<(), Error> {
    let text = "UPDATE calls SET record = ?2, trunk = ?3, direction = ?4, answered = ?5,
                ended = started + ?6, phone = ?7, phone_ending = ?8, extension = ?9,
                employee = ?10, lead = ?11
         WHERE id = ?1";
    let phone = record.client_phone.as_ref().map(Phone::as_str);
    let values = values![
        row.0,
        json("a call record", record)?,
        record.trunk,
        record.direction.word(),
        record.answered,
        record.duration_sec,
        phone,
        phone.map(last_four),
        record.employee,
        record.employee_id.map(EmployeeId::get),
        record.lead_id.map(LeadId::get),
    ];
    db.run(text, values)
}

/// Stores the values in `record` for a dead letter or waiting call that's being resent.
///
/// The record's UUID must match the row's. A `uuid_conflict` dead letter has no UUID in its row, so
/// it's refused with [`Error::UuidTaken`].
fn send_corrected(db: &Db, row: RowId, record: &CallRecord, at: EventTime) -> Result<(), Error> {
    let uuid = (record.uuid).ok_or_else(|| Error::NoUuid(record.linkedid.clone()))?;
    let text = "SELECT uuid, answered FROM calls WHERE id = ?1";
    let (own, answered): (Option<CallUuid>, Option<bool>) = db.query_one(text, [row.0])?;
    if own != Some(uuid) {
        return Err(Error::UuidTaken(row, uuid));
    }
    set_record(db, row, record)?;
    // Someone corrected whether the call was answered, which may change whether the customer is
    // waiting for a callback.
    match &record.client_phone {
        Some(phone) if answered != Some(record.answered) => missed::recount(db, phone.as_str(), at),
        Some(_) | None => Ok(()),
    }
}
