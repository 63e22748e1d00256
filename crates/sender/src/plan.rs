//! What the core is told, and what it decides: settings, the past, plans.

use crate::{Rate, TokenPlace, WORTH};
use callbridge_call::EventTime;
use callbridge_crm::{FieldNames, Request};
use callbridge_leads::lead_request::FieldWrite;
use callbridge_leads::lead_request::due::LeadRequest;
use callbridge_leads::lead_request::failed::Reroute;
use callbridge_model::TokenFingerprint;
use callbridge_spool::{
    Binding, Error, Op, QueueQuery, Row, RowId, SlotRow, Store, Unconfirmed, tables,
};
use std::time::Duration;

/// Settings of the sender, from the command line.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The value of `--rate`, 60 requests in 60 s without it.
    pub rate: Rate,
    /// Values of `--field`: the names of fields in a submission.
    pub fields: FieldNames,
    /// `--dry-run`: no call is submitted, no page read, no lead request made.
    pub dry_run: bool,
    /// Of the jitter: a run with the same seed and events is the same.
    pub seed: u64,
    /// While our clock shows an earlier time nothing is sent: it is plainly wrong.
    pub clock_right_from: Option<EventTime>,
    /// Place for a new token, named in advice to the operator.
    pub token_place: TokenPlace,
}

/// Facts that the core starts with, read from the spool.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// The slots as they were stored.
    pub slots: Vec<SlotRow>,
    /// The id of this boot, where the kernel tells it.
    pub boot_id: Option<String>,
    /// Company and application whose calls the spool holds.
    pub binding: Binding,
    /// Memory of the sender, stored under [`super::memory::KEY`]; `None` before its first start.
    pub memory: Option<String>,
    /// The spool's file is a copy, or was put back: newer slots may be missing.
    pub restored: bool,
}

impl Known {
    /// Reads the facts from the spool.
    ///
    /// # Errors
    /// The disk, or a damaged file.
    pub fn read(store: &Store, boot_id: Option<String>) -> Result<Self, Error> {
        let slots = tables::slots::slots(store)?;
        let memory = tables::meta::meta(store, super::memory::KEY)?;
        Ok(Self {
            slots,
            boot_id,
            binding: tables::meta::binding(store)?,
            memory,
            restored: store.restored(),
        })
    }
}

/// Calls that wait, by the spool's last head.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    /// Calls wait to be submitted, and can be.
    pub(super) loaded: bool,
    /// Calls that wait to be submitted, those under way among them.
    pub(super) unsent: u64,
    /// Calls that wait to be confirmed.
    pub(super) waiting: u64,
}

impl Load {
    /// Nothing waits to be submitted, and little to be confirmed.
    pub(super) fn is_idle(self) -> bool {
        !self.loaded && self.waiting < u64::from(WORTH)
    }
}

/// Reasons for which a request is the best one now; in the order of precedence, but for the turns
/// that old polls, and pages for calls of five minutes ago, take with submissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::VariantArray)]
pub enum Lane {
    /// About the token: nothing else goes before it is known.
    Token,
    /// A poll whose requestId ends soon.
    Deadline,
    /// A call that happens now.
    Live,
    /// A poll that waited too long, where no reconciliation will do.
    OldPoll,
    /// A reconciliation that pays while calls wait, or the poll that tells whether reconciliations
    /// work.
    Reconcile,
    /// A call to submit that was over some time before it was taken.
    Backlog,
    /// A reconciliation or a poll, when nothing is to be submitted.
    Confirm,
    /// Something about leads that should not wait for an idle line: one in ten seconds while calls
    /// wait, before them.
    LeadRequest,
    /// Something about leads that can wait: from the half of the budget that is to spare.
    Spare,
}

/// A chosen request; its slot is taken.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Slot of the budget that it has taken.
    pub slot: u32,
    /// Reason for which it was chosen.
    pub lane: Lane,
    /// Question that it asks of the service.
    pub task: Task,
}

/// Question that a request asks of the service.
#[derive(Clone, Debug, PartialEq)]
pub enum Task {
    /// To submit the call of this row.
    Submit(RowId),
    /// To ask what became of this one.
    Poll(Box<Unconfirmed>),
    /// To look which calls the journal holds; the next page where a reconciliation is running.
    Reconcile {
        /// The first page of a new one.
        begins: bool,
    },
    /// To ask whose token it is.
    TokenInfo,
    /// To ask or write something about leads.
    LeadRequest(Box<LeadRequest>),
}

impl Plan {
    /// The call it is about.
    pub fn row(&self) -> Option<RowId> {
        match &self.task {
            Task::Submit(row) => Some(*row),
            task => task.poll().map(|call| call.row),
        }
    }
}

/// Stored rows that a request is made of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct About {
    /// Call to submit; `None` where it is gone, and for other requests.
    pub row: Option<Row>,
    /// Calls that a new reconciliation looks for.
    pub unconfirmed: Vec<Unconfirmed>,
    /// The same call for the lead that its own was merged into.
    pub onward: Option<Reroute>,
    /// Content that an [`LeadRequest::FieldWrite`] writes.
    pub write: Option<FieldWrite>,
}

/// Next step of the loop.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Launch the request of this plan.
    Send(Plan),
    /// The requestId of this call can be read by another token only (§4.6), and the journal cannot
    /// be reconciled: commit what [`super::Core::revive`] gives.
    Revive(Box<Unconfirmed>),
    /// Nothing before this moment since boot, unless something changes.
    WaitUntil(Duration),
    /// Nothing until something changes: the spool, the token, an answer.
    Idle,
}

/// Result of a launch: a request to send, or none.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// Request to send to the CRM, and the fingerprint of the token to send it with; `None` where
    /// nothing is sent.
    pub request: Option<(Request, TokenFingerprint)>,
    /// Operations to commit before it leaves, or all the same.
    pub ops: Vec<Op>,
}

impl Task {
    /// The call that is polled.
    pub(super) fn poll(&self) -> Option<&Unconfirmed> {
        match self {
            Self::Poll(call) => Some(call),
            _ => None,
        }
    }

    /// The lead request that it is.
    pub(super) fn lead_request(&self) -> Option<&LeadRequest> {
        match self {
            Self::LeadRequest(lead_request) => Some(lead_request),
            _ => None,
        }
    }

    /// Reads the rows that [`super::Core::launch`] makes the request of; `ask` is
    /// [`super::Core::ask`]'s.
    ///
    /// # Errors
    /// The disk, or a damaged file.
    pub fn about(&self, store: &Store, ask: &QueueQuery) -> Result<About, Error> {
        let mut about = About::default();
        match self {
            Self::Submit(row) => {
                about.row = tables::calls::row(store, *row)?;
                if about.row.is_some() {
                    about.onward = tables::look_ups::onward(store, *row)?;
                }
            }
            Self::LeadRequest(lead_request) => {
                if let LeadRequest::FieldWrite(lead) = &**lead_request {
                    about.write = tables::shows::field_write(store, *lead, ask.now)?;
                }
            }
            Self::Reconcile { begins: true } => {
                about.unconfirmed = tables::work_queue::to_reconcile(store, ask)?
            }
            Self::Poll(_) | Self::Reconcile { begins: false } | Self::TokenInfo => {}
        }
        Ok(about)
    }
}
