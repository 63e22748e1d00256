//! The states of a call on its way to the CRM's journal, and the function [`next`] that returns the
//! state after a step.
//!
//! ```text
//!            ┌──────── Returned ────────────────┐   ┌──── NotYet, Unresolved ────┐
//!            ▼                                  │   │                            │
//!  Finish ▶ ready ── Send ──▶ sending ── Accepted, ─▶ submitted ── Journaled ──▶ journaled
//!            ▲ ▲                 │     Unresolved    │ │ ▲
//!            │ └──── Resubmit ───┼───────────────────┘ │ │
//!            │                   ▼                     │ │
//!            ├─ Retry, Moved, ─ dead ◀──── Died ───────┘ │ (Died also from ready)
//!            │  Reopened
//!            │                  ▲ │ └───── Recheck ──────┘
//!            │           Expire │ └── Discard ──▶ discarded
//!            └──────── Retry ───┴ waiting ── Discard ──▶ discarded
//! ```
//!
//! `Rejudged` moves a call from dead to waiting or vice versa.
//!
//! `Forwarded` leads from ready to forwarded if a hub receives the calls instead of the CRM. If the
//! hub has lost its state, [`Op::Offer`](crate::Op::Offer) makes forwarded calls ready again.
//!
//! `SendAgain` leads from journaled back to ready, if someone resends a call that's missing from
//! the CRM's journal (`audit --take-in`). The uuid stays the same, so no second record is created
//! even if the journal has the call by then (§4.5.4).
//!
//! `Moved` leads from submitted and from dead to ready, and leaves a ready call ready. The call
//! continues automatically with another lead or without its employee.
//!
//! An **unresolved** call is a submitted one whose outcome can't be polled, because its request was
//! in flight when the process ended, or because its requestId can't be read any more. The CRM's
//! journal is read instead.
//!
//! A webhook (§6.8) may report at any time that a call is in the journal. `Journaled` then leads to
//! journaled from ready, sending, and submitted, and also from dead if the dead letter's outcome
//! was unknown ([`step_when_shown`]). Any later responses from the CRM change nothing
//! ([`Step::is_answer`]).

use callbridge_call::EventTime;
use callbridge_leads::lead_request::failed::{Reroute, RerouteHistory};
use callbridge_model::{CallRecord, Reason, TokenFingerprint};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Time from the CRM's 200 for a call to the first poll of its requestId.
pub const FIRST_POLL: Duration = Duration::from_secs(2);

/// A call's state on its way to the journal. The words are stored, so never change one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(strum::IntoStaticStr, strum::VariantArray, strum::EnumString, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum State {
    /// The call waits to be sent.
    Ready,
    /// A request for the call is in flight, or was in flight when the process ended.
    Sending,
    /// The CRM accepted the call with a requestId (§4.5), or may have accepted it, but we don't
    /// know yet whether it's in the journal.
    Submitted,
    /// The call is known to be in the journal. Final, unless someone finds out that the journal
    /// lost it.
    Journaled,
    /// The call is a dead letter that someone has to decide about.
    Dead,
    /// The call leaves automatically once the missing lead or employee is known.
    Waiting,
    /// Someone has given up on the call. Final.
    Discarded,
    /// A hub has stored the call and will send it. Final, unless the hub loses its state.
    Forwarded,
}

impl State {
    /// All states, in the order of the books.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the word that's stored and shown, such as `ready`.
    pub fn word(self) -> &'static str {
        self.into()
    }

    /// Returns `true` for dead letters and waiting calls.
    pub(crate) const fn is_letter(self) -> bool {
        matches!(self, Self::Dead | Self::Waiting)
    }

    /// Returns the state with this stored word, or `None` for an unknown word.
    pub fn from_word(word: &str) -> Option<Self> {
        word.parse().ok()
    }
}

/// An unresolved call's next step if it isn't in the journal. The words are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum IfAbsent {
    /// Give up on the call, because the CRM failed on it repeatedly.
    ServerError,
    /// Send the call with other values than before. If it turns out to be in the journal, they came
    /// too late.
    Changed,
    /// Resend the call. This doesn't count as a resubmission, because the process ended while the
    /// call's request was in flight.
    Interrupted,
    /// Resend the call.
    #[default]
    Resubmit,
}

impl IfAbsent {
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the word that's stored, such as `server_error`.
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// How it became known that a call is in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutcomeSource {
    /// The response to a poll for the call's request, or a journal page requested for it.
    Confirmation,
    /// An event from the CRM, or a journal page requested for other calls.
    Webhook,
}

