//! Calls as people list them: by time and by number, each page a bounded walk over an index; and
//! calls between extensions, of which the last are kept.

use super::finish::FinishRow;
use crate::Db;
use crate::{Error, INTERNAL_KEPT, INTERNAL_KEPT_FOR, RowId, State};
use callbridge_call::EventTime;
use callbridge_model::{CallRecord, Reason, TypedNumber};
use std::fmt;

/// Rows that one page walks over, whether it gives them or not.
const WALKED: usize = 500;
const COLUMNS: &str = "id, started, state, reason, phone, record";

/// A call in a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// Its id; of an internal call in a row of its own.
    pub id: RowId,
    /// Where it stands; `None` for a call between extensions.
    pub state: Option<State>,
    /// Why it is a letter.
    pub reason: Option<Reason>,
    /// The call.
    pub record: CallRecord,
}

impl Listed {
    /// Where it stands in a word.
    pub fn state_word(&self) -> &'static str {
        self.state.map_or("internal", State::word)
    }

    /// Its uuid as text; empty without one.
    pub fn uuid(&self) -> String {
        let uuid = self.record.uuid.map(|uuid| uuid.to_string());
        uuid.unwrap_or_default()
    }
}

/// Which calls; all of them without any rule.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallFilter {
    /// Begun at this second or later.
    pub from: Option<i64>,
    /// Begun before this second.
    pub until: Option<i64>,
    /// With this number.
    pub phone: Option<TypedNumber>,
    /// On this trunk.
    pub trunk: Option<String>,
    /// Standing so.
    pub state: Option<State>,
    /// Put down to this extension, or told to have talked at it.
    pub extension: Option<String>,
}

impl CallFilter {
    /// Is this call one of them?
    pub fn takes(&self, call: &Listed) -> bool {
        let started = call.record.started_at.get();
        let phone = call.record.client_phone.as_ref();
        self.from.is_none_or(|from| started >= from)
            && self.until.is_none_or(|until| started < until)
            && self.takes_state(call.state)
            && (self.phone.as_ref()).is_none_or(|typed| phone.is_some_and(|it| typed.is(it)))
            && self.takes_trunk(&call.record)
            && self.takes_extension(&call.record)
    }

    fn takes_state(&self, state: Option<State>) -> bool {
        self.state.is_none() || self.state == state
    }

    fn takes_trunk(&self, record: &CallRecord) -> bool {
        self.trunk.is_none() || self.trunk == record.trunk
    }

    fn takes_extension(&self, record: &CallRecord) -> bool {
        let Some(wanted) = &self.extension else {
            return true;
        };
        let mut met = record.employees_in_order.iter().chain(&record.employee);
        met.any(|extension| extension == wanted)
    }

    /// Before the first of them.
    pub fn beginning(&self) -> Place {
        let started = self.from.unwrap_or(i64::MIN);
        let id = i64::MIN;
        Place { started, id }
    }

    fn end(&self) -> i64 {
        self.until.unwrap_or(i64::MAX)
    }
}

/// A place in a list: calls stand by their beginning, then by their ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    started: i64,
    id: i64,
}

impl Place {
    /// After the last of all.
    pub const END: Self = Self {
        started: i64::MAX,
        id: i64::MAX,
    };

    /// As it is displayed; `None` for what is no place.
    pub fn read(text: &str) -> Option<Self> {
        let (started, id) = text.split_once('.')?;
        let (started, id) = (started.parse().ok()?, id.parse().ok()?);
        Some(Self { started, id })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.started, self.id)
    }
}

/// A row as SQLite has it.
struct ListedColumns {
    place: Place,
    state: String,
    reason: Option<String>,
    phone: Option<String>,
    record: String,
}

fn raw(row: &rusqlite::Row<'_>) -> rusqlite::Result<ListedColumns> {
    let (id, started) = (row.get(0)?, row.get(1)?);
    Ok(ListedColumns {
        place: Place { started, id },
        state: row.get(2)?,
        reason: row.get(3)?,
        phone: row.get(4)?,
        record: row.get(5)?,
    })
}

