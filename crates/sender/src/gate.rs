//! The circuit breaker: traffic flows, is paused with a probe a minute, or half open for one trial.
//!
//! ```text
//! Probing ──token/info fine──▶ Flowing ──401, 403, 404, 429, five refusals──▶ Paused
//!    ▲                            ▲                                             │ probe
//!    └── another token            └── the call passes ── HalfOpen ◀─────────────┘ fine
//!                                                            └── the same again ──▶ Paused
//! ```
//! Within one pause, from the first probe on, probes and trials are at least a minute apart. A
//! trial is the next probe itself where token/info said that all is well and the call still failed.
//! Requests that fail pause nothing here: what they mean for the next ones say the
//! [`super::troubles`].

use crate::{Extent, Failure, InFlightPart, PROBE, Part, PartAdmission, StopReason, Troubles};
use callbridge_crm::Endpoint;
use callbridge_model::{Now, Reason};
use callbridge_spool::RowId;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// After this many refusals of one kind in a row, the cause is our configuration, not the calls.
pub const REFUSALS_MAX: u32 = 5;

/// Wait before the first probe for a grant.
const FIRST_PROBE: Duration = Duration::from_secs(2);

/// Reasons why only probes are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PauseCause {
    /// No token was given, its file cannot be read, or its keeper has none.
    TokenMissing,
    /// The token belongs to another company or application.
    WrongCompany,
    /// The CRM refuses the token, a grant or the address.
    StopReason(StopReason),
    /// All requests fail, or all submissions.
    Outage(Extent),
    /// The CRM answers 429: the limit is used up.
    TooMany,
    /// Five calls in a row were refused for this reason.
    Refused(Reason),
}

/// Kind of request that can be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Requests of all kinds: the CRM works.
    Calls,
    /// One request of any part of the CRM that can be asked, while nothing works.
    Probe,
    /// One call, to test whether the problem is fixed. Polls come first if only they can show it.
    Trial {
        /// A poll shows more than a submission.
        polls_first: bool,
    },
    /// Only the request `token/info`.
    Ask,
    /// Nothing before this time since boot.
    Until(Duration),
    /// Nothing before an answer comes.
    Answer,
    /// Nothing before another token comes.
    Token,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    TokenInfo,
    Call,
    Never,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Probing,
    Flowing,
    /// If `why` is `None`, `token/info` succeeded, so there is nothing to show.
    HalfOpen {
        of: PauseCause,
        why: Option<String>,
    },
    Paused {
        cause: PauseCause,
        why: String,
        by: Probe,
        next: Duration,
    },
}

/// The circuit breaker: decides which requests can be sent.
#[derive(Debug)]
pub struct Gate {
    state: State,
    /// The token's record was read and is valid for us.
    known: bool,
    /// Failures of the CRM's parts, and when each can be asked again.
    pub(super) troubles: Troubles,
    /// Number of 429s since the CRM's last other answer.
    too_many: u32,
    pub(super) streaks: [Streak; 2],
    /// A minute after the last probe or trial. Two after one that came before its minute was over.
    due: Duration,
}

/// Refusals of one kind in a row, in one phase of a call: at its submission, or after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Streak {
    kind: Option<Reason>,
    count: u32,
}

/// The answer to a request, which shows that the CRM works.
#[derive(Clone, Copy, Debug)]
pub struct Passed {
    /// Time since boot at which the answer came.
    pub now: Duration,
    pub endpoint: Endpoint,
    /// The call of the request.
    pub call: Option<RowId>,
    /// The call had no failures before.
    pub first: bool,
}

impl Gate {
    /// Makes a gate whose token is not known yet.
    pub fn new(streaks: [Streak; 2]) -> Self {
        Self {
            state: State::Probing,
            known: false,
            troubles: Troubles::default(),
            too_many: 0,
            streaks,
            due: Duration::ZERO,
        }
    }

    /// Kind of request that can be sent, with these in flight. Before the token is known, only the
    /// request for its record is sent, whatever the answers to the previous token say.
    pub fn admission(&self, now: Duration, in_flight_parts: &[InFlightPart]) -> Admission {
        use Admission::{Calls, Probe, Trial};
        let admission = self.admitted(now, in_flight_parts);
        match !self.known && matches!(admission, Calls | Probe | Trial { .. }) {
            true if in_flight_parts.is_empty() => Admission::Ask,
            true => Admission::Answer,
            false => admission,
        }
    }

    fn admitted(&self, now: Duration, in_flight_parts: &[InFlightPart]) -> Admission {
        let under_way = in_flight_parts.len();
        match &self.state {
            State::Probing => match self.troubles.admission(now, Part::Token, in_flight_parts) {
                PartAdmission::AtOnce if under_way == 0 => Admission::Ask,
                PartAdmission::From(at) => Admission::Until(at),
                PartAdmission::AtOnce | PartAdmission::Answer => Admission::Answer,
            },
            State::HalfOpen { of, .. } if under_way == 0 => trial(*of),
            State::HalfOpen { .. } => Admission::Answer,
            State::Flowing if self.troubles.is_whole() => Admission::Probe,
            State::Flowing => Admission::Calls,
            State::Paused {
                cause, by, next, ..
            } => match by {
                Probe::Never => Admission::Token,
                Probe::TokenInfo | Probe::Call if now < *next => Admission::Until(*next),
                Probe::TokenInfo | Probe::Call if under_way > 0 => Admission::Answer,
                Probe::TokenInfo => Admission::Ask,
                Probe::Call => trial(*cause),
            },
        }
    }

