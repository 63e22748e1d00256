//! Decides which step an accepted call takes, and when to ask about it next.

use super::Confirm;
use callbridge_call::EventTime;
use callbridge_model::Reason;
use callbridge_spool::{IfAbsent, OutcomeSource, Step, Unconfirmed};
use serde_json::Value;
use std::time::Duration;

/// How long a requestId can be read (§4.6).
pub const REQUEST_ID_LIFE: Duration = Duration::from_secs(24 * 3600);

/// Longest wait before asking about the same call again.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// Ages since its last acceptance at which a call with a lost requestId is resent. After the last
/// of them, the call becomes an `unconfirmed` dead letter.
const RESEND_AFTER: [Duration; 3] = [
    Duration::from_secs(60),
    Duration::from_secs(3600),
    Duration::from_secs(24 * 3600),
];

/// Shortest wait after a page that didn't show a call.
const AFTER_PAGE: Duration = Duration::from_secs(15);

/// How long before the end of its 24 hours a requestId is polled in any case, ahead of everything
/// else (§4.6).
pub const ENDS_SOON: Duration = Duration::from_secs(15 * 60);

/// How long before its end a requestId is polled for the last time.
const LAST_POLL: Duration = Duration::from_secs(60);

/// When a requestId ceases to be readable, and when it's polled before that in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestIdEnd {
    /// The end of its 24 hours or of its token, whichever comes first.
    pub at: EventTime,
    /// The last two polls. Neither is earlier than a quarter of the requestId's life before its
    /// end.
    last_polls: [EventTime; 2],
}

impl RequestIdEnd {
    /// `token_ends` is when the token expires, if known.
    pub fn new(call: &Unconfirmed, token_ends: Option<EventTime>) -> Self {
        let day_ends = call.submitted_at.plus(REQUEST_ID_LIFE);
        let at = token_ends.map_or(day_ends, |token_ends| token_ends.min(day_ends));
        let quarter = at.since(call.submitted_at) / 4;
        Self {
            at,
            last_polls: [ENDS_SOON, LAST_POLL].map(|before| at.minus(before.min(quarter))),
        }
    }

    /// Returns `true` between the first of the last two polls and the end.
    pub fn is_soon(&self, now: EventTime) -> bool {
        self.last_polls[0] <= now && now < self.at
    }

    /// Returns the planned time, or that of the next of the last two polls if it's earlier.
    fn cap(&self, planned: EventTime, now: EventTime) -> EventTime {
        let mut coming = self.last_polls.into_iter().filter(|at| *at > now);
        coming.next().map_or(planned, |last| planned.min(last))
    }
}

/// Returns the time of the next poll after this many. The second, third, and fourth polls are 5,
/// 15, and 60 s after the CRM accepted the call. After that, the wait doubles from two minutes to
/// an hour.
pub fn next_poll(call: &Unconfirmed, polls: u32, now: EventTime, end: RequestIdEnd) -> EventTime {
    let planned = match polls {
        ..=1 => call.submitted_at.plus(Duration::from_secs(5)),
        2 => call.submitted_at.plus(Duration::from_secs(15)),
        3 => call.submitted_at.plus(Duration::from_secs(60)),
        _ => now.plus(poll_backoff(polls - 4)),
    };
    // Under load, a poll may be late. The next one shouldn't be due immediately.
    end.cap(planned, now).max(now.plus(Duration::from_secs(1)))
}

fn poll_backoff(times: u32) -> Duration {
    let minutes = 2 << times.min(8);
    Duration::from_secs(minutes * 60).min(WAIT_MAX)
}

/// Returns the step for a call that the journal shows.
pub fn found_step(call: &Unconfirmed) -> Step {
    match call.if_absent {
        IfAbsent::Resubmit | IfAbsent::Interrupted | IfAbsent::ServerError => {
            Step::Journaled(OutcomeSource::Confirmation)
        }
        IfAbsent::Changed => Step::too_late(&call.message),
    }
}

/// Returns the step that turns a call into a dead letter. Since that's callbridge's own decision,
/// there are no `errors` from the CRM.
pub fn dead_step(reason: Reason, message: String) -> Step {
    Step::Died {
        reason,
        message,
        errors: Value::Null,
    }
}

/// Returns the step that makes a call a `server_error` dead letter, because the CRM kept failing on
/// it.
pub fn give_up(message: &str) -> Step {
    dead_step(Reason::ServerError, message.to_owned())
}

