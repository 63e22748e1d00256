//! Whether anything may go out: open, paused with a probe a minute, or one trial in between.
//!
//! ```text
//! Asking ──token/info fine──▶ Open ──401, 403, 404, outage, 429, five refusals──▶ Paused
//!    ▲                          ▲                                                  │ probe
//!    └── another token          └── the call passes ── Trial ◀──────────────────────┘ fine
//!                                                        └── the same again ──▶ Paused
//! ```
//! Within one trouble, from the first probe on, probes and trials are at least a minute apart. A
//! trial is the next probe itself where token/info said that all is well and the call still failed.

use super::cause::{Cause, Permit, phase, trial};
use super::schedule::{Jitter, PROBE};
use super::verdict::Halt;
use crate::crm::Endpoint;
use crate::journal::Reason;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Refusals of one kind in a row after which it is us, not the calls.
pub const REFUSALS_MAX: u32 = 5;

/// Failures in a row, of any calls, that make an outage.
const FAILURES_MAX: u32 = 2;

/// The first probe of an outage comes soon.
const FIRST_PROBE: Duration = Duration::from_secs(2);

/// What the next probe is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    TokenInfo,
    Call,
    Never,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Asking,
    Open,
    /// `quietly`: token/info said that all is well, so there is nothing to show.
    Trial {
        of: Cause,
        why: String,
        quietly: bool,
    },
    Paused {
        cause: Cause,
        why: String,
        by: Probe,
        next: Duration,
    },
}

/// Whether anything may go out.
#[derive(Debug)]
pub struct Line {
    state: State,
    /// The token's record was read and found good.
    known: bool,
    /// Failures since a request passed.
    failing: u32,
    /// 429s in a row.
    too_many: u32,
    streaks: [Streak; 2],
    /// A minute after the last probe or trial; two after one that came before its minute was over.
    due: Duration,
}

/// Refusals of one kind in a row, in one phase of a call: at its submission, or after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Streak {
    kind: Option<Reason>,
    count: u32,
}

impl Line {
    /// A line whose token is not known yet.
    pub fn new(streaks: [Streak; 2]) -> Self {
        Self {
            state: State::Asking,
            known: false,
            failing: 0,
            too_many: 0,
            streaks,
            due: Duration::ZERO,
        }
    }

    /// Refusals in a row, at submissions and after them.
    pub fn streaks(&self) -> [Streak; 2] {
        self.streaks
    }

    /// What may go out, with so many requests under way. Nothing but the question whose it is goes
    /// out with a token that is not known yet, whatever the answers to the one before it say.
    pub fn permit(&self, now: Duration, under_way: usize, under_way_max: usize) -> Permit {
        match self.permitted(now, under_way, under_way_max) {
            Permit::Calls(_) | Permit::Trial { .. } if !self.known && under_way > 0 => {
                Permit::Answer
            }
            Permit::Calls(_) | Permit::Trial { .. } if !self.known => Permit::Ask,
            permit => permit,
        }
    }

    fn permitted(&self, now: Duration, under_way: usize, under_way_max: usize) -> Permit {
        match &self.state {
            State::Asking if under_way == 0 => Permit::Ask,
            State::Trial { of, .. } if under_way == 0 => trial(*of),
            State::Asking | State::Trial { .. } => Permit::Answer,
            // after a failure one at a time, to learn whether it was the call's own
            State::Open if self.failing > 0 => Permit::Calls(1),
            State::Open => Permit::Calls(under_way_max),
            State::Paused {
                by: Probe::Never, ..
            } => Permit::Token,
            State::Paused { next, .. } if now < *next => Permit::Until(*next),
            State::Paused { .. } if under_way > 0 => Permit::Answer,
            State::Paused {
                by: Probe::TokenInfo,
                ..
            } => Permit::Ask,
            State::Paused {
                cause,
                by: Probe::Call,
                ..
            } => trial(*cause),
        }
    }

