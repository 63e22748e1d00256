//! Lists calls by time and by number, with a bounded index scan for each page. Also lists the
//! newest calls between extensions.

use crate::finished::Finished;
use crate::value::{Value, Values};
use crate::{Db, Error, INTERNAL_KEPT, INTERNAL_KEPT_FOR, RowId, State, Store};
use callbridge_call::EventTime;
use callbridge_model::{CallRecord, Reason, TypedNumber};
use serde::Deserialize;
use std::fmt;

/// Maximum number of rows read for a page, including those that don't match the filter.
const WALKED: usize = 500;
const COLUMNS: &str = "true AS place, id, started, state, reason, phone, trunk, record";

#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// The call's ID. Calls between extensions have numbers of their own.
    pub id: RowId,
    /// The call's state, or `None` for a call between extensions.
    pub state: Option<State>,
    /// Why the call is a dead letter or waiting, or `None` for any other call.
    pub reason: Option<Reason>,
    /// The values that are, were, or would be sent to the CRM.
    pub record: CallRecord,
}

impl Listed {
    /// Returns the name of the call's state, or `internal` for a call between extensions.
    pub fn state_word(&self) -> &'static str {
        self.state.map_or("internal", State::word)
    }

    /// Returns the call's UUID as text, or an empty string if it has none.
    pub fn uuid(&self) -> String {
        let uuid = self.record.uuid.map(|uuid| uuid.to_string());
        uuid.unwrap_or_default()
    }
}

/// Selects calls. Conditions that are `None` match every call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallFilter {
    /// Only calls that started at or after this epoch second.
    pub from: Option<i64>,
    /// Only calls that started before this epoch second.
    pub until: Option<i64>,
    /// Only calls with this customer number.
    pub phone: Option<TypedNumber>,
    pub trunk: Option<String>,
    /// Only calls in this state, which excludes calls between extensions.
    pub state: Option<State>,
    /// Only calls that are attributed to this extension, or in which it reportedly talked.
    pub extension: Option<String>,
}

impl CallFilter {
    /// Returns `true` if the call meets all conditions.
    pub fn matches(&self, call: &Listed) -> bool {
        let started = call.record.started_at.get();
        let phone = call.record.client_phone.as_ref();
        self.from.is_none_or(|from| started >= from)
            && self.until.is_none_or(|until| started < until)
            && (self.state.is_none() || self.state == call.state)
            && self
                .phone
                .as_ref()
                .is_none_or(|typed| phone.is_some_and(|phone| typed.matches(phone)))
            && self.matches_trunk(&call.record)
            && self.matches_extension(&call.record)
    }

    fn matches_trunk(&self, record: &CallRecord) -> bool {
        self.trunk.is_none() || self.trunk == record.trunk
    }

    fn matches_extension(&self, record: &CallRecord) -> bool {
        let Some(wanted) = &self.extension else {
            return true;
        };
        record
            .employees_in_order
            .iter()
            .chain(&record.employee)
            .any(|extension| extension == wanted)
    }

    /// Returns the place before the first call that could match.
    pub fn beginning(&self) -> Place {
        let started = self.from.unwrap_or(i64::MIN);
        let id = i64::MIN;
        Place { started, id }
    }

    fn end(&self) -> i64 {
        self.until.unwrap_or(i64::MAX)
    }
}

/// A place in a list. Calls are sorted by start time, and then by ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct Place {
    started: i64,
    id: i64,
}

impl Place {
    /// The place after the last call.
    pub const END: Self = Self {
        started: i64::MAX,
        id: i64::MAX,
    };

    /// Parses a place from its displayed form, returning `None` if it isn't valid.
    pub fn read(text: &str) -> Option<Self> {
        let (started, id) = text.split_once('.')?;
        Some(Self {
            started: started.parse().ok()?,
            id: id.parse().ok()?,
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.started, self.id)
    }
}

/// A row as stored. State, reason, and phone are `None` for calls between extensions.
#[derive(Deserialize)]
struct ListedColumns {
    id: RowId,
    place: Place,
    state: Option<State>,
    reason: Option<Reason>,
    phone: Option<String>,
    trunk: Option<String>,
    record: String,
}

impl ListedColumns {
    /// Returns `true` if the columns match the filter. This doesn't need the record, whose JSON is
    /// slow to parse.
    fn matches(&self, filter: &CallFilter) -> bool {
        let phone = self.phone.as_deref();
        filter
            .phone
            .as_ref()
            .is_none_or(|typed| phone.is_some_and(|phone| typed.matches_e164(phone)))
            && (filter.state.is_none() || filter.state == self.state)
            && (filter.trunk.is_none() || filter.trunk == self.trunk)
    }

