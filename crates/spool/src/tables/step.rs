//! A stored call takes a step.

use super::books::Book;
use super::finish::json;
use super::meta::set_meta;
use super::work_queue::HAD_TURN;
use super::{look_ups, missed, outbox, peer_outcomes, shows, unknown_employees, unreadable};
use crate::state::{FIRST_POLL, IfAbsent, State, Step, next};
use crate::{ATTEMPTS_MAX, Attempt, Db, Done, Error, Left, RowId, Store};
use callbridge_call::EventTime;
use callbridge_model::{CallRecord, CallUuid, Reason, TokenFingerprint};

/// A person has to look at it, or it waits for its lead.
const fn is_letter(state: State) -> bool {
    matches!(state, State::Dead | State::Parked)
}

/// The attempt of a call that was given up elsewhere.
const GIVEN_UP: &str = "discarded before, or at another sender, as the stream says";

/// How a letter leaves by this step.
const fn left_by(step: &Step) -> Option<Left> {
    match step {
        Step::Retry { .. } | Step::Recheck { .. } => Some(Left::Retried),
        Step::Release { .. } | Step::Moved { .. } => Some(Left::Released),
        Step::Confirmed | Step::Hooked | Step::Found { .. } => Some(Left::Journaled),
        Step::Discard | Step::GivenUp => Some(Left::Discarded),
        Step::Send
        | Step::Accepted { .. }
        | Step::Returned { .. }
        | Step::Unsent
        | Step::NotYet { .. }
        | Step::Absent { .. }
        | Step::Unresolved { .. }
        | Step::Resubmit { .. }
        | Step::Died { .. }
        | Step::Rejudged { .. }
        | Step::Expire
        | Step::Forwarded
        | Step::SendAgain { .. } => None,
    }
}

pub(crate) fn step(
    store: &mut Store,
    row: RowId,
    step: &Step,
    at: EventTime,
) -> Result<Done, Error> {
    let found = store.query_first(
        "SELECT state, hooked, deaths FROM calls WHERE id = ?1",
        [row.0],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )?;
    let Some((from, hooked, deaths)) = found else {
        return unreadable::step_unreadable(store, row, step, at);
    };
    let settled = matches!(from, State::Journaled | State::Discarded);
    if settled && hooked && step.is_answer() {
        return Ok(Done::Stepped(from));
    }
    let to = next(from, step).map_err(|refused| Error::Refused { row, refused })?;
    let leaves = is_letter(from) && !is_letter(to);
    let letter = match leaves {
        true => outbox::before_it_leaves(store, row)?,
        false => None,
    };
    write_step(store, row, step, at)?;
    if from != to {
        store.execute(
            "UPDATE calls SET state = ?2, since = ?3 WHERE id = ?1",
            (row.0, to.word(), at.micros()),
        )?;
        store.tally.add(Book::Of(from), -1);
        store.tally.add(Book::Of(to), 1);
        store.tally.moved(row);
        peer_outcomes::queue_outcome(store, row, to, step)?;
    }
    if leaves {
        peer_outcomes::letter_left(store, row)?;
    }
    // Of what another has sent, another has told the lead.
    if to == State::Journaled && !matches!(step, Step::Found { .. }) {
        shows::shown_by_lead(store, row, at)?;
        unknown_employees::employee_is_known(store, row)?;
    }
    let letter = letter.filter(|letter| letter.deaths > 0);
    if let (Some(letter), Some(left)) = (&letter, left_by(step)) {
        outbox::queue_leave(store, letter, left, at)?;
    } else if to == State::Journaled && !leaves && deaths > 0 {
        outbox::queue_journaled(store, row, deaths, at)?;
    }
    let died = matches!(step, Step::Died { .. });
    let other = matches!(step, Step::Rejudged { .. } | Step::Expire) && from != to;
    if (died || other) && !is_listed_alone(store, row, step)? {
        letter_appeared(store, row)?;
    }
    Ok(Done::Stepped(to))
}

/// The CRM took it, and nothing may tell whether it is journaled: so it is with every call then,
/// and nobody is told of each. One that was sent again, that a page should have shown, or that was
/// a letter before is another matter.
fn is_listed_alone(db: &Db, row: RowId, step: &Step) -> Result<bool, Error> {
    let unconfirmed = matches!(
        step,
        Step::Died {
            reason: Reason::Unconfirmed,
            ..
        }
    );
    Ok(unconfirmed
        && db.value(
            "SELECT request_id IS NOT NULL AND resubmits = 0 AND absent = 0 AND deaths = 0
             FROM calls
             WHERE id = ?1",
            [row.0],
        )?)
}