    /// A probe, a trial or another request goes out.
    pub fn sent(&mut self, now: Duration) {
        match &self.state {
            State::Open => {}
            State::Asking | State::Trial { .. } => self.due = now + PROBE,
            State::Paused { cause, why, by, .. } => {
                let early = now < self.due;
                self.due = now + if early { 2 * PROBE } else { PROBE };
                if *by == Probe::Call {
                    let (of, why) = (*cause, why.clone());
                    self.state = State::Trial {
                        of,
                        why,
                        quietly: false,
                    };
                }
            }
        }
    }

    /// Another token, or none: everything known of the old one is forgotten.
    pub fn token(&mut self, present: bool) {
        self.known = false;
        self.state = if present {
            State::Asking
        } else {
            paused(
                Cause::TokenMissing,
                String::new(),
                Probe::Never,
                Duration::ZERO,
            )
        };
    }

    /// This token was refused before the last end; it is asked about again at this moment.
    pub fn refused_before(&mut self, next: Duration) {
        let cause = Cause::Halt(Halt::TokenRefused);
        self.state = paused(cause, "401".to_owned(), Probe::TokenInfo, next);
    }

    /// `token/info` found all well.
    pub fn fine(&mut self) {
        self.known = true;
        self.too_many = 0;
        let of = match &self.state {
            State::Asking => None,
            State::Open | State::Trial { .. } => return,
            State::Paused {
                cause: Cause::Outage,
                ..
            } if self.failing < FAILURES_MAX => None,
            State::Paused { cause, .. } => Some(*cause),
        };
        self.state = match of {
            None => State::Open,
            Some(of) => State::Trial {
                of,
                why: String::new(),
                quietly: true,
            },
        };
    }

    /// The token is another company's: not used any more.
    pub fn wrong_company(&mut self, why: String) {
        self.state = paused(Cause::WrongCompany, why, Probe::Never, Duration::ZERO);
    }

    /// The service works: it gave an answer about a call.
    pub fn passed(&mut self, endpoint: Endpoint) {
        self.failing = 0;
        self.too_many = 0;
        match &self.state {
            State::Asking | State::Open => {}
            State::Trial {
                of: Cause::Refused(kind),
                why,
                ..
            } if phase(*kind) != Some(endpoint) => {
                // the other phase went well: that says nothing yet
                let cause = Cause::Refused(*kind);
                self.state = paused(cause, why.clone(), Probe::Call, self.due);
            }
            State::Trial { .. }
            | State::Paused {
                cause: Cause::Outage,
                ..
            } => {
                self.state = State::Open;
            }
            State::Paused { .. } => {}
        }
    }

    /// A call was accepted or is journaled: refusals of its phase before it were the calls' own.
    pub fn good(&mut self, endpoint: Endpoint) {
        self.streaks[index(endpoint)] = Streak::default();
        self.passed(endpoint);
    }

    /// A call was refused for good.
    pub fn refused(&mut self, now: Duration, endpoint: Endpoint, kind: Reason, why: &str) {
        self.failing = 0;
        self.too_many = 0;
        let streak = &mut self.streaks[index(endpoint)];
        let count = if streak.kind == Some(kind) {
            streak.count + 1
        } else {
            1
        };
        *streak = Streak {
            kind: Some(kind),
            count,
        };
        if count >= REFUSALS_MAX {
            self.pause(now, Cause::Refused(kind), why.to_owned());
        } else {
            self.passed(endpoint);
        }
    }

    /// A request failed by no fault of its call.
    pub fn failed(&mut self, now: Duration, why: &str, nothing_gets_through: bool) {
        self.failing = self.failing.saturating_add(1);
        let outage = match &self.state {
            State::Asking | State::Trial { .. } => true,
            State::Open => nothing_gets_through || self.failing >= FAILURES_MAX,
            State::Paused {
                cause: Cause::Outage | Cause::TooMany,
                ..
            } => true,
            State::Paused { .. } => false,
        };
        if nothing_gets_through
            && matches!(
                self.state,
                State::Trial {
                    of: Cause::Outage,
                    ..
                }
            )
        {
            // not the submissions alone: token/info will tell when it is over
            self.state = State::Open;
        }
        if let State::Paused { next, .. } = &mut self.state
            && !outage
            && now >= *next
        {
            // the probe itself failed: that says nothing, and the next one is a minute away
            *next = now + PROBE;
        }
        if outage {
            self.pause(now, Cause::Outage, why.to_owned());
        }
    }

