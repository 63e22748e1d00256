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

/// The ID of a stored call or dead letter, shown as `id` in `dead list`. IDs are never reused.
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
    /// When the attempt ended.
    pub at: EventTime,
    /// A brief description of the outcome.
    pub message: String,
}

/// Someone's action on a dead letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    pub at: EventTime,
    /// The person's name on the page, or the Unix user at the socket.
    pub who: String,
    /// The command with its options, such as `retry with lead 4002`.
    pub action: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Row {
    pub id: RowId,
    /// The call's uuid, which several `uuid_conflict` dead letters may share.
    pub uuid: CallUuid,
    /// The branch that sent the call, or else its PBX.
    pub turn: String,
    /// Values that are, were, or would be sent to the CRM.
    #[serde(deserialize_with = "json_column")]
    pub record: CallRecord,
    /// The call's facts, from which it can be mapped again.
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

/// A call's state and history, in the columns that steps change.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Progress {
    pub state: State,
    /// When the call entered its state. Polls don't change this time.
    pub since: EventTime,
    /// By the PBX's clock.
    pub started: EpochSeconds,
    /// Whether the call is sent before the backlog.
    pub live: bool,
    /// Earliest time to send the call, in microseconds since the epoch, or 0 if nothing holds it
    /// back.
    pub not_before: i64,
    /// Whether a webhook or a journal page settled the call. Responses to its requests in flight no
    /// longer count.
    pub settled_externally: bool,
    /// Whether someone retried the call, and the CRM hasn't accepted it since.
    pub retried: bool,
    /// The CRM's ID for the call's last accepted request.
    pub request_id: Option<String>,
    /// The token used for the last accepted request.
    pub token: Option<TokenFingerprint>,
    /// When the last request was accepted, or when it was sent if that's unknown.
    pub submitted_at: Option<EventTime>,
    /// When the call was first sent with its present values, or `None` if it hasn't been sent.
    pub first_sent: Option<EventTime>,
    /// Time of a submitted call's next poll or reconciliation.
    pub next_poll: Option<EventTime>,
    /// Number of times that the last accepted request was polled.
    pub polls: u32,
    /// Number of journal pages that should have shown the call but didn't.
    pub absent: u32,
    /// When the call was last counted as absent.
    pub absent_at: Option<EventTime>,
    /// Number of times the call returned from submitted to ready because it wasn't in the journal.
    pub resubmits: u32,
    /// Number of times that sending the call failed while other calls succeeded, including the
    /// first one.
    pub failures: u32,
    /// An unresolved call's next step if the journal doesn't show it, or `None` for other calls.
    pub if_absent: Option<IfAbsent>,
    /// The call's earlier leads, and automatic changes.
    #[serde(deserialize_with = "json_column")]
    pub reroute_history: Option<RerouteHistory>,
    /// Whether the call was resent because the journal had lost it.
    pub sent_again: bool,
    /// Why the call is or was a dead letter or a waiting call.
    pub reason: Option<Reason>,
    /// Message for the reason or, for an unresolved call, for its next step.
    pub message: String,
    /// The CRM's `errors` as JSON, or `None` if it sent none.
    pub errors: Option<String>,
    /// Word for the [`Finding`] about the call's lead, if the lead was looked up.
    pub finding: Option<String>,
    /// Attempts to send the call, oldest first. At most [`super::ATTEMPTS_MAX`] are kept, beyond
    /// which the second oldest is dropped.
    #[serde(deserialize_with = "json_column")]
    pub attempts: Vec<Attempt>,
    /// Number of times the call has become a dead letter or a waiting call.
    pub times_dead: u32,
}

/// A call that can be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Due {
    /// The call's row. [`row`](crate::tables::calls::row) reads its other values.
    pub row: RowId,
    pub uuid: CallUuid,
    /// When the call became ready.
    pub since: EventTime,
}

/// A call waiting to be confirmed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Unconfirmed {
    /// The call's ID in the spool.
    pub row: RowId,
    /// The uuid that the call was sent under.
    pub uuid: CallUuid,
    /// The PBX's ID for the call.
    pub linkedid: String,
    /// Name of the call's trunk, or `None` if unknown.
    pub trunk: Option<String>,
    /// The branch that sent the call, or else its PBX.
    pub turn: String,
    pub parties: Parties,
    /// By the PBX's clock.
    pub started: EpochSeconds,
    /// RequestId of the call's last accepted request, or `None` if it can't be polled.
    pub request_id: Option<String>,
    /// The only token that can read the requestId, or [`TokenFingerprint::none`] if none can.
    pub token: TokenFingerprint,
    /// When the CRM accepted the call, or when it was sent if that's unknown. A requestId can be
    /// read for 24 hours (§4.6).
    pub submitted_at: EventTime,
    /// When the call was first sent with its present values, and thus the earliest time since which
    /// it can be in the journal.
    pub first_sent: EventTime,
    pub polls: u32,
    /// Time of the next check, by poll or reconciliation.
    pub next_poll: EventTime,
    /// Number of reconciliations that didn't show the call, at least a minute apart.
    pub absent: u32,
    /// When the call was last counted as absent.
    pub absent_at: Option<EventTime>,
    /// Number of times the call was resent because it wasn't in the journal.
    pub resubmits: u32,
    /// An unresolved call's next step if the journal doesn't show it.
    pub if_absent: IfAbsent,
    /// Message for the next step in `if_absent`.
    pub message: String,
}

