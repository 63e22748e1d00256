//! Detects that the CRM refuses one call after another. Given the refused, accepted, and journaled
//! calls, it decides which calls are held back, which one is tried, and which ones are resent.
//!
//! ```text
//! sent ── five refusals in a row ──▶ suspected ── a trial is refused ──▶ refused
//!  ▲                                    │                                  │
//!  └──── a trial is accepted ───────────┘◀── one call an hour is accepted ─┘
//! ```
//! Five refusals prove nothing yet, since all five calls may have the same wrong lead. So the first
//! ready call that shares neither a lead nor an employee with them is tried. If it's accepted, only
//! those five calls were at fault. If it's refused too, the configuration is wrong, and the refused
//! calls are resent once the CRM accepts a call.
//!
//! A hub keeps a series per branch, so a branch with a wrong list stops only itself. Once trials
//! from two branches have been refused for the same reason, no branch sends calls.

use callbridge_model::Reason;
use callbridge_spool::{Parties, RowId, SuspendedBranch, SuspendedCalls, Trial};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Number of consecutive refusals of one kind after which a trial decides whether to send more
/// calls.
pub const REFUSALS_MAX: usize = 5;

/// Number of refused calls that are remembered so that they can be resent.
const REMEMBERED_MAX: usize = 100;

/// Time between two trials of arbitrary calls.
const TRIAL_INTERVAL: Duration = Duration::from_secs(3600);

/// A call that was sent, along with the parties that it may share with other calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentCall {
    pub row: RowId,
    /// The branch whose series it counts toward, or empty unless this is a hub.
    #[serde(skip)]
    pub branch: String,
    pub parties: Parties,
}

/// Each branch's consecutive refusals. Kept across restarts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Refusals(BTreeMap<String, Series>);

/// Consecutive refusals of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Series {
    reason: Reason,
    calls: Vec<SentCall>,
    /// The CRM's last message.
    #[serde(skip)]
    message: String,
    /// Set by the fifth refusal. Not stored, since a restart ends the series.
    #[serde(skip)]
    suspension: Option<Suspension>,
}

/// A period during which calls are sent only as trials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Suspension {
    /// Time since boot of the fifth refusal.
    began: Duration,
    /// Time since boot of the next trial of an arbitrary call.
    next_trial: Duration,
    /// Whether a call with another lead and employee was refused as well.
    is_confirmed: bool,
}

/// A branch whose calls are being held back, as `status` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedBranch {
    /// Empty unless this is a hub.
    pub branch: String,
    pub reason: Reason,
    /// The CRM's last message.
    pub message: String,
    /// Whether a call with another lead and employee was refused as well. If not, there hasn't been
    /// such a call yet.
    pub is_confirmed: bool,
}

impl Series {
    fn parties(&self) -> Vec<Parties> {
        self.calls.iter().map(|call| call.parties).collect()
    }

    /// Returns `true` if this call may be refused because of the same lead or employee.
    fn suspects(&self, call: &SentCall) -> bool {
        call.parties.are_suspected_with(&self.parties())
    }

    fn rows(&self) -> Vec<RowId> {
        self.calls.iter().map(|call| call.row).collect()
    }

    fn is_confirmed(&self) -> bool {
        self.suspension.is_some_and(|held| held.is_confirmed)
    }
}

impl Refusals {
    /// Notes that a call sent at `sent`, a time since boot, was refused.
    pub fn note_refusal(
        &mut self,
        now: Duration,
        reason: Reason,
        message: &str,
        call: SentCall,
        sent: Duration,
    ) {
        let series = self.0.entry(call.branch.clone()).or_insert_with(|| Series {
            reason,
            calls: Vec::new(),
            message: String::new(),
            suspension: None,
        });
        let is_known = series.calls.iter().any(|refused| refused.row == call.row);
        let is_like_others = is_known || series.suspects(&call);
        let is_same = series.reason == reason;
        match &mut series.suspension {
            // A trial proves just as much if it's refused for a different reason.
            Some(held) if sent >= held.began => held.is_confirmed |= !is_like_others,
            Some(_) if !is_same => return,
            Some(_) => {}
            None if !is_same => {
                series.reason = reason;
                series.calls.clear();
            }
            None => {}
        }
        message.clone_into(&mut series.message);
        if series.calls.len() < REMEMBERED_MAX && !series.calls.iter().any(|c| c.row == call.row) {
            series.calls.push(call);
        }
        if series.calls.len() >= REFUSALS_MAX && series.suspension.is_none() {
            series.suspension = Some(Suspension {
                began: now,
                next_trial: now + TRIAL_INTERVAL,
                is_confirmed: false,
            });
        }
    }