/// What the step changes beside the state.
fn write_step(db: &Db, row: RowId, step: &Step, at: EventTime) -> Result<(), Error> {
    match step {
        Step::Send => sent(db, row, at),
        Step::Unsent => ready_at(db, row, None),
        Step::Confirmed | Step::Expire | Step::Discard | Step::Forwarded => Ok(()),
        Step::Hooked => was_hooked(db, row),
        Step::Found { by } => {
            attempted(db, row, at, by.words())?;
            was_found(db, row)
        }
        Step::GivenUp => {
            attempted(db, row, at, GIVEN_UP)?;
            answers_are_late(db, row)
        }
        Step::SendAgain { why, told } => {
            attempted(db, row, at, why)?;
            as_never_sent(db, row, *told)
        }
        Step::Accepted { request_id, token } => accepted(db, row, request_id, token, at),
        Step::Returned {
            not_before,
            why,
            failures,
        } => {
            attempted(db, row, at, why)?;
            failed(db, row, *failures)?;
            ready_at(db, row, Some(*not_before))
        }
        Step::NotYet { next_poll } => {
            let values = (row.0, next_poll.micros());
            db.run(
                "UPDATE calls SET polls = polls + 1, next_poll = ?2 WHERE id = ?1",
                values,
            )
        }
        Step::Absent { next_look, times } => absent(db, row, *next_look, *times, at),
        Step::Unresolved {
            next_look,
            fate,
            why,
        } => {
            attempted(db, row, at, why)?;
            unresolved(db, row, *next_look, *fate, why)
        }
        Step::Resubmit { why } => {
            attempted(db, row, at, why)?;
            db.execute(
                "UPDATE calls SET resubmits = resubmits + 1, next_poll = NULL, fate = NULL,
                                  message = '' WHERE id = ?1",
                [row.0],
            )?;
            ready_at(db, row, None)
        }
        Step::Died {
            reason,
            message,
            errors,
        } => {
            attempted(db, row, at, message)?;
            let errors = (!errors.is_null())
                .then(|| json("errors", errors))
                .transpose()?;
            db.run(
                "UPDATE calls SET reason = ?2, message = ?3, errors = ?4 WHERE id = ?1",
                (row.0, reason.word(), message, errors),
            )
        }
        Step::Rejudged { reason, message } => rejudged(db, row, *reason, message),
        Step::Release { record } | Step::Retry { record } => anew(db, row, record, at),
        Step::Moved { record, been, why } => look_ups::moved(db, row, record, been, why, at),
        Step::Recheck { record, before } => {
            anew(db, row, record, at)?;
            unresolved(db, row, at, IfAbsent::Changed, before)
        }
    }
}

fn was_hooked(db: &Db, row: RowId) -> Result<(), Error> {
    db.run(
        "UPDATE calls SET hooked = 1, reason = NULL, message = '', errors = NULL
         WHERE id = ?1",
        [row.0],
    )
}

/// What is under way for a submitted call is answered after its end.
fn answers_are_late(db: &Db, row: RowId) -> Result<(), Error> {
    db.run(
        "UPDATE calls SET hooked = 1 WHERE id = ?1 AND state = 'submitted'",
        [row.0],
    )
}

/// Another has sent it, whatever it waited for here.
fn was_found(db: &Db, row: RowId) -> Result<(), Error> {
    answers_are_late(db, row)?;
    db.run(
        "UPDATE calls SET not_before = 0, reason = NULL, message = '', errors = NULL
         WHERE id = ?1",
        [row.0],
    )
}

/// It goes out with the backlog, as what it was journaled as; what came of its earlier requests no
/// longer counts, and who tells of them tells nothing.
fn as_never_sent(db: &Db, row: RowId, told: Option<u32>) -> Result<(), Error> {
    db.run(
        "UPDATE calls SET live = 0, not_before = 0, hooked = 0, request_id = NULL, token = NULL,
                next_poll = NULL, resubmits = 0, failures = 0, fate = NULL, been = NULL,
                finding = NULL, reason = NULL, message = '', errors = NULL, first_sent = NULL,
                generation = ifnull(?2, generation + 1)
         WHERE id = ?1",
        (row.0, told),
    )
}

fn rejudged(db: &Db, row: RowId, reason: Reason, message: &str) -> Result<(), Error> {
    db.run(
        "UPDATE calls SET reason = ?2, message = ?3 WHERE id = ?1",
        (row.0, reason.word(), message),
    )
}

pub(crate) fn letter_appeared(store: &mut Store, row: RowId) -> Result<(), Error> {
    store.execute(
        "UPDATE calls SET deaths = deaths + 1 WHERE id = ?1",
        [row.0],
    )?;
    outbox::queue_notice(store, row)
}

fn ready_at(db: &Db, row: RowId, not_before: Option<EventTime>) -> Result<(), Error> {
    let not_before = not_before.map_or(0, |at| at.micros().max(0));
    db.run(
        "UPDATE calls SET not_before = ?2 WHERE id = ?1",
        (row.0, not_before),
    )
}