    /// Handles a request that is sent: a probe, a trial, or another one. `part` is `None` for a
    /// lead request.
    pub fn sent(&mut self, now: Duration, part: Option<Part>) {
        if let Some(part) = part {
            self.troubles.sent(now, part);
        }
        match &self.state {
            State::Flowing => {}
            State::Probing | State::HalfOpen { .. } => self.due = now + PROBE,
            State::Paused { cause, why, by, .. } => {
                let early = now < self.due;
                self.due = now + if early { 2 * PROBE } else { PROBE };
                if *by == Probe::Call {
                    let (of, why) = (*cause, Some(why.clone()));
                    self.state = State::HalfOpen { of, why };
                }
            }
        }
    }

    /// Handles another token, or none. Everything known about the old one is forgotten. If the new
    /// one was refused before, it is asked about again at `refused_until`, a time since boot.
    pub fn token(&mut self, present: bool, refused_until: Option<Duration>) {
        let (missing, refused) = (PauseCause::TokenMissing, StopReason::TokenRefused);
        let refused = PauseCause::StopReason(refused);
        self.known = false;
        self.state = match (present, refused_until) {
            (false, _) => paused(missing, String::new(), Probe::Never, Duration::ZERO),
            (true, None) => State::Probing,
            (true, Some(next)) => paused(refused, "401".to_owned(), Probe::TokenInfo, next),
        };
    }

    /// Opens the gate, or tries a call if it was paused: `token/info` succeeded.
    pub fn fine(&mut self, now: Duration) {
        self.known = true;
        self.too_many = 0;
        self.troubles.passed(now, Part::Token, None, true);
        self.state = match self.state {
            State::Flowing | State::HalfOpen { .. } => return,
            State::Probing => State::Flowing,
            State::Paused { cause: of, .. } => State::HalfOpen { of, why: None },
        };
    }

    /// The token belongs to another company, and is no longer used.
    pub fn wrong_company(&mut self, why: String) {
        self.troubles.spoke();
        self.state = paused(PauseCause::WrongCompany, why, Probe::Never, Duration::ZERO);
    }

    /// The CRM works: it gave an answer about a call. `good` if a call was accepted or is
    /// journaled. Earlier refusals of its phase were then caused by the calls.
    pub fn passed(&mut self, passed: Passed, good: bool) {
        if good {
            self.streaks[index(passed.endpoint)] = Streak::default();
        }
        self.too_many = 0;
        if let Some(part) = Part::of(passed.endpoint) {
            (self.troubles).passed(passed.now, part, passed.call, passed.first);
        }
        match &mut self.state {
            State::Probing | State::Flowing | State::Paused { .. } => {}
            State::HalfOpen {
                of: PauseCause::Refused(kind),
                why,
                ..
            } if phase(*kind) != Some(passed.endpoint) => {
                // the other phase succeeded, which proves nothing yet
                let (cause, why) = (PauseCause::Refused(*kind), why.take().unwrap_or_default());
                self.state = paused(cause, why, Probe::Call, self.due);
            }
            State::HalfOpen { .. } => self.state = State::Flowing,
        }
    }

    /// A call was refused permanently.
    pub fn refused(&mut self, passed: Passed, kind: Reason, why: &str) {
        let streak = &mut self.streaks[index(passed.endpoint)];
        if streak.kind != Some(kind) {
            (streak.kind, streak.count) = (Some(kind), 0);
        }
        streak.count += 1;
        if streak.count >= REFUSALS_MAX {
            self.troubles.spoke();
            self.too_many = 0;
            self.pause(passed.now, PauseCause::Refused(kind), why.to_owned());
        } else {
            self.passed(passed, false);
        }
    }

    /// A request failed, but not because of its call. `waiting` calls wait for the same part.
    pub fn failed(&mut self, now: Now, endpoint: Endpoint, failure: Failure, waiting: u64) {
        if let Some(part) = Part::of(endpoint) {
            self.troubles.failed(now, part, failure, waiting);
        }
        match &mut self.state {
            State::Probing | State::Flowing => {}
            State::HalfOpen {
                of: PauseCause::TooMany,
                ..
            } => self.state = State::Flowing,
            // the failure says nothing about the cause that is tested
            State::HalfOpen { of, why, .. } => {
                let by = probe(matches!(of, PauseCause::Refused(_)));
                let next = self.due.max(now.boot + FIRST_PROBE);
                self.state = paused(*of, why.take().unwrap_or_default(), by, next);
            }
            // the probe itself failed, which proves nothing: the next one is a minute away
            State::Paused { next, .. } if now.boot >= *next => *next = now.boot + PROBE,
            State::Paused { .. } => {}
        }
    }

