//! What the core starts with, and the decisions it makes.

use crate::budget::pacer::lost_arrive;
use crate::queue::{Task, Work};
use crate::rate::Rate;
use crate::status::TokenPlace;
use callbridge_call::EventTime;
use callbridge_crm::{FieldNames, Request};
use callbridge_leads::lead_request::FieldWrite;
use callbridge_leads::lead_request::due::LeadRequest;
use callbridge_leads::lead_request::failed::Reroute;
use callbridge_model::TokenFingerprint;
use callbridge_spool::{
    Binding, Error, Op, QueueQuery, Row, Silence, SlotRow, Store, Unconfirmed, tables,
};
use std::time::Duration;

/// The sender's settings from the command line.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The value of `--rate`, 60 requests per 60 s by default.
    pub rate: Rate,
    /// The values of `--field`, which name the fields of a submission.
    pub fields: FieldNames,
    /// `--dry-run`, with which no calls are submitted, no pages are read, and no lead requests are
    /// sent.
    pub dry_run: bool,
    /// Seed for the jitter. Given the same seed and events, two runs send the same requests.
    pub seed: u64,
    /// Nothing is sent while our clock shows an earlier time than this, because it must be wrong.
    pub clock_right_from: Option<EventTime>,
    /// Whether calls from several branches are sent, so that refusals are counted per branch.
    pub is_hub: bool,
    /// Whether `--crm-proxy` was given.
    pub by_proxy: bool,
    /// Where a new token belongs, for advice to the operator.
    pub token_place: TokenPlace,
}

impl Settings {
    /// Returns how long a request can still arrive after this process has lost track of it.
    pub const fn late(&self) -> Duration {
        lost_arrive(self.by_proxy)
    }
}

/// What the core learns from the spool when it starts.
#[derive(Clone, Debug, Default)]
pub struct Known {
    pub slots: Vec<SlotRow>,
    /// This boot's ID, if the kernel reveals it.
    pub boot_id: Option<String>,
    /// URL, company, and application whose calls the spool holds.
    pub binding: Binding,
    /// The sender's memory, stored under [`super::memory::KEY`], or `None` before the first start.
    pub memory: Option<String>,
    /// The period during which nothing is sent, because slots may be missing.
    pub silence: Option<Silence>,
}

impl Known {
    /// Reads this from the spool.
    ///
    /// # Errors
    /// Returns an error if the disk fails or the file is damaged.
    pub fn read(store: &Store, boot_id: Option<String>) -> Result<Self, Error> {
        let slots = tables::slots::slots(store)?;
        let memory = tables::meta::meta(store, super::memory::KEY)?;
        Ok(Self {
            slots,
            boot_id,
            binding: tables::meta::binding(store)?,
            memory,
            silence: store.silence().cloned(),
        })
    }
}

/// A request that was chosen and has taken a slot.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub slot: u32,
    pub task: Task,
}

/// The stored rows from which a request is built.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestInputs {
    /// The call to submit, or `None` if it's gone and for other requests.
    pub row: Option<Row>,
    /// Calls that a new journal reading looks for, empty for other requests.
    pub unconfirmed: Vec<Unconfirmed>,
    /// The call with its surviving lead, if its own lead was merged into another.
    pub onward: Option<Reroute>,
    /// Values that a [`LeadRequest::FieldWrite`] writes.
    pub write: Option<FieldWrite>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    Send(Plan),
    /// Commit the step that [`super::Core::settle`] returns for this call. No request is sent.
    Settle(Box<Unconfirmed>),
    /// Commit these operations and ask again.
    Commit(Vec<Op>),
    /// Send nothing before this time since boot, unless the spool, the token, or a response changes
    /// something.
    WaitUntil(Duration),
    /// Send nothing until the spool, the token, or a response changes something.
    Idle,
}

/// A launch's result, with or without a request to send.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// The request to send and its token's fingerprint, or `None` if nothing is sent.
    pub request: Option<(Request, TokenFingerprint)>,
    /// Operations to commit before the request is sent, or on their own.
    pub ops: Vec<Op>,
}

impl Work {
    /// Reads the rows from which [`super::Core::launch`] builds the request. `ask` is what
    /// [`super::Core::ask`] returned.
    ///
    /// # Errors
    /// Returns an error if the disk fails or the file is damaged.
    pub fn inputs(&self, store: &Store, ask: &QueueQuery) -> Result<RequestInputs, Error> {
        let mut inputs = RequestInputs::default();
        match self {
            Self::Submit(row) => {
                inputs.row = tables::calls::row(store, *row)?;
                if inputs.row.is_some() {
                    inputs.onward = tables::look_ups::find_reroute(store, *row)?;
                }
            }
            Self::Lead(request) => {
                if let LeadRequest::FieldWrite(lead) = &**request {
                    inputs.write = tables::shows::field_write(store, *lead, ask.now)?;
                }
            }
            Self::Page { begins: true } => {
                inputs.unconfirmed = tables::work_queue::to_reconcile(store, ask)?
            }
            Self::Poll(_) | Self::Settle(_) | Self::Page { begins: false } | Self::TokenInfo => {}
        }
        Ok(inputs)
    }
}