impl Unconfirmed {
    /// Returns the time since the call was accepted, or [`HELD_MAX`] if the clock has been set
    /// back.
    pub fn age(&self, now: EventTime) -> Duration {
        if self.is_ahead(now) {
            return HELD_MAX;
        }
        now.since(self.submitted_at)
    }

    /// Returns `true` if the clock has been set back since the call was accepted, which makes the
    /// call's times meaningless.
    pub fn is_ahead(&self, now: EventTime) -> bool {
        self.submitted_at > now.plus(HELD_MAX)
    }
}

/// The sender's query for work that can be done now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueQuery {
    pub now: EventTime,
    /// The tokens that can read the requestIds they received: the current token first, followed by
    /// the previous one while it's valid.
    pub tokens: Vec<TokenFingerprint>,
    /// A call accepted before this time should be in the journal by now.
    pub confirmable_before: EventTime,
    /// The requestId of a call accepted before this time is about to become unreadable.
    pub ending_before: EventTime,
    /// Whether requests are failing, so that calls that have never failed go before calls that were
    /// held back.
    pub untried_first: bool,
    pub suspended: SuspendedCalls,
}

/// Ready calls that are held back for now, since the CRM has refused several calls in a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SuspendedCalls {
    /// Whether no branch's calls are sent, except for trials.
    pub all: bool,
    pub branches: Vec<SuspendedBranch>,
}

impl SuspendedCalls {
    /// Returns `true` if this branch's calls are held back.
    pub(crate) fn contains(&self, turn: &str) -> bool {
        self.all || self.branches.iter().any(|branch| branch.turn == turn)
    }
}

/// A branch whose calls are held back for now, and which of them may be tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuspendedBranch {
    /// The branch, as in [`Row::turn`], or empty if an instance that isn't a hub holds back its
    /// calls.
    pub turn: String,
    /// The refused calls' leads and employees.
    pub refused: Vec<Parties>,
    pub trial: Trial,
}

/// A call's lead and employee, which other calls may share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parties {
    pub lead: Option<LeadId>,
    pub employee: Option<EmployeeId>,
}

impl Parties {
    /// Returns `true` if any of the other calls has the same lead or employee.
    pub fn are_shared_with(self, others: &[Self]) -> bool {
        self.has_lead_of(others) || others.iter().any(|other| self.has_employee_of(*other))
    }

    /// Returns `true` if a single lead or employee may be why this call and all the others were
    /// refused: any of their leads, or an employee that they all share.
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

/// Which of a suspended branch's ready calls is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trial {
    None,
    /// A call that shares neither its lead nor its employee with a refused call or, if there's
    /// none, one that shares an employee that only some of the refused calls have.
    OtherCall,
    /// Any call, although preferably one like [`Self::OtherCall`].
    AnyCall,
}

/// Calls that a reconciliation with the journal should show by now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Confirmable {
    /// Number of such calls, counted up to [`super::CONFIRMABLE_MAX`].
    pub calls: u32,
    /// When the first of these calls was accepted, or `None` if there are none.
    pub oldest: Option<EventTime>,
}

/// How long webhooks take to confirm calls. Kept across restarts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookPace {
    /// The branch of the call most recently confirmed by webhook, or else its PBX.
    pub turn: String,
    /// When a webhook last confirmed a call.
    pub at: EventTime,
    /// Time from acceptance to confirmation for the last call for which it's known.
    pub after: Duration,
    /// Recent maximum time from acceptance to confirmation, which decays by an eighth with each
    /// confirmed call.
    pub usual: Duration,
}