    /// How long until the next trial or probe, while all fail and it is no single call's fault.
    pub fn until_trial(&self, now: Duration) -> Option<Duration> {
        match &self.state {
            State::Paused {
                cause: Cause::Outage,
                next,
                ..
            } => Some(next.saturating_sub(now)),
            State::Trial { .. } => Some(PROBE),
            State::Asking | State::Open | State::Paused { .. } => {
                (self.failing >= FAILURES_MAX).then_some(PROBE)
            }
        }
    }

    /// The service stops us.
    pub fn halted(&mut self, now: Duration, halt: Halt, why: &str) {
        self.pause(now, Cause::Halt(halt), why.to_owned());
    }

    /// 429: nothing goes out until the moment that is given back.
    pub fn too_many(&mut self, now: Duration, window: Duration, jitter: &mut Jitter) {
        self.too_many = self.too_many.saturating_add(1);
        let next = now + jitter.after_429(self.too_many, window);
        let by = if self.known {
            Probe::Call
        } else {
            Probe::TokenInfo
        };
        match &self.state {
            State::Asking | State::Open | State::Trial { .. } => {
                self.state = paused(Cause::TooMany, String::new(), by, next);
            }
            State::Paused {
                cause,
                why,
                by,
                next: planned,
            } => {
                let next = next.max(*planned);
                self.state = paused(*cause, why.clone(), *by, next);
            }
        }
    }

    /// The token in use is asked about: its answer opens the line, or says what is wrong.
    pub fn is_asking(&self) -> bool {
        self.state == State::Asking
    }

    /// Why it is paused, and the words that came with it.
    pub fn pause_cause(&self) -> Option<(Cause, &str)> {
        match &self.state {
            State::Asking | State::Open | State::Trial { quietly: true, .. } => None,
            State::Trial { of: cause, why, .. } | State::Paused { cause, why, .. } => {
                Some((*cause, why))
            }
        }
    }

    fn pause(&mut self, now: Duration, cause: Cause, why: String) {
        let again = matches!(&self.state, State::Trial { of, .. } if *of == cause);
        let by = match cause {
            Cause::Refused(_) => Probe::Call,
            Cause::TokenMissing | Cause::WrongCompany => Probe::Never,
            // token/info said that all is well, and it was not: the call itself is the probe
            Cause::Halt(Halt::NoGrant(_) | Halt::WrongAddress) | Cause::Outage
                if again && self.known =>
            {
                Probe::Call
            }
            Cause::Halt(_) | Cause::Outage | Cause::TooMany => Probe::TokenInfo,
        };
        let soon = match cause {
            Cause::Outage | Cause::Halt(Halt::NoGrant(_)) => FIRST_PROBE,
            Cause::TokenMissing
            | Cause::WrongCompany
            | Cause::Halt(Halt::TokenRefused | Halt::WrongAddress)
            | Cause::TooMany
            | Cause::Refused(_) => PROBE,
        };
        let dead = cause == Cause::Halt(Halt::TokenRefused);
        let next = match &self.state {
            // a dead token is asked about once a minute (§7.7), whatever was planned before
            State::Paused { next, .. } if dead && now < *next => (*next).max(now + soon),
            // stragglers of what was under way when the pause began change nothing
            State::Paused { next, .. } if now < *next => *next,
            // a trouble that begins is looked at soon, whenever another was looked at
            State::Open => {
                self.due = now;
                now + soon
            }
            // a start into an outage too, but its own question counts
            State::Asking if cause == Cause::Outage => now + soon,
            State::Asking | State::Trial { .. } | State::Paused { .. } => self.due.max(now + soon),
        };
        self.state = paused(cause, why, by, next);
    }
}

