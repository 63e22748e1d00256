//! The inputs of the core at its start, and its decisions.

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

/// Settings of the sender, from the command line.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The value of `--rate`. Default: 60 requests in 60 s.
    pub rate: Rate,
    /// Values of `--field`: the names of fields in a submission.
    pub fields: FieldNames,
    /// `--dry-run`: no call is submitted, no page is read, and no lead request is made.
    pub dry_run: bool,
    /// Seed of the jitter. Two runs with the same seed and events send the same requests.
    pub seed: u64,
    /// Nothing is sent while our clock shows a time before this one, because the clock is then
    /// wrong.
    pub clock_right_from: Option<EventTime>,
    /// Calls of several branches are sent, so refusals are counted for each branch.
    pub is_hub: bool,
    /// `--crm-proxy` is given.
    pub by_proxy: bool,
    /// Place for a new token, for advice to the operator.
    pub token_place: TokenPlace,
}

impl Settings {
    /// Returns how long a request can still arrive after this process has lost track of it.
    pub const fn late(&self) -> Duration {
        lost_arrive(self.by_proxy)
    }
}

/// Facts that the core starts with, from the spool.
#[derive(Clone, Debug, Default)]
pub struct Known {
    pub slots: Vec<SlotRow>,
    /// The id of this boot, if the kernel shows it.
    pub boot_id: Option<String>,
    /// Address, company and application whose calls the spool holds.
    pub binding: Binding,
    /// The sender's memory, stored under [`super::memory::KEY`]. `None` before its first start.
    pub memory: Option<String>,
    /// The time in which nothing is sent, because slots may be missing.
    pub silence: Option<Silence>,
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
            silence: store.silence().cloned(),
        })
    }
}

/// A chosen request. Its slot is taken.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub slot: u32,
    pub task: Task,
}

/// Stored rows that a request is made of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestInputs {
    /// Call to submit. `None` if the call is gone, and for other requests.
    pub row: Option<Row>,
    /// Calls that a new reading of the journal looks for. Empty for other requests.
    pub unconfirmed: Vec<Unconfirmed>,
    /// The call to submit with the surviving lead, if its lead was merged into another.
    pub onward: Option<Reroute>,
    /// Values that an [`LeadRequest::FieldWrite`] writes.
    pub write: Option<FieldWrite>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    Send(Plan),
    /// Commit the step of [`super::Core::settle`] for this call. No request is sent.
    Settle(Box<Unconfirmed>),
    /// Commit these operations, and ask again.
    Commit(Vec<Op>),
    /// Send nothing before this time since boot, unless the spool, the token, or an answer changes
    /// something.
    WaitUntil(Duration),
    /// Send nothing until something changes: the spool, the token, or an answer.
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

impl Work {
    /// Reads the rows from which [`super::Core::launch`] makes the request. `ask` comes from
    /// [`super::Core::ask`].
    ///
    /// # Errors
    /// If the disk fails or the file is damaged.
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
