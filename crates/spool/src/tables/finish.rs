//! A judged call comes in. Where it is an incomplete one told again, and better, its letter is
//! corrected, as long as nobody has sent it: never are there two of one call.

use super::{listed, missed, outbox, reason_counts, seen_calls, step, trunk_calls};
use crate::db::Asked;
use crate::finished::{SAME_START_SEC, last_four, span_micros};
use crate::value::values;
use crate::{Book, Db, Done, Error, Finished, Json, Left, RowId, State, Store};
use callbridge_call::{FinishedCall, UniqueId};
use callbridge_model::{EmployeeId, LeadId, Outcome, Reason};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The counter of repeated calls.
const REPEATS: &str = "repeats";
/// The counter of dead letters that were corrected.
const CORRECTED: &str = "corrected";

/// A dead letter `incomplete` that a person must handle.
const WAITS: &str = "state = 'dead' AND reason = 'incomplete'";

/// Facts by which two calls of one uuid are distinguished. An unknown number does not differ.
#[derive(Deserialize)]
struct DuplicateCandidate {
    id: RowId,
    started: i64,
    phone: Option<String>,
    raw: Option<String>,
}

impl DuplicateCandidate {
    fn is(&self, new: &Finished) -> bool {
        let same = |a: &Option<String>, b: Option<&str>| Some(a.as_deref()? == b?);
        let phone = same(&self.phone, new.phone());
        let raw = same(&self.raw, new.raw_number());
        let number = phone == raw && raw.is_none() || [phone, raw].contains(&Some(true));
        number && new.same_start(self.started)
    }
}

/// Stores a call. `ahead` was asked before, and nothing that it depends on was stored since.
pub(crate) fn finish(
    store: &mut Store,
    new: &Finished,
    ahead: Option<Ahead>,
) -> Result<Done, Error> {
    let (is_new, of_customer) = match ahead {
        Some(ahead) => (ahead.calls.read(store)?, ahead.of_customer),
        None => (false, None),
    };
    let is_kept = matches!(new.judged.outcome, Outcome::Journal | Outcome::DeadLetter);
    let done = if is_new && is_kept {
        keep_new(store, new)
    } else {
        let seen = seen_calls::mark_seen(store, new)?;
        if is_kept {
            keep(store, new, seen)
        } else {
            count_only(store, new, seen)
        }
    }?;
    if matches!(done, Done::New(_) | Done::Counted | Done::Conflict(_)) {
        missed::note(store, new, of_customer)?;
        trunk_calls::note(store, new)?;
    }
    Ok(done)
}

/// What is asked of a call before the first one of its group is stored, so that one round trip
/// brings the answers of all.
pub(crate) struct Ahead {
    calls: CallsAhead,
    /// `None` if another call of the group has the same number.
    of_customer: Option<missed::Ahead>,
}

/// Traces of a call in earlier ones.
struct CallsAhead {
    own_id: Asked<i64>,
    same_uuid: Asked<DuplicateCandidate>,
    parts: Vec<Asked<RowId>>,
}

impl CallsAhead {
    /// Returns `true` if no earlier call has anything to do with this one.
    fn read(self, db: &Db) -> Result<bool, Error> {
        let mut is_new = self.own_id.first(db)?.is_none() && self.same_uuid.first(db)?.is_none();
        for part in self.parts {
            is_new &= part.first(db)?.is_none();
        }
        Ok(is_new)
    }
}

/// Asks what [`finish`] needs of the calls of a group, in their order. `None` for a call that has
/// an id in common with another one of the group, which can be stored first.
pub(crate) fn look_ahead(db: &Db, calls: &[&Finished]) -> Result<VecDeque<Option<Ahead>>, Error> {
    let (mut ids, mut phones) = (BTreeMap::new(), BTreeMap::new());
    for new in calls {
        for id in ids_of(new) {
            *ids.entry((new.judged.record.pbx.as_str(), id)).or_insert(0) += 1;
        }
        *phones.entry(new.phone()).or_insert(0) += 1;
    }
    let mut ahead = VecDeque::with_capacity(calls.len());
    for new in calls {
        let pbx = new.judged.record.pbx.as_str();
        if ids_of(new).any(|id| ids[&(pbx, id)] > 1) {
            ahead.push_back(None);
            continue;
        }
        ahead.push_back(Some(Ahead {
            calls: CallsAhead {
                own_id: seen_calls::ask_own(db, new)?,
                same_uuid: db.ask(SAME_UUID, [new.uuid()])?,
                parts: ask_parts(db, new)?,
            },
            of_customer: match phones[&new.phone()] {
                1 => missed::ask_ahead(db, new)?,
                _ => None,
            },
        }));
    }
    Ok(ahead)
}

