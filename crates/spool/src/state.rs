//! The states of a call on its way to the journal, and the one function that moves between them.
//!
//! ```text
//!            ┌──────── Returned ────────────────┐   ┌──── NotYet, Unresolved ────┐
//!            ▼                                  │   │                            │
//!  Finish ▶ ready ── Send ──▶ sending ── Accepted, ─▶ submitted ── Journaled ──▶ journaled
//!            ▲ ▲                 │     Unresolved    │ │ ▲
//!            │ └──── Resubmit ───┼───────────────────┘ │ │
//!            │                   ▼                     │ │
//!            ├─ Retry, Moved ── dead ◀──── Died ───────┘ │ (Died also from ready)
//!            │                  ▲ │ └───── Recheck ──────┘
//!            │           Expire │ └── Discard ──▶ discarded
//!            └──────── Retry ───┴ waiting ── Discard ──▶ discarded
//! ```
//!
//! `Rejudged` goes between dead and waiting, both ways.
//!
//! `SendAgain` leads from journaled back to ready: by a person, of a call that the CRM's journal
//! does not have (`audit --take-in`). Its uuid is what it was, so that one that turns up meanwhile
//! is no second record (§4.5.4).
//!
//! `Moved` leads from submitted and from dead to ready, and leaves a ready call ready: it goes on
//! by itself with another lead, or without its employee.
//!
//! An **unresolved** call is a submitted one whose outcome cannot be asked for: its request was
//! under way when the process ended, or its requestId can no longer be read. The journal itself is
//! asked.
//!
//! A webhook (§6.8) may tell at any time that a call stands in the journal: `Journaled` leads to
//! journaled from ready, sending and submitted, and from dead where the letter only says that
//! nobody knows ([`step_when_shown`]). An answer of the service that comes after it is old news
//! ([`Step::is_answer`]).

use callbridge_call::EventTime;
use callbridge_leads::lead_request::failed::{Reroute, RerouteHistory};
use callbridge_model::{CallRecord, Reason, TokenFingerprint};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Time from the 200 to a call's first poll.
pub const FIRST_POLL: Duration = Duration::from_secs(2);

/// State of a call on its way to the journal. The words are stored: never change one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(strum::IntoStaticStr, strum::VariantArray, strum::EnumString, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum State {
    /// The call waits to be sent.
    Ready,
    /// A request of the call is under way, or was when the process ended.
    Sending,
    /// The call is accepted with a requestId (§4.5), or perhaps accepted; not yet known to be
    /// written.
    Submitted,
    /// The call is known to be in the journal. Final, unless a person finds that the journal lost
    /// it.
    Journaled,
    /// The call is a dead letter: a person has to decide.
    Dead,
    /// A dead letter that leaves by itself when the missing lead or employee becomes known.
    Waiting,
    /// A person has given up the call. Final.
    Discarded,
}

impl State {
    /// Every state, in the order of the books.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// The word stored and shown: `ready`.
    pub fn word(self) -> &'static str {
        self.into()
    }

    /// Returns `true` for the two states of letters: a person has to decide, or the lead is
    /// awaited.
    pub(crate) const fn is_letter(self) -> bool {
        matches!(self, Self::Dead | Self::Waiting)
    }

    /// The state of a word; `None` for an unknown one.
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
    /// The call is given up: the service failed on it time and again.
    ServerError,
    /// The call is sent with other values than before. If the journal does hold it, those came too
    /// late.
    Changed,
    /// The call is sent again, as with a word that is not known here.
    #[default]
    #[serde(other)]
    Resubmit,
}

impl IfAbsent {
    /// Every fate, in the order of the variants.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the word that is stored: `server_error`.
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// Source of the news that the journal holds a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutcomeSource {
    /// The answer to a poll of its request, or a page on which it was looked for.
    Confirmation,
    /// The service itself, by an event or a page that was asked for other calls.
    Webhook,
}

