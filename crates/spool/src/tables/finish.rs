//! A judged call comes in.

use crate::Error;
use crate::op::{Done, Finished, RowId};
use crate::state::State;
use crate::store::{Store, sql};
use crate::tables::books::Book;
use crate::tables::seen_calls::Buried;
use callbridge_call::EventTime;
use callbridge_model::{CallUuid, Outcome, Reason};
use rusqlite::OptionalExtension as _;

/// Starts that differ by no more are the same: two sources may round the same moment apart.
const SAME_START_SEC: u64 = 1;

/// The counter of calls that came again.
const REPEATS: &str = "repeats";

/// A judged call in the form of its columns.
#[derive(Debug)]
pub(crate) struct FinishRow {
    pub(crate) outcome: Outcome,
    pub(crate) uuid: Option<CallUuid>,
    pub(crate) reason: Option<Reason>,
    pub(crate) message: String,
    live: bool,
    pub(crate) at: EventTime,
    pub(crate) pbx: String,
    pub(crate) linkedid: String,
    pub(crate) aliases: Vec<String>,
    pub(crate) started: i64,
    pub(crate) phone: Option<String>,
    pub(crate) heard: Option<String>,
    pub(crate) record: String,
    pub(crate) call: String,
    /// From its start to its end.
    pub(crate) span_micros: i64,
}

/// Serializes a value for a text column.
pub(crate) fn json<T: serde::Serialize>(what: &'static str, value: &T) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|error| Error::Unstorable {
        what,
        why: error.to_string(),
    })
}

impl FinishRow {
    /// Makes the columns; the JSON only where a row will be stored.
    pub(crate) fn new(finished: &Finished) -> Result<Self, Error> {
        let Finished { judged, call } = finished;
        let kept = match judged.outcome {
            Outcome::Journal | Outcome::DeadLetter => true,
            Outcome::Internal | Outcome::Skipped => false,
        };
        let record = &judged.record;
        if kept && record.uuid.is_none() {
            return Err(Error::NoUuid {
                linkedid: record.linkedid.clone(),
            });
        }
        if judged.outcome == Outcome::DeadLetter && judged.reason.is_none() {
            return Err(Error::Unstorable {
                what: "a dead letter",
                why: format!("call {} has no reason", record.linkedid),
            });
        }
        // Without a uuid no row can be made of it, not even a letter.
        let stored = record.uuid.is_some();
        let looked_at = stored || judged.outcome == Outcome::Internal;
        Ok(Self {
            outcome: judged.outcome,
            uuid: record.uuid,
            reason: judged.reason,
            message: judged.message.clone(),
            live: judged.live,
            at: judged.judged_at,
            pbx: record.pbx.clone(),
            linkedid: record.linkedid.clone(),
            aliases: call
                .also_known_as
                .iter()
                .map(|id| id.as_str().to_owned())
                .collect(),
            started: call.started.floor_seconds().get(),
            phone: record
                .client_phone
                .as_ref()
                .map(|phone| phone.as_str().to_owned()),
            heard: call.number.as_ref().map(|number| number.text.clone()),
            span_micros: call.ended.micros().saturating_sub(call.started.micros()),
            record: if looked_at {
                json("a call record", record)?
            } else {
                String::new()
            },
            call: if stored {
                json("a finished call", call)?
            } else {
                String::new()
            },
        })
    }

    /// Where it goes first.
    pub(crate) fn state(&self) -> State {
        match self.outcome {
            Outcome::Journal => State::Ready,
            _ if self.reason.is_some_and(Reason::is_parked) => State::Parked,
            _ => State::Dead,
        }
    }

    fn same_start(&self, started: i64) -> bool {
        self.started.abs_diff(started) <= SAME_START_SEC
    }
}

/// What tells two calls of one uuid apart. A number that is not known is no other number.
struct Known {
    row: RowId,
    started: i64,
    phone: Option<String>,
    heard: Option<String>,
}

impl Known {
    fn is(&self, new: &FinishRow) -> bool {
        let same = |a: &Option<String>, b: &Option<String>| match (a, b) {
            (Some(a), Some(b)) => Some(a == b),
            (None, _) | (_, None) => None,
        };
        let number = match (same(&self.phone, &new.phone), same(&self.heard, &new.heard)) {
            (None, None) => true,
            (phone, heard) => phone == Some(true) || heard == Some(true),
        };
        number && new.same_start(self.started)
    }
}

impl Store {
    pub(crate) fn finish(&mut self, new: &FinishRow) -> Result<Done, Error> {
        let buried = self.bury(
            &new.pbx,
            &new.linkedid,
            &new.aliases,
            new.uuid,
            new.started,
            new.at,
        )?;
        match new.outcome {
            Outcome::Internal | Outcome::Skipped => self.count_only(new, &buried),
            Outcome::Journal | Outcome::DeadLetter => self.keep(new, &buried),
        }
    }

