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

/// Something to store. A request's operations are stored together or not at all.
///
/// The books are the counts of calls by state. Where an operation changes the books, its comment
/// says how.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Stores a judged call according to its outcome:
    ///
    /// | outcome | stored | books |
    /// |---|---|---|
    /// | `Journal` | a row that is ready | finished + 1, ready + 1 |
    /// | `DeadLetter` | a row, dead or waiting; a notification | finished + 1, dead or waiting + 1
    /// |
    /// | `Internal` | – | internal + 1 |
    /// | `Skipped` | – | skipped + 1 |
    ///
    /// A call waits if its reason is [`Reason::is_waiting`](callbridge_model::Reason::is_waiting).
    /// In each case, the call's linkedid and all of `also_known_as` become seen calls.
    ///
    /// An `incomplete` dead letter that no one has retried is corrected when a better account of
    /// the same call arrives ([`Done::Corrected`]), or discarded if it turns out to belong to
    /// another call. Any other repeat of a call only increments the `repeats` counter
    /// ([`Done::Repeat`]).
    ///
    /// A call with a known uuid counts as a different call if its number differs (an unknown one
    /// doesn't) or its start is more than a second off. It then becomes a `uuid_conflict` dead
    /// letter ([`Done::Conflict`]), as does a call message that contradicts an earlier one about
    /// the same call, and a call that late CDRs have revised. Books: finished + 1, dead + 1. Only
    /// the first 100 such dead letters with the same uuid and start are kept ([`Done::NotKept`]).
    /// Calls without a uuid are recognized by their linkedid.
    Finish(Box<Finished>),
    /// Forgets the IDs of a call without a row, so that the call can be taken in again (`audit
    /// --take-in`). A call that has a row keeps its IDs.
    Forget {
        /// PBX that assigned the IDs.
        pbx: String,
        /// IDs of the call and its channels on that PBX.
        ids: Vec<String>,
    },
    /// Replaces or deletes the stored snapshot of a call that's still in progress.
    Open {
        pbx: String,
        /// Unique among the open calls of its PBX.
        key: u64,
        /// State from which to continue the call after a restart, or `None` to delete the stored
        /// snapshot.
        snapshot: Option<Vec<u8>>,
    },
    /// A source's progress, from which it continues after a restart.
    Position {
        /// The source's name, under which its progress is kept.
        source: String,
        /// Whatever the source needs to continue from its position, as JSON.
        position: serde_json::Value,
    },
    /// A message from a source couldn't be read. Stores an `unreadable` dead letter with its first
    /// [`UNREADABLE_BYTES_MAX`] bytes, and a notification. Once there are
    /// [`UNREADABLE_LETTERS_MAX`] of them or [`UNREADABLE_BYTES_ALL`] bytes, the message is only
    /// counted. Books: unreadable + 1 either way.
    ///
    /// [`UNREADABLE_BYTES_MAX`]: super::UNREADABLE_BYTES_MAX
    /// [`UNREADABLE_LETTERS_MAX`]: super::UNREADABLE_LETTERS_MAX
    /// [`UNREADABLE_BYTES_ALL`]: super::UNREADABLE_BYTES_ALL
    Unreadable(UnreadableBytes),
    /// A file holding a single record was read. Removes the file's earlier `unreadable` dead
    /// letters.
    FileRead {
        source: String,
        /// The file's path, as in [`UnreadableBytes::file`].
        file: String,
        /// Time at which the file was read.
        at: EventTime,
    },
    /// Takes a stored call's next step ([`super::state::next`]). Books: old state - 1, new
    /// state + 1.
    ///
    /// An unreadable dead letter allows only `Discard` and `Retry`, both of which delete it. The
    /// `unreadable` book stays unchanged, because it's an all-time total.
    Step {
        /// ID of the call or the unreadable dead letter.
        row: RowId,
        step: Step,
        /// Time of the step, which is when the call enters its new state.
        at: EventTime,
    },
    /// The CRM reported a call as FAILED. Depending on what's known about its lead, the call either
    /// continues automatically or becomes a dead letter. The books change as they do for that step.
    FailedCall(CallFailure),
    /// A slot in the request budget was taken, or its request got a response.
    Slot(SlotRow),
    /// The slot with this number, counting from 0, is available again.
    SlotGone(u32),
    /// Nothing is sent until this silence ends. If there are several, the one that ends last
    /// counts.
    Silence(Silence),
    /// Someone's action on a dead letter, stored with its call. It must come before the step that
    /// it causes, so that the step's notification includes the action.
    Action {
        /// ID of the call that is or was a dead letter.
        row: RowId,
        action: Action,
    },
    /// Someone assigns a lead to a number, replacing any lead assigned earlier.
    Give(LeadByHand),
    /// Removes the lead that someone assigned to the number.
    Take(Phone),
    /// A small durable setting. Names starting with `spool.` or `bound.` are reserved for the
    /// spool.
    Meta {
        key: String,
        /// Text in any format, which replaces the previous value.
        value: String,
    },
    /// Removes the small durable setting with this name.
    MetaGone(String),
    /// Adds `by` to a counter that's never reset (`repeats`, `clamped`…). Not for the books.
    Count { counter: String, by: u64 },
    /// The broker has confirmed the notification with this ID, which is deleted from the outbox.
    NoticeSent(i64),
    /// Binds the state to a CRM address. Once one is bound, any other address is refused
    /// ([`super::Error::OtherAddress`]) unless `rebind` is set, in which case it replaces the bound
    /// address, and company and application are unbound.
    BindAddress {
        /// The CRM's base address, such as `https://api.example.com`.
        address: String,
        /// Whether to replace the bound address (`--rebind`).
        rebind: bool,
    },
    /// Binds the state to the token's company and application (§2.2), if none are bound yet. If
    /// others are bound, nothing changes, and the result is [`Done::WrongCompany`].
    BindCompany {
        /// ID of the token's company, as text.
        company: String,
        /// ID of the token's application, as text.
        application: String,
    },
    /// Applies a verified event from the CRM, remembering its signature and its pair of
    /// installation and event for [`DELIVERIES_KEPT`](super::DELIVERIES_KEPT). An event with a
    /// known pair or signature changes nothing. Results in [`Done::Delivered`].
    Delivery(Box<Delivery>),
    /// A verified event reports that another provider has journaled a call. Stores the call, and
    /// whether it's also one of ours. An event from another company changes nothing.
    Foreign {
        /// The event's company (§6.5 `companyId`).
        company: String,
        /// The other provider's call, as shown by the event.
        call: ForeignCall,
        /// When the event arrived.
        at: EventTime,
    },
    /// A step of a lead request, or its response. If a lookup finds the lead, the lead's `failed`
    /// dead letters may be sent without their employee: dead - 1, ready + 1 each.
    Lead(LeadChange),
    /// Deletes webhook deliveries that expired before this time, as well as seen calls and
    /// journaled or discarded calls that are older than [`super::Settings::retention`]. Each purge
    /// deletes a limited number. The books still count the deleted calls.
    Purge(EventTime),
    /// A journal page shows these calls. If this state sent one of them and doesn't know its
    /// outcome yet, the call becomes journaled. The books change as they do for those calls' steps.
    Shown {
        calls: Vec<ShownCall>,
        /// When the page was read.
        at: EventTime,
    },
    /// News about a lead for the directory, which may be of any age or a repeat. After the commit,
    /// [`super::Store::take_awaited`] returns the numbers whose calls the news might release.
    Learn(Box<LeadNews>),
    /// Turns the state into a hub's, with this incarnation. A state that already belongs to a hub
    /// keeps its incarnation.
    BeginHub { incarnation: String, at: EventTime },
    /// A branch's request, which comes before the operations that store its calls. If it reveals
    /// that this state has lost commits, a new incarnation begins. Results in [`Done::Hub`].
    BranchRequest(Box<BranchRequest>),
    /// Stores the request only if all of its calls are repeats, because its branch must not store
    /// new ones. Otherwise, the request is refused with [`super::Error::NewCalls`].
    OnlyRepeats,
    /// Adds a branch, or PBXs to a branch. Results in [`Done::Branch`].
    AddBranch(NewBranch),
    /// Replaces a branch's token. Results in [`Done::Branch`].
    RotateToken(TokenRotation),
    /// Removes the branch with this name, but not its calls. Results in [`Done::Branch`].
    RemoveBranch(String),
    /// Sends again after another database was in use ([`HubRow::split_by`](crate::HubRow)).
    /// Results in [`Done::Resumed`].
    ResumeSending,
    /// Makes stored calls ready to be sent to a hub. Books: old state - 1, ready + 1 for each call.
    Offer { offer: Offer, at: EventTime },
    /// Changes the OAuth connection. Results in [`Done::Connection`]. Without the state's lock, use
    /// [`ConnectionStore`](crate::ConnectionStore) instead.
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

    /// Returns `true` for an operation from a source of calls. It doesn't change anything that
    /// storing another finished call depends on.
    pub(crate) const fn is_intake(&self) -> bool {
        self.is_intake_in_order()
            || matches!(
                self,
                Self::Meta { .. } | Self::MetaGone(_) | Self::Count { .. } | Self::OnlyRepeats
            )
    }

    /// Returns `true` for an operation that must stay in order. For example, a stored position
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

    /// Returns `true` for an operation that the sender stores before a request to the CRM or after
    /// its response.
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
    /// The bytes as they arrived.
    pub bytes: Vec<u8>,
    /// Total length of the message in bytes, if `bytes` holds only the start of it.
    pub cut_from: Option<u64>,
    /// The file that holds the message, and the place in the file. `None` if the message wasn't
    /// read from a file.
    pub file: Option<String>,
    /// Human-readable reason why the bytes can't be read.
    pub why: String,
    /// When the bytes arrived.
    pub at: EventTime,
    /// The message's AMQP property `content_type`, or `None` for other sources.
    pub content_type: Option<String>,
}

