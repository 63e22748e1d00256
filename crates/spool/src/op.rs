//! What the spool is asked to store, and what it answers.

use super::state::{State, Step};
use crate::{Action, Binding, CallEcho, Finished, ForeignCall, LeadByHand, RowId};
use callbridge_call::EventTime;
use callbridge_crm::ShownCall;
use callbridge_leads::directory::LeadNews;
use callbridge_leads::lead_request::LeadChange;
use callbridge_model::{CallUuid, LeadId, Phone, TokenFingerprint};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// One thing to store. The operations of one request are stored together or not at all.
///
/// Each says what it does to the books; those that say nothing leave them alone.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// A judged call is taken in, by its outcome:
    ///
    /// | outcome | stored | books |
    /// |---|---|---|
    /// | `Journal` | a row that is ready | finished + 1, ready + 1 |
    /// | `DeadLetter` | a row, dead or waiting; a notice | finished + 1, dead or waiting + 1 |
    /// | `Internal` | – | internal + 1 |
    /// | `Skipped` | – | skipped + 1 |
    ///
    /// Waiting are the reasons of [`Reason::is_waiting`](callbridge_model::Reason::is_waiting). In
    /// each case its linkedid and all of `also_known_as` become seen_calls.
    ///
    /// A letter `incomplete` that nobody has retried is corrected by a better account of the same
    /// call ([`Done::Corrected`]), and given up where it proves to be a part of another call.
    /// Otherwise the same call again changes nothing but the counter `repeats`
    /// ([`Done::Repeat`]). The same
    /// uuid with a start that is more than a second off, or another number, is another call: a
    /// dead letter `uuid_conflict` ([`Done::Conflict`]; finished + 1, dead + 1). A number that one
    /// side does not know is no other number. Calls without a uuid are known by their linkedid.
    Finish(Box<Finished>),
    /// The ids of a call of which no row is kept are forgotten, so that it can be taken in once
    /// more (`audit --take-in`). What is stored keeps its ids.
    Forget {
        /// PBX that the ids are of.
        pbx: String,
        /// Ids of the call and its channels on that PBX.
        ids: Vec<String>,
    },
    /// A call that is not over: its snapshot is replaced, or dropped with `None`.
    Open {
        /// PBX that the call is on.
        pbx: String,
        /// Key of the call, which no other open call of its PBX has.
        key: u64,
        /// Bytes from which the call goes on after a restart; `None` drops what is kept.
        snapshot: Option<Vec<u8>>,
    },
    /// Progress of a source, from which it goes on after a restart.
    Position {
        /// Name of the source, under which its progress is kept.
        source: String,
        /// Whatever the source needs to go on from there.
        position: serde_json::Value,
    },
    /// Bytes of a source that could not be read: a letter `unreadable` with the first
    /// [`UNREADABLE_BYTES_MAX`] of them, and a notice. When there is no room left
    /// ([`UNREADABLE_LETTERS_MAX`], [`UNREADABLE_BYTES_ALL`]), only counted. Books: unreadable + 1
    /// either way.
    ///
    /// [`UNREADABLE_BYTES_MAX`]: super::UNREADABLE_BYTES_MAX
    /// [`UNREADABLE_LETTERS_MAX`]: super::UNREADABLE_LETTERS_MAX
    /// [`UNREADABLE_BYTES_ALL`]: super::UNREADABLE_BYTES_ALL
    Unreadable(UnreadableBytes),
    /// A file that holds one record was read: its earlier `unreadable` dead letters are removed.
    FileRead {
        /// Name of the source that the file belongs to.
        source: String,
        /// Path of the file, as [`UnreadableBytes::file`] has it.
        file: String,
        /// Moment at which it was read.
        at: EventTime,
    },
    /// A step of a stored call ([`super::state::next`]). Books: one less where it was, one more
    /// where it is. On an unreadable letter `Discard` and `Retry` alone exist: it is forgotten, and
    /// the book `unreadable`, which counts all there ever were, stays.
    Step {
        /// Id of the call, or of the unreadable letter.
        row: RowId,
        /// Step to be taken, where its state has it.
        step: Step,
        /// Moment of the step, from which its new state counts.
        at: EventTime,
    },
    /// A call FAILED: it goes on by itself, or is a letter, by what is known of its lead at the
    /// commit. Books: as its step's.
    FailedCall(CallFailure),
    /// A slot of the sender's budget is taken, or its request was answered.
    Slot(SlotRow),
    /// The slot of this number, from 0, is free again.
    SlotGone(u32),
    /// An action of a person on a dead letter, kept with its call. It comes before the step that it
    /// causes, so that notices report it.
    Action {
        /// Id of the call that is or was a dead letter.
        row: RowId,
        /// The action with its time and person.
        action: Action,
    },
    /// A person gives a number its lead; another one that it had is forgotten.
    Give(LeadByHand),
    /// The number has no given lead any more.
    Take(Phone),
    /// A small durable setting. Names that begin with `spool.` or `bound.` are the spool's own.
    Meta {
        /// Name under which the value is kept.
        key: String,
        /// Text of any form, in place of the one before.
        value: String,
    },
    /// The small durable setting of this name is forgotten.
    MetaGone(String),
    /// A counter that outlives everything (`repeats`, `clamped`…). The books are not among them.
    Count {
        /// Name of the counter, which begins at 0.
        counter: String,
        /// Amount by which the counter grows.
        by: u64,
    },
    /// The broker has confirmed the notice at this place in the outbox: it leaves.
    NoticeSent(i64),
    /// The state is bound to a CRM address: at first use for ever; with `rebind` anew, and
    /// company and application are unbound. Another address without it is refused
    /// ([`super::Error::OtherAddress`]).
    BindAddress {
        /// Base address of the CRM: `https://api.example.com`.
        address: String,
        /// Bind anew whatever is bound: `--rebind` is given.
        rebind: bool,
    },
    /// The state is bound to the token's company and application (§2.2): at first use for ever.
    /// Another's token is answered [`Done::WrongCompany`] and changes nothing.
    BindCompany {
        /// Id of the token's company, as text.
        company: String,
        /// Id of the token's application, as text.
        application: String,
    },
    /// An event that the service has sent and that was proved to be its own. Its content is
    /// applied, and the pair of installation and event remembered, for
    /// [`DELIVERIES_KEPT`](super::DELIVERIES_KEPT), and its signature; a known pair or signature
    /// changes nothing. Answered [`Done::Delivered`].
    Delivery(Box<Delivery>),
    /// Another provider has journaled a call, as an event that was proved says. Whether it is ours
    /// as well is kept; another company's changes nothing.
    Foreign {
        /// Company of the event (§6.5 `companyId`).
        company: String,
        /// The other provider's call, as the event shows it.
        call: ForeignCall,
        /// Moment at which the event came.
        at: EventTime,
    },
    /// Step or answer of a request about leads. A lookup that finds the lead may send its letters
    /// `failed` on without their employee: dead - 1, ready + 1 each.
    Lead(LeadChange),
    /// Forgets, a bounded part at a time, deliveries after their time, and what was journaled
    /// or discarded longer ago than [`super::Settings::retention`], and seen_calls as
    /// old, counted back from this moment. The books keep counting them.
    Purge(EventTime),
    /// A page of the journal shows these calls. Those that were sent from here, and are not known
    /// to have arrived, did. Books: as the steps of those calls.
    Shown {
        /// Calls on the page.
        calls: Vec<ShownCall>,
        /// Moment at which the page was read.
        at: EventTime,
    },
    /// News of a lead for the directory, of any age, any number of times. Calls that may leave by
    /// it are found by [`super::Store::take_awaited`] after the commit.
    Learn(Box<LeadNews>),
}