    fn count_only(&mut self, new: &FinishRow, buried: &Buried) -> Result<Done, Error> {
        let book = if new.outcome == Outcome::Internal {
            Book::Internal
        } else {
            Book::Skipped
        };
        match buried {
            Buried::Before { started } if new.same_start(*started) => self.repeated(None),
            Buried::Before { .. } if new.uuid.is_some() => self.conflict(new),
            Buried::Before { .. } | Buried::Now => {
                self.tally.add(book, 1);
                if new.outcome == Outcome::Internal {
                    self.keep_internal(new)?;
                }
                Ok(Done::Counted)
            }
        }
    }

    fn keep(&mut self, new: &FinishRow, buried: &Buried) -> Result<Done, Error> {
        if let Buried::Before { started } = buried {
            if let Some(done) = self.corrected(new)? {
                self.bury_aliases(new)?;
                self.give_up_parts(new)?;
                return Ok(done);
            }
            return match self.known(new)? {
                Some(known) if known.is(new) => self.repeated(Some(known.row)),
                Some(_) => self.conflict(new),
                None if new.same_start(*started) => self.repeated(None),
                None => self.conflict(new),
            };
        }
        self.give_up_parts(new)?;
        if let Some(row) = self.insert(new, new.state(), new.reason, &new.message, false)? {
            return Ok(Done::New(row));
        }
        // Its tombstone is gone, its row is not.
        match self.known(new)? {
            Some(known) if known.is(new) => self.repeated(Some(known.row)),
            Some(_) | None => self.conflict(new),
        }
    }

    fn repeated(&mut self, row: Option<RowId>) -> Result<Done, Error> {
        self.tally.count(REPEATS, 1);
        Ok(Done::Repeat(row))
    }

    /// Another call under a known uuid. If it came before, it is a repeat of that letter.
    fn conflict(&mut self, new: &FinishRow) -> Result<Done, Error> {
        for twin in self.twins(new)? {
            if twin.is(new) {
                return self.repeated(Some(twin.row));
            }
        }
        let message = format!(
            "another call from {} came under the same id {} with another start or number",
            new.pbx, new.linkedid
        );
        let reason = Some(Reason::UuidConflict);
        let row = self.insert(new, State::Dead, reason, &message, true)?;
        row.map(Done::Conflict)
            .ok_or_else(|| self.damaged("a letter without a uuid met another's".into()))
    }

    /// `None` when the uuid is taken.
    fn insert(
        &mut self,
        new: &FinishRow,
        state: State,
        reason: Option<Reason>,
        message: &str,
        twin: bool,
    ) -> Result<Option<RowId>, Error> {
        let id = self.new_id();
        let uuid = new.uuid.map(|uuid| uuid.0.into_bytes());
        let letter = matches!(state, State::Dead | State::Parked);
        let added = self.execute(
            "INSERT INTO calls (id, uuid, twin, state, live, since, started, phone, heard, record,
                                call, deaths, reason, message)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
             ON CONFLICT (uuid) DO NOTHING",
            (
                id.0,
                if twin { None } else { uuid },
                if twin { uuid } else { None },
                state.word(),
                new.live,
                new.at.micros(),
                new.started,
                &new.phone,
                &new.heard,
                &new.record,
                &new.call,
                i64::from(letter),
                reason.filter(|_| letter).map(Reason::word),
                if letter { message } else { "" },
            ),
        )?;
        if added == 0 {
            return Ok(None);
        }
        self.tally.add(Book::Finished, 1);
        self.tally.add(Book::Of(state), 1);
        self.tally.moved(id);
        if letter {
            self.queue_notice(id)?;
        }
        Ok(Some(id))
    }

    fn known(&self, new: &FinishRow) -> Result<Option<Known>, Error> {
        let mut found =
            self.prepare("SELECT id, started, phone, heard FROM calls WHERE uuid = ?1")?;
        let uuid = new.uuid.map(|uuid| uuid.0.into_bytes());
        sql(self, found.query_row([uuid], read_known).optional())
    }

    fn twins(&self, new: &FinishRow) -> Result<Vec<Known>, Error> {
        let mut found =
            self.prepare("SELECT id, started, phone, heard FROM calls WHERE twin = ?1")?;
        let uuid = new.uuid.map(|uuid| uuid.0.into_bytes());
        let rows = found
            .query_map([uuid], read_known)
            .and_then(Iterator::collect);
        sql(self, rows)
    }
}

fn read_known(row: &rusqlite::Row<'_>) -> rusqlite::Result<Known> {
    Ok(Known {
        row: RowId(row.get(0)?),
        started: row.get(1)?,
        phone: row.get(2)?,
        heard: row.get(3)?,
    })
}
