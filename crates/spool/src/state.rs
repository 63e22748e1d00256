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
//! `Rejudged` goes between dead and waiting, both ways.
//!
//! `Forwarded` leads from ready to forwarded, if a hub takes the calls in place of the CRM. If the
//! hub has lost its state, [`Op::Offer`](crate::Op::Offer) makes forwarded calls ready again.
//!
//! `SendAgain` leads from journaled back to ready. A person does this with a call that the CRM's
//! journal does not have (`audit --take-in`). The uuid stays the same, so there is no second record
//! if the journal shows the call meanwhile (§4.5.4).
//!
//! `Moved` leads from submitted and from dead to ready, and leaves a ready call ready. The call
//! continues automatically with another lead, or without its employee.
//!
//! An **unresolved** call is a submitted one whose outcome cannot be polled: its request was under
//! way when the process ended, or its requestId can no longer be read. The CRM's journal is read
//! instead.
//!
//! A webhook (§6.8) can report at any time that a call is in the journal. `Journaled` then leads to
//! journaled from ready, sending, and submitted. It also leads there from dead, if the outcome of
//! the dead letter was unknown ([`step_when_shown`]). Later answers of the CRM change nothing
//! ([`Step::is_answer`]).

use callbridge_call::EventTime;
use callbridge_leads::lead_request::failed::{Reroute, RerouteHistory};
use callbridge_model::{CallRecord, Reason, TokenFingerprint};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Time from the CRM's 200 response for a call to the first poll of its requestId.
pub const FIRST_POLL: Duration = Duration::from_secs(2);

/// State of a call on its way to the journal. The words are stored. Never change one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(strum::IntoStaticStr, strum::VariantArray, strum::EnumString, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum State {
    /// The call waits to be sent.
    Ready,
    /// A request of the call is in flight, or was in flight when the process ended.
    Sending,
    /// The CRM accepted the call with a requestId (§4.5), or perhaps accepted it. It is not yet
    /// known whether the call is in the journal.
    Submitted,
    /// The call is known to be in the journal. Final, unless a person finds that the journal lost
    /// it.
    Journaled,
    /// The call is a dead letter: a person has to decide.
    Dead,
    /// The call leaves automatically when the missing lead or employee becomes known.
    Waiting,
    /// A person has given up the call. Final.
    Discarded,
    /// A hub has stored the call and sends it. Final, unless the hub loses its state.
    Forwarded,
}

impl State {
    /// All states, in the order of the books.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the word that is stored and shown: `ready`.
    pub fn word(self) -> &'static str {
        self.into()
    }

    /// Returns `true` for dead letters and waiting calls.
    pub(crate) const fn is_letter(self) -> bool {
        matches!(self, Self::Dead | Self::Waiting)
    }

    /// Returns the state with this stored word. `None` for an unknown word.
    pub fn from_word(word: &str) -> Option<Self> {
        word.parse().ok()
    }
}

/// Next step of an unresolved call that the journal does not hold. The words are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum IfAbsent {
    /// Give up the call: the CRM failed on it repeatedly.
    ServerError,
    /// Send the call with other values than before. If the journal does hold the call, the other
    /// values came too late.
    Changed,
    /// Send the call again. This does not count as a resubmission, because the process ended while
    /// the call's request was under way.
    Interrupted,
    /// Send the call again.
    #[default]
    Resubmit,
}

impl IfAbsent {
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the word that is stored: `server_error`.
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// How it became known that the journal holds a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutcomeSource {
    /// The answer to a poll of the call's request, or a journal page that was requested for it.
    Confirmation,
    /// An event from the CRM, or a journal page that was requested for other calls.
    Webhook,
}