fn accepted(
    db: &Db,
    row: RowId,
    request_id: &str,
    token: &TokenFingerprint,
    at: EventTime,
) -> Result<(), Error> {
    let first_poll = at.plus(FIRST_POLL).micros();
    db.run(
        "UPDATE calls SET request_id = ?2, token = ?3, submitted_at = ?4, next_poll = ?5,
                          polls = 0, absent = 0, absent_at = NULL, fate = NULL, failures = 0
         WHERE id = ?1",
        (row.0, request_id, token.as_str(), at.micros(), first_poll),
    )
}

fn sent(db: &Db, row: RowId, at: EventTime) -> Result<(), Error> {
    db.execute(
        "UPDATE calls SET not_before = 0, first_sent = ifnull(first_sent, ?2) WHERE id = ?1",
        (row.0, at.micros()),
    )?;
    let pbx: Option<String> = db.value(
        "SELECT json_extract(record, '$.pbx') FROM calls WHERE id = ?1",
        [row.0],
    )?;
    set_meta(db, HAD_TURN, &pbx.unwrap_or_default())
}

fn failed(db: &Db, row: RowId, failures: u32) -> Result<(), Error> {
    db.run(
        "UPDATE calls SET failures = ?2 WHERE id = ?1",
        (row.0, failures),
    )
}

fn absent(db: &Db, row: RowId, next: EventTime, times: u32, at: EventTime) -> Result<(), Error> {
    db.run(
        "UPDATE calls SET next_poll = ?2, absent = ?3,
                absent_at = CASE WHEN absent = ?3 THEN absent_at ELSE ?4 END
         WHERE id = ?1",
        (row.0, next.micros(), times, at.micros()),
    )
}

/// Nothing can be asked with its requestId. Where nobody knows when it was accepted, it was not
/// before it was sent.
fn unresolved(
    db: &Db,
    row: RowId,
    next: EventTime,
    fate: IfAbsent,
    why: &str,
) -> Result<(), Error> {
    db.run(
        "UPDATE calls SET request_id = NULL, token = ?2, polls = 0, next_poll = ?3, fate = ?4,
                message = ?5, absent = 0, absent_at = NULL,
                submitted_at = CASE state WHEN 'submitted' THEN submitted_at
                               ELSE ifnull(first_sent, started * 1000000) END
         WHERE id = ?1",
        (
            row.0,
            TokenFingerprint::none().as_str(),
            next.micros(),
            fate.word(),
            why,
        ),
    )
}

pub(crate) fn attempted(db: &Db, row: RowId, at: EventTime, words: &str) -> Result<(), Error> {
    let text: String = db.value("SELECT attempts FROM calls WHERE id = ?1", [row.0])?;
    let mut attempts: Vec<Attempt> = db.read_json(row, &text)?;
    if attempts.len() >= ATTEMPTS_MAX {
        attempts.remove(1);
    }
    attempts.push(Attempt {
        at,
        words: words.to_owned(),
    });
    db.run(
        "UPDATE calls SET attempts = ?2 WHERE id = ?1",
        (row.0, json("attempts", &attempts)?),
    )
}

/// A letter goes out again, as the record says now. It waits with the backlog, and what went
/// wrong with its earlier requests no longer counts against it.
fn anew(db: &Db, row: RowId, record: &CallRecord, at: EventTime) -> Result<(), Error> {
    let uuid = record.uuid.ok_or_else(|| Error::NoUuid {
        linkedid: record.linkedid.clone(),
    })?;
    owns_uuid(db, row, uuid)?;
    let answered: Option<bool> = db.value(
        "SELECT json_extract(record, '$.answered') FROM calls WHERE id = ?1",
        [row.0],
    )?;
    db.execute(
        "UPDATE calls SET record = ?2, phone = ?3, live = 0, not_before = 0, reason = NULL,
                          message = '', errors = NULL, next_poll = NULL, resubmits = 0,
                          failures = 0, been = NULL, finding = NULL, fate = NULL,
                          first_sent = CASE
                              WHEN reason IN ('server_error', 'unconfirmed')
                              THEN first_sent END
         WHERE id = ?1",
        (
            row.0,
            json("a call record", record)?,
            record.client_phone.as_ref().map(|phone| phone.as_str()),
        ),
    )?;
    // Somebody said by hand whether they talked: others may wait for a call back now.
    match &record.client_phone {
        Some(phone) if answered != Some(record.answered) => missed::anew(db, phone.as_str(), at),
        Some(_) | None => Ok(()),
    }
}

/// The uuid of a retry must be the row's own: a `uuid_conflict` letter has none.
fn owns_uuid(db: &Db, row: RowId, uuid: CallUuid) -> Result<(), Error> {
    let own: Option<[u8; 16]> = db.value("SELECT uuid FROM calls WHERE id = ?1", [row.0])?;
    if own == Some(uuid.0.into_bytes()) {
        Ok(())
    } else {
        Err(Error::UuidTaken { row, uuid })
    }
}