    /// Time until the next submission that can show that a pause or an outage is over. `None` if
    /// there is neither.
    pub fn until_probe(&self, now: Duration) -> Option<Duration> {
        let next = match &self.state {
            State::HalfOpen { .. } => Some(now + PROBE),
            State::Paused { next, .. } => Some(*next),
            State::Probing | State::Flowing => self.troubles.next(Part::Submissions),
        };
        next.map(|at| at.saturating_sub(now))
    }

    /// Pauses for a reason that the CRM reports.
    pub fn stopped(&mut self, now: Duration, stop: StopReason, why: &str) {
        self.troubles.spoke();
        self.pause(now, PauseCause::StopReason(stop), why.to_owned());
    }

    /// Handles a 429. Nothing is sent for the time that `wait` returns for this many in a row.
    pub fn too_many(&mut self, now: Duration, wait: impl FnOnce(u32) -> Duration) {
        self.too_many = self.too_many.saturating_add(1);
        let next = now + wait(self.too_many);
        let by = probe(self.known);
        match &mut self.state {
            State::Probing | State::Flowing | State::HalfOpen { .. } => {
                self.state = paused(PauseCause::TooMany, String::new(), by, next);
            }
            State::Paused { next: planned, .. } => *planned = next.max(*planned),
        }
    }

    /// The current token is being asked about. The answer opens the gate or shows the problem.
    pub fn is_probing(&self) -> bool {
        self.state == State::Probing
    }

    /// Only failures of the CRM can hold up calls.
    pub fn is_flowing(&self) -> bool {
        self.state == State::Flowing
    }

    /// Reason why nothing, or no call, is sent, and its message. `None` while calls are sent.
    pub fn pause_cause(&self) -> Option<(PauseCause, &str)> {
        let own = match &self.state {
            State::Probing | State::Flowing | State::HalfOpen { why: None, .. } => None,
            State::HalfOpen {
                of: cause,
                why: Some(why),
            }
            | State::Paused { cause, why, .. } => Some((*cause, why.as_str())),
        };
        match (own, self.troubles.outage()) {
            (_, None)
            | (Some((PauseCause::TokenMissing | PauseCause::WrongCompany, _)), _)
            | (Some((PauseCause::StopReason(StopReason::TokenRefused), _)), _) => own,
            (_, Some((extent, why))) => Some((PauseCause::Outage(extent), why)),
        }
    }

    /// Pauses because the CRM refuses us: a stop, or calls refused in a row.
    fn pause(&mut self, now: Duration, cause: PauseCause, why: String) {
        let again = matches!(&self.state, State::HalfOpen { of, .. } if *of == cause);
        let dead = cause == PauseCause::StopReason(StopReason::TokenRefused);
        // token/info succeeded, but the problem stayed: the call itself is the probe
        let in_vain = again && self.known && !dead;
        let by = probe(in_vain || matches!(cause, PauseCause::Refused(_)));
        let lacks_grant = matches!(cause, PauseCause::StopReason(StopReason::NoGrant(_)));
        let soon = if lacks_grant { FIRST_PROBE } else { PROBE };
        let next = match &self.state {
            // an invalid token is asked about once a minute (§7.7), whatever was planned before
            State::Paused { next, .. } if dead && now < *next => (*next).max(now + soon),
            // late answers from before the pause change nothing
            State::Paused { next, .. } if now < *next => *next,
            // a new problem is checked soon, whenever another was checked
            State::Flowing => {
                self.due = now;
                now + soon
            }
            State::Probing | State::HalfOpen { .. } | State::Paused { .. } => {
                self.due.max(now + soon)
            }
        };
        self.state = paused(cause, why, by, next);
    }
}

/// Allows one call, to test whether the problem of this cause is fixed.
fn trial(of: PauseCause) -> Admission {
    let polls = |kind| phase(kind) == Some(Endpoint::Poll);
    let polls_first = matches!(of, PauseCause::Refused(kind) if polls(kind));
    Admission::Trial { polls_first }
}

/// The endpoint whose answer refuses for this reason.
const fn phase(kind: Reason) -> Option<Endpoint> {
    match kind {
        Reason::Failed | Reason::Unconfirmed => Some(Endpoint::Poll),
        Reason::Rejected | Reason::Conflict | Reason::ServerError => Some(Endpoint::Submit),
        Reason::NoLead
        | Reason::AmbiguousLead
        | Reason::UuidConflict
        | Reason::Incomplete
        | Reason::TalkExceedsDuration
        | Reason::InvalidEpoch
        | Reason::Unreadable
        | Reason::NoEmployee => None,
    }
}

const fn probe(by_call: bool) -> Probe {
    if by_call {
        Probe::Call
    } else {
        Probe::TokenInfo
    }
}

const fn paused(cause: PauseCause, why: String, by: Probe, next: Duration) -> State {
    State::Paused {
        cause,
        why,
        by,
        next,
    }
}

/// Index of the streak for requests of this endpoint: submissions, or what follows them.
fn index(endpoint: Endpoint) -> usize {
    usize::from(endpoint != Endpoint::Submit)
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
