//! Finds out for `audit` what happened to a call in a PBX's file, going by its channels' IDs. When
//! a call is purged along with its seen IDs, one short row is kept for it: its summary.

use super::call_row::WAITS;
use super::{directory, resume, seen_calls};
use crate::value::Values;
use crate::{Db, Error, Json, State};
use callbridge_call::{Direction, EpochSeconds, EventTime, FinishedCall};
use callbridge_model::{CallRecord, CallUuid, LeadId};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long after a call's start its summary is kept.
pub const SUMMARIES_KEPT_FOR: Duration = Duration::from_secs(2 * 365 * 24 * 3600);
/// Maximum number of summaries that a single purge deletes.
const FORGOTTEN_MAX: u32 = 500;
/// The state in the summary of a call that was between extensions, or skipped by a flag.
const COUNTED: &str = "counted";

/// A call in a PBX's file, given by its IDs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditedCall {
    pub pbx: String,
    /// The call's linkedid first, followed by its channels' IDs.
    pub ids: Vec<String>,
    /// The uuid derived from the call's linkedid.
    pub uuid: CallUuid,
}

/// What the state knows about a call in a PBX's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallFate {
    /// The call has this state, or had it when its row was purged.
    Stands(State),
    /// The call was between extensions, or was skipped by a flag, so it was counted but not stored.
    Counted,
    /// The call is still in progress.
    Open,
    /// The call was stored, but its row disappeared before its seen IDs expired.
    RowGone,
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditedFate {
    pub fate: CallFate,
    /// The call's stored values, or `None` if it no longer has a row or was discarded.
    pub values: Option<AuditedValues>,
}

/// The values of a call that an audit compares, as reported by the PBX.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditedValues {
    /// By the PBX's clock.
    pub started: EpochSeconds,
    /// The call's length in seconds.
    pub duration_sec: u32,
    /// Talk time with the customer, in seconds.
    pub talk_time_sec: u32,
    /// Whether an employee talked with the customer.
    pub answered: bool,
    /// Seen from the company.
    pub direction: Direction,
    /// The customer's number in E.164 format, or `None` if it's unknown or invalid.
    pub phone: Option<String>,
    /// Whether events of the call are missing, so that its values are uncertain.
    pub incomplete: bool,
    /// Whether the values come from CDRs alone.
    pub estimate: bool,
}

impl AuditedValues {
    /// Takes a record's values as reported by the PBX, ignoring manual corrections, since none of
    /// the PBX's files contain those.
    pub fn from_record(record: &CallRecord) -> Self {
        let reported = record.by_hand.as_ref();
        Self {
            started: record.started_at,
            duration_sec: record.duration_sec,
            talk_time_sec: reported.map_or(record.talk_time_sec, |hand| hand.reported_talk_sec),
            answered: reported.map_or(record.answered, |hand| hand.reported_answered),
            direction: record.direction,
            phone: record.phone().map(str::to_owned),
            incomplete: record.incomplete,
            estimate: record.estimate,
        }
    }
}

/// A call that this state knows as journaled, as the CRM's journal should show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournaledCall {
    /// The uuid that the call was sent under.
    pub uuid: CallUuid,
    /// By the PBX's clock.
    pub started: EpochSeconds,
    /// When the call became journaled, or `None` if its row was purged.
    pub since: Option<EventTime>,
    /// The values that were sent, or `None` if the call's row was purged.
    pub sent: Option<SentValues>,
}

/// A call's values that a row in the CRM's journal can show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentValues {
    /// The lead that the call was sent with, followed by the one that it was merged into.
    pub leads: Vec<LeadId>,
    /// The call's length in seconds.
    pub duration_sec: u32,
    /// Whether an employee talked with the customer.
    pub answered: bool,
    /// Seen from the company.
    pub direction: Direction,
}

/// Returns what's known about each of these calls, in order, with the stored values.
pub fn fates(db: &Db, calls: &[AuditedCall]) -> Result<Vec<AuditedFate>, Error> {
    let mut open_calls = None;
    let mut fates = Vec::with_capacity(calls.len());
    for call in calls {
        let (mut fate, uuid) = find_fate(db, call)?;
        if fate == CallFate::Unknown {
            if open_calls.is_none() {
                open_calls = Some(resume::all_open_calls(db)?);
            }
            let mut snapshots = open_calls.iter().flatten();
            if snapshots.any(|(_, _, snapshot)| names(snapshot, call)) {
                fate = CallFate::Open;
            }
        }
        let values = match (fate, uuid) {
            (CallFate::Stands(State::Discarded), _) | (_, None) => None,
            (_, Some(uuid)) => stored_values(db, uuid)?,
        };
        fates.push(AuditedFate { fate, values });
    }
    Ok(fates)
}

