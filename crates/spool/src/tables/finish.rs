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
use crate::tables::seen_calls::Buried;
use callbridge_call::timeline::{Role, Timeline, Way};
use callbridge_call::{Direction, EventTime, FinishedCall};
use callbridge_model::{CallUuid, Judged, LeadId, Outcome, Reason};

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
    pub(crate) customer: CustomerColumns,
}

/// What is counted of a call beside its row.
#[derive(Debug)]
pub(crate) struct CustomerColumns {
    pub(crate) direction: Direction,
    pub(crate) answered: bool,
    trunk: Option<String>,
    pub(crate) lead: Option<i64>,
    /// When it began, as the journal has it: in seconds.
    pub(crate) at: i64,
    pub(crate) duration_sec: i64,
    pub(crate) has_extension: bool,
    pub(crate) has_employee: bool,
    pub(crate) kept_out_unanswered: bool,
    /// Extensions that rang, separated by spaces, of a call that is kept out.
    pub(crate) rang: String,
}

impl CustomerColumns {
    fn new(judged: &Judged, call: &FinishedCall) -> Self {
        let record = &judged.record;
        let kept_out_unanswered = judged.kept_out_unanswered;
        let judged_by_people = judged.outcome != Outcome::Skipped;
        Self {
            direction: record.direction,
            answered: record.answered,
            trunk: record.trunk.clone(),
            lead: record.lead_id.map(LeadId::get),
            at: record.started_at.get(),
            duration_sec: i64::from(record.duration_sec),
            has_extension: judged_by_people && record.employee.is_some(),
            has_employee: record.employee_id.is_some(),
            kept_out_unanswered,
            rang: match kept_out_unanswered {
                true => rang(call.timeline.as_ref()).join(" "),
                false => String::new(),
            },
        }
    }

    /// Its name; empty of a call between extensions.
    pub(crate) fn trunk(&self) -> &str {
        match self.direction {
            Direction::Internal => "",
            Direction::Inbound | Direction::Outbound => self.trunk.as_deref().unwrap_or(""),
        }
    }
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
            customer: CustomerColumns::new(judged, call),
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
struct Twin {
    row: RowId,
    started: i64,
    phone: Option<String>,
    heard: Option<String>,
}

impl Twin {
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

pub(crate) fn finish(store: &mut Store, new: &FinishRow) -> Result<Done, Error> {
    let buried = seen_calls::bury(
        store,
        &new.pbx,
        &new.linkedid,
        &new.aliases,
        new.uuid,
        new.started,
        new.at,
    )?;
    let done = match new.outcome {
        Outcome::Internal | Outcome::Skipped => count_only(store, new, &buried),
        Outcome::Journal | Outcome::DeadLetter => keep(store, new, &buried),
    }?;
    if matches!(done, Done::New(_) | Done::Counted | Done::Conflict(_)) {
        missed::note(store, new)?;
        trunk_calls::note(store, new)?;
    }
    Ok(done)
}

fn count_only(store: &mut Store, new: &FinishRow, buried: &Buried) -> Result<Done, Error> {
    let book = if new.outcome == Outcome::Internal {
        Book::Internal
    } else {
        Book::Skipped
    };
    match buried {
        Buried::Before { started } if new.same_start(*started) => repeated(store, None),
        Buried::Before { .. } if new.uuid.is_some() => conflict(store, new),
        Buried::Before { .. } | Buried::Now => {
            store.tally.add(book, 1);
            if new.outcome == Outcome::Internal {
                listed::keep_internal(store, new)?;
            }
            Ok(Done::Counted)
        }
    }
}

fn keep(store: &mut Store, new: &FinishRow, buried: &Buried) -> Result<Done, Error> {
    if let Buried::Before { started } = buried {
        if let Some(done) = correct::corrected(store, new)? {
            seen_calls::bury_aliases(store, new)?;
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
    if let Some(row) = insert(store, new, new.state(), new.reason, &new.message, false)? {
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
        new.pbx, new.linkedid
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
    let uuid = new.uuid.map(|uuid| uuid.0.into_bytes());
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
    store.tally.add(Book::Finished, 1);
    store.tally.add(Book::Of(state), 1);
    store.tally.moved(id);
    if letter {
        outbox::queue_notice(store, id)?;
    }
    Ok(Some(id))
}

fn known(db: &Db, new: &FinishRow) -> Result<Option<Twin>, Error> {
    let uuid = new.uuid.map(|uuid| uuid.0.into_bytes());
    db.query_first(
        "SELECT id, started, phone, heard FROM calls WHERE uuid = ?1",
        [uuid],
        read_known,
    )
}

fn twins(db: &Db, new: &FinishRow) -> Result<Vec<Twin>, Error> {
    let uuid = new.uuid.map(|uuid| uuid.0.into_bytes());
    db.query_all(
        "SELECT id, started, phone, heard FROM calls WHERE twin = ?1",
        [uuid],
        read_known,
    )
}

fn read_known(row: &rusqlite::Row<'_>) -> rusqlite::Result<Twin> {
    Ok(Twin {
        row: RowId(row.get(0)?),
        started: row.get(1)?,
        phone: row.get(2)?,
        heard: row.get(3)?,
    })
}
