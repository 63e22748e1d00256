//! Types that are read back from the spool.

use crate::Silence;
use crate::{HELD_MAX, IfAbsent, State, json_column};
use callbridge_call::{Direction, EpochSeconds, EventTime, FinishedCall};
use callbridge_leads::lead_request::Finding;
use callbridge_leads::lead_request::due::DueRequests;
use callbridge_leads::lead_request::failed::RerouteHistory;
use callbridge_model::{CallRecord, CallUuid, EmployeeId, LeadId, Phone, Reason, TokenFingerprint};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::time::Duration;

/// The id of a stored call or dead letter: `id` in `dead list`. An id is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RowId(pub i64);

impl fmt::Display for RowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Time at which the attempt ended.
    pub at: EventTime,
    /// The outcome as a short text.
    pub message: String,
}

/// An action of a person on a dead letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    pub at: EventTime,
    /// The person's name at the page, or the Unix user at the socket.
    pub who: String,
    /// The command with its options: `retry with lead 4002`.
    pub action: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Row {
    pub id: RowId,
    /// Uuid of the call. Several `uuid_conflict` dead letters can share one uuid.
    pub uuid: CallUuid,
    /// The branch that sent the call, or else its PBX.
    pub turn: String,
    /// Values that are, were, or would be sent to the CRM.
    #[serde(deserialize_with = "json_column")]
    pub record: CallRecord,
    /// Facts of the call, to map it again.
    #[serde(deserialize_with = "json_column")]
    pub call: FinishedCall,
    pub progress: Progress,
}

impl Deref for Row {
    type Target = Progress;

    fn deref(&self) -> &Progress {
        &self.progress
    }
}

/// State of a call and its history, in the columns that steps change.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Progress {
    pub state: State,
    /// Time at which the call entered its state. Polls do not change this time.
    pub since: EventTime,
    /// By the PBX's clock.
    pub started: EpochSeconds,
    /// The call is sent before the backlog.
    pub live: bool,
    /// Earliest time to send it, in microseconds since the epoch. 0 if nothing holds it back.
    pub not_before: i64,
    /// A webhook or a page of the journal settled the call. Answers to its requests in flight no
    /// longer count.
    pub settled_externally: bool,
    /// A person retried the call, and the CRM has not accepted it since.
    pub retried: bool,
    /// The CRM's id of the call's last accepted request.
    pub request_id: Option<String>,
    /// The token that made the last accepted request.
    pub token: Option<TokenFingerprint>,
    /// Time at which the last request was accepted. If that time is not known, the time at which
    /// the request was sent.
    pub submitted_at: Option<EventTime>,
    /// Time at which the call was first sent with its present values. `None` if it was not sent.
    pub first_sent: Option<EventTime>,
    /// Time of the next poll or reconciliation of a submitted call.
    pub next_poll: Option<EventTime>,
    /// Number of polls of the last accepted request.
    pub polls: u32,
    /// Number of journal pages that should have shown the call and did not.
    pub absent: u32,
    /// Time at which it was last counted absent.
    pub absent_at: Option<EventTime>,
    /// Times the call returned from submitted to ready because the journal did not hold it.
    pub resubmits: u32,
    /// Sends of the call that failed while other calls succeeded, including the first one.
    pub failures: u32,
    /// Next step of an unresolved call if the journal does not show it. `None` for other calls.
    pub if_absent: Option<IfAbsent>,
    /// Earlier leads of the call, and automatic changes.
    #[serde(deserialize_with = "json_column")]
    pub reroute_history: Option<RerouteHistory>,
    /// The call was sent again because the journal had lost it.
    pub sent_again: bool,
    /// Reason why the call is or was a dead letter or a waiting call.
    pub reason: Option<Reason>,
    /// Text for the reason. For an unresolved call, the text for its next step.
    pub message: String,
    /// The CRM's `errors` as JSON. `None` if the CRM sent no `errors`.
    pub errors: Option<String>,
    /// Word of the [`Finding`] about the call's lead, if the lead was looked up.
    pub finding: Option<String>,
    /// Attempts to send the call, oldest first. At most [`super::ATTEMPTS_MAX`] are kept: the
    /// second oldest is dropped.
    #[serde(deserialize_with = "json_column")]
    pub attempts: Vec<Attempt>,
    /// Times the call has become a dead letter or a waiting call.
    pub times_dead: u32,
}

