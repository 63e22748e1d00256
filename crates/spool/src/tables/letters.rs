//! Dead letters, waiting calls, and unreadable messages, along with what users did about them.

use crate::finished::last_four;
use crate::value::Value;
use crate::{
    ACTIONS_MAX, Action, Attempt, Book, Db, Error, Json, LETTERS_PAGE, LISTED_BYTES_MAX, Letter,
    LetterFilter, RowId, State, Store, UNREADABLE_BYTES_MAX, count,
};
use callbridge_model::{EmployeeId, LeadId, Phone, Reason};
use serde_json::json;
use std::collections::BTreeMap;

/// Returns a filter's SQL conditions, order, and limit, along with their values. The SQL varies as
/// little as possible so that prepared statements are reused.
fn conditions(filter: &LetterFilter, limit: usize) -> (String, Vec<Value<'static>>) {
    let mut text = String::new();
    let mut values = Vec::new();
    if let Some(ids) = &filter.ids {
        let numbers: Vec<String> = (1..=ids.len()).map(|number| format!("?{number}")).collect();
        text.push_str(&format!(" AND id IN ({})", numbers.join(", ")));
        values.extend(ids.iter().map(|id| Value::Integer(id.0)));
    }
    if let Some(after) = filter.after {
        values.push(Value::Integer(after.0));
        text.push_str(&format!(" AND id > ?{}", values.len()));
    }
    if let Some(reason) = filter.reason.filter(|reason| *reason != Reason::Unreadable) {
        values.push(Value::Text(reason.word()));
        text.push_str(&format!(" AND reason = ?{}", values.len()));
    }
    let mut order = "id";
    if let Some(before) = filter.before {
        values.push(Value::Integer(before.0));
        text.push_str(&format!(" AND id < ?{}", values.len()));
        order = "id DESC";
    }
    values.push(Value::Integer(count(limit)));
    text.push_str(&format!(" ORDER BY {order} LIMIT ?{}", values.len()));
    (text, values)
}

/// Reads a page of dead letters and waiting calls by ascending ID, or by descending ID with
/// [`LetterFilter::before`].
pub fn letters(db: &Db, filter: &LetterFilter) -> Result<Vec<Letter>, Error> {
    let limit = match filter.limit {
        0 => LETTERS_PAGE,
        limit => limit,
    };
    let mut letters = Vec::new();
    if filter.reason != Some(Reason::Unreadable) {
        letters = call_letters(db, filter, limit)?;
    }
    let may_be_unreadable = filter.state != Some(State::Waiting)
        && matches!(filter.reason, None | Some(Reason::Unreadable));
    if may_be_unreadable {
        letters.extend(unread_letters(db, filter, limit, LISTED_BYTES_MAX)?);
    }
    letters.sort_by_key(|letter| letter.id);
    if filter.before.is_some() {
        letters.reverse();
    }
    letters.truncate(limit);
    Ok(letters)
}

/// Reads a dead letter or waiting call, or returns `None` if `id` is neither. An unreadable message
/// comes with all of the bytes that were kept.
pub fn letter(db: &Db, id: RowId) -> Result<Option<Letter>, Error> {
    let filter = LetterFilter {
        ids: Some(vec![id]),
        ..LetterFilter::default()
    };
    if let Some(letter) = call_letters(db, &filter, 1)?.pop() {
        return Ok(Some(letter));
    }
    Ok(unread_letters(db, &filter, 1, UNREADABLE_BYTES_MAX)?.pop())
}

/// Returns up to `limit` of a number's newest dead letters that the CRM refused. A different lead
/// may be all they need.
pub fn refused_calls(db: &Db, phone: &Phone, limit: usize) -> Result<Vec<RowId>, Error> {
    let text = "SELECT id FROM calls
         WHERE phone_ending = ?1 AND phone = ?2 AND state = 'dead'
         AND reason IN ('failed', 'rejected') ORDER BY started DESC, id DESC LIMIT ?3";
    let ending = last_four(phone.as_str());
    let ids: Vec<i64> = db.query_all(text, (ending, phone.as_str(), count(limit)))?;
    Ok(ids.into_iter().map(RowId).collect())
}

/// Counts the calls waiting for a lead or employee, by reason.
pub fn waiting_by_reason(db: &Db) -> Result<BTreeMap<Reason, u64>, Error> {
    by_reason(db, State::Waiting)
}

fn by_reason(db: &Db, state: State) -> Result<BTreeMap<Reason, u64>, Error> {
    let text = "SELECT reason, count FROM reason_counts WHERE state = ?1 AND count > 0";
    Ok(db.query_all(text, [state.word()])?.into_iter().collect())
}

/// Counts the dead letters by reason, including kept unreadable messages.
pub fn dead_by_reason(store: &Store) -> Result<BTreeMap<Reason, u64>, Error> {
    let mut all = by_reason(store, State::Dead)?;
    let unreadable = store.tally.get(Book::UnreadableKept);
    if unreadable > 0 {
        all.insert(Reason::Unreadable, unreadable);
    }
    Ok(all)
}

