//! The operations that the spool stores, and their results.

use super::state::{State, Step};
use crate::hub::{BranchChange, BranchRequest, HubAnswer, NewBranch, Offer, TokenRotation};
use crate::{
    Action, Binding, CallEcho, ConnectionChange, Finished, ForeignCall, LeadByHand, RowId,
};
use callbridge_call::EventTime;
use callbridge_crm::ShownCall;
use callbridge_leads::directory::LeadNews;
use callbridge_leads::lead_request::LeadChange;
use callbridge_model::{CallUuid, LeadId, Phone, TokenFingerprint};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// One thing to store. The operations of one request are stored together or not at all.
///
/// Each variant says how it changes the books. Otherwise the books stay as they are.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// A judged call is stored by its outcome:
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
    /// A dead letter `incomplete` that no one has retried is corrected by a better account of the
    /// same call ([`Done::Corrected`]). It is discarded if it proves to be a part of another call.
    /// Otherwise the same call again only increases the counter `repeats` ([`Done::Repeat`]).
    ///
    /// The same uuid is another call if its number differs or its start is more than a second off.
    /// It becomes a dead letter `uuid_conflict` ([`Done::Conflict`]; finished + 1, dead + 1). An
    /// unknown number does not differ. Calls without a uuid are recognized by their linkedid.
    Finish(Box<Finished>),
    /// Forgets the ids of a call of which no row is kept, so that it can be taken in again (`audit
    /// --take-in`). A stored call keeps its ids.
    Forget {
        /// PBX that the ids are of.
        pbx: String,
        /// Ids of the call and its channels on that PBX.
        ids: Vec<String>,
    },
    /// Replaces the snapshot of a call that is not over, or deletes it with `None`.
    Open {
        pbx: String,
        /// Unique among the open calls of its PBX.
        key: u64,
        /// State from which the call continues after a restart. `None` deletes the stored one.
        snapshot: Option<Vec<u8>>,
    },
    /// Progress of a source, from which it continues after a restart.
    Position {
        /// The source's name, under which its progress is kept.
        source: String,
        /// Any JSON that the source needs to continue from there.
        position: serde_json::Value,
    },
    /// Bytes of a source that could not be read: a dead letter `unreadable` with the first
    /// [`UNREADABLE_BYTES_MAX`] of them, and a notice. If no room is left
    /// ([`UNREADABLE_LETTERS_MAX`], [`UNREADABLE_BYTES_ALL`]), they are only counted. Books:
    /// unreadable + 1 either way.
    ///
    /// [`UNREADABLE_BYTES_MAX`]: super::UNREADABLE_BYTES_MAX
    /// [`UNREADABLE_LETTERS_MAX`]: super::UNREADABLE_LETTERS_MAX
    /// [`UNREADABLE_BYTES_ALL`]: super::UNREADABLE_BYTES_ALL
    Unreadable(UnreadableBytes),
    /// A file that holds one record was read: its earlier `unreadable` dead letters are removed.
    FileRead {
        source: String,
        /// Path of the file, as [`UnreadableBytes::file`] has it.
        file: String,
        /// Time at which it was read.
        at: EventTime,
    },
    /// A step of a stored call ([`super::state::next`]). Books: one less in the old state, one more
    /// in the new state. An unreadable dead letter only has `Discard` and `Retry`: it is forgotten,
    /// and the book `unreadable`, a total of all time, stays.
    Step {
        /// Id of the call or the unreadable dead letter.
        row: RowId,
        step: Step,
        /// Time of the step, from which its new state counts.
        at: EventTime,
    },
    /// A call FAILED. It continues automatically or becomes a dead letter, depending on what is
    /// known of its lead at the commit. Books: as its step's.
    FailedCall(CallFailure),
    /// A slot of the sender's budget is taken, or its request was answered.
    Slot(SlotRow),
    /// The slot of this number, from 0, is free again.
    SlotGone(u32),
    /// An action of a person on a dead letter, stored with its call. It comes before the step that
    /// it causes, so notices contain it.
    Action {
        /// Id of the call that is or was a dead letter.
        row: RowId,
        action: Action,
    },
    /// A person assigns a lead to a number. It replaces an earlier one.
    Give(LeadByHand),
    /// Removes the lead that a person assigned to the number.
    Take(Phone),
    /// A small durable setting. The spool owns names that begin with `spool.` or `bound.`.
    Meta {
        key: String,
        /// Text of any form. Replaces the earlier value.
        value: String,
    },
    /// Removes the small durable setting of this name.
    MetaGone(String),
    /// A counter that is never reset (`repeats`, `clamped`…). The books are not among them.
    Count { counter: String, by: u64 },
    /// The broker has confirmed the notice with this id. It is deleted from the outbox.
    NoticeSent(i64),
    /// Binds the state to a CRM address. The first address is kept. With `rebind` it is replaced,
    /// and company and application are unbound. Without it, another address is refused
    /// ([`super::Error::OtherAddress`]).
    BindAddress {
        /// Base address of the CRM: `https://api.example.com`.
        address: String,
        /// `--rebind` is given: replace the bound address.
        rebind: bool,
    },
    /// Binds the state to the token's company and application (§2.2). The first ones are kept.
    /// A token of another company or application is answered [`Done::WrongCompany`] and changes
    /// nothing.
    BindCompany {
        /// Id of the token's company, as text.
        company: String,
        /// Id of the token's application, as text.
        application: String,
    },
    /// A verified event from the CRM. Its content is applied. The pair of installation and event
    /// and the signature are remembered for [`DELIVERIES_KEPT`](super::DELIVERIES_KEPT). A known
    /// pair or signature changes nothing. Answered [`Done::Delivered`].
    Delivery(Box<Delivery>),
    /// A verified event reports that another provider has journaled a call. Whether it is also one
    /// of our calls is kept. Another company's event changes nothing.
    Foreign {
        /// Company of the event (§6.5 `companyId`).
        company: String,
        /// The other provider's call as the event shows it.
        call: ForeignCall,
        /// Time at which the event came.
        at: EventTime,
    },
    /// Step or answer of a request about leads. A lookup that finds the lead can send its dead
    /// letters `failed` without their employee: dead - 1, ready + 1 each.
    Lead(LeadChange),
    /// Forgets expired deliveries. Also forgets seen_calls, and journaled or discarded calls, that
    /// are older than [`super::Settings::retention`] at this time. Each purge forgets a bounded
    /// number. The books keep counting the calls.
    Purge(EventTime),
    /// A page of the journal shows these calls. Those that were sent from here with an unknown
    /// outcome have arrived. Books: as the steps of those calls.
    Shown {
        calls: Vec<ShownCall>,
        /// Time at which the page was read.
        at: EventTime,
    },
    /// News of a lead for the directory. It can be of any age, and can be stored several times.
    /// Find the calls that it can release with [`super::Store::take_awaited`] after the commit.
    Learn(Box<LeadNews>),
    /// Makes the state a hub's, with this incarnation. A state that is a hub's keeps its own.
    BeginHub { incarnation: String, at: EventTime },
    /// A request of a branch, before the calls in it. Answered [`Done::Hub`]. If it shows that this
    /// state has lost commits, a new incarnation begins.
    BranchRequest(Box<BranchRequest>),
    /// Adds a branch, or PBXs to a branch. Answered [`Done::Branch`].
    AddBranch(NewBranch),
    /// Gives a branch another token. Answered [`Done::Branch`].
    RotateToken(TokenRotation),
    /// Removes the branch of this name. Its calls stay. Answered [`Done::Branch`].
    RemoveBranch(String),
    /// Makes calls of a collector ready for its hub. Books: as the states that they leave.
    Offer { offer: Offer, at: EventTime },
    /// Changes the OAuth connection. Answered [`Done::Connection`]. Only the holder of the state's
    /// lock can do it in this way; see [`ConnectionStore`](crate::ConnectionStore).
    Connection(Box<ConnectionChange>),
}