fn stored_values(db: &Db, uuid: CallUuid) -> Result<Option<AuditedValues>, Error> {
    let text = "SELECT record FROM calls WHERE uuid = ?1";
    let stored: Option<Json<CallRecord>> = db.query_first(text, [uuid.0.into_bytes()])?;
    Ok(stored.map(|Json(record)| AuditedValues::from_record(&record)))
}

/// Returns the calls with any of these IDs from `incomplete` dead letters that nobody has retried,
/// without duplicates.
pub fn incomplete_letters(db: &Db, pbx: &str, ids: &[String]) -> Result<Vec<FinishedCall>, Error> {
    let text = format!(
        "SELECT calls.call FROM seen_calls CROSS JOIN calls
         WHERE seen_calls.pbx = ?1 AND seen_calls.id = ?2 AND calls.uuid = seen_calls.uuid
             AND {WAITS}"
    );
    let mut calls: Vec<FinishedCall> = Vec::new();
    for id in ids {
        let found: Option<Json<FinishedCall>> = db.query_first(&text, (pbx, id))?;
        if let Some(Json(call)) = found
            && calls.iter().all(|known| known.linkedid != call.linkedid)
        {
            calls.push(call);
        }
    }
    Ok(calls)
}

/// Returns `true` if an open call's snapshot, which is JSON, contains one of the IDs of `call`.
fn names(snapshot: &[u8], call: &AuditedCall) -> bool {
    let text = String::from_utf8_lossy(snapshot);
    let mut ids = call.ids.iter();
    ids.any(|id| text.contains(&format!("\"{id}\"")))
}

/// Finds a call's fate and, if it's stored, its uuid. Calls still in progress aren't considered.
fn find_fate(db: &Db, call: &AuditedCall) -> Result<(CallFate, Option<CallUuid>), Error> {
    if let Some(state) = state_of(db, call.uuid)? {
        return Ok((CallFate::Stands(state), Some(call.uuid)));
    }
    let mut fate = CallFate::Unknown;
    for id in &call.ids {
        let Some(seen) = seen_calls::seen_call(db, &call.pbx, id)? else {
            continue;
        };
        let state = seen.uuid.map_or(Ok(None), |uuid| state_of(db, uuid))?;
        match (seen.uuid, state) {
            (uuid, Some(state)) => return Ok((CallFate::Stands(state), uuid)),
            (None, None) => fate = CallFate::Counted,
            (Some(_), None) if fate == CallFate::Unknown => fate = CallFate::RowGone,
            (Some(_), None) => {}
        }
    }
    for id in &call.ids {
        match summary(db, &call.pbx, id)? {
            Some((Some(state), uuid, _)) => return Ok((CallFate::Stands(state), uuid)),
            Some((None, ..)) => fate = CallFate::Counted,
            None => {}
        }
    }
    Ok((fate, None))
}

/// Returns the values that the CRM's journal should show for each of these calls, in order, or
/// `None` for a call that this state doesn't know as journaled.
pub fn journaled(db: &Db, calls: &[AuditedCall]) -> Result<Vec<Option<JournaledCall>>, Error> {
    let mut journaled = Vec::with_capacity(calls.len());
    for call in calls {
        journaled.push(match find_fate(db, call)? {
            (CallFate::Stands(State::Journaled), Some(uuid)) => journaled_call(db, uuid, call)?,
            (_, _) => None,
        });
    }
    Ok(journaled)
}

fn journaled_call(
    db: &Db,
    uuid: CallUuid,
    call: &AuditedCall,
) -> Result<Option<JournaledCall>, Error> {
    let text = "SELECT since, started, record, id FROM calls WHERE uuid = ?1";
    let stored = db.query_first(text, [uuid.0.into_bytes()])?;
    let Some((since, started, Json(record))): Option<(_, _, Json<CallRecord>)> = stored else {
        return purged_call(db, uuid, call);
    };
    let survivor = record
        .lead_id
        .map_or(Ok(None), |lead| directory::survivor(db, lead))?;
    Ok(Some(JournaledCall {
        uuid,
        started,
        since: Some(since),
        sent: Some(SentValues {
            leads: record.lead_id.into_iter().chain(survivor).collect(),
            duration_sec: record.duration_sec,
            answered: record.answered,
            direction: record.direction,
        }),
    }))
}

