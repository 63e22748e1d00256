//! What is read back from the spool.

use crate::{HELD_MAX, IfAbsent, State, json_column};
use callbridge_call::{Direction, EpochSeconds, EventTime, FinishedCall};
use callbridge_leads::lead_request::Finding;
use callbridge_leads::lead_request::due::DueRequests;
use callbridge_leads::lead_request::failed::RerouteHistory;
use callbridge_model::{CallRecord, CallUuid, LeadId, Phone, Reason, TokenFingerprint};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::ops::Deref;
use std::time::Duration;

/// The id of a stored call or letter: what `dead list` shows as `id`. Never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RowId(pub i64);

impl fmt::Display for RowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One try to send a call, and its outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Moment at which the try ended.
    pub at: EventTime,
    /// The outcome as a short text.
    pub message: String,
}

/// An action of a person on a dead letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// Moment at which the person acted.
    pub at: EventTime,
    /// The name at the page, or the Unix user at the socket.
    pub who: String,
    /// The command with its options: `retry with lead 4002`.
    pub action: String,
}

/// A stored call, all of it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Row {
    /// Id of the call in the spool.
    pub id: RowId,
    /// Uuid of the call: several `uuid_conflict` letters may share one.
    pub uuid: CallUuid,
    /// Values that are, were or would be sent.
    #[serde(deserialize_with = "json_column")]
    pub record: CallRecord,
    /// Facts of the call, to map it anew.
    #[serde(deserialize_with = "json_column")]
    pub call: FinishedCall,
    /// Columns of the call that steps change.
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
    /// State in which the call stands.
    pub state: State,
    /// Moment since which it stands so; polls do not change it.
    pub since: EventTime,
    /// Start of the call by the PBX's clock, in whole seconds.
    pub started: EpochSeconds,
    /// The call goes before the backlog.
    pub live: bool,
    /// Moment before which it is not sent, in microseconds since the epoch; 0 where nothing holds
    /// it back.
    pub not_before: i64,
    /// A webhook or a page settled the call: answers to requests that were under way for it count
    /// no more.
    pub settled_externally: bool,
    /// The CRM's id of its last accepted request.
    pub request_id: Option<String>,
    /// The token that made that request.
    pub token: Option<TokenFingerprint>,
    /// Moment at which that request was accepted; where nobody knows, at which it was sent.
    pub submitted_at: Option<EventTime>,
    /// Moment at which it was first sent with these values; `None` where it was not.
    pub first_sent: Option<EventTime>,
    /// Moment of the next poll or reconciliation, while submitted.
    pub next_poll: Option<EventTime>,
    /// Polls of that request so far.
    pub polls: u32,
    /// Pages that should have shown it, and did not.
    pub absent: u32,
    /// Moment at which it was last counted absent.
    pub absent_at: Option<EventTime>,
    /// Times it went back from submitted to ready, because the journal did not hold it.
    pub resubmits: u32,
    /// Failures while others passed, as of its last return.
    pub failures: u32,
    /// Next step of an unresolved call that is absent; `None` of any other call.
    pub if_absent: Option<IfAbsent>,
    /// Leads and changes that it has been through on its own.
    #[serde(deserialize_with = "json_column")]
    pub reroute_history: Option<RerouteHistory>,
    /// It was sent again, because the journal had lost it.
    pub sent_again: bool,
    /// Reason why it is or was a letter.
    pub reason: Option<Reason>,
    /// The reason in words; of an unresolved call the words that go with its fate.
    pub message: String,
    /// `errors` of the service as JSON; `None` where it gave none.
    pub errors: Option<String>,
    /// Word of the [`Finding`] on its lead, where that was looked up.
    pub finding: Option<String>,
    /// Every try, oldest first; beyond [`super::ATTEMPTS_MAX`] the middle is left out.
    #[serde(deserialize_with = "json_column")]
    pub attempts: Vec<Attempt>,
    /// Times the call has become a letter.
    pub times_dead: u32,
}