/// The CRM's response that a call FAILED.
#[derive(Clone, Debug, PartialEq)]
pub struct CallFailure {
    pub row: RowId,
    /// The CRM's message, unchanged.
    pub message: String,
    /// The CRM's `errors` (§7.2), or null.
    pub errors: serde_json::Value,
    /// When the failure became known.
    pub at: EventTime,
}

/// An event from the CRM, reduced to what callbridge uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The connection that received the event (§6.3 `X-Webhook-Installation-Id`).
    pub installation: String,
    /// The event's ID (§6.5 `eventId`), by which a repeat is recognized.
    pub event: String,
    /// The signature that authenticated the event (§6.4). It doesn't cover the installation, so a
    /// replay may claim a different one.
    pub signature: [u8; 32],
    /// The event's company (§6.5 `companyId`). Events for another company aren't applied.
    pub company: String,
    /// When the event arrived.
    pub at: EventTime,
    pub news: WebhookEvent,
}

/// The content of an event of a kind that's applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookEvent {
    /// A conversation is in the journal (§6.8 `CALL_COMPLETED`).
    Completed {
        /// The call's uuid in the journal, without the prefix `oapi-`.
        uuid: CallUuid,
        /// The leads that the journal links to the call, which may be empty.
        leads: Vec<LeadId>,
        shown: Box<CallEcho>,
    },
    /// Something happened to a lead, for the directory ([`Op::Learn`]).
    Learn(Box<LeadNews>),
}

