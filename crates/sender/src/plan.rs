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
    /// The value of `--rate`. Default: 60 requests in 60 s.
    pub rate: Rate,
    /// Values of `--field`: the names of fields in a submission.
    pub fields: FieldNames,
    /// `--dry-run`: no call is submitted, no page read, no lead request made.
    pub dry_run: bool,
    /// Seed of the jitter. A run with the same seed and events is the same.
    pub seed: u64,
    /// While our clock shows an earlier time, nothing is sent, because the clock is wrong.
    pub clock_right_from: Option<EventTime>,
    /// Place for a new token, for advice to the operator.
    pub token_place: TokenPlace,
}

/// Facts that the core starts with, from the spool.
#[derive(Clone, Debug, Default)]
pub struct Known {
    pub slots: Vec<SlotRow>,
    /// The id of this boot, if the kernel shows it.
    pub boot_id: Option<String>,
    /// Company and application whose calls the spool holds.
    pub binding: Binding,
    /// The sender's memory, stored under [`super::memory::KEY`]. `None` before its first start.
    pub memory: Option<String>,
    /// The spool's file is a copy or was restored: newer slots may be missing.
    pub restored: bool,
}

impl Known {
    /// Reads the facts from the spool.
    ///
    /// # Errors
    /// If the disk fails or the file is damaged.
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

/// Number of waiting calls, by the spool's last head.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    /// Calls wait to be submitted, and can be.
    pub(super) loaded: bool,
    /// Calls that wait to be submitted, including those in flight.
    pub(super) unsent: u64,
    /// Calls that wait to be confirmed.
    pub(super) waiting: u64,
}

impl Load {
    /// Nothing waits to be submitted, and only a few calls to be confirmed.
    pub(super) fn is_idle(self) -> bool {
        !self.loaded && self.waiting < u64::from(WORTH)
    }
}

/// Reasons why a request is the best one now, in order of precedence. Exception: old polls, and
/// pages for calls older than five minutes, take turns with submissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::VariantArray)]
pub enum Lane {
    /// About the token. Nothing else is sent before it is known.
    Token,
    /// A poll whose requestId expires soon.
    Deadline,
    /// A call that is happening now.
    Live,
    /// A poll that waited too long, if no reconciliation can replace it.
    OldPoll,
    /// A reconciliation that is worth its cost while calls wait, or the poll that tests
    /// reconciliations.
    Reconcile,
    /// A call that ended some time before it was stored.
    Backlog,
    /// A reconciliation or a poll, if there is nothing to submit.
    Confirm,
    /// A lead request that should not wait for an idle line. While calls wait, one every ten
    /// seconds goes before them.
    LeadRequest,
    /// A lead request that can wait. It uses the spare half of the budget.
    Spare,
}

/// A chosen request. Its slot is taken.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub slot: u32,
    pub lane: Lane,
    /// The request's content.
    pub task: Task,
}

/// The content of a request to the CRM.
#[derive(Clone, Debug, PartialEq)]
pub enum Task {
    /// Submit the call of this row.
    Submit(RowId),
    /// Poll the outcome of this call.
    Poll(Box<Unconfirmed>),
    /// Read a page of the journal: the next one if a reconciliation is running.
    Reconcile {
        /// It is the first page of a new reconciliation.
        begins: bool,
    },
    /// Read the token's record.
    TokenInfo,
    /// Read or write leads.
    LeadRequest(Box<LeadRequest>),
}

impl Plan {
    /// The call of the request.
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
    /// Call to submit. `None` if it is gone, and for other requests.
    pub row: Option<Row>,
    /// Calls that a new reconciliation looks for. Empty for other requests.
    pub unconfirmed: Vec<Unconfirmed>,
    /// The same call with the lead that its own was merged into.
    pub onward: Option<Reroute>,
    /// Values that an [`LeadRequest::FieldWrite`] writes.
    pub write: Option<FieldWrite>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    Send(Plan),
    /// Only another token can read the requestId of this call (§4.6), and the journal cannot be
    /// reconciled. Commit the step of [`super::Core::revive`].
    Revive(Box<Unconfirmed>),
    /// Nothing before this time since boot, unless something changes.
    WaitUntil(Duration),
    /// Nothing until something changes: the spool, the token, an answer.
    Idle,
}

/// Result of a launch: a request to send, or none.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// Request to send, and the fingerprint of its token. `None` if nothing is sent.
    pub request: Option<(Request, TokenFingerprint)>,
    /// Operations to commit before the request is sent, or without a request.
    pub ops: Vec<Op>,
}

impl Task {
    pub(super) fn poll(&self) -> Option<&Unconfirmed> {
        match self {
            Self::Poll(call) => Some(call),
            _ => None,
        }
    }

    pub(super) fn lead_request(&self) -> Option<&LeadRequest> {
        match self {
            Self::LeadRequest(lead_request) => Some(lead_request),
            _ => None,
        }
    }

    /// Reads the rows that [`super::Core::launch`] makes the request of. `ask` comes from
    /// [`super::Core::ask`].
    ///
    /// # Errors
    /// If the disk fails or the file is damaged.
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