/// A call that can be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Due {
    /// The call's row. [`row`](crate::tables::calls::row) reads its other values.
    pub row: RowId,
    pub uuid: CallUuid,
    /// Time at which the call became ready.
    pub since: EventTime,
}

/// A call that waits to be confirmed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Unconfirmed {
    /// Id of the call in the spool.
    pub row: RowId,
    /// Uuid under which the call was sent.
    pub uuid: CallUuid,
    /// The PBX's id of the call.
    pub linkedid: String,
    /// Name of the call's trunk. `None` if not known.
    pub trunk: Option<String>,
    /// The branch that sent the call, or else its PBX.
    pub turn: String,
    pub parties: Parties,
    /// By the PBX's clock.
    pub started: EpochSeconds,
    /// RequestId of the call's last accepted request. `None` if the request cannot be polled.
    pub request_id: Option<String>,
    /// The only token that can read the requestId. [`TokenFingerprint::none`] if no token can.
    pub token: TokenFingerprint,
    /// Time at which the CRM accepted the call. If that time is not known, the time at which the
    /// call was sent. A requestId can be read for 24 hours (§4.6).
    pub submitted_at: EventTime,
    /// Time at which the call was first sent with its present values. The journal can hold it since
    /// then.
    pub first_sent: EventTime,
    pub polls: u32,
    /// Time of the next check, by poll or reconciliation.
    pub next_poll: EventTime,
    /// Number of reconciliations that did not show the call, at least a minute apart.
    pub absent: u32,
    /// Time at which it was last counted absent.
    pub absent_at: Option<EventTime>,
    /// Times the call was sent again because the journal did not hold it.
    pub resubmits: u32,
    /// Next step of an unresolved call if the journal does not show it.
    pub if_absent: IfAbsent,
    /// Text for the next step in `if_absent`.
    pub message: String,
}

impl Unconfirmed {
    /// Returns the time since the call was accepted. [`HELD_MAX`] if the clock was set back since.
    pub fn age(&self, now: EventTime) -> Duration {
        if self.is_ahead(now) {
            return HELD_MAX;
        }
        now.since(self.submitted_at)
    }

    /// Returns `true` if the clock was set back since the call was accepted. The call's times are
    /// then meaningless.
    pub fn is_ahead(&self, now: EventTime) -> bool {
        self.submitted_at > now.plus(HELD_MAX)
    }
}

/// The sender's query for work that can be done now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueQuery {
    pub now: EventTime,
    /// The tokens that can read the requestIds they made: the current token first, then the
    /// previous token while it is valid.
    pub tokens: Vec<TokenFingerprint>,
    /// A call that was accepted before this time should be in the journal by now.
    pub confirmable_before: EventTime,
    /// The requestId of a call that was accepted before this time can soon no longer be read.
    pub ending_before: EventTime,
    /// Requests fail now: calls that never failed are sent before calls that were held back.
    pub untried_first: bool,
    pub suspended: SuspendedCalls,
}

/// Ready calls that are not sent for now, since the CRM has refused several calls in a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SuspendedCalls {
    /// Whether no call of any branch is sent, except for trials.
    pub all: bool,
    pub branches: Vec<SuspendedBranch>,
}

impl SuspendedCalls {
    /// Returns `true` if this branch's calls are not sent.
    pub(crate) fn contains(&self, turn: &str) -> bool {
        self.all || self.branches.iter().any(|branch| branch.turn == turn)
    }
}