/// The call's own id, and those of its channels. The uuid is made of the own id.
fn ids_of(new: &Finished) -> impl Iterator<Item = &str> {
    let own = new.judged.record.linkedid.as_str();
    let aliases = new.call.also_known_as.iter().map(UniqueId::as_str);
    aliases.filter(move |id| *id != own).chain([own])
}

/// Stores a call of which nothing is known.
fn keep_new(store: &mut Store, new: &Finished) -> Result<Done, Error> {
    seen_calls::mark_new_seen(store, new)?;
    let id = store.new_id();
    put(store, id, new, None, Put::New)?;
    count_row(store, id, new.state(), new.judged.reason)?;
    Ok(Done::New(id))
}

/// `seen`: its id was known before, with that start.
fn count_only(store: &mut Store, new: &Finished, seen: Option<i64>) -> Result<Done, Error> {
    match seen {
        Some(started) if new.same_start(started) => repeated(store, None),
        Some(_) if new.uuid().is_some() => conflict(store, new),
        Some(_) | None if new.judged.outcome == Outcome::Internal => {
            store.tally.add(Book::Internal, 1);
            listed::keep_internal(store, new)?;
            Ok(Done::Counted)
        }
        Some(_) | None => {
            store.tally.add(Book::Skipped, 1);
            Ok(Done::Counted)
        }
    }
}

fn keep(store: &mut Store, new: &Finished, seen: Option<i64>) -> Result<Done, Error> {
    if seen.is_none() {
        give_up_parts(store, new)?;
        if let Some(row) = insert(store, new, None)? {
            return Ok(Done::New(row));
        }
        // Its seen_call has expired, but its row is still stored.
    } else if let Some(done) = corrected(store, new)? {
        seen_calls::mark_aliases_seen(store, new)?;
        give_up_parts(store, new)?;
        return Ok(done);
    }
    match same_uuid(store, new)? {
        Some(known) if known.is(new) => repeated(store, Some(known.id)),
        None if seen.is_some_and(|started| new.same_start(started)) => repeated(store, None),
        Some(_) | None => conflict(store, new),
    }
}

fn repeated(store: &mut Store, row: Option<RowId>) -> Result<Done, Error> {
    store.tally.count(REPEATS, 1);
    Ok(Done::Repeat(row))
}

/// Makes a dead letter of another call under a known uuid. If it came before, it is a repeat of
/// that dead letter.
fn conflict(store: &mut Store, new: &Finished) -> Result<Done, Error> {
    for known in same_conflicting_uuid(store, new)? {
        if known.is(new) {
            return repeated(store, Some(known.id));
        }
    }
    let message = format!(
        "another call from {} came under the same id {} with another start or number",
        new.judged.record.pbx, new.judged.record.linkedid
    );
    let row = insert(store, new, Some(&message))?.map(Done::Conflict);
    row.ok_or_else(|| store.damaged("a letter without a uuid met another's".into()))
}

/// Inserts the call's row, or a dead letter of another call under its uuid, with the message of
/// this conflict. `None` if the uuid is taken.
fn insert(
    store: &mut Store,
    new: &Finished,
    conflict: Option<&str>,
) -> Result<Option<RowId>, Error> {
    let id = store.new_id();
    let state = conflict.map_or_else(|| new.state(), |_| State::Dead);
    if put(store, id, new, conflict, Put::On("(uuid) DO NOTHING"))? == 0 {
        return Ok(None);
    }
    let reason = conflict.map_or(new.judged.reason, |_| Some(Reason::UuidConflict));
    count_row(store, id, state, reason)?;
    Ok(Some(id))
}

/// Counts a new row in the books.
fn count_row(
    store: &mut Store,
    id: RowId,
    state: State,
    reason: Option<Reason>,
) -> Result<(), Error> {
    store.tally.add(Book::Finished, 1);
    store.tally.add(Book::of(state), 1);
    reason_counts::change(store, state, reason, 1)?;
    store.tally.moved.push(id);
    if state.is_letter() {
        outbox::queue_notice(store, id)?;
    }
    Ok(())
}

/// How a row is written.
#[derive(Clone, Copy)]
enum Put<'a> {
    /// No row has its id or uuid.
    New,
    /// By a conflict rule.
    On(&'a str),
}