    /// Notes that a call sent at `sent`, a time since boot, was accepted, and returns the calls to
    /// resend. Calls that FAILED had been accepted too, so their series ends only when a call is
    /// journaled.
    pub fn note_accepted(&mut self, call: &SentCall, sent: Duration) -> Vec<RowId> {
        let Some(series) = self.0.get(&call.branch) else {
            return Vec::new();
        };
        // The CRM may have accepted an earlier request before the problem began.
        let is_earlier = (series.suspension).is_some_and(|held| sent < held.began);
        if series.reason == Reason::Failed || is_earlier {
            return Vec::new();
        }
        self.end(call)
    }

    /// Notes that a call was journaled, which ends a series of FAILED calls, and returns the calls
    /// to resend.
    pub fn note_journaled(&mut self, call: &SentCall) -> Vec<RowId> {
        match self.0.get(&call.branch) {
            Some(series) if series.reason == Reason::Failed => self.end(call),
            Some(_) | None => Vec::new(),
        }
    }

    /// Ends a branch's series, since the CRM took `call`, and returns the calls to resend, or none
    /// if only the refused calls were at fault.
    fn end(&mut self, call: &SentCall) -> Vec<RowId> {
        let Some(series) = self.0.remove(&call.branch) else {
            return Vec::new();
        };
        let only_they = !series.is_confirmed() && !series.suspects(call);
        if series.suspension.is_none() || only_they {
            return Vec::new();
        }
        series.rows()
    }

    /// Ends all series of at least five refusals, returning their calls so that they can be resent.
    pub fn take(&mut self) -> Vec<RowId> {
        let mut rows = Vec::new();
        self.0.retain(|_, series| {
            let is_short = series.calls.len() < REFUSALS_MAX;
            if !is_short {
                rows.extend(series.rows());
            }
            is_short
        });
        rows
    }

    /// Returns `true` if at least one branch's calls are sent only as trials.
    pub fn suspends(&self) -> bool {
        self.0.values().any(|series| series.suspension.is_some())
    }

    /// Returns `true` if this branch's calls are sent only as trials.
    pub fn suspends_branch(&self, branch: &str) -> bool {
        (self.0.get(branch)).is_some_and(|series| series.suspension.is_some())
    }

    /// Returns the calls that are held back for now. Since calls are tried one at a time,
    /// `is_trying` tells whether one of a branch's calls is in flight.
    pub fn suspended(&self, now: Duration, is_trying: impl Fn(&str) -> bool) -> SuspendedCalls {
        let mut branches = Vec::new();
        for (branch, series) in &self.0 {
            let Some(held) = series.suspension else {
                continue;
            };
            let trial = if is_trying(branch) {
                Trial::None
            } else if now >= held.next_trial {
                Trial::AnyCall
            } else if held.is_confirmed {
                Trial::None
            } else {
                Trial::OtherCall
            };
            branches.push(SuspendedBranch {
                turn: branch.clone(),
                refused: series.parties(),
                trial,
            });
        }
        let all = self.suspends_branch("") || self.stops_all_branches();
        SuspendedCalls { all, branches }
    }

    /// Returns `true` if trials from two branches were refused for the same reason, in which case
    /// the hub's configuration must be wrong.
    pub fn stops_all_branches(&self) -> bool {
        let confirmed = self.0.values().filter(|series| series.is_confirmed());
        let mut reasons: Vec<Reason> = confirmed.map(|series| series.reason).collect();
        let count = reasons.len();
        reasons.sort_unstable();
        reasons.dedup();
        reasons.len() < count
    }

    /// Notes that one of this branch's calls is being sent. If a trial of an arbitrary call was
    /// due, the next one follows an hour later.
    pub fn note_sent(&mut self, branch: &str, now: Duration) {
        if let Some(series) = self.0.get_mut(branch)
            && let Some(held) = &mut series.suspension
            && now >= held.next_trial
        {
            held.next_trial = now + TRIAL_INTERVAL;
        }
    }

    /// Returns the time since boot of the next trial of an arbitrary call.
    pub fn next_trial(&self) -> Option<Duration> {
        let held = self.0.values().filter_map(|series| series.suspension);
        held.map(|held| held.next_trial).min()
    }

    /// Returns the branches whose calls are held back. `has_trial` tells whether one of a branch's
    /// calls is tried now or next, in which case nothing has been decided yet.
    pub fn refused_branches(&self, has_trial: impl Fn(&str) -> bool) -> Vec<RefusedBranch> {
        let mut refused = Vec::new();
        for (branch, series) in &self.0 {
            if let Some(held) = series.suspension
                && (held.is_confirmed || !has_trial(branch))
            {
                refused.push(RefusedBranch {
                    branch: branch.clone(),
                    reason: series.reason,
                    message: series.message.clone(),
                    is_confirmed: held.is_confirmed,
                });
            }
        }
        refused
    }
}

#[cfg(test)]
#[path = "refusals_tests.rs"]
mod tests;