/// Step of a stored call. Every step that changes the state moves the call from one book to
/// another.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// ready → sending: committed together with the request's slot, before the request is sent.
    Send,
    /// sending → submitted: a 200 with a requestId. The first poll is due after [`FIRST_POLL`].
    /// Earlier failures are forgotten.
    Accepted {
        /// The CRM's id of the request (§4.5).
        request_id: String,
        /// The token that made the request. Only this token can read its result.
        token: TokenFingerprint,
    },
    /// sending → ready: the call is to be sent again (after 5xx, timeout, 401, 429…). Counts as an
    /// attempt.
    Returned {
        /// Earliest time to send the call again.
        not_before: EventTime,
        /// Message for the list of attempts.
        why: String,
        /// Sends of this call that failed so far while other calls succeeded, including the first.
        failures: u32,
    },
    /// → journaled: from submitted after a confirmation. Also from sending, ready, and dead after a
    /// webhook.
    Journaled(OutcomeSource),
    /// submitted → submitted: a check did not settle the call.
    NotYet {
        /// Time of the next check, by a reconciliation page or a poll.
        next_check: EventTime,
        /// Number of pages so far that should have shown the call, at least a minute apart. From 2
        /// on, the call is polled individually. `None` after a poll.
        absent: Option<u32>,
    },
    /// sending or submitted → submitted: the CRM perhaps accepted the call, but there is no
    /// requestId that can be polled. Counts as an attempt.
    Unresolved {
        /// Earliest time to read the journal.
        next_check: EventTime,
        /// Next step if the journal does not hold it.
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
    /// ready, sending or submitted → dead, or → waiting if the reason can pass automatically
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
        /// Values mapped again with the same uuid, perhaps with another lead or employee.
        record: CallRecord,
        /// `true` if the lead of a waiting call became known, `false` if a person retries it.
        by_itself: bool,
    },
    /// dead → submitted: a person retries, with other values, a call that is perhaps in the journal
    /// already. The call becomes unresolved with [`IfAbsent::Changed`].
    Recheck {
        /// Values that are sent if the journal does not hold the call. Same uuid.
        record: CallRecord,
        /// Text of the values that the call was sent with before.
        before: String,
    },
    /// waiting or dead → waiting or dead: the reason has changed. For example, the number of a call
    /// without a lead now has two. Only for calls that were never sent.
    Rejudged {
        /// The new reason. The call waits if the reason can pass automatically, and is dead
        /// otherwise.
        reason: Reason,
        /// Text for the reason.
        message: String,
    },
    /// ready, submitted or dead → ready: the call continues automatically, with the lead that its
    /// lead was merged into, or without an employee whom the CRM does not know. Counts as an
    /// attempt.
    Moved {
        /// Values that are sent now. Same uuid.
        record: Box<CallRecord>,
        /// Earlier leads and changes of the call. It never returns to an earlier lead.
        reroute_history: RerouteHistory,
        /// Message for the list of attempts.
        why: String,
    },
    /// waiting → dead: the call's lead was not known in time. The call no longer leaves
    /// automatically.
    Expire,
    /// dead or waiting → discarded: by a person.
    Discard,
    /// ready → forwarded: a hub has stored the call.
    Forwarded,
    /// dead → ready: automatically, because several calls in a row were refused for a cause that
    /// was not this call. The values stay. Counts as an attempt. Nothing happens if the call is no
    /// longer dead.
    Reopened {
        /// Message for the list of attempts.
        why: String,
    },
    /// journaled → ready: a person sends the call again, because the CRM's journal does not have
    /// it. Counts as an attempt.
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

    /// Returns `true` for the outcome of a request or of a journal check. Such a step changes
    /// nothing if a webhook has confirmed the call meanwhile.
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

    /// Makes the step by which a call continues with the other values in `on`. `prefix` is put
    /// before the message.
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

    /// Makes the step for a call that the journal holds with the values that were first sent, so
    /// later values came too late. `before` describes the first values.
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

/// Returns the step of a call when a webhook reports that the journal holds the call. `None` if the
/// call stays in its state. `message` is the call's
/// [`Progress::message`](crate::Progress::message).
///
/// A dead letter becomes journaled only if its outcome was unknown: `server_error`, `unconfirmed`.
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

/// Error for a step that is not allowed in the call's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a call that is {state} cannot take the step `{step}`")]
pub struct Refused {
    pub state: State,
    pub step: &'static str,
}

/// Returns the state of a call that is not sent, by its reason: waiting or dead.
fn not_sent(reason: Reason) -> State {
    if reason.is_waiting() {
        State::Waiting
    } else {
        State::Dead
    }
}

/// Returns the state after a step. Refuses a step that is not allowed in `state`.
///
/// # Errors
/// [`Refused`]. The call stays as it is.
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
