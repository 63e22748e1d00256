//! What is read back from the spool.

use super::op::RowId;
use super::state::{State, TokenPrint};
use crate::journal::{CallRecord, CallUuid, Phone, Reason};
use callbridge_call::{EpochSeconds, EventTime, FinishedCall};
use serde::{Deserialize, Serialize};

/// One try, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// When it ended.
    pub at: EventTime,
    /// How, in words.
    pub words: String,
}

/// A stored call, all of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its id.
    pub id: RowId,
    /// Its uuid: several `uuid_conflict` letters may share one.
    pub uuid: CallUuid,
    /// Where it stands.
    pub state: State,
    /// What is, was or would be sent.
    pub record: CallRecord,
    /// The facts, to map it anew.
    pub call: FinishedCall,
    /// The CRM's id of its last accepted request.
    pub request_id: Option<String>,
    /// The token that made that request.
    pub token: Option<TokenPrint>,
    /// Every try, oldest first; beyond [`super::ATTEMPTS_MAX`] the middle is left out.
    pub attempts: Vec<Attempt>,
    /// When that request was accepted.
    pub submitted_at: Option<EventTime>,
    /// Polls of that request so far.
    pub polls: u32,
    /// When to poll next, while submitted.
    pub next_poll: Option<EventTime>,
    /// How often it went from submitted back to ready.
    pub resubmits: u32,
    /// Not to be sent before, while ready.
    pub not_before: Option<EventTime>,
    /// Goes before the backlog.
    pub live: bool,
    /// Why it is or was a letter.
    pub reason: Option<Reason>,
    /// That in words.
    pub message: String,
    /// The service's `errors`.
    pub errors: serde_json::Value,
    /// Since when it stands where it stands; polls do not change it.
    pub since: EventTime,
}

/// A call that may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// The call: [`super::Store::row`] has the rest.
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
    /// Its request.
    pub request_id: String,
    /// The only token that can read it.
    pub token: TokenPrint,
    /// When it was accepted; the requestId can be read for 24 hours (§4.7).
    pub submitted_at: EventTime,
    /// Polls so far.
    pub polls: u32,
    /// When to poll next.
    pub next_poll: EventTime,
}

/// All the sender needs to choose its next request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The oldest live call that may be sent now.
    pub live: Option<Due>,
    /// The oldest other call that may be sent now.
    pub backlog: Option<Due>,
    /// When the next call that is held back may be sent; `None` when none is.
    pub next_not_before: Option<EventTime>,
    /// Submitted calls due for a poll, longest due first, at most [`super::DUE_POLLS_MAX`].
    pub polls: Vec<Unconfirmed>,
    /// When the next of the others falls due.
    pub next_poll: Option<EventTime>,
    /// The submitted call that was accepted first: its requestId ends first.
    pub oldest_submitted: Option<Unconfirmed>,
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
    /// The service's `errors`, or null.
    pub errors: serde_json::Value,
    /// Every try.
    pub attempts: Vec<Attempt>,
    /// How often this call has become a letter, this time included.
    pub deaths: u32,
    /// The call as it would be sent; `None` for unreadable bytes.
    pub call: Option<CallRecord>,
    /// The bytes, for a letter of that reason.
    pub bytes: Option<UnreadBytes>,
}

/// What a source said and nobody understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadBytes {
    /// The source.
    pub source: String,
    /// Its PBX.
    pub pbx: String,
    /// The first of them: in lists [`super::LISTED_BYTES_MAX`], else all that are kept.
    pub bytes: Vec<u8>,
    /// How many there were.
    pub length: u64,
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
    /// Start of the last of them.
    pub last: EpochSeconds,
    /// Trunk of the last of them.
    pub trunk: Option<String>,
    /// PBX of the last of them.
    pub pbx: String,
}

/// A finished call by one of its ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tombstone {
    /// Its uuid; `None` for calls that have none.
    pub uuid: Option<CallUuid>,
    /// The id is the call's own linkedid, not one of its channels' or aliases.
    pub own: bool,
    /// Start of the call.
    pub started: EpochSeconds,
}

/// A letter to be told of in RabbitMQ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Its place in the outbox.
    pub notice: i64,
    /// `ID:ATTEMPT`: the letter's id, and how often that call has become a letter.
    pub message_id: String,
    /// A line of `dead list --json`, as it was then.
    pub body: String,
    /// Header `reason`.
    pub reason: Reason,
    /// Header `uuid`; `None` for unreadable bytes.
    pub uuid: Option<CallUuid>,
    /// Header `linkedid`; `None` for unreadable bytes.
    pub linkedid: Option<String>,
    /// Header `trunk`.
    pub trunk: Option<String>,
}