/// A branch whose calls are not sent for now, and the call that may be tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuspendedBranch {
    /// The branch, as in [`Row::turn`]. Empty if an instance that is no hub sends no calls.
    pub turn: String,
    /// The leads and employees of the refused calls.
    pub refused: Vec<Parties>,
    pub trial: Trial,
}

/// The lead and the employee of a call, which other calls can share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parties {
    pub lead: Option<LeadId>,
    pub employee: Option<EmployeeId>,
}

impl Parties {
    /// Returns `true` if one of the other calls has the same lead or the same employee.
    pub fn are_shared_with(self, others: &[Self]) -> bool {
        self.has_lead_of(others) || others.iter().any(|other| self.has_employee_of(*other))
    }

    /// Returns `true` if one lead or one employee can be why this call and all others are refused:
    /// any of their leads, or an employee that all of them have.
    pub fn are_suspected_with(self, others: &[Self]) -> bool {
        self.has_lead_of(others) || others.iter().all(|other| self.has_employee_of(*other))
    }

    fn has_lead_of(self, others: &[Self]) -> bool {
        self.lead.is_some() && others.iter().any(|other| other.lead == self.lead)
    }

    fn has_employee_of(self, other: Self) -> bool {
        self.employee.is_some() && self.employee == other.employee
    }
}

/// The ready call of a suspended branch that is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trial {
    None,
    /// A call that shares neither its lead nor its employee with a refused call. If there is none,
    /// an employee can be shared that not all refused calls have.
    OtherCall,
    /// Any call, although preferably one like [`Self::OtherCall`].
    AnyCall,
}

/// Calls that a reconciliation of the journal should show by now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Confirmable {
    /// Number of these calls, counted up to [`super::CONFIRMABLE_MAX`].
    pub calls: u32,
    /// Time at which the first of these calls was accepted. `None` if there is no such call.
    pub oldest: Option<EventTime>,
}

/// Time that webhooks take to confirm calls, kept across restarts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookPace {
    /// The branch of the call that a webhook confirmed last, or else its PBX.
    pub turn: String,
    /// Time at which a webhook last confirmed a call.
    pub at: EventTime,
    /// Time from acceptance to confirmation, of the last call for which it is known.
    pub after: Duration,
    /// Recent maximum of the time from acceptance to confirmation. It decays by an eighth with each
    /// confirmed call.
    pub usual: Duration,
}

/// The input from which the sender chooses its next request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkQueue {
    /// The newest call that can be sent now and was stored in the last few minutes.
    pub live: Option<Due>,
    /// The newest call in the backlog that can be sent now.
    pub backlog: Option<Due>,
    /// The first call that can be sent now because a person retried it.
    pub retried: Option<Due>,
    /// The call to try of each branch in [`QueueQuery::suspended`] that has one.
    pub trials: BTreeMap<String, Due>,
    /// Number of the hub's branches. Only counted while calls are suspended.
    pub branches: u64,
    /// Time at which the next held-back call can be sent. `None` if no call is held back.
    pub next_not_before: Option<EventTime>,
    /// Submitted calls of [`QueueQuery::tokens`] that are due for a poll, longest due first. At
    /// most [`super::DUE_POLLS_MAX`].
    pub polls: Vec<Unconfirmed>,
    /// Earliest later time at which a submitted call is due for a poll or another check.
    pub next_poll: Option<EventTime>,
    /// The submitted call that was accepted first, for each token of [`QueueQuery::tokens`]. Its
    /// requestId expires first.
    pub oldest_submitted: Vec<Unconfirmed>,
    /// Submitted calls of [`QueueQuery::tokens`] that are due for a poll and whose requestId ends
    /// soon, in the order of their acceptance. At most [`super::DUE_POLLS_MAX`] for each token.
    pub ending: Vec<Unconfirmed>,
    /// Calls that a reconciliation should show by now, including unresolved calls.
    pub confirmable: Confirmable,
    /// A submitted call of [`QueueQuery::tokens`] that two reconciliations did not show and that is
    /// due for a poll.
    pub alone: Option<Unconfirmed>,
    /// An unresolved call that is due for its next step.
    pub unresolved: Option<Unconfirmed>,
    /// Requests about leads that are due in addition to the calls.
    pub lead_requests: DueRequests,
    /// Time that webhooks take. `None` before the first confirmation by webhook.
    pub webhook_pace: Option<WebhookPace>,
    /// Time until which a hub that lost commits sends no request to the CRM.
    pub silence: Option<Silence>,
    /// Number of calls that wait to be sent, by the books.
    pub ready: u64,
    /// Number of calls whose request is in flight, by the books.
    pub sending: u64,
    /// Number of calls that wait to be confirmed, by the books.
    pub submitted: u64,
}