/// What the sender chooses its next request from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkQueue {
    /// The newest call stored in the last few minutes that can be sent now.
    pub live: Option<Due>,
    /// The newest call in the backlog that can be sent now.
    pub backlog: Option<Due>,
    /// The first call that can be sent now because someone retried it.
    pub retried: Option<Due>,
    /// The call to try for each branch in [`QueueQuery::suspended`] that has one.
    pub trials: BTreeMap<String, Due>,
    /// Number of the hub's branches, counted only while calls are held back.
    pub branches: u64,
    /// When the next held-back call can be sent, or `None` if there is none.
    pub next_not_before: Option<EventTime>,
    /// Submitted calls for [`QueueQuery::tokens`] that are due for a poll, longest due first. At
    /// most [`super::DUE_POLLS_MAX`].
    pub polls: Vec<Unconfirmed>,
    /// Earliest later time at which a submitted call is due for a poll or another check.
    pub next_poll: Option<EventTime>,
    /// For each token in [`QueueQuery::tokens`], the submitted call that was accepted first, since
    /// its requestId expires first.
    pub oldest_submitted: Vec<Unconfirmed>,
    /// Submitted calls for [`QueueQuery::tokens`] that are due for a poll and whose requestId
    /// expires soon, ordered by acceptance. At most [`super::DUE_POLLS_MAX`] per token.
    pub ending: Vec<Unconfirmed>,
    /// Calls that a reconciliation should show by now, including unresolved calls.
    pub confirmable: Confirmable,
    /// A submitted call for [`QueueQuery::tokens`] that two reconciliations didn't show and that's
    /// due for a poll.
    pub alone: Option<Unconfirmed>,
    /// An unresolved call that is due for its next step.
    pub unresolved: Option<Unconfirmed>,
    /// Lead requests that are due in addition to the calls.
    pub lead_requests: DueRequests,
    /// How long webhooks take, or `None` before the first confirmation by webhook.
    pub webhook_pace: Option<WebhookPace>,
    /// How long a hub that lost commits sends no requests to the CRM.
    pub silence: Option<Silence>,
    /// The branches that showed that another database is in use ([`HubRow::split_by`]). While there
    /// are any, nothing is sent.
    ///
    /// [`HubRow::split_by`]: crate::HubRow::split_by
    pub split_by: Option<String>,
    /// Number of calls waiting to be sent, according to the books.
    pub ready: u64,
    /// Number of calls whose request is in flight, according to the books.
    pub sending: u64,
    /// Number of calls waiting to be confirmed, according to the books.
    pub submitted: u64,
}

/// A dead letter (possibly unreadable) or a waiting call.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Letter {
    /// The ID that `dead list` shows and that commands accept.
    pub id: RowId,
    /// The call's uuid, or `None` for unreadable bytes.
    pub uuid: Option<CallUuid>,
    pub reason: Reason,
    /// Whether the call leaves automatically once the missing lead or employee is known.
    pub waiting: bool,
    /// When the call became a dead letter or a waiting call.
    pub since: EventTime,
    /// Message for the reason, or the CRM's message.
    pub message: String,
    /// What the lookup of a FAILED call's lead found, or `None` without a lookup.
    #[serde(default, deserialize_with = "known_finding")]
    pub finding: Option<Finding>,
    /// The CRM's `errors`, or null if it sent none.
    #[serde(default, deserialize_with = "json_column")]
    pub errors: serde_json::Value,
    /// Oldest first.
    #[serde(deserialize_with = "json_column")]
    pub attempts: Vec<Attempt>,
    /// Oldest first. At most [`super::ACTIONS_MAX`] are kept, beyond which the second oldest is
    /// dropped.
    #[serde(deserialize_with = "json_column")]
    pub actions: Vec<Action>,
    /// Number of times this call has become a dead letter or a waiting call, including this time.
    pub times_dead: u32,
    /// The call as it would be sent, or `None` for unreadable bytes.
    #[serde(default, deserialize_with = "json_column")]
    pub call: Option<CallRecord>,
    /// The message, if the dead letter holds unreadable bytes.
    pub bytes: Option<UnreadMessage>,
}

impl Letter {
    /// Returns `true` if someone has to say whether the customer called or was called.
    pub fn has_unknown_direction(&self) -> bool {
        let call = self.call.as_ref();
        call.is_some_and(|call| call.direction == Direction::Unknown)
    }
}

/// Reads a lead lookup's result from its stored word, treating NULL or an unknown word as `None`.
fn known_finding<'de, D: Deserializer<'de>>(column: D) -> Result<Option<Finding>, D::Error> {
    let word = Option::<String>::deserialize(column)?;
    Ok(word.and_then(|word| Finding::from_word(&word)))
}

/// A message from a source that couldn't be read.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct UnreadMessage {
    pub source: String,
    pub pbx: String,
    /// The message's first bytes: at most [`super::LISTED_BYTES_MAX`] in lists, and otherwise all
    /// bytes that were kept.
    pub bytes: Vec<u8>,
    /// Total length of the message in bytes.
    pub length: u64,
    /// The file that holds the message, and the place in the file. `None` if the message wasn't
    /// read from a file.
    pub file: Option<String>,
    /// The message's AMQP property `content_type`, if it had one.
    pub content_type: Option<String>,
}

