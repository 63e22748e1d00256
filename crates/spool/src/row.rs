//! What is read back from the spool.

use super::HELD_MAX;
use super::state::{IfAbsent, State};
use callbridge_call::{EpochSeconds, EventTime, FinishedCall};
use callbridge_leads::lead_request::Finding;
use callbridge_leads::lead_request::due::DueRequests;
use callbridge_leads::lead_request::failed::RerouteHistory;
use callbridge_model::{CallRecord, CallUuid, LeadId, Phone, Reason, TokenFingerprint};
use rusqlite::types::{FromSql, FromSqlResult, ValueRef};
use serde::{Deserialize, Serialize};
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

impl FromSql for RowId {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        i64::column_result(value).map(Self)
    }
}

/// One try, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// When it ended.
    pub at: EventTime,
    /// How, in words.
    pub words: String,
}

/// What a person did with a letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Act {
    /// When.
    pub at: EventTime,
    /// The name at the page, or the Unix user at the socket.
    pub who: String,
    /// What: `retry with lead 4002`.
    pub what: String,
}

/// A stored call, all of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its id.
    pub id: RowId,
    /// Its uuid: several `uuid_conflict` letters may share one.
    pub uuid: CallUuid,
    /// What is, was or would be sent.
    pub record: CallRecord,
    /// The facts, to map it anew.
    pub call: FinishedCall,
    /// How far it is.
    pub progress: Progress,
}

impl Deref for Row {
    type Target = Progress;

    fn deref(&self) -> &Progress {
        &self.progress
    }
}

/// How far a call is, in the columns that steps change.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Where it stands.
    pub state: State,
    /// Since when; polls do not change it.
    pub since: EventTime,
    /// When it began.
    pub started: EpochSeconds,
    /// Goes before the backlog.
    pub live: bool,
    /// Not to be sent before, in microseconds; 0 where nothing holds it back.
    pub not_before: i64,
    /// What is under way for it is answered after its end.
    pub hooked: bool,
    /// The CRM's id of its last accepted request.
    pub request_id: Option<String>,
    /// The token that made that request.
    pub token: Option<TokenFingerprint>,
    /// When that request was accepted.
    pub submitted_at: Option<EventTime>,
    /// When it was first sent with these values.
    pub first_sent: Option<EventTime>,
    /// When to look next, while submitted.
    pub next_poll: Option<EventTime>,
    /// Polls of that request so far.
    pub polls: u32,
    /// Pages that should have shown it.
    pub absent: u32,
    /// When it was counted absent last.
    pub absent_at: Option<EventTime>,
    /// How often it went from submitted back to ready.
    pub resubmits: u32,
    /// Failures while others passed, as of its last return.
    pub failures: u32,
    /// What becomes of it when it is an unresolved call and absent.
    pub fate: Option<IfAbsent>,
    /// Where it has been.
    pub been: Option<RerouteHistory>,
    /// How often it was taken in again.
    pub generation: u32,
    /// Why it is or was a letter.
    pub reason: Option<Reason>,
    /// That in words.
    pub message: String,
    /// The service's `errors`, JSON.
    pub errors: Option<String>,
    /// The word of a [`Finding`].
    pub finding: Option<String>,
    /// Every try, oldest first; beyond [`super::ATTEMPTS_MAX`] the middle is left out.
    pub attempts: Vec<Attempt>,
    /// How often it became a letter.
    pub deaths: u32,
}

/// A call that may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// The call: [`row`](crate::tables::calls::row) has the rest.
    pub row: RowId,
    /// Its uuid.
    pub uuid: CallUuid,
    /// Since when it is ready.
    pub since: EventTime,
}

/// A call that waits to be confirmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unconfirmed {
    /// The call.
    pub row: RowId,
    /// Its uuid.
    pub uuid: CallUuid,
    /// The PBX's id of it.
    pub linkedid: String,
    /// Its trunk.
    pub trunk: Option<String>,
    /// When it began.
    pub started: EpochSeconds,
    /// Its request; `None` when nothing can be asked with it.
    pub request_id: Option<String>,
    /// The only token that can read it; [`TokenFingerprint::none`] when none can.
    pub token: TokenFingerprint,
    /// When it was accepted, or sent where that is not known; a requestId can be read for 24 hours
    /// (§4.6).
    pub submitted_at: EventTime,
    /// When it was first sent with these values: the journal may hold it since then.
    pub first_sent: EventTime,
    /// Polls so far.
    pub polls: u32,
    /// When to look next, by poll or reconciliation.
    pub next_poll: EventTime,
    /// Reconciliations that did not show it, a minute apart at least.
    pub absent: u32,
    /// When it was counted absent last.
    pub absent_at: Option<EventTime>,
    /// How often it was sent again.
    pub resubmits: u32,
    /// What becomes of it when it is an unresolved call and absent.
    pub fate: IfAbsent,
    /// Words that go with that.
    pub message: String,
}