/// A dead letter (possibly unreadable) or a waiting call.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Letter {
    /// Id that `dead list` shows and that commands take.
    pub id: RowId,
    /// The call's uuid. `None` for unreadable bytes.
    pub uuid: Option<CallUuid>,
    pub reason: Reason,
    /// The call leaves automatically when the missing lead or employee becomes known.
    pub waiting: bool,
    /// Time at which the call became a dead letter or a waiting call.
    pub since: EventTime,
    /// Text for the reason, or the CRM's message.
    pub message: String,
    /// Result of the lead lookup of a call that FAILED. `None` without a lookup.
    #[serde(default, deserialize_with = "known_finding")]
    pub finding: Option<Finding>,
    /// The CRM's `errors`, or null if the CRM sent no `errors`.
    #[serde(default, deserialize_with = "json_column")]
    pub errors: serde_json::Value,
    /// Oldest first.
    #[serde(deserialize_with = "json_column")]
    pub attempts: Vec<Attempt>,
    /// Oldest first. At most [`super::ACTIONS_MAX`] are kept: the second oldest is dropped.
    #[serde(deserialize_with = "json_column")]
    pub actions: Vec<Action>,
    /// Times this call has become a dead letter or a waiting call, including this time.
    pub times_dead: u32,
    /// The call as it would be sent. `None` for unreadable bytes.
    #[serde(default, deserialize_with = "json_column")]
    pub call: Option<CallRecord>,
    /// The message if the dead letter holds unreadable bytes.
    pub bytes: Option<UnreadMessage>,
}

impl Letter {
    /// Returns `true` if a person must say whether the customer called or was called.
    pub fn has_unknown_direction(&self) -> bool {
        let call = self.call.as_ref();
        call.is_some_and(|call| call.direction == Direction::Unknown)
    }
}

/// Reads the result of a lead lookup from its stored word. `None` for NULL or an unknown word.
fn known_finding<'de, D: Deserializer<'de>>(column: D) -> Result<Option<Finding>, D::Error> {
    let word = Option::<String>::deserialize(column)?;
    Ok(word.and_then(|word| Finding::from_word(&word)))
}

/// Message of a source that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct UnreadMessage {
    pub source: String,
    pub pbx: String,
    /// The message's first bytes. In lists at most [`super::LISTED_BYTES_MAX`], otherwise all bytes
    /// that are kept.
    pub bytes: Vec<u8>,
    /// Length of the whole message, in bytes.
    pub length: u64,
    /// The file that holds the message, and the place in the file. `None` if the message was not
    /// read from a file.
    pub file: Option<String>,
    /// AMQP property `content_type`, if the message had one.
    pub content_type: Option<String>,
}

/// Selects dead letters and waiting calls, and a page of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LetterFilter {
    /// Only these ids. `None` for all.
    pub ids: Option<Vec<RowId>>,
    /// Only dead letters ([`State::Dead`], including unreadable messages), or only waiting calls
    /// ([`State::Waiting`]). `None` for both.
    pub state: Option<State>,
    /// Only this reason. `None` for all.
    pub reason: Option<Reason>,
    /// Only ids after this id, in ascending order. For the next page, the last id of this page.
    pub after: Option<RowId>,
    /// Only ids before this id, in descending order.
    pub before: Option<RowId>,
    /// Maximum number on the page. 0 means [`super::LETTERS_PAGE`].
    pub limit: usize,
}