fn call_letters(db: &Db, filter: &LetterFilter, limit: usize) -> Result<Vec<Letter>, Error> {
    let (rest, values) = conditions(filter, limit);
    let mut letters = Vec::new();
    for state in [State::Dead, State::Waiting] {
        if filter.state.is_some_and(|only| only != state) {
            continue;
        }
        let is_waiting = state == State::Waiting;
        let mut chosen = format!("state = '{state}'");
        if filter.reason.is_some() {
            // The index by reason covers both states.
            chosen.push_str(" AND state IN ('dead', 'waiting')");
        }
        let text = format!(
            "SELECT id, coalesce(uuid, conflicting_uuid) AS uuid, reason, {is_waiting} AS waiting,
                    since, message, finding, errors, attempts, coalesce(actions, '[]') AS actions,
                    times_dead, record AS call
             FROM calls WHERE {chosen}{rest}"
        );
        letters.extend(db.query_all::<Letter>(&text, &*values)?);
    }
    Ok(letters)
}

fn unread_letters(
    db: &Db,
    filter: &LetterFilter,
    limit: usize,
    bytes_max: usize,
) -> Result<Vec<Letter>, Error> {
    let (rest, values) = conditions(filter, limit);
    let text = format!(
        "SELECT id, 'unreadable' AS reason, false AS waiting, at AS since, why AS message,
                '[]' AS attempts, '[]' AS actions, 1 AS times_dead, source, pbx, length, file,
                CASE WHEN length(bytes) > {bytes_max} THEN substr(bytes, 1, {bytes_max})
                     ELSE bytes END AS bytes, content_type
         FROM unreadable WHERE true{rest}"
    );
    db.query_all(&text, &*values)
}

/// Adds an action to a call. Nothing is stored for an unreadable message, because retrying or
/// discarding deletes it.
pub(crate) fn note_act(db: &Db, row: RowId, act: &Action) -> Result<(), Error> {
    let mut all = actions(db, row)?;
    if all.len() >= ACTIONS_MAX {
        all.remove(1);
    }
    all.push(act.clone());
    let all = crate::json("acts", &all)?;
    db.run("UPDATE calls SET actions = ?2 WHERE id = ?1", (row.0, all))
}

/// Reads the actions on a call while it was a dead letter, oldest first.
pub fn actions(db: &Db, row: RowId) -> Result<Vec<Action>, Error> {
    let text = "SELECT coalesce(actions, '[]'), id FROM calls WHERE id = ?1";
    let acts = db.query_first(text, [row.0])?;
    Ok(acts.map_or_else(Vec::new, |Json(acts)| acts))
}

/// Reads the dead letters among the next `limit` dead letters and waiting calls after the first
/// `seen`, and returns the new value of `seen`.
///
/// Waiting calls, and calls that are no longer dead letters, are omitted. Returns `None` if some
/// are no longer remembered, because more than 65,536 have been added since.
pub fn letters_since(
    store: &Store,
    seen: u64,
    limit: usize,
) -> Result<Option<(Vec<Letter>, u64)>, Error> {
    (store.appeared).read_since(seen, limit, |id| {
        Ok(letter(store, id)?.filter(|letter| !letter.waiting))
    })
}

impl Letter {
    /// Returns the PBX's ID for the call, or `None` for unreadable bytes.
    pub fn linkedid(&self) -> Option<&str> {
        Some(&self.call.as_ref()?.linkedid)
    }

    /// Returns the customer's number, if known.
    pub fn phone(&self) -> Option<&str> {
        self.call.as_ref()?.phone()
    }

    /// Returns when the call started, in epoch seconds, or `None` for unreadable bytes.
    pub fn started_at(&self) -> Option<i64> {
        Some(self.call.as_ref()?.started_at.get())
    }

    /// Returns the extension that the call is attributed to.
    pub fn extension(&self) -> Option<String> {
        self.call.as_ref()?.employee.clone()
    }

    pub fn lead(&self) -> Option<LeadId> {
        self.call.as_ref()?.lead_id
    }

    pub fn employee(&self) -> Option<EmployeeId> {
        self.call.as_ref()?.employee_id
    }

    /// Returns `Dead` or `Waiting`.
    pub const fn state(&self) -> State {
        if self.waiting {
            State::Waiting
        } else {
            State::Dead
        }
    }

    /// Returns a line of `dead list --json`: `{"id","uuid","linkedid","reason","since","message",
    /// "errors","attempts","actions","call","fix","state"}`. Times are in epoch seconds, attempts
    /// are `{at, message}`, and actions are `{at, who, action}`. `call` is as in `explain --json`.
    /// Unreadable bytes also have `source`, `pbx`, `text` and `length`.
    pub fn to_json(&self) -> serde_json::Value {
        let mut attempts = Vec::new();
        for Attempt { at, message } in &self.attempts {
            attempts.push(json!({"at": at.floor_seconds(), "message": message}));
        }
        let mut actions = Vec::new();
        for Action { at, who, action } in &self.actions {
            actions.push(json!({"at": at.floor_seconds(), "who": who, "action": action}));
        }
        let mut line = json!({
            "id": self.id,
            "uuid": self.uuid,
            "linkedid": self.linkedid(),
            "reason": self.reason,
            "since": self.since.floor_seconds(),
            "message": self.message,
            "errors": self.errors,
            "attempts": attempts,
            "actions": actions,
            "call": self.call,
            "fix": self.fix(),
            "state": self.state(),
        });
        if self.call.is_some() {
            line["call"]["outcome"] = "dead_letter".into();
            line["call"]["reason"] = self.reason.word().into();
        }
        if let Some(unread) = &self.bytes {
            line["source"] = unread.source.as_str().into();
            line["pbx"] = unread.pbx.as_str().into();
            line["text"] = String::from_utf8_lossy(&unread.bytes).into();
            line["length"] = unread.length.into();
            line["file"] = unread.file.as_deref().into();
        }
        line
    }
}