impl Unconfirmed {
    /// How long ago it was accepted; [`HELD_MAX`] where the clock was set back since.
    pub fn age(&self, now: EventTime) -> Duration {
        if self.is_ahead(now) {
            return HELD_MAX;
        }
        now.since(self.submitted_at)
    }

    /// It was accepted by a clock that was set back since: its times say nothing.
    pub fn is_ahead(&self, now: EventTime) -> bool {
        self.submitted_at > now.plus(HELD_MAX)
    }
}

/// What the sender asks the spool for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueQuery {
    /// Now.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Confirmable {
    /// How many, at most [`super::CONFIRMABLE_MAX`].
    pub calls: u32,
    /// When the first of them was accepted.
    pub oldest: Option<EventTime>,
}

/// How webhooks confirm calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hooked {
    /// When one confirmed a call last.
    pub at: EventTime,
    /// How long that call had been accepted.
    pub after: Duration,
    /// How long that takes at most: the longest, forgotten by an eighth with each call.
    pub usual: Duration,
}

/// All the sender needs to choose its next request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkQueue {
    /// The oldest live call that may be sent now.
    pub live: Option<Due>,
    /// The oldest other call that may be sent now.
    pub backlog: Option<Due>,
    /// When the next call that is held back may be sent; `None` when none is.
    pub next_not_before: Option<EventTime>,
    /// Submitted calls of these tokens due for a poll, longest due first, at most
    /// [`super::DUE_POLLS_MAX`].
    pub polls: Vec<Unconfirmed>,
    /// When the next of the others, or of the unresolved calls, falls due.
    pub next_poll: Option<EventTime>,
    /// Of each of these tokens the submitted call that was accepted first: its requestId ends
    /// first.
    pub oldest_submitted: Vec<Unconfirmed>,
    /// Those that a reconciliation should show by now, unresolved calls among them.
    pub confirmable: Confirmable,
    /// One of these tokens that two reconciliations have missed and that is due for a poll.
    pub alone: Option<Unconfirmed>,
    /// An unresolved call that is due.
    pub unresolved: Option<Unconfirmed>,
    /// Those among them that another may have sent.
    pub possibly_sent: PossiblySentCalls,
    /// What is due beside the calls.
    pub lead_requests: DueRequests,
    /// What webhooks have confirmed; `None` before the first.
    pub hooked: Option<Hooked>,
    /// How many are ready.
    pub ready: u64,
    /// How many are under way.
    pub sending: u64,
    /// How many wait to be confirmed.
    pub submitted: u64,
}

/// A dead, parked or unreadable letter.
#[derive(Clone, Debug, PartialEq)]
pub struct Letter {
    /// Its id.
    pub id: RowId,
    /// The call's uuid; `None` for unreadable bytes.
    pub uuid: Option<CallUuid>,
    /// The PBX's id of the call; `None` for unreadable bytes.
    pub linkedid: Option<String>,
    /// Why.
    pub reason: Reason,
    /// It leaves by itself when the missing thing becomes known.
    pub parked: bool,
    /// Since when.
    pub since: EventTime,
    /// The reason in words, or the service's own.
    pub message: String,
    /// What a look-up of the lead of a call that FAILED has found.
    pub finding: Option<Finding>,
    /// The service's `errors`, or null.
    pub errors: serde_json::Value,
    /// Every try.
    pub attempts: Vec<Attempt>,
    /// Who did what with it, oldest first; beyond [`super::ACTS_MAX`] the middle is left out.
    pub acts: Vec<Act>,
    /// How often this call has become a letter, this time included.
    pub deaths: u32,
    /// The call as it would be sent; `None` for unreadable bytes.
    pub call: Option<CallRecord>,
    /// The bytes, for a letter of that reason.
    pub bytes: Option<UnreadMessage>,
}