impl Op {
    pub fn meta(key: impl Into<String>, value: impl Into<String>) -> Self {
        Self::Meta {
            key: key.into(),
            value: value.into(),
        }
    }

    pub const fn step(row: RowId, step: Step, at: EventTime) -> Self {
        Self::Step { row, step, at }
    }

    pub fn action(row: RowId, who: &str, action: impl Into<String>, at: EventTime) -> Self {
        let action = Action {
            at,
            who: who.to_owned(),
            action: action.into(),
        };
        Self::Action { row, action }
    }

    pub fn count(counter: impl Into<String>, by: u64) -> Self {
        let counter = counter.into();
        Self::Count { counter, by }
    }

    /// Returns `true` for an operation of a source of calls. It does not change what another
    /// finished call depends on.
    pub(crate) const fn is_intake(&self) -> bool {
        self.is_intake_in_order()
            || matches!(
                self,
                Self::Meta { .. } | Self::MetaGone(_) | Self::Count { .. }
            )
    }

    /// Returns `true` for an operation that must not overtake another one, because a position
    /// counts for the calls before it.
    pub(crate) const fn is_intake_in_order(&self) -> bool {
        matches!(
            self,
            Self::Finish(_)
                | Self::Open { .. }
                | Self::Position { .. }
                | Self::Unreadable(_)
                | Self::FileRead { .. }
                | Self::BranchRequest(_)
        )
    }

