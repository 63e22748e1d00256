//! The operations that the spool stores, and their results.

use super::state::{State, Step};
use crate::hub::{BranchChange, BranchRequest, HubAnswer, NewBranch, Offer, TokenRotation};
use crate::{
    Action, Binding, CallEcho, ConnectionChange, Finished, ForeignCall, LeadByHand, RowId, Silence,
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
/// The books are the counts of calls by state. If an operation changes the books, its comment says
/// how.
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
    /// A call waits if its reason is [`Reason::is_waiting`](callbridge_model::Reason::is_waiting).
    /// In each case, the call's linkedid and all of `also_known_as` become seen calls.
    ///
    /// A dead letter `incomplete` that no one has retried is corrected by a better account of the
    /// same call ([`Done::Corrected`]). It is discarded if it proves to be a part of another call.
    /// Any other repeat of a call only increases the counter `repeats` ([`Done::Repeat`]).
    ///
    /// A call with a known uuid is another call if its number differs or its start is more than a
    /// second off, so it becomes a `uuid_conflict` dead letter ([`Done::Conflict`]), as does a call
    /// message that contradicts an earlier one about the same call, and a call that late CDRs have
    /// revised. Books: finished + 1, dead + 1. Of such dead letters with one uuid and one start,
    /// only the first 100 are kept ([`Done::NotKept`]).
    /// An unknown number does not differ. Calls without a uuid are recognized by their linkedid.
    Finish(Box<Finished>),
    /// Forgets the ids of a call that has no row, so the call can be taken in again (`audit
    /// --take-in`). A call that has a row keeps its ids.
    Forget {
        /// PBX that gave the ids.
        pbx: String,
        /// Ids of the call and its channels on that PBX.
        ids: Vec<String>,
    },
    /// Replaces or deletes the stored snapshot of a call that is not over.
    Open {
        pbx: String,
        /// Unique among the open calls of its PBX.
        key: u64,
        /// State from which the call continues after a restart. `None` deletes the stored snapshot.
        snapshot: Option<Vec<u8>>,
    },
    /// Progress of a source, from which it continues after a restart.
    Position {
        /// The source's name, under which its progress is kept.
        source: String,
        /// Any JSON that the source needs to continue from its position.
        position: serde_json::Value,
    },
    /// A message of a source could not be read. Stores a dead letter `unreadable` with its first
    /// [`UNREADABLE_BYTES_MAX`] bytes, and a notice. Beyond [`UNREADABLE_LETTERS_MAX`] or
    /// [`UNREADABLE_BYTES_ALL`], the message is only counted. Books: unreadable + 1 either way.
    ///
    /// [`UNREADABLE_BYTES_MAX`]: super::UNREADABLE_BYTES_MAX
    /// [`UNREADABLE_LETTERS_MAX`]: super::UNREADABLE_LETTERS_MAX
    /// [`UNREADABLE_BYTES_ALL`]: super::UNREADABLE_BYTES_ALL
    Unreadable(UnreadableBytes),
    /// A file that holds one record was read. Removes the file's earlier `unreadable` dead letters.
    FileRead {
        source: String,
        /// Path of the file, as [`UnreadableBytes::file`] has it.
        file: String,
        /// Time at which the file was read.
        at: EventTime,
    },
    /// A step of a stored call ([`super::state::next`]). Books: old state - 1, new state + 1. An
    /// unreadable dead letter only allows `Discard` and `Retry`. Both delete it. The book
    /// `unreadable` stays, because it is a total of all time.
    Step {
        /// Id of the call or the unreadable dead letter.
        row: RowId,
        step: Step,
        /// Time of the step. The call is in its new state since then.
        at: EventTime,
    },
    /// The CRM reported that a call FAILED. The call continues automatically or becomes a dead
    /// letter, depending on what the spool knows about its lead. Books: as for the step that
    /// follows.
    FailedCall(CallFailure),
    /// A slot of the request budget is taken, or its request was answered.
    Slot(SlotRow),
    /// The slot of this number, from 0, is free again.
    SlotGone(u32),
    /// Nothing is sent until the end of this silence. The later end counts.
    Silence(Silence),
    /// An action of a person on a dead letter, stored with its call. It must come before the step
    /// that it causes, so the notice of that step contains the action.
    Action {
        /// Id of the call that is or was a dead letter.
        row: RowId,
        action: Action,
    },
    /// A person assigns a lead to a number. This replaces a lead that was assigned earlier.
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
    /// Adds `by` to a counter that is never reset (`repeats`, `clamped`…). Not for the books.
    Count { counter: String, by: u64 },
    /// The broker has confirmed the notice with this id. Deletes the notice from the outbox.
    NoticeSent(i64),
    /// Binds the state to a CRM address. Once an address is bound, another address is refused
    /// ([`super::Error::OtherAddress`]). With `rebind`, the address replaces the bound address, and
    /// company and application are unbound.
    BindAddress {
        /// Base address of the CRM: `https://api.example.com`.
        address: String,
        /// `true` replaces the bound address (`--rebind`).
        rebind: bool,
    },
    /// Binds the state to the token's company and application (§2.2), if none are bound. If others
    /// are bound, the answer is [`Done::WrongCompany`], and nothing changes.
    BindCompany {
        /// Id of the token's company, as text.
        company: String,
        /// Id of the token's application, as text.
        application: String,
    },
    /// A verified event from the CRM. Applies its content. Remembers its signature, and its pair of
    /// installation and event, for [`DELIVERIES_KEPT`](super::DELIVERIES_KEPT). An event with a
    /// known pair or signature changes nothing. Answered [`Done::Delivered`].
    Delivery(Box<Delivery>),
    /// A verified event reports that another provider has journaled a call. Stores the call, and
    /// whether it is also one of our calls. Another company's event changes nothing.
    Foreign {
        /// Company of the event (§6.5 `companyId`).
        company: String,
        /// The other provider's call as the event shows it.
        call: ForeignCall,
        /// Time at which the event came.
        at: EventTime,
    },
    /// A step or answer of a request about leads. If a lookup finds the lead, the lead's dead
    /// letters `failed` can be sent without their employee: dead - 1, ready + 1 each.
    Lead(LeadChange),
    /// Deletes webhook deliveries that expired before this time. Also deletes seen calls, and
    /// journaled or discarded calls, that are older than [`super::Settings::retention`]. Each purge
    /// deletes a bounded number. The books still count the deleted calls.
    Purge(EventTime),
    /// A page of the journal shows these calls. If this state sent one of them and its outcome is
    /// not known yet, the call becomes journaled. Books: as for the steps of those calls.
    Shown {
        calls: Vec<ShownCall>,
        /// Time at which the page was read.
        at: EventTime,
    },
    /// News of a lead for the directory. News of any age and repeated news are allowed. After the
    /// commit, [`super::Store::take_awaited`] returns the numbers whose calls the news can release.
    Learn(Box<LeadNews>),
    /// Makes the state a hub's, with this incarnation. A state that is already a hub's keeps its
    /// incarnation.
    BeginHub { incarnation: String, at: EventTime },
    /// A request of a branch. Comes before the operations that store its calls. If it shows that
    /// this state has lost commits, a new incarnation begins. Answered [`Done::Hub`].
    BranchRequest(Box<BranchRequest>),
    /// Adds a branch, or PBXs to a branch. Answered [`Done::Branch`].
    AddBranch(NewBranch),
    /// Replaces the token of a branch. Answered [`Done::Branch`].
    RotateToken(TokenRotation),
    /// Removes the branch of this name. Its calls stay. Answered [`Done::Branch`].
    RemoveBranch(String),
    /// Makes stored calls ready to be sent to a hub. Books: old state - 1, ready + 1 for each call.
    Offer { offer: Offer, at: EventTime },
    /// Changes the OAuth connection. Answered [`Done::Connection`]. Without the state's lock, use
    /// [`ConnectionStore`](crate::ConnectionStore).
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

    /// Returns `true` for an operation of a source of calls. Such an operation does not change a
    /// fact that the storing of another finished call depends on.
    pub(crate) const fn is_intake(&self) -> bool {
        self.is_intake_in_order()
            || matches!(
                self,
                Self::Meta { .. } | Self::MetaGone(_) | Self::Count { .. }
            )
    }

    /// Returns `true` for an operation that must keep its order. For example, a stored position
    /// means that all calls before it are stored.
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

    /// Returns `true` for an operation that the sender stores before a request to the CRM, or after
    /// its answer.
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
    /// The file that holds the message, and the place in the file. `None` if the message was not
    /// read from a file.
    pub file: Option<String>,
    /// Reason why the bytes cannot be read, as a text for people.
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
    /// Connection that received the event (§6.3 `X-Webhook-Installation-Id`).
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
        /// The leads that the journal links to the call. Can be empty.
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
    /// The event was delivered before: its signature, or its pair of installation and event, is
    /// known. Nothing changed.
    Repeat,
    /// No token has shown yet which company this state belongs to. Nothing changed, and nothing is
    /// remembered.
    CompanyUnknown,
    /// The event belongs to another company. Nothing changed, and nothing is remembered.
    OtherCompany,
    /// The call of the event is now journaled.
    Confirmed {
        row: RowId,
        /// The journal links the call to other leads than the lead it was sent with. A lead that
        /// the sent lead was merged into does not count as another lead.
        other_lead: bool,
    },
    /// The call of the event is now a dead letter: the journal holds it with other values than
    /// intended.
    Overtaken(RowId),
    /// The event contains no news about this call of ours.
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
    /// Id of the boot that `sent` and `answered` belong to.
    pub boot_id: String,
    /// Time since boot at which the request was sent.
    pub sent: Duration,
    /// Time since boot at which the answer came. `None` while the request is in flight.
    pub answered: Option<Duration>,
    /// Wall-clock time at which the request was sent.
    pub wall_sent: EventTime,
}

/// Result of one operation after its commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// `Finish`: a new call, with its row.
    New(RowId),
    /// `Finish`: a new call that is counted only (internal, skipped).
    Counted,
    /// `Finish`: a known call. Only the counter `repeats` changed. Contains the row of the call.
    /// `None` if the row was purged or never existed.
    Repeat(Option<RowId>),
    /// `Finish`: The UUID already belongs to another call or to a different version of this one, so
    /// the call was stored as a dead letter with this ID.
    Conflict(RowId),
    /// `Finish`: The UUID and the start already belong to 100 other dead letters, so only the
    /// counter `conflicts_not_kept` changed.
    NotKept,
    /// `Finish`: a better account of a dead letter `incomplete`. The dead letter's row now has the
    /// values, the outcome, and the book of the better account.
    Corrected(RowId),
    /// `Unreadable`: the new dead letter. `None` if the message was only counted.
    Unreadable(Option<RowId>),
    /// `Step`: the call's new state.
    Stepped(State),
    /// `Lead`: the answer to a lookup was applied to the dead letters of its lead.
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
    /// `BranchRequest`: the hub's position as of this commit, for the answer to the branch.
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
    /// More rows can be forgotten, so purge again soon.
    pub more: bool,
}