/// A call that may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Due {
    /// The call: [`row`](crate::tables::calls::row) has the rest.
    pub row: RowId,
    /// Uuid of the call, under which it is sent.
    pub uuid: CallUuid,
    /// Moment since which it is ready.
    pub since: EventTime,
}

/// A call that waits to be confirmed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Unconfirmed {
    /// Id of the call in the spool.
    pub row: RowId,
    /// Uuid of the call, under which it was sent.
    pub uuid: CallUuid,
    /// The PBX's id of the call.
    pub linkedid: String,
    /// Name of the call's trunk; `None` where it is not known.
    pub trunk: Option<String>,
    /// Start of the call by the PBX's clock, in whole seconds.
    pub started: EpochSeconds,
    /// RequestId of its last accepted request; `None` when nothing can be asked with it.
    pub request_id: Option<String>,
    /// The only token that can read it; [`TokenFingerprint::none`] when none can.
    pub token: TokenFingerprint,
    /// Moment at which it was accepted, or sent where that is not known; a requestId can be read
    /// for 24 hours (§4.6).
    pub submitted_at: EventTime,
    /// Moment at which it was first sent with these values: the journal may hold it since then.
    pub first_sent: EventTime,
    /// Polls of its request so far.
    pub polls: u32,
    /// Moment of the next check, by poll or reconciliation.
    pub next_poll: EventTime,
    /// Reconciliations that did not show it, a minute apart at least.
    pub absent: u32,
    /// Moment at which it was last counted absent.
    pub absent_at: Option<EventTime>,
    /// Times it was sent again, because the journal did not hold it.
    pub resubmits: u32,
    /// Next step where it is an unresolved call and absent.
    pub if_absent: IfAbsent,
    /// Words that go with that fate.
    pub message: String,
}

impl Unconfirmed {
    /// Returns the time since it was accepted; [`HELD_MAX`] where the clock was set back since.
    pub fn age(&self, now: EventTime) -> Duration {
        if self.is_ahead(now) {
            return HELD_MAX;
        }
        now.since(self.submitted_at)
    }

    /// Returns `true` when it was accepted by a clock that was set back since: its times say
    /// nothing.
    pub fn is_ahead(&self, now: EventTime) -> bool {
        self.submitted_at > now.plus(HELD_MAX)
    }
}

/// Question of the sender for the work that can be done now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueQuery {
    /// Moment at which the sender asks.
    pub now: EventTime,
    /// The tokens that can read requestIds of theirs: the one in use first, then the one before it
    /// while it lives.
    pub tokens: Vec<TokenFingerprint>,
    /// A call accepted before this moment should have been written by now.
    pub confirmable_before: EventTime,
    /// Requests fail: a call that none failed on goes before those that were held back.
    pub untried_first: bool,
}

/// Calls that a reconciliation of the journal should show by now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Confirmable {
    /// Number of these calls, at most [`super::CONFIRMABLE_MAX`].
    pub calls: u32,
    /// Moment at which the first of them was accepted; `None` without any.
    pub oldest: Option<EventTime>,
}

/// Pace at which webhooks confirm calls, kept across restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebhookPace {
    /// Moment at which a webhook last confirmed a call.
    pub at: EventTime,
    /// Time from the acceptance of a call to its confirmation, of the last one where it is known.
    pub after: Duration,
    /// Longest time that a confirmation takes: the longest so far, forgotten by an eighth with each
    /// call.
    pub usual: Duration,
}