/// A page of calls after this place, oldest first, and the place where the next one begins;
/// `None` at the end. A page may be empty though others follow.
pub fn listed(
    db: &Db,
    filter: &CallFilter,
    after: Place,
) -> Result<(Vec<Listed>, Option<Place>), Error> {
    let (started, id, end) = (after.started, after.id, filter.end());
    let rows: Vec<ListedColumns> = match &filter.phone {
        None => {
            let rows: Vec<ListedColumns> = db.query_all(
                &format!(
                    "SELECT {COLUMNS} FROM calls
                 WHERE (started, id) > (?1, ?2) AND started < ?3
                 ORDER BY started, id LIMIT {WALKED}"
                ),
                (started, id, end),
                raw,
            )?;
            rows
        }
        Some(typed) => {
            let rows: Vec<ListedColumns> = db.query_all(
                &format!(
                    "SELECT {COLUMNS} FROM calls
                 WHERE substr(phone, -4) = ?1 AND phone IS NOT NULL
                 AND (started, id) > (?2, ?3) AND started < ?4
                 ORDER BY started, id LIMIT {WALKED}"
                ),
                (typed.last_four(), started, id, end),
                raw,
            )?;
            rows
        }
    };
    page(db, filter, rows, WALKED)
}

/// The same before this place, newest first, and no more than `most` of them.
pub fn listed_back(
    db: &Db,
    filter: &CallFilter,
    before: Place,
    most: usize,
) -> Result<(Vec<Listed>, Option<Place>), Error> {
    let (started, id) = (before.started, before.id);
    let from = filter.from.unwrap_or(i64::MIN);
    // Calls that began at the end or later are not walked over.
    let (started, id) = (started, id).min((filter.end(), i64::MIN));
    let rows: Vec<ListedColumns> = match &filter.phone {
        None => db.query_all(
            &format!(
                "SELECT {COLUMNS} FROM calls
                 WHERE (started, id) < (?1, ?2) AND started >= ?3
                 ORDER BY started DESC, id DESC LIMIT {WALKED}"
            ),
            (started, id, from),
            raw,
        )?,
        Some(typed) => db.query_all(
            &format!(
                "SELECT {COLUMNS} FROM calls
                 WHERE substr(phone, -4) = ?1 AND phone IS NOT NULL
                 AND (started, id) < (?2, ?3) AND started >= ?4
                 ORDER BY started DESC, id DESC LIMIT {WALKED}"
            ),
            (typed.last_four(), started, id, from),
            raw,
        )?,
    };
    page(db, filter, rows, most)
}

/// One call as it stands in a list; `None` for an id that is none.
pub(crate) fn listed_call(db: &Db, row: RowId) -> Result<Option<Listed>, Error> {
    let raw = db.query_first(
        &format!("SELECT {COLUMNS} FROM calls WHERE id = ?1"),
        [row.0],
        raw,
    )?;
    raw.map(|raw| listed_of(db, &raw)).transpose()
}

fn page(
    db: &Db,
    filter: &CallFilter,
    rows: Vec<ListedColumns>,
    most: usize,
) -> Result<(Vec<Listed>, Option<Place>), Error> {
    let next = rows.last().map(|raw| raw.place);
    let next = next.filter(|_| rows.len() == WALKED);
    let mut calls = Vec::new();
    for raw in rows {
        // What a column shows is not read out of the record.
        let ends = |typed: &TypedNumber| raw.phone.as_deref().is_some_and(|it| typed.ends(it));
        if !filter.phone.as_ref().is_none_or(ends)
            || filter.state.is_some_and(|state| state.word() != raw.state)
        {
            continue;
        }
        let call = listed_of(db, &raw)?;
        if filter.takes_trunk(&call.record) && filter.takes_extension(&call.record) {
            calls.push(call);
            if calls.len() == most {
                return Ok((calls, Some(raw.place)));
            }
        }
    }
    Ok((calls, next))
}

