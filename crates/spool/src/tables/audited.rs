//! Finds the fate of a call that is in a file of the PBX, by the ids of its channels. When a call
//! and the memory of its ids are purged, a summary is kept: one short row per call.

use super::{directory, resume, seen_calls};
use crate::value::Values;
use crate::{Db, Error, Json, State};
use callbridge_call::{Direction, EpochSeconds, EventTime};
use callbridge_model::{CallRecord, CallUuid, LeadId};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Time after a call's start for which its summary is kept.
pub const SUMMARIES_KEPT_FOR: Duration = Duration::from_secs(2 * 365 * 24 * 3600);
/// Summaries that one purge deletes at most.
const FORGOTTEN_MAX: u32 = 500;
/// The state of a call that was between extensions, or skipped by a flag.
const COUNTED: &str = "counted";

/// A call in a file of the PBX, by its ids.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditedCall {
    pub pbx: String,
    /// Id of the call itself first, then those of its channels.
    pub ids: Vec<String>,
    /// The uuid that the call has by its own id.
    pub uuid: CallUuid,
}

/// The fate of a call that is in a file of the PBX.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallFate {
    /// The call is stored and has this state.
    Stands(State),
    /// The call was between extensions, or skipped by a flag. It was counted, but not stored.
    Counted,
    /// The call is not over yet.
    Open,
    /// The call was stored, and its row is missing too early.
    RowGone,
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditedFate {
    pub fate: CallFate,
    /// `None` if no row of the call is kept, or if a person discarded it.
    pub values: Option<AuditedValues>,
}

/// The values of a call that an audit compares, as the PBX reported them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditedValues {
    /// By the PBX's clock.
    pub started: EpochSeconds,
    /// Length of the call, in seconds.
    pub duration_sec: u32,
    /// Talk with the customer, in seconds.
    pub talk_time_sec: u32,
    /// An employee talked with the customer.
    pub answered: bool,
    /// Seen from the company.
    pub direction: Direction,
    /// E.164. `None` if it is not known or not valid.
    pub phone: Option<String>,
    /// Events of the call are missing, so its values are not certain.
    pub incomplete: bool,
    /// The values come from CDRs only.
    pub estimate: bool,
}

impl AuditedValues {
    /// Takes the values of a record. A correction by a person is ignored because no file has it.
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

/// A call that is journaled here, as the CRM's journal should show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournaledCall {
    /// Uuid that the call was sent under.
    pub uuid: CallUuid,
    /// By the PBX's clock.
    pub started: EpochSeconds,
    /// Time at which it was journaled. `None` if its row was purged.
    pub since: Option<EventTime>,
    /// Values that were sent. `None` if its row was purged.
    pub sent: Option<SentValues>,
}

/// The values of a call that a row of the CRM's journal can show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentValues {
    /// The lead that it was sent to, then the one that this was merged into.
    pub leads: Vec<LeadId>,
    /// Seconds.
    pub duration_sec: u32,
    /// An employee talked with the customer.
    pub answered: bool,
    /// Seen from the company.
    pub direction: Direction,
}

/// Returns the fate of each of these calls, in their order, with the stored values.
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

/// Returns `true` if the snapshot of an open call, which is JSON, holds one of its ids.
fn names(snapshot: &[u8], call: &AuditedCall) -> bool {
    let text = String::from_utf8_lossy(snapshot);
    let mut ids = call.ids.iter();
    ids.any(|id| text.contains(&format!("\"{id}\"")))
}

/// Finds the fate of a call, except for calls in progress, and the uuid under which it is stored,
/// if it is.
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

/// Returns what the CRM's journal should show of each of these calls, in their order. `None` for a
/// call that is not journaled here.
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

/// Returns the call as [`journaled`] does, from its summary, because its row was purged.
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

/// Counts the uuids whose calls are journaled here.
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

/// Forgets the ids of a call of which no row is kept, so that it can be taken in again. A stored
/// call is still recognized by its uuid.
pub(crate) fn forget(db: &Db, pbx: &str, ids: &[String]) -> Result<(), Error> {
    for id in ids {
        let text = "DELETE FROM seen_calls WHERE pbx = ?1 AND id = ?2
             AND NOT EXISTS (SELECT 1 FROM calls WHERE calls.uuid = seen_calls.uuid)";
        db.run(text, (pbx, id))?;
    }
    Ok(())
}

/// Keeps summaries of the calls that this query finds, because their rows are deleted next.
pub(crate) fn summarize(db: &Db, calls: &str, values: impl Values) -> Result<(), Error> {
    let text = format!(
        "INSERT INTO purged_calls (pbx, id, uuid, state, started)
         SELECT pbx, linkedid, uuid, state, started FROM calls WHERE id IN ({calls})
         ON CONFLICT DO NOTHING"
    );
    db.run(&text, values)
}

/// Keeps summaries of the counted calls among these seen calls, which are deleted next.
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

/// Row that outlives a purged call: its last state (`None` if it was only counted), its uuid, and
/// its start.
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