/// Returns a call as [`journaled`] does, but from its summary, because its row was purged.
fn purged_call(
    db: &Db,
    uuid: CallUuid,
    call: &AuditedCall,
) -> Result<Option<JournaledCall>, Error> {
    for id in &call.ids {
        if let Some((_, found, started)) = summary(db, &call.pbx, id)?
            && found == Some(uuid)
        {
            return Ok(Some(JournaledCall {
                uuid,
                started,
                since: None,
                sent: None,
            }));
        }
    }
    Ok(None)
}

/// Counts the uuids whose calls this state knows as journaled.
pub fn known_as_journaled(db: &Db, uuids: &[CallUuid]) -> Result<u32, Error> {
    let mut known = 0;
    for uuid in uuids {
        known += u32::from(state_of(db, *uuid)? == Some(State::Journaled));
    }
    Ok(known)
}

fn state_of(db: &Db, uuid: CallUuid) -> Result<Option<State>, Error> {
    let bytes = uuid.0.into_bytes();
    db.query_first("SELECT state FROM calls WHERE uuid = ?1", [bytes])
}

/// Forgets the IDs of a call without a row, so that the call can be taken in again. A call that has
/// a row keeps its IDs.
pub(crate) fn forget(db: &Db, pbx: &str, ids: &[String]) -> Result<(), Error> {
    for id in ids {
        let text = "DELETE FROM seen_calls WHERE pbx = ?1 AND id = ?2
             AND NOT EXISTS (SELECT 1 FROM calls WHERE calls.uuid = seen_calls.uuid)";
        db.run(text, (pbx, id))?;
    }
    Ok(())
}

/// Stores summaries of the calls whose IDs are returned by the query `calls`, because their rows
/// are about to be deleted.
pub(crate) fn summarize(db: &Db, calls: &str, values: impl Values) -> Result<(), Error> {
    let text = format!(
        "INSERT INTO purged_calls (pbx, id, uuid, state, started)
         SELECT pbx, linkedid, uuid, state, started FROM calls WHERE id IN ({calls})
         ON CONFLICT DO NOTHING"
    );
    db.run(&text, values)
}

/// Stores summaries of calls that were only counted, out of the seen calls after the (PBX, ID)
/// `from` up to `to` that were seen before `before`. Their rows are about to be deleted.
pub(crate) fn summarize_counted(
    db: &Db,
    from: (&str, &str),
    to: (&str, &str),
    before: EventTime,
) -> Result<(), Error> {
    let text = "INSERT INTO purged_calls (pbx, id, uuid, state, started)
         SELECT pbx, id, NULL, ?1, started FROM seen_calls
         WHERE uuid IS NULL AND is_linkedid = 1 AND at < ?2 AND (pbx, id) > (?3, ?4)
             AND (pbx, id) <= (?5, ?6) ON CONFLICT DO NOTHING";
    db.run(text, (COUNTED, before.micros(), from.0, from.1, to.0, to.1))
}

/// A purged call's summary: its last state (`None` if it was only counted), its uuid, and its
/// start.
type SummaryRow = (Option<State>, Option<CallUuid>, EpochSeconds);

fn summary(db: &Db, pbx: &str, id: &str) -> Result<Option<SummaryRow>, Error> {
    let text = "SELECT state, uuid, started FROM purged_calls WHERE pbx = ?1 AND id = ?2";
    let kept: Option<(String, _, _)> = db.query_first(text, (pbx, id))?;
    Ok(kept.map(|(state, uuid, started)| (State::from_word(&state), uuid, started)))
}

pub(crate) fn purge_summaries(db: &Db, now: EventTime) -> Result<(), Error> {
    let before = now.minus(SUMMARIES_KEPT_FOR).floor_seconds().get();
    let text = "DELETE FROM purged_calls WHERE (pbx, id) IN (
             SELECT pbx, id FROM purged_calls WHERE started < ?1 ORDER BY started LIMIT ?2)";
    db.run(text, (before, FORGOTTEN_MAX))
}