    /// Returns `true` for an operation of a request to the CRM: it is about to be sent, or was
    /// answered.
    pub(crate) const fn is_of_sender(&self) -> bool {
        matches!(
            self,
            Self::Step { .. } | Self::Slot(_) | Self::SlotGone(_) | Self::FailedCall(_)
        )
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableBytes {
    pub source: String,
    pub pbx: String,
    /// The bytes as they came.
    pub bytes: Vec<u8>,
    /// Length of the whole message in bytes, if `bytes` is only its beginning.
    pub cut_from: Option<u64>,
    /// The file that holds the message, and the place in it. `None` if it was not read from a file.
    pub file: Option<String>,
    /// Reason for people why the bytes cannot be read.
    pub why: String,
    /// Time at which the bytes came.
    pub at: EventTime,
    /// AMQP property `content_type` of the message. `None` for other sources.
    pub content_type: Option<String>,
}

/// The CRM's answer that a call FAILED.
#[derive(Clone, Debug, PartialEq)]
pub struct CallFailure {
    pub row: RowId,
    /// The CRM's unchanged message.
    pub message: String,
    /// The CRM's `errors` (§7.2), or null.
    pub errors: serde_json::Value,
    /// Time at which the failure became known.
    pub at: EventTime,
}

/// An event from the CRM, with the parts that callbridge uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Connection that received it (§6.3 `X-Webhook-Installation-Id`).
    pub installation: String,
    /// Id of the event (§6.5 `eventId`), by which a repeat is recognized.
    pub event: String,
    /// Signature that proved the event (§6.4). No signature covers the installation, so a replay
    /// can name another one.
    pub signature: [u8; 32],
    /// Company of the event (§6.5 `companyId`). Events of another company are not applied.
    pub company: String,
    /// Time at which the event came.
    pub at: EventTime,
    pub news: WebhookEvent,
}

/// Content of an event of a kind that is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookEvent {
    /// A conversation is in the journal (§6.8 `CALL_COMPLETED`).
    Completed {
        /// Uuid of the call in the journal, without the prefix `oapi-`.
        uuid: CallUuid,
        /// The leads that it is linked to. Can be empty.
        leads: Vec<LeadId>,
        shown: Box<CallEcho>,
    },
    /// Something happened to a lead, for the directory ([`Op::Learn`]).
    Learn(Box<LeadNews>),
}

impl WebhookEvent {
    /// Returns the CRM's name of the event kind (§6.2).
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Completed { .. } => "CALL_COMPLETED",
            Self::Learn(news) => news.what.word(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivered {
    /// The pair or the signature is known. Nothing changed.
    Repeat,
    /// No token has shown yet which company this state belongs to. Nothing changed, and nothing is
    /// remembered.
    CompanyUnknown,
    /// The event belongs to another company. Nothing changed, and nothing is remembered.
    OtherCompany,
    /// The call of the event is now journaled.
    Confirmed {
        row: RowId,
        /// The journal links it to other leads than the one it was sent with. Merged leads do not
        /// count.
        other_lead: bool,
    },
    /// The call of the event is now a dead letter: the journal holds it with other values than
    /// intended.
    Overtaken(RowId),
    /// The event contains no news about this call.
    Settled(RowId),
    /// The event is not about one of our calls.
    NotOurs,
    /// The news of a lead is stored. `true` if something was not known before.
    Learned(bool),
}

/// A slot of the sender's budget, as it must survive a restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotRow {
    /// Number of the slot, from 0.
    pub slot: u32,
    /// The token that the slot counts against.
    pub token: TokenFingerprint,
    /// The boot that `sent` and `answered` belong to.
    pub boot_id: String,
    /// Time since boot at which its request was sent.
    pub sent: Duration,
    /// Time since boot at which the answer came. `None` while the request is in flight.
    pub answered: Option<Duration>,
    /// Wall-clock time at which its request was sent.
    pub wall_sent: EventTime,
}

/// Result of one operation after its commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// `Finish`: a new call, with its row.
    New(RowId),
    /// `Finish`: a new call that is counted only (internal, skipped).
    Counted,
    /// `Finish`: the same call again. Nothing changed. `None` if its row was purged or never
    /// existed.
    Repeat(Option<RowId>),
    /// `Finish`: another call with a known uuid, stored as this dead letter.
    Conflict(RowId),
    /// `Finish`: a better account of a dead letter `incomplete`. The dead letter now has its
    /// values, and its book is that of the new verdict.
    Corrected(RowId),
    /// `Unreadable`: its dead letter. `None` if it was only counted.
    Unreadable(Option<RowId>),
    /// `Step`: the call's new state.
    Stepped(State),
    /// `Lead`: a lookup was answered, and applied to the dead letters of its lead.
    LookupDone {
        /// Dead letters that now show the finding.
        updated: u64,
        /// Dead letters that were sent without their employee.
        left: u64,
    },
    /// `BindCompany`: the token belongs to another company or application. Contains the bound one.
    WrongCompany(Binding),
    Delivered(Delivered),
    /// `Learn`: the news is stored. `true` if something was not known before.
    Learned(bool),
    PurgeCounts(PurgeCounts),
    /// `BranchRequest`: the position of this commit, for the answer.
    Hub(HubAnswer),
    /// `AddBranch`, `RotateToken`, `RemoveBranch`: what was done.
    Branch(BranchChange),
    /// `Connection`: `false` if another connection is stored. Nothing changed then.
    Connection(bool),
    /// Any other operation, now stored.
    Stored,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PurgeCounts {
    /// Journaled and discarded calls that were forgotten.
    pub calls: u64,
    /// Seen-call rows that were forgotten.
    pub seen_calls: u64,
    /// More can be forgotten, so purge again soon.
    pub more: bool,
}
