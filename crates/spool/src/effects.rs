//! Applies a step's effects to the columns that describe a call's progress. These functions don't
//! touch the database. Instead, `tables::step` reads the columns and stores the result.

use crate::{ATTEMPTS_MAX, Attempt, FIRST_POLL, IfAbsent, OutcomeSource, Progress, State, Step};
use callbridge_call::EventTime;
use callbridge_model::{Reason, TokenFingerprint};

impl Progress {
    /// Applies a step, taken at `at`, that moves the call from its current state to `to`.
    pub(crate) fn take(&mut self, step: &Step, to: State, at: EventTime) {
        match step {
            Step::Send => {
                self.not_before = 0;
                self.first_sent = self.first_sent.or(Some(at));
            }
            Step::Journaled(OutcomeSource::Confirmation)
            | Step::Discard
            | Step::Expire
            | Step::Forwarded => {}
            // The call is in the journal, so a dead letter's reason no longer counts.
            Step::Journaled(OutcomeSource::Webhook) => {
                self.settled_externally = true;
                self.clear_dead_letter_fields();
            }
            // The call is sent with the backlog, using the values that were journaled. Results of
            // earlier requests no longer count.
            Step::SendAgain { why } => {
                self.note_attempt(at, why);
                self.forget_errors();
                self.live = false;
                self.settled_externally = false;
                self.request_id = None;
                self.token = None;
                self.first_sent = None;
                self.sent_again = true;
            }
            Step::Accepted { request_id, token } => {
                self.request_id = Some(request_id.clone());
                self.token = Some(token.clone());
                self.submitted_at = Some(at);
                self.next_poll = Some(at.plus(FIRST_POLL));
                self.polls = 0;
                self.absent = 0;
                self.failures = 0;
                self.absent_at = None;
                self.if_absent = None;
                self.retried = false;
            }
            Step::Returned {
                not_before,
                why,
                failures,
            } => {
                self.note_attempt(at, why);
                self.failures = *failures;
                self.not_before = not_before.micros().max(0);
            }
            Step::NotYet { next_check, absent } => {
                self.next_poll = Some(*next_check);
                match *absent {
                    None => self.polls += 1,
                    Some(times) if times == self.absent => {}
                    Some(times) => {
                        self.absent = times;
                        self.absent_at = Some(at);
                    }
                }
            }
            Step::Unresolved {
                next_check,
                if_absent,
                why,
            } => {
                self.note_attempt(at, why);
                self.mark_unresolved(*next_check, *if_absent, why);
            }
            Step::Resubmit { why } => {
                self.note_attempt(at, why);
                if self.if_absent != Some(IfAbsent::Interrupted) {
                    self.resubmits += 1;
                }
                self.next_poll = None;
                self.if_absent = None;
                self.not_before = 0;
                self.message.clear();
            }
            Step::Died {
                reason,
                message,
                errors,
            } => {
                self.note_attempt(at, message);
                self.set_reason(*reason, message);
                self.errors = (!errors.is_null()).then(|| errors.to_string());
                self.retried = false;
            }
            Step::Rejudged { reason, message } => self.set_reason(*reason, message),
            Step::Retry { by_itself, .. } => {
                self.queue_again();
                self.retried = !by_itself;
            }
            Step::Reopened { why } => {
                self.note_attempt(at, why);
                self.queue_again();
            }
            Step::Recheck { before, .. } => {
                self.queue_again();
                self.mark_unresolved(at, IfAbsent::Changed, before);
                self.retried = true;
            }
            // The call continues with another lead or without its employee, so results of earlier
            // requests no longer count.
            Step::Moved {
                reroute_history,
                why,
                ..
            } => {
                self.note_attempt(at, why);
                self.forget_errors();
                self.live &= self.state != State::Dead;
                self.reroute_history = Some(reroute_history.clone());
                self.first_sent = None;
            }
        }
        if self.state != to {
            self.state = to;
            self.since = at;
        }
    }

    pub(crate) fn note_attempt(&mut self, at: EventTime, message: &str) {
        if self.attempts.len() >= ATTEMPTS_MAX {
            self.attempts.remove(1);
        }
        let message = message.to_owned();
        self.attempts.push(Attempt { at, message });
    }

    /// Returns `true` for an `unconfirmed` dead letter that gets no notification: the CRM accepted
    /// the call, but no check can show whether it has been journaled, which may affect every call
    /// at that time. Returns `false` for a call that was resent, that a page should have shown, or
    /// that was a dead letter before.
    pub(crate) fn is_listed_alone(&self) -> bool {
        let before = (self.resubmits, self.absent, self.times_dead);
        self.reason == Some(Reason::Unconfirmed) && self.request_id.is_some() && before == (0, 0, 0)
    }

    fn set_reason(&mut self, reason: Reason, message: &str) {
        self.reason = Some(reason);
        message.clone_into(&mut self.message);
    }

    fn clear_dead_letter_fields(&mut self) {
        self.reason = None;
        self.errors = None;
        self.message.clear();
    }

    /// Clears the columns for errors from the call's earlier requests.
    fn forget_errors(&mut self) {
        self.clear_dead_letter_fields();
        self.not_before = 0;
        self.resubmits = 0;
        self.failures = 0;
        self.next_poll = None;
        self.if_absent = None;
        self.reroute_history = None;
        self.finding = None;
    }

    /// Prepares a dead letter or waiting call to be sent with the backlog. If its outcome is
    /// unknown, it may already be in the journal, so `first_sent` is kept.
    fn queue_again(&mut self) {
        let perhaps_written =
            matches!(self.reason, Some(Reason::ServerError | Reason::Unconfirmed));
        if !perhaps_written {
            self.first_sent = None;
        }
        self.forget_errors();
        self.live = false;
    }

    /// Makes the call unresolved, so that the journal is read from `next` on. If it's unknown when
    /// the CRM accepted the call, `submitted_at` becomes the time at which the call was first sent,
    /// or else the time it started.
    fn mark_unresolved(&mut self, next: EventTime, if_absent: IfAbsent, why: &str) {
        if self.state != State::Submitted {
            let started = EventTime::from_seconds(self.started.get());
            self.submitted_at = self.first_sent.or(Some(started));
        }
        self.request_id = None;
        self.token = Some(TokenFingerprint::none());
        self.polls = 0;
        self.absent = 0;
        self.absent_at = None;
        self.next_poll = Some(next);
        self.if_absent = Some(if_absent);
        why.clone_into(&mut self.message);
    }
}