/// Writes the call's row. Returns the number of rows.
fn put(
    db: &Db,
    id: RowId,
    new: &Finished,
    conflict: Option<&str>,
    how: Put<'_>,
) -> Result<usize, Error> {
    let (uuid, conflicting_uuid, state, reason) = match conflict {
        Some(_) => (None, new.uuid(), State::Dead, Some(Reason::UuidConflict)),
        None => (new.uuid(), None, new.state(), new.judged.reason),
    };
    let letter = state.is_letter();
    let record = &new.judged.record;
    let values = values![
        id.0,
        uuid,
        conflicting_uuid,
        state.word(),
        new.judged.live,
        new.judged.judged_at.micros(),
        record.pbx,
        new.branch.as_deref().unwrap_or(&record.pbx),
        record.linkedid,
        record.trunk,
        record.direction.word(),
        record.answered,
        new.started(),
        new.end(),
        new.phone(),
        new.phone().map(last_four),
        new.raw_number(),
        record.employee,
        record.employee_id.map(EmployeeId::get),
        record.lead_id.map(LeadId::get),
        new.record_json,
        new.call_json,
        letter,
        reason.filter(|_| letter).map(Reason::word),
        conflict
            .or(letter.then_some(&*new.judged.message))
            .unwrap_or(""),
    ];
    match how {
        Put::New => db.run_rows(INSERT, values, 1).map(|()| 1),
        Put::On(rule) => db.execute(&format!("{INSERT} ON CONFLICT {rule}"), values),
    }
}

const INSERT: &str = "INSERT INTO calls (id, uuid, conflicting_uuid, state, live, since, pbx, turn,
                        linkedid, trunk, direction, answered, started, ended, phone, phone_ending,
                        raw_phone, extension, employee, lead, record, call, times_dead, reason,
                        message)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19,
             ?20, ?21, ?22, ?23, ?24, ?25)";

/// Finds the call with this call's uuid.
fn same_uuid(db: &Db, new: &Finished) -> Result<Option<DuplicateCandidate>, Error> {
    db.query_first(SAME_UUID, [new.uuid()])
}

const SAME_UUID: &str = "SELECT id, started, phone, raw_phone AS raw FROM calls WHERE uuid = ?1";

/// Finds the dead letters `uuid_conflict` of this uuid that have the same start. A PBX that reuses
/// one id for every call makes many dead letters under one uuid.
fn same_conflicting_uuid(db: &Db, new: &Finished) -> Result<Vec<DuplicateCandidate>, Error> {
    let text = "SELECT id, started, phone, raw_phone AS raw FROM calls
         WHERE conflicting_uuid = ?1 AND started BETWEEN ?2 AND ?3";
    let started = new.started();
    let from = started.saturating_sub_unsigned(SAME_START_SEC);
    let until = started.saturating_add_unsigned(SAME_START_SEC);
    db.query_all(text, (new.uuid(), from, until))
}

/// Corrects the dead letter `incomplete` of the same uuid. `None` if there is none, or if it has as
/// much data as the new account.
fn corrected(store: &mut Store, new: &Finished) -> Result<Option<Done>, Error> {
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
    let before = outbox::before_it_leaves(store, row)?.filter(|_| !letter);
    let rule = "(id) DO UPDATE SET state = excluded.state, since = excluded.since,
             trunk = excluded.trunk, direction = excluded.direction, answered = excluded.answered,
             started = excluded.started, ended = excluded.ended, phone = excluded.phone,
             phone_ending = excluded.phone_ending, raw_phone = excluded.raw_phone,
             extension = excluded.extension, employee = excluded.employee, lead = excluded.lead,
             record = excluded.record, call = excluded.call, reason = excluded.reason,
             message = excluded.message, live = 0";
    put(store, row, new, None, Put::On(rule))?;
    reason_counts::change(store, State::Dead, Some(Reason::Incomplete), -1)?;
    reason_counts::change(store, state, new.judged.reason, 1)?;
    store.tally.shift(State::Dead, state);
    store.tally.count(CORRECTED, 1);
    store.tally.moved.push(row);
    if letter && new.judged.reason != Some(Reason::Incomplete) {
        step::letter_appeared(store, row)?;
    }
    if let Some(before) = before {
        outbox::queue_leave(store, &before, Left::Released, new.judged.judged_at)?;
    }
    // Until now the call counted only if someone talked.
    if let Some(phone) = &phone
        && was_answered
    {
        missed::recount(store, phone, new.judged.judged_at)?;
    }
    if !was_answered || phone.as_deref() != new.phone() {
        missed::apply(store, new, None)?;
    }
    Ok(Some(Done::Corrected(row)))
}

/// Asks for dead letters `incomplete` under other uuids that were parts of this call.
fn ask_parts(db: &Db, new: &Finished) -> Result<Vec<Asked<RowId>>, Error> {
    if new.judged.reason == Some(Reason::Incomplete) {
        return Ok(Vec::new());
    }
    let text = format!(
        // A cross join: the seen call is looked up first, and then its row.
        "SELECT calls.id FROM seen_calls CROSS JOIN calls
         WHERE seen_calls.pbx = ?1 AND seen_calls.id = ?2
             AND calls.uuid = seen_calls.uuid AND calls.uuid <> ?3 AND {WAITS}"
    );
    let pbx = &new.judged.record.pbx;
    let asked = ids_of(new).map(|id| db.ask(&text, (pbx, id, new.uuid())));
    asked.collect()
}

/// Discards dead letters `incomplete` under other uuids that were parts of this call, so that no
/// one sends them too.
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
