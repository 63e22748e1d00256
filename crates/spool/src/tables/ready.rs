//! A call that's ready to be sent, as returned by the queries about ready calls.

use crate::{Due, LIVE_FOR, Parties};
use callbridge_call::EventTime;
use serde::Deserialize;

/// Selects all ready calls, in the form that [`ReadyCall`] expects.
pub(super) const READY: &str = "SELECT true AS due, id AS row, uuid, since, turn, true AS parties,
           lead, employee
    FROM calls WHERE state = 'ready'";

/// A call that's ready to be sent, and the branch or PBX whose turn it uses up.
#[derive(Deserialize)]
pub(super) struct ReadyCall {
    pub(super) due: Due,
    pub(super) turn: String,
    pub(super) parties: Parties,
}

impl ReadyCall {
    /// Returns `true` if the call became ready within the last few minutes. A time far in the
    /// future doesn't count, since it was stored before the clock was set back.
    pub(super) fn is_live(&self, now: EventTime) -> bool {
        let since = self.due.since;
        since.plus(LIVE_FOR) >= now && since <= now.plus(LIVE_FOR)
    }
}