impl Op {
    /// Makes the operation that keeps a small durable setting.
    pub fn meta(key: impl Into<String>, value: impl Into<String>) -> Self {
        let (key, value) = (key.into(), value.into());
        Self::Meta { key, value }
    }

    /// Makes the operation by which a stored call takes a step.
    pub const fn step(row: RowId, step: Step, at: EventTime) -> Self {
        Self::Step { row, step, at }
    }

    /// Makes the operation that stores an action on a dead letter or a call.
    pub fn action(row: RowId, who: &str, action: impl Into<String>, at: EventTime) -> Self {
        let action = Action {
            at,
            who: who.to_owned(),
            action: action.into(),
        };
        Self::Action { row, action }
    }

    /// Makes the operation that adds so many to a counter.
    pub fn count(counter: impl Into<String>, by: u64) -> Self {
        let counter = counter.into();
        Self::Count { counter, by }
    }
}

/// Bytes of a source that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableBytes {
    /// Name of the source that the bytes came from.
    pub source: String,
    /// PBX that the source belongs to.
    pub pbx: String,
    /// The bytes as they came.
    pub bytes: Vec<u8>,
    /// Length of the whole message in bytes, where `bytes` are only its beginning.
    pub cut_from: Option<u64>,
    /// The file that holds the message, and the place in it; `None` of bytes that came otherwise.
    pub file: Option<String>,
    /// Reason why the bytes cannot be read, for people.
    pub why: String,
    /// Moment at which the bytes came.
    pub at: EventTime,
    /// AMQP property `content_type` of the message; `None` of bytes that came otherwise.
    pub content_type: Option<String>,
}