/// All the sender needs to choose its next request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkQueue {
    /// The oldest live call that may be sent now.
    pub live: Option<Due>,
    /// The oldest other call that may be sent now.
    pub backlog: Option<Due>,
    /// Moment at which the next call that is held back may be sent; `None` when none is.
    pub next_not_before: Option<EventTime>,
    /// Submitted calls of these tokens due for a poll, longest due first, at most
    /// [`super::DUE_POLLS_MAX`].
    pub polls: Vec<Unconfirmed>,
    /// Moment at which the next of the others, or of the unresolved calls, falls due.
    pub next_poll: Option<EventTime>,
    /// The submitted call of each of these tokens that was accepted first: its requestId ends
    /// first.
    pub oldest_submitted: Vec<Unconfirmed>,
    /// Calls that a reconciliation should show by now, unresolved calls among them.
    pub confirmable: Confirmable,
    /// A submitted call of these tokens that two reconciliations have missed, and that is due for a
    /// poll.
    pub alone: Option<Unconfirmed>,
    /// An unresolved call that is due.
    pub unresolved: Option<Unconfirmed>,
    /// Requests about leads that are due beside the calls.
    pub lead_requests: DueRequests,
    /// Pace at which webhooks confirm calls; `None` before the first.
    pub webhook_pace: Option<WebhookPace>,
    /// Calls that wait to be sent, by the books.
    pub ready: u64,
    /// Calls whose request is under way, by the books.
    pub sending: u64,
    /// Calls that wait to be confirmed, by the books.
    pub submitted: u64,
}

/// A dead, waiting or unreadable letter.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Letter {
    /// Id that `dead list` shows, and that commands take.
    pub id: RowId,
    /// The call's uuid; `None` for unreadable bytes.
    pub uuid: Option<CallUuid>,
    /// Reason why it is a letter.
    pub reason: Reason,
    /// The letter leaves by itself when the missing thing becomes known.
    pub waiting: bool,
    /// Moment at which it became a letter.
    pub since: EventTime,
    /// The reason in words, or the service's own.
    pub message: String,
    /// Result of the lookup of the lead of a call that FAILED; `None` without one.
    #[serde(default, deserialize_with = "known_finding")]
    pub finding: Option<Finding>,
    /// The service's `errors`, or null.
    #[serde(default, deserialize_with = "json_column")]
    pub errors: serde_json::Value,
    /// Every try to send the call, oldest first.
    #[serde(deserialize_with = "json_column")]
    pub attempts: Vec<Attempt>,
    /// Actions of people on it, oldest first. At most [`super::ACTIONS_MAX`] are kept: the second
    /// oldest is dropped.
    #[serde(deserialize_with = "json_column")]
    pub actions: Vec<Action>,
    /// Times this call has become a letter, this time included.
    pub times_dead: u32,
    /// The call as it would be sent; `None` for unreadable bytes.
    #[serde(default, deserialize_with = "json_column")]
    pub call: Option<CallRecord>,
    /// The message, for a letter of unreadable bytes.
    pub bytes: Option<UnreadMessage>,
}

impl Letter {
    /// Returns `true` if a person must say whether the customer called or was called.
    pub fn has_unknown_direction(&self) -> bool {
        let call = self.call.as_ref();
        call.is_some_and(|call| call.direction == Direction::Unknown)
    }
}

/// Reads what was found; `None` for a word that is not known here.
fn known_finding<'de, D: Deserializer<'de>>(column: D) -> Result<Option<Finding>, D::Error> {
    let word = Option::<String>::deserialize(column)?;
    Ok(word.and_then(|word| Finding::from_word(&word)))
}

/// Message of a source that nobody could read.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct UnreadMessage {
    /// Name of the source that sent it.
    pub source: String,
    /// PBX that the source belongs to.
    pub pbx: String,
    /// The first of its bytes: in lists [`super::LISTED_BYTES_MAX`], else all that are kept.
    pub bytes: Vec<u8>,
    /// Length of the whole message, in bytes.
    pub length: u64,
    /// The file that holds it, and the place in it; `None` of a message that came otherwise.
    pub file: Option<String>,
    /// AMQP property `content_type`, where the message had one.
    pub content_type: Option<String>,
}

/// Choice of letters, and of a page of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LetterFilter {
    /// Only letters of these ids; `None` for all.
    pub ids: Option<Vec<RowId>>,
    /// Only dead letters ([`State::Dead`], unreadable messages included), or only waiting calls
    /// ([`State::Waiting`]); `None` for both.
    pub state: Option<State>,
    /// Only letters of this reason; `None` for all.
    pub reason: Option<Reason>,
    /// Only letters after this id: the last one of the page before.
    pub after: Option<RowId>,
    /// Only letters before this id, by falling ids.
    pub before: Option<RowId>,
    /// Letters on the page, at most; 0 for [`super::LETTERS_PAGE`].
    pub limit: usize,
}