/// A stored call's step. Every step that changes the state moves the call from one book to another.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// ready → sending: committed together with the request's slot, before the request is sent.
    Send,
    /// sending → submitted: a 200 with a requestId. The first poll is due after [`FIRST_POLL`].
    /// Earlier failures are forgotten.
    Accepted {
        /// The CRM's ID for the request (§4.5).
        request_id: String,
        /// The token used for the request, which is the only one that can read its result.
        token: TokenFingerprint,
    },
    /// sending → ready: the call will be resent (after 5xx, timeout, 401, 429…). Counts as an
    /// attempt.
    Returned {
        /// Earliest time to resend the call.
        not_before: EventTime,
        /// Message for the list of attempts.
        why: String,
        /// How often sending this call has failed while other calls succeeded, including the first
        /// time.
        failures: u32,
    },
    /// → journaled: from submitted after a confirmation, and also from sending, ready, and dead
    /// after a webhook.
    Journaled(OutcomeSource),
    /// submitted → submitted: a check didn't settle the call.
    NotYet {
        /// Time of the next check, by a reconciliation page or a poll.
        next_check: EventTime,
        /// Number of pages so far that should have shown the call, at least a minute apart. From 2
        /// on, the call is polled individually. `None` after a poll.
        absent: Option<u32>,
    },
    /// sending or submitted → submitted: the CRM may have accepted the call, but there's no
    /// requestId that can be polled. Counts as an attempt.
    Unresolved {
        /// Earliest time to read the journal.
        next_check: EventTime,
        /// Next step if the call isn't in the journal.
        if_absent: IfAbsent,
        /// Message for the list of attempts.
        why: String,
    },
    /// submitted → ready: an unresolved call that was not found in the journal. Counts as an
    /// attempt and as a resubmission.
    Resubmit {
        /// Message for the list of attempts.
        why: String,
    },
    /// ready, sending or submitted → dead, or → waiting if the reason may resolve itself
    /// ([`Reason::is_waiting`]). Counts as an attempt.
    Died {
        reason: Reason,
        /// Text for the reason, or the CRM's `message`.
        message: String,
        /// The CRM's `errors` (§7.2), or null.
        errors: serde_json::Value,
    },
    /// dead or waiting → ready: the call is sent, perhaps with other values.
    Retry {
        /// The values after mapping the call again with the same uuid, perhaps with another lead or
        /// employee.
        record: CallRecord,
        /// `true` if a waiting call's lead became known, or `false` if someone retries the call.
        by_itself: bool,
    },
    /// dead → submitted: someone retries a call with other values, although it may already be in
    /// the journal. The call becomes unresolved with [`IfAbsent::Changed`].
    Recheck {
        /// Values to send if the call isn't in the journal. Same uuid.
        record: CallRecord,
        /// Description of the values that the call was sent with before.
        before: String,
    },
    /// waiting or dead → waiting or dead: the reason has changed. For example, a number that had no
    /// lead now has two. Only for calls that were never sent.
    Rejudged {
        /// The new reason. If it may resolve itself, the call is waiting, and otherwise dead.
        reason: Reason,
        /// Message for the reason.
        message: String,
    },
    /// ready, submitted or dead → ready: the call continues automatically, with the lead that its
    /// own was merged into, or without an employee unknown to the CRM. Counts as an attempt.
    Moved {
        /// Values to send now. Same uuid.
        record: Box<CallRecord>,
        /// The call's earlier leads and changes. It never returns to an earlier lead.
        reroute_history: RerouteHistory,
        /// Message for the list of attempts.
        why: String,
    },
    /// waiting → dead: the call's lead didn't become known in time, so the call no longer leaves
    /// automatically.
    Expire,
    /// dead or waiting → discarded: someone gave up on the call.
    Discard,
    /// ready → forwarded: a hub has stored the call.
    Forwarded,
    /// dead → ready: happens automatically when several calls in a row were refused for a reason
    /// unrelated to this call. The values stay the same. Counts as an attempt. Does nothing if the
    /// call is no longer dead.
    Reopened {
        /// Message for the list of attempts.
        why: String,
    },
    /// journaled → ready: someone resends the call, because it's missing from the CRM's journal.
    /// Counts as an attempt.
    SendAgain {
        /// Message for the list of attempts.
        why: String,
    },
}