/// The service's answer that a call FAILED.
#[derive(Clone, Debug, PartialEq)]
pub struct CallFailure {
    /// Id of the call that FAILED.
    pub row: RowId,
    /// Message of the service, as it sent it.
    pub message: String,
    /// The service's `errors` (§7.2), or null.
    pub errors: serde_json::Value,
    /// Moment at which it is known that the call FAILED.
    pub at: EventTime,
}

/// An event from the service, as far as it concerns us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The connection it came for (§6.3 `X-Webhook-Installation-Id`).
    pub installation: String,
    /// Id of the event (§6.5 `eventId`), by which a repeat is known.
    pub event: String,
    /// Signature that proved the event (§6.4): the installation is in no signature, so a replay may
    /// name another.
    pub signature: [u8; 32],
    /// Company of the event (§6.5 `companyId`): another company's than ours is not applied.
    pub company: String,
    /// Moment at which the event came.
    pub at: EventTime,
    /// Content of the event, as far as it is applied.
    pub news: WebhookEvent,
}

/// Content of an event, of the kinds that are applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookEvent {
    /// A conversation is in the journal (§6.8 `CALL_COMPLETED`).
    Completed {
        /// Uuid of the call in the journal, without the prefix `oapi-`.
        uuid: CallUuid,
        /// The leads it was put down to; may be empty.
        leads: Vec<LeadId>,
        /// Values that the journal shows of the call.
        shown: Box<CallEcho>,
    },
    /// Something happened to a lead, for the directory ([`Op::Learn`]).
    Learn(Box<LeadNews>),
}

impl WebhookEvent {
    /// Returns the event's kind, as the CRM names it (§6.2).
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Completed { .. } => "CALL_COMPLETED",
            Self::Learn(news) => news.what.word(),
        }
    }
}

/// Effect of a delivery on the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivered {
    /// The pair or the signature is known: nothing changed.
    Repeat,
    /// No token has shown yet whose state this is: nothing changed, and nothing is remembered.
    CompanyUnknown,
    /// The event is another company's: nothing changed, and nothing is remembered.
    OtherCompany,
    /// The call of the event is journaled now.
    Confirmed {
        /// Id of the call that is journaled now.
        row: RowId,
        /// The journal has it on other leads than the one it was sent with, merged ones not
        /// counted.
        other_lead: bool,
    },
    /// The call of the event is a letter now: the journal holds it with other values than it was to
    /// have.
    Overtaken(RowId),
    /// The event says nothing new of this call.
    Settled(RowId),
    /// The event is of no call of ours.
    NotOurs,
    /// News of a lead are taken in: `true` where something was not known before.
    Learned(bool),
}

/// A slot of the sender's budget, as it must survive a restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotRow {
    /// Number of the slot, from 0.
    pub slot: u32,
    /// The token it counts against.
    pub token: TokenFingerprint,
    /// The boot that `sent` and `answered` belong to.
    pub boot_id: String,
    /// Time since boot at which its request was sent.
    pub sent: Duration,
    /// Time since boot at which the answer came; `None` while under way.
    pub answered: Option<Duration>,
    /// Moment at which its request was sent, by the wall clock.
    pub wall_sent: EventTime,
}

/// Result of one operation, once it is committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// `Finish`: a new call, with its row.
    New(RowId),
    /// `Finish`: a new call that is counted only (internal, skipped).
    Counted,
    /// `Finish`: the same call once more; nothing changed. `None` where its row is purged or
    /// there never was one.
    Repeat(Option<RowId>),
    /// `Finish`: another call with a known uuid; its letter.
    Conflict(RowId),
    /// `Finish`: a better account of a call that waits as a letter `incomplete`: the letter now
    /// has its values, and its place in the books is that of the new verdict.
    Corrected(RowId),
    /// `Unreadable`: its letter; `None` when it was only counted.
    Unreadable(Option<RowId>),
    /// `Step`: the state in which the call stands now.
    Stepped(State),
    /// `Lead`: a lookup was answered, and applied to the letters of its lead.
    LookupDone {
        /// Letters that say what was found.
        updated: u64,
        /// Letters that went on without their employee.
        left: u64,
    },
    /// `BindCompany`: the token is another company's or application's. What it is bound to.
    WrongCompany(Binding),
    /// `Delivery`: its effect on the state.
    Delivered(Delivered),
    /// `Learn`: the news is taken in: `true` where something was not known before.
    Learned(bool),
    /// `Purge`: rows and seen_calls forgotten.
    PurgeCounts(PurgeCounts),
    /// Any other operation, which is stored.
    Stored,
}

/// Counts of what one purge has forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PurgeCounts {
    /// Journaled and discarded calls that were forgotten.
    pub calls: u64,
    /// Tombstones of calls' ids that were forgotten.
    pub seen_calls: u64,
    /// More is left to forget: ask again soon.
    pub more: bool,
}
