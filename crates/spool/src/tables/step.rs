//! A stored call takes a step.

use super::finish::json;
use crate::op::{Done, RowId};
use crate::state::{FIRST_POLL, Fate, State, Step, next};
use crate::store::{Store, sql};
use crate::tables::books::Book;
use crate::{ATTEMPTS_MAX, Attempt, Error, Left};
use callbridge_call::EventTime;
use callbridge_model::TokenPrint;
use callbridge_model::{CallRecord, CallUuid, Reason};
use rusqlite::OptionalExtension as _;

/// A person has to look at it, or it waits for its lead.
const fn is_letter(state: State) -> bool {
    matches!(state, State::Dead | State::Parked)
}

/// How a letter leaves by this step.
const fn left_by(step: &Step) -> Option<Left> {
    match step {
        Step::Retry { .. } | Step::Recheck { .. } => Some(Left::Retried),
        Step::Release { .. } | Step::Moved { .. } => Some(Left::Released),
        Step::Confirmed | Step::Hooked => Some(Left::Journaled),
        Step::Discard => Some(Left::Discarded),
        Step::Send
        | Step::Accepted { .. }
        | Step::Returned { .. }
        | Step::Unsent
        | Step::NotYet { .. }
        | Step::Absent { .. }
        | Step::Orphaned { .. }
        | Step::Resubmit { .. }
        | Step::Died { .. }
        | Step::Rejudged { .. }
        | Step::Expire => None,
    }
}

impl Store {
    pub(crate) fn step(&mut self, row: RowId, step: &Step, at: EventTime) -> Result<Done, Error> {
        let mut found = self.prepare("SELECT state, hooked, deaths FROM calls WHERE id = ?1")?;
        let word = found.query_row([row.0], |row| {
            Ok((row.get::<_, String>(0)?, row.get(1)?, row.get(2)?))
        });
        let word = sql(self, word.optional())?;
        drop(found);
        let Some((word, hooked, deaths)) = word else {
            return self.step_unreadable(row, step, at);
        };
        let from = self.read_state(row, &word)?;
        if from == State::Journaled && hooked && step.is_answer() {
            return Ok(Done::Stepped(from));
        }
        let refused = |refused| Error::Refused { row, refused };
        next(from, step).map_err(refused)?;
        let failed;
        let step = match step {
            Step::Died {
                reason: Reason::Failed,
                message,
                errors,
            } => {
                failed = self.call_failed(row, message, errors, at)?;
                &failed
            }
            step => step,
        };
        let to = next(from, step).map_err(refused)?;
        let leaves = is_letter(from) && !is_letter(to);
        let letter = match leaves {
            true => self.before_it_leaves(row)?,
            false => None,
        };
        self.write_step(row, step, at)?;
        if from != to {
            self.execute(
                "UPDATE calls SET state = ?2, since = ?3 WHERE id = ?1",
                (row.0, to.word(), at.micros()),
            )?;
            self.tally.add(Book::Of(from), -1);
            self.tally.add(Book::Of(to), 1);
            self.tally.moved(row);
        }
        if to == State::Journaled {
            self.shown_by_lead(row, at)?;
            self.employee_is_known(row)?;
        }
        if let (Some(letter), Some(left)) = (&letter, left_by(step)) {
            self.queue_leave(letter, left, at)?;
        } else if to == State::Journaled && !leaves && deaths > 0 {
            self.queue_journaled(row, deaths, at)?;
        }
        let died = matches!(step, Step::Died { .. });
        let other = matches!(step, Step::Rejudged { .. } | Step::Expire) && from != to;
        if died || other {
            self.letter_appeared(row)?;
        }
        Ok(Done::Stepped(to))
    }

    /// What the step changes beside the state.
    fn write_step(&mut self, row: RowId, step: &Step, at: EventTime) -> Result<(), Error> {
        match step {
            Step::Send => self.sent(row, at),
            Step::Unsent => self.ready_at(row, None),
            Step::Confirmed | Step::Expire | Step::Discard => Ok(()),
            Step::Hooked => self.was_hooked(row),
            Step::Accepted { request_id, token } => self.accepted(row, request_id, token, at),
            Step::Returned {
                not_before,
                why,
                failures,
            } => {
                self.attempted(row, at, why)?;
                self.failed(row, *failures)?;
                self.ready_at(row, Some(*not_before))
            }
            Step::NotYet { next_poll } => {
                let values = (row.0, next_poll.micros());
                self.execute(
                    "UPDATE calls SET polls = polls + 1, next_poll = ?2 WHERE id = ?1",
                    values,
                )?;
                Ok(())
            }
            Step::Absent { next_look, times } => self.absent(row, *next_look, *times, at),
            Step::Orphaned {
                next_look,
                fate,
                why,
            } => {
                self.attempted(row, at, why)?;
                self.orphan(row, *next_look, *fate, why)
            }
            Step::Resubmit { why } => {
                self.attempted(row, at, why)?;
                self.execute(
                    "UPDATE calls SET resubmits = resubmits + 1, next_poll = NULL, fate = NULL,
                                      message = '' WHERE id = ?1",
                    [row.0],
                )?;
                self.ready_at(row, None)
            }
            Step::Died {
                reason,
                message,
                errors,
            } => {
                self.attempted(row, at, message)?;
                let errors = (!errors.is_null())
                    .then(|| json("errors", errors))
                    .transpose()?;
                self.execute(
                    "UPDATE calls SET reason = ?2, message = ?3, errors = ?4 WHERE id = ?1",
                    (row.0, reason.word(), message, errors),
                )?;
                Ok(())
            }
            Step::Rejudged { reason, message } => self.rejudged(row, *reason, message),
            Step::Release { record } | Step::Retry { record } => self.anew(row, record),
            Step::Moved { record, been, why } => self.moved(row, record, been, why, at),
            Step::Recheck { record, before } => {
                self.anew(row, record)?;
                self.orphan(row, at, Fate::Changed, before)
            }
        }
    }