impl Step {
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Accepted { .. } => "accepted",
            Self::Returned { .. } => "returned",
            Self::Journaled(OutcomeSource::Confirmation) => "confirmed",
            Self::Journaled(OutcomeSource::Webhook) => "hooked",
            Self::NotYet { absent: None, .. } => "not yet",
            Self::NotYet { .. } => "absent",
            Self::Unresolved { .. } => "orphaned",
            Self::Resubmit { .. } => "resubmit",
            Self::Died { .. } => "died",
            Self::Retry { by_itself, .. } if *by_itself => "release",
            Self::Retry { .. } => "retry",
            Self::Recheck { .. } => "recheck",
            Self::Rejudged { .. } => "rejudged",
            Self::Moved { .. } => "moved",
            Self::Expire => "expire",
            Self::Discard => "discard",
            Self::Forwarded => "forwarded",
            Self::Reopened { .. } => "reopened",
            Self::SendAgain { .. } => "send again",
        }
    }

    /// Returns `true` for the outcome of a request or a journal check. Such a step changes nothing
    /// if a webhook has confirmed the call in the meantime.
    pub const fn is_answer(&self) -> bool {
        matches!(
            self,
            Self::Accepted { .. }
                | Self::Returned { .. }
                | Self::Journaled(_)
                | Self::NotYet { .. }
                | Self::Unresolved { .. }
                | Self::Resubmit { .. }
                | Self::Died { .. }
        )
    }

    /// Creates the step with which a call continues using the other values in `on`. `prefix` is put
    /// in front of the message.
    pub fn moved(on: Reroute, prefix: &str) -> Self {
        let why = match prefix {
            "" => on.why,
            prefix => format!("{prefix}; {}", on.why),
        };
        Self::Moved {
            record: Box::new(on.record),
            reroute_history: on.history,
            why,
        }
    }

    /// Creates the step for a call that's in the journal with the values that were sent first, so
    /// that the later ones came too late. `before` describes the first values.
    pub fn too_late(before: &str) -> Self {
        Self::Died {
            reason: Reason::Conflict,
            message: format!(
                "the journal holds this call already, as it was first sent: {before}; change it in \
                 the CRM, or discard this dead letter"
            ),
            errors: serde_json::Value::Null,
        }
    }
}

/// Returns the step for a call when a webhook reports that it's in the journal, or `None` if it
/// stays in its state. `message` is the call's [`Progress::message`](crate::Progress::message).
///
/// A dead letter becomes journaled only if its outcome was unknown (`server_error` or
/// `unconfirmed`).
pub fn step_when_shown(
    state: State,
    reason: Option<Reason>,
    if_absent: Option<IfAbsent>,
    message: &str,
) -> Option<Step> {
    let doubtful = matches!(reason, Some(Reason::ServerError | Reason::Unconfirmed));
    let journaled = Step::Journaled(OutcomeSource::Webhook);
    match state {
        State::Submitted if if_absent == Some(IfAbsent::Changed) => Some(Step::too_late(message)),
        State::Ready | State::Sending | State::Submitted => Some(journaled),
        State::Dead if doubtful => Some(journaled),
        State::Dead | State::Journaled | State::Waiting | State::Discarded | State::Forwarded => {
            None
        }
    }
}

/// Error for a step that isn't allowed in the call's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a call that is {state} cannot take the step `{step}`")]
pub struct Refused {
    pub state: State,
    pub step: &'static str,
}

/// Returns the state for a call that isn't sent, depending on its reason: waiting or dead.
fn not_sent(reason: Reason) -> State {
    if reason.is_waiting() {
        State::Waiting
    } else {
        State::Dead
    }
}

/// Returns the state after a step, refusing one that isn't allowed in `state`.
///
/// # Errors
/// Returns [`Refused`], in which case the call stays as it is.
pub fn next(state: State, step: &Step) -> Result<State, Refused> {
    use State::{Dead, Discarded, Forwarded, Journaled, Ready, Sending, Submitted, Waiting};
    let (exists, to) = match step {
        Step::Send => (state == Ready, Sending),
        Step::Accepted { .. } => (state == Sending, Submitted),
        Step::Returned { .. } => (state == Sending, Ready),
        Step::Journaled(OutcomeSource::Confirmation) => (state == Submitted, Journaled),
        Step::Journaled(OutcomeSource::Webhook) => (
            matches!(state, Ready | Sending | Submitted | Dead),
            Journaled,
        ),
        Step::NotYet { .. } => (state == Submitted, Submitted),
        Step::Unresolved { .. } => (matches!(state, Sending | Submitted), Submitted),
        Step::Resubmit { .. } => (state == Submitted, Ready),
        Step::Died { reason, .. } => (
            matches!(state, Ready | Sending | Submitted),
            not_sent(*reason),
        ),
        Step::Retry { by_itself, .. } => (state == Waiting || state == Dead && !by_itself, Ready),
        Step::Recheck { .. } => (state == Dead, Submitted),
        Step::Rejudged { reason, .. } => (state.is_letter(), not_sent(*reason)),
        Step::Moved { .. } => (matches!(state, Ready | Submitted | Dead), Ready),
        Step::Expire => (state == Waiting, Dead),
        Step::Discard => (state.is_letter(), Discarded),
        Step::Forwarded => (state == Ready, Forwarded),
        Step::Reopened { .. } => (state == Dead, Ready),
        Step::SendAgain { .. } => (state == Journaled, Ready),
    };
    if !exists {
        return Err(Refused {
            state,
            step: step.name(),
        });
    }
    Ok(to)
}