/// A number that called and has no lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingPhone {
    /// The number in E.164 form.
    pub phone: Phone,
    /// Calls of this number that wait for a lead.
    pub calls: u64,
    /// Start of the call that was stored first.
    pub first: EpochSeconds,
    /// Start of the call that was stored last.
    pub last: EpochSeconds,
    /// Trunk of the call that was stored last.
    pub trunk: Option<String>,
    /// PBX of the call that was stored last.
    pub pbx: String,
}

/// A customer whose call was missed, and with whom no one has talked since, as in `missed --json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MissedCustomer {
    pub phone: Phone,
    /// PBX of the customer's last missed call.
    #[serde(skip)]
    pub pbx: String,
    /// Trunk of the customer's last missed call.
    pub trunk: String,
    /// Lead of the customer, if known. The spool takes it from the customer's last missed call.
    pub lead_id: Option<LeadId>,
    /// Start of the customer's first missed call. The customer waits since then.
    pub first_at: EpochSeconds,
    /// Start of the customer's last missed call.
    pub last_at: EpochSeconds,
    /// Missed calls since an employee last talked with the customer.
    pub tries: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct TrunkCalls {
    pub pbx: String,
    /// Empty for calls between extensions.
    pub trunk: String,
    /// Calls in the requested time range.
    pub calls: u64,
    /// Calls in that range that are attributed to an extension.
    pub with_extension: u64,
    /// Calls in that range that are attributed to an employee.
    pub with_employee: u64,
    /// Calls since the state was created.
    pub ever: u64,
    /// Start of the trunk's newest call, of any time.
    pub last_at: EpochSeconds,
}

/// A lead that a person has assigned to a number, as in `lead given --json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeadByHand {
    pub phone: Phone,
    /// Lead that was assigned to the number.
    pub lead_id: LeadId,
    /// Second at which the lead was assigned.
    pub at: EpochSeconds,
    /// Name of the person who assigned it.
    pub who: String,
}

/// A finished call by one of its ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct SeenCall {
    /// Uuid of the call. `None` if the call has no uuid.
    pub uuid: Option<CallUuid>,
    /// The id is the call's linkedid, not an id of a channel or an alias.
    pub is_linkedid: bool,
    /// By the PBX's clock.
    pub started: EpochSeconds,
}

/// How a dead letter or a waiting call left. The words are stored and appear in notices. Never
/// change one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Left {
    /// A person sent it again.
    Retried,
    /// The call left automatically because its missing lead or employee became known.
    Released,
    /// The journal holds it, perhaps after a retry or a release.
    Journaled,
    Discarded,
}

impl Left {
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the word used in notices: `retried`.
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// Notice for RabbitMQ that a dead letter or a waiting call appeared, or how it left.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Notice {
    /// Id of the notice in the outbox.
    pub notice: i64,
    /// `ID:ATTEMPT`: the call's id, and how often the call has become a dead letter or a waiting
    /// call. `:STATE` follows if the call left.
    pub message_id: String,
    /// A line of `dead list --json` at the time of the notice.
    pub body: String,
    /// Header `reason`. `None` if the call left some time ago.
    pub reason: Option<Reason>,
    /// Header `state`: `dead`, `waiting`, or the word of [`Left`]. Empty if not known.
    pub state: String,
    /// Time at which the dead letter or waiting call appeared or left, for the message's timestamp.
    /// `None` if not known.
    pub at: Option<EventTime>,
    /// Header `uuid`. `None` for unreadable bytes.
    pub uuid: Option<CallUuid>,
    /// Header `linkedid`. `None` for unreadable bytes.
    pub linkedid: Option<String>,
    /// Header `trunk`. `None` if the call has none.
    pub trunk: Option<String>,
}