/// Step of a stored call. Every step that leads to another state moves the call from one book to
/// another.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// ready → sending: committed together with the slot, before the request.
    Send,
    /// sending → submitted: a 200 with a requestId. The first poll is due after [`FIRST_POLL`].
    /// Failures before it are forgotten.
    Accepted {
        /// The CRM's id of the request (§4.5).
        request_id: String,
        /// The token that made it: only that one can read it.
        token: TokenFingerprint,
    },
    /// sending → ready: to be tried again (5xx, time-out, 401, 429…). Counts as an attempt.
    Returned {
        /// Moment before which it is not sent again.
        not_before: EventTime,
        /// Words of the attempt, for people.
        why: String,
        /// Failures of this call so far while others passed.
        failures: u32,
    },
    /// → journaled: from submitted where it is confirmed; from sending and ready, too, and from
    /// dead, where a webhook says so.
    Journaled(OutcomeSource),
    /// submitted → submitted: not settled yet.
    NotYet {
        /// Moment of the next check, by a reconciliation page or a poll.
        next_check: EventTime,
        /// Pages that should have shown it, a minute apart at least; from 2 on it is polled alone.
        /// `None` where it was polled.
        absent: Option<u32>,
    },
    /// sending or submitted → submitted: it may have been accepted, but nothing can be asked with
    /// its requestId. Counts as an attempt.
    Unresolved {
        /// Moment at which the journal can be asked first.
        next_check: EventTime,
        /// Next step where the journal does not hold it.
        if_absent: IfAbsent,
        /// Words of the attempt, for people.
        why: String,
    },
    /// submitted → ready: an unresolved call that was not found in the journal. Counts as an
    /// attempt and as a resubmission.
    Resubmit {
        /// Words of the attempt, for people.
        why: String,
    },
    /// ready, sending or submitted → dead; to waiting when the reason is one that may pass by
    /// itself ([`Reason::is_waiting`]). Counts as an attempt.
    Died {
        /// Reason why the call becomes a letter.
        reason: Reason,
        /// The reason in words, or the service's own `message`.
        message: String,
        /// The service's `errors` (§7.2), or null.
        errors: serde_json::Value,
    },
    /// dead or waiting → ready. The record is the one to send.
    Retry {
        /// Values mapped anew, same uuid, perhaps with another lead or employee.
        record: CallRecord,
        /// The lead of a waiting call became known; else a person retries it.
        by_itself: bool,
    },
    /// dead → submitted: by a person, with other values than before, of a call that may have been
    /// written all the same. An unresolved call with [`IfAbsent::Changed`].
    Recheck {
        /// Values that are sent when the journal does not hold the call; same uuid.
        record: CallRecord,
        /// Values it was sent with before, in words.
        before: String,
    },
    /// waiting or dead → waiting or dead: what it waits for is something else now, as when the
    /// number of a call without a lead gets two. Only of letters that no request was made for.
    Rejudged {
        /// Reason why it waits; it is waiting when that may pass by itself.
        reason: Reason,
        /// The reason in words, for people.
        message: String,
    },
    /// ready, submitted or dead → ready: by itself, to the lead that its own was merged into, or
    /// without an employee whom the CRM does not know. Counts as an attempt.
    Moved {
        /// Values that are sent now; same uuid.
        record: Box<CallRecord>,
        /// Leads and changes it has been through: never twice to the same lead.
        reroute_history: RerouteHistory,
        /// Words of the attempt, for people.
        why: String,
    },
    /// waiting → dead: nobody named its lead in time; it no longer leaves by itself.
    Expire,
    /// dead or waiting → discarded: by a person.
    Discard,
    /// journaled → ready: by a person, for the CRM's journal does not have it. Counts as an
    /// attempt.
    SendAgain {
        /// Words of the attempt, for people.
        why: String,
    },
}

impl Step {
    /// The step's name, for messages.
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
            Self::SendAgain { .. } => "send again",
        }
    }

    /// Returns `true` for the outcome of a request or of a check of the journal. Of a call that a
    /// webhook has confirmed meanwhile it changes nothing.
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

    /// A call goes on; what was `said` of it before goes in front.
    pub fn moved(on: Reroute, said: &str) -> Self {
        let why = match said {
            "" => on.why,
            said => format!("{said}; {}", on.why),
        };
        Self::Moved {
            record: Box::new(on.record),
            reroute_history: on.history,
            why,
        }
    }

    /// The journal holds a call as it was first sent, and the values it was to be sent with since
    /// came too late; `before` says what it was sent with.
    pub fn too_late(before: &str) -> Self {
        Self::Died {
            reason: Reason::Conflict,
            message: format!(
                "the journal holds this call already, as it was first sent: {before}; change it \
                 in the CRM, or discard this letter"
            ),
            errors: serde_json::Value::Null,
        }
    }
}

/// The step that a call takes when a webhook says that the journal holds it; `None` where that is
/// no news, or a person has decided otherwise.
///
/// A letter leaves only where its reason is that nobody knew: `server_error`, `unconfirmed`.
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
        State::Dead => doubtful.then_some(journaled),
        State::Journaled | State::Waiting | State::Discarded => None,
    }
}

/// A step that does not exist in that state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a call that is {state} cannot take the step `{step}`")]
pub struct Refused {
    /// State in which the call stands.
    pub state: State,
    /// Name of the step, for messages.
    pub step: &'static str,
}

/// The state after a step; refused where the step does not exist.
///
/// # Errors
/// [`Refused`], and the call stays as it is.
pub fn next(state: State, step: &Step) -> Result<State, Refused> {
    use State::{Dead, Discarded, Journaled, Ready, Sending, Submitted, Waiting};
    let letter = |reason: Reason| if reason.is_waiting() { Waiting } else { Dead };
    let to = match step {
        Step::Send => (state == Ready).then_some(Sending),
        Step::Accepted { .. } => (state == Sending).then_some(Submitted),
        Step::Returned { .. } => (state == Sending).then_some(Ready),
        Step::Journaled(by) => {
            let exists = match by {
                OutcomeSource::Confirmation => state == Submitted,
                OutcomeSource::Webhook => matches!(state, Ready | Sending | Submitted | Dead),
            };
            exists.then_some(Journaled)
        }
        Step::NotYet { .. } => (state == Submitted).then_some(Submitted),
        Step::Unresolved { .. } => matches!(state, Sending | Submitted).then_some(Submitted),
        Step::Resubmit { .. } => (state == Submitted).then_some(Ready),
        Step::Died { reason, .. } => {
            matches!(state, Ready | Sending | Submitted).then(|| letter(*reason))
        }
        Step::Retry { by_itself, .. } => {
            (state == Waiting || state == Dead && !by_itself).then_some(Ready)
        }
        Step::Recheck { .. } => (state == Dead).then_some(Submitted),
        Step::Rejudged { reason, .. } => state.is_letter().then(|| letter(*reason)),
        Step::Moved { .. } => matches!(state, Ready | Submitted | Dead).then_some(Ready),
        Step::Expire => (state == Waiting).then_some(Dead),
        Step::Discard => state.is_letter().then_some(Discarded),
        Step::SendAgain { .. } => (state == Journaled).then_some(Ready),
    };
    to.ok_or(Refused {
        state,
        step: step.name(),
    })
}
