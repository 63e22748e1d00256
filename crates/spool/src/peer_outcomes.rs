//! What other senders of the same calls did, or the state before this one: where a stream keeps the
//! calls, a state can be made anew, and two can follow the same stream.

use crate::OutcomeSource;
use callbridge_call::{EpochSeconds, EventTime};
use callbridge_crm::ShownCall;
use callbridge_formats::message::Outcomes;
use callbridge_model::CallUuid;

/// A setting whose name begins so says when this state began to read a stream of calls, in
/// microseconds.
pub const STREAM_BEGAN: &str = "stream-began:";

/// What concerns calls that another may have settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerOutcome {
    /// This call, which came last, may have been sent by another: it is looked for in the journal
    /// before it is sent; so is a letter, which a person may have mended, and a parked call.
    /// Nothing where it was sent from here already.
    PossiblySent {
        /// The call.
        uuid: CallUuid,
    },
    /// So may all that are ready and were never sent from here: another has sent until now.
    AllPossiblySent,
    /// Calls that began at this moment or later have been looked for: those that are left may be
    /// sent. `None`: all have, but for those that came since that began.
    SearchedFor {
        /// Seconds.
        since: Option<EpochSeconds>,
    },
    /// What became of calls elsewhere. What is sent from here just now is left to its own answer.
    Settled(Settlement),
    /// A page of the journal shows these calls, whatever it was asked for: those that were sent
    /// from here, and of which nobody knows whether they arrived, did.
    Shown {
        /// The rows of the page.
        calls: Vec<ShownCall>,
        /// Now.
        at: EventTime,
    },
    /// The stream has these outcomes, and all before them.
    Published {
        /// The place of the last in the outbox.
        through: i64,
    },
}

/// What became of calls elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// By what it was. Calls that were taken in again are known by how often: what is told of an
    /// earlier time is no news.
    pub outcomes: Outcomes,
    /// Who says so.
    pub source: OutcomeSource,
    /// Now.
    pub at: EventTime,
}

impl Settlement {
    /// A page of the journal shows these calls.
    pub fn by_page(calls: &[CallUuid], at: EventTime) -> Self {
        let outcomes = Outcomes {
            journaled: calls.iter().map(|uuid| uuid.0).collect(),
            ..Outcomes::default()
        };
        let source = OutcomeSource::Journal;
        Self {
            outcomes,
            source,
            at,
        }
    }
}

/// The newest of the calls that are to be looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// How many they are.
    pub calls: u32,
    /// When the oldest of them began.
    pub since: EpochSeconds,
    /// There are older ones.
    pub more: bool,
}
