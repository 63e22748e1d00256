//! A call that can be sent, as the queries about ready calls return it.

use crate::{Due, LIVE_FOR, Parties};
use callbridge_call::EventTime;
use serde::Deserialize;

/// Selects all ready calls, as [`ReadyCall`] reads them.
pub(super) const READY: &str = "SELECT true AS due, id AS row, uuid, since, turn, true AS parties,
           lead, employee
    FROM calls WHERE state = 'ready'";

/// A call that can be sent, and the branch or PBX whose turn it uses.
#[derive(Deserialize)]
pub(super) struct ReadyCall {
    pub(super) due: Due,
    pub(super) turn: String,
    pub(super) parties: Parties,
}

impl ReadyCall {
    /// Returns `true` if the call became ready in the last few minutes. A time far in the future
    /// was stored before the clock was set back, so it returns `false`.
    pub(super) fn is_live(&self, now: EventTime) -> bool {
        let since = self.due.since;
        since.plus(LIVE_FOR) >= now && since <= now.plus(LIVE_FOR)
    }
}
