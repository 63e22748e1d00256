//! A judged call comes in.

use super::correct;
use super::listed;
use super::missed;
use super::outbox;
use super::seen_calls;
use super::trunk_calls;
use crate::Db;
use crate::Error;
use crate::Store;
use crate::op::{Done, Finished, RowId};
use crate::state::State;
use crate::tables::books::Book;
use crate::tables::seen_calls::SeenBefore;
use callbridge_call::timeline::{Role, Timeline, Way};
use callbridge_call::{Direction, FinishedCall};
use callbridge_model::{Judged, Outcome, Phone, Reason};

/// Starts that differ by no more are the same: two sources may round the same moment apart.
const SAME_START_SEC: u64 = 1;

/// The counter of calls that came again.
const REPEATS: &str = "repeats";

/// A judged call with the JSON that its row keeps.
#[derive(Debug)]
pub(crate) struct FinishRow {
    pub(crate) judged: Judged,
    pub(crate) call: FinishedCall,
    /// The record as JSON; empty where nothing keeps it.
    pub(crate) record_json: String,
    /// The facts as JSON; empty where no row is made.
    pub(crate) call_json: String,
}

/// The extensions that were called, each once.
pub(crate) fn rang(timeline: Option<&Timeline>) -> Vec<&str> {
    let channels = timeline.map_or(&[][..], |it| &it.channels);
    let mut rang: Vec<&str> = Vec::new();
    for channel in channels {
        if let (Role::Extension(extension), Way::Dialled) = (&channel.party, channel.way)
            && !rang.contains(&extension.as_str())
        {
            rang.push(extension);
        }
    }
    rang
}

/// Serializes a value for a text column.
pub(crate) fn json<T: serde::Serialize>(what: &'static str, value: &T) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|error| Error::Unstorable {
        what,
        why: error.to_string(),
    })
}