impl Confirm {
    /// Returns the step for a call whose requestId is older than 24 hours and that nothing has
    /// shown. If nothing can confirm calls, the call becomes an `unconfirmed` dead letter and isn't
    /// resent.
    pub fn expired_step(&self, call: &Unconfirmed, now: EventTime) -> Step {
        if self.is_impossible() {
            return self.unobservable_step(call);
        }
        Step::Unresolved {
            next_check: now,
            if_absent: IfAbsent::Resubmit,
            why: "its requestId has expired: it can be read for 24 hours".to_owned(),
        }
    }

    fn unobservable_step(&self, call: &Unconfirmed) -> Step {
        let mut why = call.message.as_str();
        if let Some(refused) = &self.polls_refused {
            why = &refused.reason;
        }
        let message = format!(
            "the CRM accepted the call, and for 24 hours callbridge could not find out whether it \
             is journaled ({why}): check in the CRM. To confirm later calls, set up webhooks, or \
             grant PERMISSION_OPEN_API_CALL:READ"
        );
        dead_step(Reason::Unconfirmed, message)
    }

    /// Returns the step for a call that a page should have shown but none did. The call is looked
    /// for again later, or polled.
    pub fn absent_step(&self, call: &Unconfirmed, now: EventTime, end: RequestIdEnd) -> Step {
        let wait = call.age(now).clamp(AFTER_PAGE, WAIT_MAX);
        let mut absent = call.absent.saturating_add(1);
        if self.polls_refused.is_some() {
            // After being absent twice, a call is left to polls, but the CRM refuses those.
            absent = absent.min(1);
        }
        Step::NotYet {
            next_check: end.cap(now.plus(wait), now),
            absent: Some(absent),
        }
    }

    /// Returns the step for a call whose requestId was lost, along with the time of its next step.
    pub fn lost_step(&self, call: &Unconfirmed, now: EventTime, why: &str) -> Step {
        Step::Unresolved {
            next_check: resend_at(call, now).unwrap_or(now),
            if_absent: IfAbsent::Resubmit,
            why: why.to_owned(),
        }
    }

    /// Returns the time until which a call with a lost requestId is left alone, or `None` if its
    /// next step is due.
    pub fn waits_until(&self, call: &Unconfirmed, now: EventTime) -> Option<EventTime> {
        if call.if_absent != IfAbsent::Resubmit {
            return None;
        }
        let due = if self.is_impossible() {
            at_age(call, REQUEST_ID_LIFE, now)
        } else {
            resend_at(call, now)?
        };
        Some(due).filter(|due| *due > now)
    }

    /// Returns the step for a due call whose requestId is lost. `pages_read` tells whether all
    /// pages were read without showing the call.
    pub fn settle(&self, call: &Unconfirmed, now: EventTime, pages_read: bool) -> Step {
        if let Some(next_check) = self.waits_until(call, now) {
            let absent = Some(call.absent);
            return Step::NotYet { next_check, absent };
        }
        let how = if pages_read {
            "no page of the journal shows the call"
        } else {
            "the journal cannot be read"
        };
        match call.if_absent {
            IfAbsent::ServerError => give_up(&call.message),
            IfAbsent::Changed if !pages_read => dead_step(
                Reason::Unconfirmed,
                format!(
                    "it may be in the journal as it was first sent: {}; callbridge cannot read the \
                     journal to check: grant PERMISSION_OPEN_API_CALL:READ, or retry the call \
                     without --lead",
                    call.message
                ),
            ),
            IfAbsent::Resubmit if self.is_impossible() => self.unobservable_step(call),
            IfAbsent::Resubmit if call.resubmits as usize >= RESEND_AFTER.len() => dead_step(
                Reason::Unconfirmed,
                format!(
                    "sent {} times, and each time its outcome could not be requested in time; the \
                     last time: {}; {how}",
                    RESEND_AFTER.len() + 1,
                    call.message
                ),
            ),
            IfAbsent::Resubmit | IfAbsent::Interrupted | IfAbsent::Changed => Step::Resubmit {
                why: how.to_owned(),
            },
        }
    }
}

/// Returns the time at which a call with a lost requestId may be resent, or `None` if it has
/// already been resent three times.
fn resend_at(call: &Unconfirmed, now: EventTime) -> Option<EventTime> {
    let age = RESEND_AFTER.get(call.resubmits as usize)?;
    Some(at_age(call, *age, now))
}

/// Returns the time at which the call reaches `age`, at most an hour ahead. If the clock was set
/// back since the call was accepted, its age is unknown, so this returns `now`.
fn at_age(call: &Unconfirmed, age: Duration, now: EventTime) -> EventTime {
    if call.is_ahead(now) {
        return now;
    }
    let left = age.saturating_sub(call.age(now));
    now.plus(left.min(WAIT_MAX))
}
