//! What became of a call that a file of the PBX tells of, by the ids of its channels.

use super::{open_calls, seen_calls, summaries};
use crate::op::Done;
use crate::{Db, Error, State};
use callbridge_model::CallUuid;
use serde::{Deserialize, Serialize};

/// A call as a file of the PBX tells of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditedCall {
    /// Its PBX.
    pub pbx: String,
    /// Its own id first, then those of its channels.
    pub ids: Vec<String>,
    /// The uuid that it has by its own id.
    pub uuid: CallUuid,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallFate {
    /// It is stored, and stands so.
    Stands(State),
    /// It was between extensions, or skipped by a flag: counted, and nothing kept of it.
    Counted,
    /// It goes on.
    Open,
    /// It was stored once, and its row is gone before its time.
    RowGone,
    /// Nothing is known of it.
    Unknown,
}

/// What became of these calls, in their order.
pub fn fates(db: &Db, calls: &[AuditedCall]) -> Result<Vec<CallFate>, Error> {
    let mut fates = Vec::with_capacity(calls.len());
    let mut open = None;
    for call in calls {
        let mut fate = fate(db, call)?;
        if fate == CallFate::Unknown {
            if open.is_none() {
                open = Some(open_calls::all_open_calls(db)?);
            }
            let open = open.as_deref().unwrap_or_default();
            let named = |(_, _, snapshot): &(String, u64, Vec<u8>)| names(snapshot, call);
            if open.iter().any(named) {
                fate = CallFate::Open;
            }
        }
        fates.push(fate);
    }
    Ok(fates)
}

/// The snapshot of an open call, which is JSON, tells of one of its ids.
fn names(snapshot: &[u8], call: &AuditedCall) -> bool {
    let text = String::from_utf8_lossy(snapshot);
    call.ids
        .iter()
        .any(|id| text.contains(&format!("\"{id}\"")))
}

/// The same, but for calls that go on.
fn fate(db: &Db, call: &AuditedCall) -> Result<CallFate, Error> {
    if let Some(state) = state_of(db, call.uuid)? {
        return Ok(CallFate::Stands(state));
    }
    let mut gone = false;
    let mut counted = false;
    for id in &call.ids {
        let Some(seen) = seen_calls::tombstone(db, &call.pbx, id)? else {
            continue;
        };
        let Some(uuid) = seen.uuid else {
            counted = true;
            continue;
        };
        match state_of(db, uuid)? {
            Some(state) => return Ok(CallFate::Stands(state)),
            None => gone = true,
        }
    }
    for id in &call.ids {
        match summaries::summary(db, &call.pbx, id)? {
            Some(Some(state)) => return Ok(CallFate::Stands(state)),
            Some(None) => counted = true,
            None => {}
        }
    }
    if counted {
        return Ok(CallFate::Counted);
    }
    if gone {
        return Ok(CallFate::RowGone);
    }
    Ok(CallFate::Unknown)
}

fn state_of(db: &Db, uuid: CallUuid) -> Result<Option<State>, Error> {
    let bytes = uuid.0.into_bytes();
    let word: Option<String> =
        db.first_value("SELECT state FROM calls WHERE uuid = ?1", [bytes])?;
    let read = |word: String| {
        State::from_word(&word).ok_or_else(|| db.damaged(format!("{uuid} has the state {word}")))
    };
    word.map(read).transpose()
}

/// Forgets the ids of a call of which no row is kept, so that it can be taken in once more. One
/// that is stored is known by its uuid all the same.
pub(crate) fn forget(db: &Db, pbx: &str, ids: &[String]) -> Result<Done, Error> {
    for id in ids {
        db.execute(
            "DELETE FROM tombstones WHERE pbx = ?1 AND id = ?2
             AND NOT EXISTS (SELECT 1 FROM calls WHERE calls.uuid = tombstones.uuid)",
            (pbx, id),
        )?;
    }
    Ok(Done::Stored)
}