/// A number that called and has no lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingPhone {
    /// Number of the customer, in E.164.
    pub phone: Phone,
    /// Calls of this number that wait for a lead.
    pub calls: u64,
    /// Start of the one that was taken in first.
    pub first: EpochSeconds,
    /// Start of the last of them.
    pub last: EpochSeconds,
    /// Trunk of the last of them.
    pub trunk: Option<String>,
    /// PBX of the last of them.
    pub pbx: String,
}

/// A customer who called, got nobody, and was not talked to since, as `missed --json` has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MissedCustomer {
    /// Number that the customer called from.
    pub phone: Phone,
    /// The PBX of the last try.
    #[serde(skip)]
    pub pbx: String,
    /// The trunk of the last try.
    pub trunk: String,
    /// Lead of the customer, where it is known: in the spool that of the last try.
    pub lead_id: Option<LeadId>,
    /// Start of their first try, since which they wait.
    pub first_at: EpochSeconds,
    /// Start of their last try.
    pub last_at: EpochSeconds,
    /// Calls in vain since somebody talked with them.
    pub tries: u64,
}

/// Calls that one trunk took.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct TrunkCalls {
    /// PBX that the trunk belongs to.
    pub pbx: String,
    /// Name of the trunk; empty of the calls between extensions.
    pub trunk: String,
    /// Calls in the time asked for.
    pub calls: u64,
    /// Calls of that time that were put down to an extension.
    pub with_extension: u64,
    /// Calls of that time that were put down to an employee.
    pub with_employee: u64,
    /// Calls since the state was made.
    pub ever: u64,
    /// Start of the newest call of all.
    pub last_at: EpochSeconds,
}

/// A lead that a person has given a number, as `lead given --json` has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeadByHand {
    /// Number that was given the lead.
    pub phone: Phone,
    /// Lead that the number was given.
    pub lead_id: LeadId,
    /// Second at which it was given.
    pub at: EpochSeconds,
    /// Name of the person who gave it.
    pub who: String,
}

/// A finished call by one of its ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct SeenCall {
    /// Uuid of the call; `None` for calls that have none.
    pub uuid: Option<CallUuid>,
    /// The id is the call's own linkedid, not one of its channels' or aliases.
    pub is_linkedid: bool,
    /// Start of the call by the PBX's clock, in whole seconds.
    pub started: EpochSeconds,
}

/// Way in which a letter left. The words are stored, and stand in notices: never change one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Left {
    /// A person sent it again.
    Retried,
    /// The call went by itself: what it lacked became known.
    Released,
    /// The journal holds it; also of one that was retried or released before.
    Journaled,
    /// The letter was given up.
    Discarded,
}

impl Left {
    /// Every way, in the order of the variants.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the word that notices have: `retried`.
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// Notice of a letter for RabbitMQ: that it came to be, or how it left.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Notice {
    /// Place of the notice in the outbox.
    pub notice: i64,
    /// `ID:ATTEMPT`: the letter's id, and how often that call has become a letter; with `:STATE`
    /// behind for one that left.
    pub message_id: String,
    /// A line of `dead list --json`, as it was then.
    pub body: String,
    /// Header `reason`; `None` where it left some time ago.
    pub reason: Option<Reason>,
    /// Header `state`: `dead`, `waiting`, or the word of [`Left`]; empty where it is not known.
    pub state: String,
    /// Moment at which the letter came to be or left, for the message's timestamp; `None` where it
    /// is not known.
    pub at: Option<EventTime>,
    /// Header `uuid`; `None` for unreadable bytes.
    pub uuid: Option<CallUuid>,
    /// Header `linkedid`; `None` for unreadable bytes.
    pub linkedid: Option<String>,
    /// Header `trunk`; `None` where the call has none.
    pub trunk: Option<String>,
}
