//! What the core is told, and what it decides: settings, the past, plans.

use super::rate::Rate;
use super::reconciliation::WORTH;
use super::status::TokenPlace;
use callbridge_call::EventTime;
use callbridge_crm::{FieldNames, Request};
use callbridge_leads::lead_request::FieldWrite;
use callbridge_leads::lead_request::due::LeadRequest;
use callbridge_leads::lead_request::failed::Reroute;
use callbridge_model::TokenFingerprint;
use callbridge_spool::peer_outcomes::STREAM_BEGAN;
use callbridge_spool::{
    Binding, Error, Op, QueueQuery, Row, RowId, Segment, SlotRow, Store, Unconfirmed, tables,
};
use std::time::Duration;

/// How the sender works.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// `--rate`
    pub rate: Rate,
    /// `--field`
    pub fields: FieldNames,
    /// `--dry-run`: nothing is submitted.
    pub dry_run: bool,
    /// Of the jitter: a run with the same seed and events is the same.
    pub seed: u64,
    /// While our clock shows an earlier time nothing is sent: it is plainly wrong.
    pub clock_right_from: Option<EventTime>,
    /// Where a new token goes.
    pub token_place: TokenPlace,
}

/// What is known at a start.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// The slots as they were stored.
    pub slots: Vec<SlotRow>,
    /// The id of this boot, where the kernel tells it.
    pub boot_id: Option<String>,
    /// Whose calls the spool holds.
    pub binding: Binding,
    /// What the sender remembers, under [`super::memory::KEY`].
    pub memory: Option<String>,
    /// The spool's file is a copy, or was put back: newer slots may be missing. Or it is new, and
    /// reads a stream that a state which is gone may have sent from just now.
    pub restored: bool,
}

impl Known {
    /// What the spool knows.
    ///
    /// # Errors
    /// The disk, or a damaged file.
    pub fn read(store: &Store, boot_id: Option<String>) -> Result<Self, Error> {
        let slots = tables::slots::slots(store)?;
        let memory = tables::meta::meta(store, super::memory::KEY)?;
        let streams = tables::meta::meta_below(store, STREAM_BEGAN)?;
        let anew = memory.is_none() && !streams.is_empty();
        Ok(Self {
            slots,
            boot_id,
            binding: tables::meta::binding(store)?,
            memory,
            restored: store.restored() || anew,
        })
    }
}

/// What waits, as the spool said last.
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

/// Why a request is the best one now; in the order of precedence, but for the turns that old
/// polls take with submissions.
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
    /// A call from before.
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
    /// Its slot.
    pub slot: u32,
    /// Why it was chosen.
    pub lane: Lane,
    /// What it is about.
    pub task: Task,
}

/// What a request is about.
#[derive(Clone, Debug, PartialEq)]
pub enum Task {
    /// To submit this call.
    Submit(RowId),
    /// To ask what became of this one.
    Poll(Box<Unconfirmed>),
    /// To look which calls the journal holds; the next page where a reconciliation is running.
    Reconcile {
        /// The first page of a new one.
        begins: bool,
    },
    /// To look which of the calls that another may have sent the journal holds.
    Search {
        /// A new segment of so many; else the next page of the one under way.
        begins: Option<u32>,
    },
    /// To ask whose token it is.
    TokenInfo,
    /// Something about leads.
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

/// What a request is about, as it is stored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct About {
    /// The call to submit.
    pub row: Option<Row>,
    /// The calls to reconcile.
    pub unconfirmed: Vec<Unconfirmed>,
    /// The calls that another may have sent: of which to look for the next, and how many were
    /// found.
    pub possibly_sent: (Option<Segment>, u64),
    /// The same call for the lead that its own was merged into.
    pub onward: Option<Reroute>,
    /// What an [`LeadRequest::FieldWrite`] writes.
    pub write: Option<FieldWrite>,
}

/// What to do now.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Launch this.
    Send(Plan),
    /// The requestId of this call can be read by another token only (§4.6), and the journal cannot
    /// be reconciled: commit what [`super::Core::revive`] gives.
    Revive(Box<Unconfirmed>),
    /// Commit these, and ask again.
    Commit(Vec<Op>),
    /// Nothing before this moment since boot, unless something changes.
    WaitUntil(Duration),
    /// Nothing until something changes: the spool, the token, an answer.
    Idle,
}

/// A launched request.
#[derive(Clone, Debug, PartialEq)]
pub enum Launch {
    /// Commit the operations, then send the request.
    Go {
        /// What is sent.
        request: Request,
        /// With which token.
        token: TokenFingerprint,
        /// To be committed before.
        ops: Vec<Op>,
    },
    /// Nothing is sent; commit what there is.
    Not {
        /// To be committed.
        ops: Vec<Op>,
    },
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

    /// What [`super::Core::launch`] has to know of it; `ask` is [`super::Core::ask`]'s.
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
            Self::Search { begins } => {
                let segment = begins.map(|calls| tables::peer_outcomes::segment(store, calls));
                let found = tables::peer_outcomes::possibly_sent_calls(store)?.found;
                about.possibly_sent = (segment.transpose()?.flatten(), found);
            }
            Self::Poll(_) | Self::Reconcile { begins: false } | Self::TokenInfo => {}
        }
        Ok(about)
    }
}