/// What a source sent and nobody could read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadMessage {
    /// The source.
    pub source: String,
    /// Its PBX.
    pub pbx: String,
    /// The first of its bytes: in lists [`super::LISTED_BYTES_MAX`], else all that are kept.
    pub bytes: Vec<u8>,
    /// How many there were.
    pub length: u64,
    /// Who published it, where that is known.
    pub by: PublishedBy,
}

/// Which letters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LetterFilter {
    /// Only these; `None` for all.
    pub ids: Option<Vec<RowId>>,
    /// Only of this reason.
    pub reason: Option<Reason>,
    /// Only after this id: the last one of the page before.
    pub after: Option<RowId>,
    /// Only before this id, by falling ids.
    pub before: Option<RowId>,
    /// At most so many; 0 for [`super::LETTERS_PAGE`].
    pub limit: usize,
}

/// A number that called and has no lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedPhone {
    /// The number.
    pub phone: Phone,
    /// How many of its calls wait.
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
    /// Who.
    pub phone: Phone,
    /// The PBX of the last try.
    #[serde(skip)]
    pub pbx: String,
    /// The trunk of the last try.
    pub trunk: String,
    /// Their lead, where it is known: in the spool that of the last try.
    #[serde(rename = "leadId")]
    pub lead: Option<LeadId>,
    /// Waiting since this first try.
    pub first_at: EpochSeconds,
    /// The last try.
    pub last_at: EpochSeconds,
    /// How often they tried.
    pub tries: u64,
}

/// What a trunk took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrunkCalls {
    /// Its PBX.
    pub pbx: String,
    /// Its name; empty of the calls between extensions.
    pub trunk: String,
    /// Calls in the time asked for.
    pub calls: u64,
    /// Those of them that were put down to an extension.
    pub with_extension: u64,
    /// And to an employee.
    pub with_employee: u64,
    /// Calls since the state was made.
    pub ever: u64,
    /// When the last of all began.
    pub last_at: EpochSeconds,
}

/// A lead that a person has given a number, as `lead given --json` has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeadByHand {
    /// The number.
    pub phone: Phone,
    /// Its lead.
    #[serde(rename = "leadId")]
    pub lead: LeadId,
    /// When.
    pub at: EpochSeconds,
    /// Who.
    pub who: String,
}

/// A finished call by one of its ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenCall {
    /// Its uuid; `None` for calls that have none.
    pub uuid: Option<CallUuid>,
    /// The id is the call's own linkedid, not one of its channels' or aliases.
    pub own: bool,
    /// Start of the call.
    pub started: EpochSeconds,
}

/// How a letter left. The words are stored and told: never change one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Left {
    /// A person sent it again.
    Retried,
    /// It went by itself: what it lacked became known.
    Released,
    /// The journal holds it; also of one that was retried or released before.
    Journaled,
    /// It was given up.
    Discarded,
}

impl Left {
    /// All of them.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// The word told: `retried`.
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// A letter to be told of in RabbitMQ: that it came to be, or how it left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Its place in the outbox.
    pub notice: i64,
    /// `ID:ATTEMPT`: the letter's id, and how often that call has become a letter; with `:STATE`
    /// behind for one that left.
    pub message_id: String,
    /// A line of `dead list --json`, as it was then.
    pub body: String,
    /// Header `reason`; `None` where it left some time ago.
    pub reason: Option<Reason>,
    /// Header `state`: `dead`, `parked`, or the word of [`Left`]; empty where it is not known.
    pub state: String,
    /// When that was, for the message's timestamp.
    pub at: Option<EventTime>,
    /// Header `uuid`; `None` for unreadable bytes.
    pub uuid: Option<CallUuid>,
    /// Header `linkedid`; `None` for unreadable bytes.
    pub linkedid: Option<String>,
    /// Header `trunk`.
    pub trunk: Option<String>,
}

/// What the publisher of a message wrote around it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishedBy {
    /// The user that the broker holds to the login.
    pub user: Option<String>,
    /// Its content type.
    pub content_type: Option<String>,
}

/// Calls that another may have sent, and that wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PossiblySentCalls {
    /// How many wait: to be looked for, or, where they are ready, to be sent after that.
    pub waiting: u64,
    /// The newest of those that may be sent.
    pub released: Option<Due>,
    /// Some are still to be looked for.
    pub is_searching: bool,
    /// How many there ever were.
    pub taken: u64,
    /// How many of them pages of the journal have shown.
    pub found: u64,
    /// How many calls the stream has settled.
    pub settled: u64,
}