fn listed_of(db: &Db, raw: &ListedColumns) -> Result<Listed, Error> {
    let id = RowId(raw.place.id);
    let state = db.read_state(id, &raw.state)?;
    let letter = matches!(state, State::Dead | State::Parked);
    let reason = raw.reason.as_deref().filter(|_| letter);
    Ok(Listed {
        id,
        state: Some(state),
        reason: reason.map(|word| db.read_reason(id, word)).transpose()?,
        record: db.read_json(id, &raw.record)?,
    })
}

/// When the newest call began that is kept, of those that began by now; `None` without any.
pub fn newest_start(db: &Db, now: i64) -> Result<Option<i64>, Error> {
    db.first_value(
        "SELECT started FROM calls WHERE started <= ?1 ORDER BY started DESC LIMIT 1",
        [now],
    )
}

/// Keeps a call between extensions; the oldest beyond the last thousand goes.
pub(crate) fn keep_internal(db: &Db, new: &FinishRow) -> Result<(), Error> {
    db.execute(
        "INSERT INTO internal_calls (started, record) VALUES (?1, ?2)",
        (new.started(), &new.record_json),
    )?;
    let oldest = db.connection.last_insert_rowid() - INTERNAL_KEPT;
    db.execute("DELETE FROM internal_calls WHERE id <= ?1", [oldest])?;
    Ok(())
}

pub(crate) fn purge_internal(db: &Db, now: EventTime) -> Result<(), Error> {
    let before = now.minus(INTERNAL_KEPT_FOR).floor_seconds().get();
    db.execute("DELETE FROM internal_calls WHERE started < ?1", [before])?;
    Ok(())
}

/// A page of calls between extensions; as [`listed`].
pub fn listed_internal(
    db: &Db,
    filter: &CallFilter,
    after: Place,
) -> Result<(Vec<Listed>, Option<Place>), Error> {
    let rows: Vec<(Place, String)> = db.query_all(
        &format!(
            "SELECT id, started, record FROM internal_calls
         WHERE (started, id) > (?1, ?2) AND started < ?3
         ORDER BY started, id LIMIT {WALKED}"
        ),
        (after.started, after.id, filter.end()),
        internal,
    )?;
    let next = rows.last().map(|(place, _)| *place);
    let next = next.filter(|_| rows.len() == WALKED);
    Ok((internal_calls(db, &rows)?, next))
}

/// Calls between extensions kept after the one with this id, oldest first, and the id of the
/// last of them.
pub fn internal_since(db: &Db, id: i64) -> Result<(Vec<Listed>, i64), Error> {
    let rows: Vec<(Place, String)> = db.query_all(
        &format!(
            "SELECT id, started, record FROM internal_calls WHERE id > ?1
         ORDER BY id LIMIT {WALKED}"
        ),
        [id],
        internal,
    )?;
    let last = rows.last().map_or(id, |(place, _)| place.id);
    Ok((internal_calls(db, &rows)?, last))
}

/// The id of the newest call between extensions that is kept; 0 without any.
pub fn newest_internal(db: &Db) -> Result<i64, Error> {
    Ok(db
        .first_value("SELECT id FROM internal_calls ORDER BY id DESC LIMIT 1", [])?
        .unwrap_or(0))
}

fn internal_calls(db: &Db, rows: &[(Place, String)]) -> Result<Vec<Listed>, Error> {
    let call = |(place, record): &(Place, String)| {
        let id = RowId(place.id);
        Ok(Listed {
            id,
            state: None,
            reason: None,
            record: db.read_json(id, record)?,
        })
    };
    rows.iter().map(call).collect()
}

fn internal(row: &rusqlite::Row<'_>) -> rusqlite::Result<(Place, String)> {
    let (id, started) = (row.get(0)?, row.get(1)?);
    Ok((Place { started, id }, row.get(2)?))
}
