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

/// News of calls that another may have settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerOutcome {
    /// The call of this uuid, which came last, may have been sent by another: it is searched for in
    /// the journal before it is sent; so is a letter, which a person may have mended, and a parked
    /// call. Nothing where it was sent from here already.
    PossiblySent {
        /// Uuid of the call that came last.
        uuid: CallUuid,
    },
    /// All calls that are ready and were never sent from here may have been sent: another has sent
    /// until now.
    AllPossiblySent,
    /// Calls that began at this moment or later have been looked for: those that are left may be
    /// sent. `None`: all have, but for those that came since that began.
    SearchedFor {
        /// Start of the oldest call that was searched for, in seconds.
        since: Option<EpochSeconds>,
    },
    /// Outcomes of calls elsewhere. A call that is being sent from here is left to its own answer.
    Settled(Settlement),
    /// A page of the journal shows these calls, whatever it was asked for: those that were sent
    /// from here, and of which nobody knows whether they arrived, did.
    Shown {
        /// The rows of the page.
        calls: Vec<ShownCall>,
        /// Moment at which the page was read.
        at: EventTime,
    },
    /// The stream has these outcomes, and all before them.
    Published {
        /// The place of the last in the outbox.
        through: i64,
    },
}

/// Outcomes of calls elsewhere, and their source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// Calls by their outcome. Those that were taken in again are known by how often: an outcome of
    /// an earlier time is no news.
    pub outcomes: Outcomes,
    /// Source of the outcomes: a page of the journal, or the stream.
    pub source: OutcomeSource,
    /// Moment at which the outcomes became known here.
    pub at: EventTime,
}

impl Settlement {
    /// Makes a settlement of a page of the journal that shows these calls.
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
    /// Number of calls in the segment.
    pub calls: u32,
    /// Start of the oldest of these calls.
    pub since: EpochSeconds,
    /// Older calls are to be searched for after these.
    pub more: bool,
}