impl FinishRow {
    /// Makes the JSON, only where it will be stored.
    pub(crate) fn new(Finished { judged, call }: Finished) -> Result<Self, Error> {
        let record = &judged.record;
        let kept = matches!(judged.outcome, Outcome::Journal | Outcome::DeadLetter);
        // Without a uuid no row can be made of it, not even a letter.
        let stored = record.uuid.is_some();
        if kept && !stored {
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
        let looked_at = stored || judged.outcome == Outcome::Internal;
        Ok(Self {
            record_json: match looked_at {
                true => json("a call record", record)?,
                false => String::new(),
            },
            call_json: match stored {
                true => json("a finished call", &call)?,
                false => String::new(),
            },
            judged,
            call,
        })
    }

    pub(crate) fn uuid(&self) -> Option<[u8; 16]> {
        self.judged.record.uuid.map(|uuid| uuid.0.into_bytes())
    }

    /// The second that it began in, as the PBX has it.
    pub(crate) fn started(&self) -> i64 {
        self.call.started.floor_seconds().get()
    }

    /// From its start to its end.
    pub(crate) fn span_micros(&self) -> i64 {
        let (started, ended) = (self.call.started.micros(), self.call.ended.micros());
        ended.saturating_sub(started)
    }

    pub(crate) fn phone(&self) -> Option<&str> {
        self.judged.record.client_phone.as_ref().map(Phone::as_str)
    }

    /// The customer's number as it was received.
    pub(crate) fn heard(&self) -> Option<&str> {
        self.call.number.as_ref().map(|number| number.text.as_str())
    }

    /// The trunk's name; empty of a call between extensions.
    pub(crate) fn trunk(&self) -> &str {
        let record = &self.judged.record;
        match record.direction {
            Direction::Internal => "",
            Direction::Inbound | Direction::Outbound => record.trunk.as_deref().unwrap_or(""),
        }
    }

    /// Where it goes first.
    pub(crate) fn state(&self) -> State {
        match self.judged.outcome {
            Outcome::Journal => State::Ready,
            _ if self.judged.reason.is_some_and(Reason::is_parked) => State::Parked,
            _ => State::Dead,
        }
    }

    fn same_start(&self, started: i64) -> bool {
        self.started().abs_diff(started) <= SAME_START_SEC
    }
}

/// What tells two calls of one uuid apart. A number that is not known is no other number.
struct DuplicateCandidate {
    row: RowId,
    started: i64,
    phone: Option<String>,
    heard: Option<String>,
}

impl DuplicateCandidate {
    fn is(&self, new: &FinishRow) -> bool {
        let same = |a: &Option<String>, b: Option<&str>| Some(a.as_deref()? == b?);
        let numbers = (
            same(&self.phone, new.phone()),
            same(&self.heard, new.heard()),
        );
        let number = match numbers {
            (None, None) => true,
            (phone, heard) => phone == Some(true) || heard == Some(true),
        };
        number && new.same_start(self.started)
    }
}

pub(crate) fn finish(store: &mut Store, new: &FinishRow) -> Result<Done, Error> {
    let seen = seen_calls::mark_seen(store, new)?;
    let done = match new.judged.outcome {
        Outcome::Internal | Outcome::Skipped => count_only(store, new, &seen),
        Outcome::Journal | Outcome::DeadLetter => keep(store, new, &seen),
    }?;
    if matches!(done, Done::New(_) | Done::Counted | Done::Conflict(_)) {
        missed::note(store, new)?;
        trunk_calls::note(store, new)?;
    }
    Ok(done)
}

fn count_only(store: &mut Store, new: &FinishRow, seen: &SeenBefore) -> Result<Done, Error> {
    let book = if new.judged.outcome == Outcome::Internal {
        Book::Internal
    } else {
        Book::Skipped
    };
    match seen {
        SeenBefore::Before { started } if new.same_start(*started) => repeated(store, None),
        SeenBefore::Before { .. } if new.uuid().is_some() => conflict(store, new),
        SeenBefore::Before { .. } | SeenBefore::Now => {
            store.tally.add(book, 1);
            if new.judged.outcome == Outcome::Internal {
                listed::keep_internal(store, new)?;
            }
            Ok(Done::Counted)
        }
    }
}

fn keep(store: &mut Store, new: &FinishRow, seen: &SeenBefore) -> Result<Done, Error> {
    if let SeenBefore::Before { started } = seen {
        if let Some(done) = correct::corrected(store, new)? {
            seen_calls::mark_aliases_seen(store, new)?;
            correct::give_up_parts(store, new)?;
            return Ok(done);
        }
        return match known(store, new)? {
            Some(known) if known.is(new) => repeated(store, Some(known.row)),
            Some(_) => conflict(store, new),
            None if new.same_start(*started) => repeated(store, None),
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
    match known(store, new)? {
        Some(known) if known.is(new) => repeated(store, Some(known.row)),
        Some(_) | None => conflict(store, new),
    }
}

fn repeated(store: &mut Store, row: Option<RowId>) -> Result<Done, Error> {
    store.tally.count(REPEATS, 1);
    Ok(Done::Repeat(row))
}

/// Another call under a known uuid. If it came before, it is a repeat of that letter.
fn conflict(store: &mut Store, new: &FinishRow) -> Result<Done, Error> {
    for twin in twins(store, new)? {
        if twin.is(new) {
            return repeated(store, Some(twin.row));
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

/// `None` when the uuid is taken.
fn insert(
    store: &mut Store,
    new: &FinishRow,
    state: State,
    reason: Option<Reason>,
    message: &str,
    twin: bool,
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
            if twin { None } else { uuid },
            if twin { uuid } else { None },
            state.word(),
            new.judged.live,
            new.judged.judged_at.micros(),
            new.started(),
            new.phone(),
            new.heard(),
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
    store.tally.add(Book::Of(state), 1);
    store.tally.moved(id);
    if letter {
        outbox::queue_notice(store, id)?;
    }
    Ok(Some(id))
}

fn known(db: &Db, new: &FinishRow) -> Result<Option<DuplicateCandidate>, Error> {
    db.query_first(
        "SELECT id, started, phone, heard FROM calls WHERE uuid = ?1",
        [new.uuid()],
        read_known,
    )
}

fn twins(db: &Db, new: &FinishRow) -> Result<Vec<DuplicateCandidate>, Error> {
    db.query_all(
        "SELECT id, started, phone, heard FROM calls WHERE twin = ?1",
        [new.uuid()],
        read_known,
    )
}

fn read_known(row: &rusqlite::Row<'_>) -> rusqlite::Result<DuplicateCandidate> {
    Ok(DuplicateCandidate {
        row: row.get(0)?,
        started: row.get(1)?,
        phone: row.get(2)?,
        heard: row.get(3)?,
    })
}