const fn paused(cause: Cause, why: String, by: Probe, next: Duration) -> State {
    State::Paused {
        cause,
        why,
        by,
        next,
    }
}

const fn index(endpoint: Endpoint) -> usize {
    match endpoint {
        Endpoint::Submit => 0,
        Endpoint::Poll
        | Endpoint::TokenInfo
        | Endpoint::Filter
        | Endpoint::Lead
        | Endpoint::Leads
        | Endpoint::CrmFields
        | Endpoint::FieldList => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    /// A line that has asked about its token at the start, and found it good.
    fn open() -> Line {
        let mut line = Line::new([Streak::default(); 2]);
        line.token(true);
        line.sent(S);
        line.fine();
        line
    }

    fn two_fail(line: &mut Line, at: Duration) {
        line.failed(at, "500", false);
        line.failed(at, "500", false);
    }

    #[test]
    fn an_outage_is_looked_at_soon_and_then_once_a_minute() {
        let mut line = open();
        two_fail(&mut line, 5 * S);
        assert_eq!(line.permit(6 * S, 0, 4), Permit::Until(7 * S));
        assert_eq!(line.until_trial(5 * S), Some(2 * S));
        line.sent(7 * S);
        line.failed(7 * S, "500", false);
        assert_eq!(line.permit(8 * S, 0, 4), Permit::Until(67 * S));
        line.sent(67 * S);
        line.failed(67 * S, "500", false);
        assert_eq!(line.permit(68 * S, 0, 4), Permit::Until(127 * S));
    }

    #[test]
    fn a_straggler_s_401_in_an_outage_is_followed_by_a_minute_without_that_token() {
        let mut line = open();
        two_fail(&mut line, 5 * S);
        assert_eq!(line.permit(6 * S, 0, 4), Permit::Until(7 * S));
        line.halted(6 * S, Halt::TokenRefused, "401");
        assert_eq!(line.permit(7 * S, 0, 4), Permit::Until(66 * S));
    }

    #[test]
    fn a_probe_that_fails_while_the_token_is_dead_is_followed_by_another_after_a_minute() {
        let mut line = open();
        line.halted(5 * S, Halt::TokenRefused, "401");
        assert_eq!(line.permit(65 * S, 0, 4), Permit::Ask);
        line.sent(65 * S);
        line.failed(95 * S, "no answer in time", false);
        assert_eq!(line.permit(96 * S, 0, 4), Permit::Until(155 * S));
        assert_eq!(
            line.pause_cause().map(|it| it.0),
            Some(Cause::Halt(Halt::TokenRefused))
        );
    }

    #[test]
    fn a_start_into_an_outage_is_looked_at_soon_and_not_more_than_once_a_minute_in_all() {
        let mut line = Line::new([Streak::default(); 2]);
        line.token(true);
        line.sent(S);
        line.failed(S, "no connection", true);
        assert_eq!(line.permit(2 * S, 0, 4), Permit::Until(3 * S));
        line.sent(3 * S);
        line.failed(3 * S, "no connection", true);
        assert_eq!(line.permit(4 * S, 0, 4), Permit::Until(123 * S));
        line.sent(123 * S);
        line.failed(123 * S, "no connection", true);
        assert_eq!(line.permit(124 * S, 0, 4), Permit::Until(183 * S));
    }

    #[test]
    fn an_outage_in_which_token_info_works_is_tried_once_a_minute_until_a_call_passes() {
        let mut line = open();
        line.good(Endpoint::Submit);
        two_fail(&mut line, 5 * S);
        line.sent(7 * S);
        line.fine();
        line.sent(7 * S);
        line.failed(7 * S, "500", false);
        assert_eq!(line.permit(8 * S, 0, 4), Permit::Until(67 * S));
        line.sent(67 * S);
        line.good(Endpoint::Submit);
        assert_eq!(line.pause_cause(), None);
        two_fail(&mut line, 70 * S);
        assert_eq!(line.permit(71 * S, 0, 4), Permit::Until(72 * S));
    }
}