/// Selects a page of dead letters and waiting calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LetterFilter {
    /// Only these IDs, or `None` for all.
    pub ids: Option<Vec<RowId>>,
    /// Only dead letters ([`State::Dead`], including unreadable messages), or only waiting calls
    /// ([`State::Waiting`]). `None` for both.
    pub state: Option<State>,
    /// Only this reason, or `None` for all.
    pub reason: Option<Reason>,
    /// Only IDs after this one, in ascending order. For the next page, use the last ID on this one.
    pub after: Option<RowId>,
    /// Only IDs before this one, in descending order.
    pub before: Option<RowId>,
    /// Maximum number per page, where 0 means [`super::LETTERS_PAGE`].
    pub limit: usize,
}

/// A number without a lead that has called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingPhone {
    /// The number in E.164 format.
    pub phone: Phone,
    /// The number's calls that are waiting for a lead.
    pub calls: u64,
    /// When the call that was stored first started.
    pub first: EpochSeconds,
    /// When the call that was stored last started.
    pub last: EpochSeconds,
    /// Trunk of the call stored last.
    pub trunk: Option<String>,
    /// PBX of the call stored last.
    pub pbx: String,
}

/// A customer whose call was missed and whom no one has talked to since, as in `missed --json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MissedCustomer {
    pub phone: Phone,
    /// PBX of the customer's last missed call.
    #[serde(skip)]
    pub pbx: String,
    /// Trunk of the customer's last missed call.
    pub trunk: String,
    /// The customer's lead, if known, taken from the customer's last missed call.
    pub lead_id: Option<LeadId>,
    /// When the customer's first missed call started, which is when the wait began.
    pub first_at: EpochSeconds,
    /// When the customer's last missed call started.
    pub last_at: EpochSeconds,
    /// Number of missed calls since an employee last talked with the customer.
    pub tries: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct TrunkCalls {
    pub pbx: String,
    /// Empty for calls between extensions.
    pub trunk: String,
    /// Calls in the requested time range.
    pub calls: u64,
    /// Those of them that are attributed to an extension.
    pub with_extension: u64,
    /// Those of them that are attributed to an employee.
    pub with_employee: u64,
    /// Calls since the state was created.
    pub ever: u64,
    /// When the trunk's newest call started, regardless of the range.
    pub last_at: EpochSeconds,
}

/// A lead that someone has assigned to a number, as in `lead given --json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeadByHand {
    pub phone: Phone,
    /// The lead assigned to the number.
    pub lead_id: LeadId,
    /// The second at which it was assigned.
    pub at: EpochSeconds,
    /// Name of whoever assigned it.
    pub who: String,
}

/// A finished call, found by one of its IDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct SeenCall {
    /// The call's uuid, or `None` if it has none.
    pub uuid: Option<CallUuid>,
    /// Whether the ID is the call's linkedid, rather than a channel's ID or an alias.
    pub is_linkedid: bool,
    /// By the PBX's clock.
    pub started: EpochSeconds,
}

/// How a dead letter or a waiting call left. The words are stored and appear in notifications, so
/// never change one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Left {
    /// Someone sent it again.
    Retried,
    /// The call left automatically because its missing lead or employee became known.
    Released,
    /// The call is in the journal, perhaps after a retry or a release.
    Journaled,
    Discarded,
}

impl Left {
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the word used in notifications, such as `retried`.
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// A notification for RabbitMQ that a dead letter or a waiting call appeared, or how it left.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Notice {
    /// The notification's ID in the outbox.
    pub notice: i64,
    /// `ID:ATTEMPT`, which are the call's ID and how often it has become a dead letter or a waiting
    /// call, followed by `:STATE` if the call left.
    pub message_id: String,
    /// A line of `dead list --json` as of the time of the notification.
    pub body: String,
    /// The `reason` header, or `None` if the call left some time ago.
    pub reason: Option<Reason>,
    /// The `state` header: `dead`, `waiting`, or the word for [`Left`], or empty if unknown.
    pub state: String,
    /// When the dead letter or waiting call appeared or left, for the message's timestamp, or
    /// `None` if unknown.
    pub at: Option<EventTime>,
    /// The `uuid` header, or `None` for unreadable bytes.
    pub uuid: Option<CallUuid>,
    /// The `linkedid` header, or `None` for unreadable bytes.
    pub linkedid: Option<String>,
    /// The `trunk` header, or `None` if the call has none.
    pub trunk: Option<String>,
}