    fn was_hooked(&self, row: RowId) -> Result<(), Error> {
        self.execute(
            "UPDATE calls SET hooked = 1, reason = NULL, message = '', errors = NULL
             WHERE id = ?1",
            [row.0],
        )?;
        Ok(())
    }

    fn rejudged(&self, row: RowId, reason: Reason, message: &str) -> Result<(), Error> {
        self.execute(
            "UPDATE calls SET reason = ?2, message = ?3 WHERE id = ?1",
            (row.0, reason.word(), message),
        )?;
        Ok(())
    }

    pub(crate) fn letter_appeared(&mut self, row: RowId) -> Result<(), Error> {
        self.execute(
            "UPDATE calls SET deaths = deaths + 1 WHERE id = ?1",
            [row.0],
        )?;
        self.queue_notice(row)
    }

    fn ready_at(&self, row: RowId, not_before: Option<EventTime>) -> Result<(), Error> {
        let not_before = not_before.map_or(0, |at| at.micros().max(0));
        self.execute(
            "UPDATE calls SET not_before = ?2 WHERE id = ?1",
            (row.0, not_before),
        )?;
        Ok(())
    }

    fn accepted(
        &self,
        row: RowId,
        request_id: &str,
        token: &TokenPrint,
        at: EventTime,
    ) -> Result<(), Error> {
        let first_poll = at.plus(FIRST_POLL).micros();
        self.execute(
            "UPDATE calls SET request_id = ?2, token = ?3, submitted_at = ?4, next_poll = ?5,
                              polls = 0, absent = 0, absent_at = NULL, fate = NULL, failures = 0
             WHERE id = ?1",
            (row.0, request_id, token.as_str(), at.micros(), first_poll),
        )?;
        Ok(())
    }

    fn sent(&self, row: RowId, at: EventTime) -> Result<(), Error> {
        self.execute(
            "UPDATE calls SET not_before = 0, first_sent = ifnull(first_sent, ?2) WHERE id = ?1",
            (row.0, at.micros()),
        )?;
        Ok(())
    }

    fn failed(&self, row: RowId, failures: u32) -> Result<(), Error> {
        self.execute(
            "UPDATE calls SET failures = ?2 WHERE id = ?1",
            (row.0, failures),
        )?;
        Ok(())
    }

    fn absent(&self, row: RowId, next: EventTime, times: u32, at: EventTime) -> Result<(), Error> {
        self.execute(
            "UPDATE calls SET next_poll = ?2, absent = ?3,
                    absent_at = CASE WHEN absent = ?3 THEN absent_at ELSE ?4 END
             WHERE id = ?1",
            (row.0, next.micros(), times, at.micros()),
        )?;
        Ok(())
    }

    /// Nothing can be asked with its requestId. Where nobody knows when it was accepted, it was not
    /// before it was sent.
    fn orphan(&self, row: RowId, next: EventTime, fate: Fate, why: &str) -> Result<(), Error> {
        self.execute(
            "UPDATE calls SET request_id = NULL, token = ?2, polls = 0, next_poll = ?3, fate = ?4,
                    message = ?5, absent = 0, absent_at = NULL,
                    submitted_at = CASE state WHEN 'submitted' THEN submitted_at
                                   ELSE ifnull(first_sent, started * 1000000) END
             WHERE id = ?1",
            (
                row.0,
                TokenPrint::none().as_str(),
                next.micros(),
                fate.word(),
                why,
            ),
        )?;
        Ok(())
    }

    pub(crate) fn attempted(&self, row: RowId, at: EventTime, words: &str) -> Result<(), Error> {
        let mut found = self.prepare("SELECT attempts FROM calls WHERE id = ?1")?;
        let text: String = sql(self, found.query_row([row.0], |row| row.get(0)))?;
        let mut attempts: Vec<Attempt> = self.read_json(row, &text)?;
        if attempts.len() >= ATTEMPTS_MAX {
            attempts.remove(1);
        }
        attempts.push(Attempt {
            at,
            words: words.to_owned(),
        });
        self.execute(
            "UPDATE calls SET attempts = ?2 WHERE id = ?1",
            (row.0, json("attempts", &attempts)?),
        )?;
        Ok(())
    }

    /// A letter goes out again, as the record says now. It waits with the backlog, and what went
    /// wrong with its earlier requests no longer counts against it.
    fn anew(&self, row: RowId, record: &CallRecord) -> Result<(), Error> {
        let uuid = record.uuid.ok_or_else(|| Error::NoUuid {
            linkedid: record.linkedid.clone(),
        })?;
        self.owns_uuid(row, uuid)?;
        self.execute(
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
        Ok(())
    }

    /// The uuid of a retry must be the row's own: a `uuid_conflict` letter has none.
    fn owns_uuid(&self, row: RowId, uuid: CallUuid) -> Result<(), Error> {
        let mut found = self.prepare("SELECT uuid FROM calls WHERE id = ?1")?;
        let own: Option<[u8; 16]> = sql(self, found.query_row([row.0], |row| row.get(0)))?;
        if own == Some(uuid.0.into_bytes()) {
            Ok(())
        } else {
            Err(Error::UuidTaken { row, uuid })
        }
    }
}