impl WebhookEvent {
    /// Returns the CRM's name for this kind of event (§6.2).
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Completed { .. } => "CALL_COMPLETED",
            Self::Learn(news) => news.what.word(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivered {
    /// The event has been seen before, either by its signature or by its installation and event ID.
    /// Nothing changed.
    Repeat,
    /// No token has revealed yet which company this state belongs to. Nothing changed, and nothing
    /// is remembered.
    CompanyUnknown,
    /// The event belongs to another company. Nothing changed, and nothing is remembered.
    OtherCompany,
    /// The event's call is now journaled.
    Confirmed {
        row: RowId,
        /// Whether the journal links the call to a different lead than it was sent with. A lead
        /// that the sent lead was merged into doesn't count as different.
        other_lead: bool,
    },
    /// The event's call is now a dead letter, because it's in the journal with other values than
    /// intended.
    Overtaken(RowId),
    /// The event contains no news about this call of ours.
    Settled(RowId),
    /// The event isn't about one of our calls.
    NotOurs,
    /// The news about a lead is stored. `true` means that some of it was new.
    Learned(bool),
}

/// A slot in the sender's budget, which must survive a restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotRow {
    /// The slot's number, starting at 0.
    pub slot: u32,
    /// The token that the slot counts against.
    pub token: TokenFingerprint,
    /// ID of the boot that `sent` and `answered` refer to.
    pub boot_id: String,
    /// Time since boot at which the request was sent.
    pub sent: Duration,
    /// Time since boot at which the response arrived, or `None` while the request is in flight.
    pub answered: Option<Duration>,
    /// Wall-clock time at which the request was sent.
    pub wall_sent: EventTime,
}

/// An operation's result after its commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// `Finish`: a new call, with its row.
    New(RowId),
    /// `Finish`: a new call that's only counted (internal, skipped).
    Counted,
    /// `Finish`: a known call, for which only the `repeats` counter changed. Contains the call's
    /// row, or `None` if it was purged or never existed.
    Repeat(Option<RowId>),
    /// `Finish`: The UUID already belongs to another call or to a different version of this one, so
    /// the call was stored as a dead letter with this ID.
    Conflict(RowId),
    /// `Finish`: The UUID and the start already belong to 100 other dead letters, so only the
    /// counter `conflicts_not_kept` changed.
    NotKept,
    /// `Finish`: a better account of an `incomplete` dead letter. The dead letter's row now has the
    /// values, outcome, and book of the better account.
    Corrected(RowId),
    /// `Unreadable`: the new dead letter, or `None` if the message was only counted.
    Unreadable(Option<RowId>),
    /// `Step`: the call's new state.
    Stepped(State),
    /// `Lead`: a lookup's result was applied to its lead's dead letters.
    LookupDone {
        /// Dead letters that now show the finding.
        updated: u64,
        /// Dead letters that were sent without their employee.
        left: u64,
    },
    /// `BindCompany`: the token belongs to another company or application. Contains the bound ones.
    WrongCompany(Binding),
    Delivered(Delivered),
    /// `Learn`: the news is stored. `true` means that some of it was new.
    Learned(bool),
    PurgeCounts(PurgeCounts),
    /// `BranchRequest`: the hub's position as of this commit, for the response to the branch.
    Hub(HubAnswer),
    /// `AddBranch`, `RotateToken`, `RemoveBranch`: what was done.
    Branch(BranchChange),
    /// `ResumeSending`: `false` if sending wasn't paused, in which case nothing changed.
    Resumed(bool),
    /// `Connection`: `false` if another connection is stored, in which case nothing changed.
    Connection(bool),
    /// Any other operation, now stored.
    Stored,
}

impl Done {
    /// Returns `true` if a call was stored or counted that isn't a repeat.
    pub const fn is_new_call(&self) -> bool {
        matches!(self, Self::New(_) | Self::Counted | Self::Conflict(_))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PurgeCounts {
    /// Journaled and discarded calls that were forgotten.
    pub calls: u64,
    /// Seen-call rows that were forgotten.
    pub seen_calls: u64,
    /// Whether more rows can be forgotten, in which case purge again soon.
    pub more: bool,
}