    fn read(&self, db: &Db) -> Result<Listed, Error> {
        let is_letter = self.state.is_some_and(State::is_letter);
        Ok(Listed {
            id: self.id,
            state: self.state,
            reason: if is_letter { self.reason } else { None },
            record: db.read_json(self.id, &self.record)?,
        })
    }
}

/// Returns a page of calls after this place, oldest first, and the place where the next page
/// begins, or `None` if this is the last page. A page may be empty even though more follow.
pub fn list_calls(
    db: &Db,
    filter: &CallFilter,
    after: Place,
) -> Result<(Vec<Listed>, Option<Place>), Error> {
    let order = "(started, id) > (?1, ?2) AND started < ?3 ORDER BY started, id";
    page(db, filter, order, after, filter.end(), WALKED)
}

/// Returns a page of up to `most` calls before this place, newest first, and the place where the
/// next page begins, or `None` if this is the last page. A page may be empty even though more
/// follow.
pub fn list_calls_back(
    db: &Db,
    filter: &CallFilter,
    before: Place,
    most: usize,
) -> Result<(Vec<Listed>, Option<Place>), Error> {
    let order = "(started, id) < (?1, ?2) AND started >= ?3 ORDER BY started DESC, id DESC";
    // Calls that started at or after the filter's end aren't read.
    let end = Place {
        started: filter.end(),
        id: i64::MIN,
    };
    let from = filter.from.unwrap_or(i64::MIN);
    page(db, filter, order, before.min(end), from, most)
}

/// Returns the calls affected by the next `limit` moves (new calls and state changes) after the
/// first `seen` ones, along with the new value of `seen`.
///
/// Each call is listed once, in its current state. Returns `None` if some of the moves are no
/// longer remembered because more than 16,384 have been added since.
pub fn moved_since(
    store: &Store,
    seen: u64,
    limit: usize,
) -> Result<Option<(Vec<Listed>, u64)>, Error> {
    let text = format!("SELECT {COLUMNS} FROM calls WHERE id = ?1");
    (store.moved).read_since(seen, limit, |id| {
        let found: Option<ListedColumns> = store.query_first(&text, [id.0])?;
        found.map(|raw| raw.read(store)).transpose()
    })
}

fn page(
    db: &Db,
    filter: &CallFilter,
    order: &str,
    Place { started, id }: Place,
    bound: i64,
    most: usize,
) -> Result<(Vec<Listed>, Option<Place>), Error> {
    let last_four = filter.phone.as_ref().map(TypedNumber::last_four);
    let mut values = Vec::from([started, id, bound].map(Value::Integer));
    let mut number = "";
    if let Some(last_four) = last_four {
        values.push(Value::Text(last_four));
        number = "phone_ending = ?4 AND ";
    }
    let text = format!("SELECT {COLUMNS} FROM calls WHERE {number}{order} LIMIT {WALKED}");
    let rows: Vec<ListedColumns> = db.query_all(&text, &*values)?;
    let next = next_page(&rows);
    let mut calls = Vec::new();
    for raw in rows {
        if !raw.matches(filter) {
            continue;
        }
        let call = raw.read(db)?;
        if filter.matches_extension(&call.record) {
            calls.push(call);
            if calls.len() == most {
                return Ok((calls, Some(raw.place)));
            }
        }
    }
    Ok((calls, next))
}

/// Returns the place of the last row read, where the next page begins, or `None` if there are no
/// more rows.
fn next_page(walked: &[ListedColumns]) -> Option<Place> {
    if walked.len() != WALKED {
        return None;
    }
    walked.last().map(|last| last.place)
}

/// Returns the start time of the newest stored call that didn't start after `now`, if there is one.
pub fn newest_start(db: &Db, now: i64) -> Result<Option<i64>, Error> {
    let text = "SELECT started FROM calls WHERE started <= ?1 ORDER BY started DESC LIMIT 1";
    db.query_first(text, [now])
}

/// Stores a call between extensions, keeping only the thousand newest.
pub(crate) fn keep_internal(db: &Db, new: &Finished) -> Result<(), Error> {
    let text = "INSERT INTO internal_calls (started, record) VALUES (?1, ?2) RETURNING id";
    let newest: i64 = db.query_one(text, (new.started(), &new.record_json))?;
    let text = "DELETE FROM internal_calls WHERE id <= ?1";
    db.run(text, [newest - INTERNAL_KEPT])
}

pub(crate) fn purge_internal(db: &Db, now: EventTime) -> Result<(), Error> {
    let before = now.minus(INTERNAL_KEPT_FOR).floor_seconds().get();
    db.run("DELETE FROM internal_calls WHERE started < ?1", [before])
}

/// Returns a page of calls between extensions, like [`list_calls`]. Only the filter's `until`
/// applies.
pub fn list_internal(
    db: &Db,
    filter: &CallFilter,
    after: Place,
) -> Result<(Vec<Listed>, Option<Place>), Error> {
    let rule = "(started, id) > (?1, ?2) AND started < ?3 ORDER BY started, id";
    let (rows, calls) = internal(db, rule, (after.started, after.id, filter.end()))?;
    Ok((calls, next_page(&rows)))
}

/// Returns the calls between extensions that were stored after the one with this ID, oldest first,
/// along with the ID of the last one returned. If even the newest ID is below `id`, the IDs must
/// have restarted, so this starts over from the first call.
pub fn internal_since(db: &Db, id: i64) -> Result<(Vec<Listed>, i64), Error> {
    let after = if newest_internal(db)? < id { 0 } else { id };
    let (rows, calls) = internal(db, "id > ?1 ORDER BY id", [after])?;
    Ok((calls, rows.last().map_or(after, |last| last.id.0)))
}

/// Returns the ID of the newest stored call between extensions, or 0 if there is none.
pub fn newest_internal(db: &Db) -> Result<i64, Error> {
    db.query_one("SELECT coalesce(max(id), 0) FROM internal_calls", ())
}

fn internal(
    db: &Db,
    rule: &str,
    values: impl Values,
) -> Result<(Vec<ListedColumns>, Vec<Listed>), Error> {
    let text = format!(
        "SELECT true AS place, id, started, record FROM internal_calls WHERE {rule} LIMIT {WALKED}"
    );
    let rows: Vec<ListedColumns> = db.query_all(&text, values)?;
    let calls = rows
        .iter()
        .map(|raw| raw.read(db))
        .collect::<Result<_, _>>()?;
    Ok((rows, calls))
}
