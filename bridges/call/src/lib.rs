//! The vocabulary of telephone calls, and the assembler that turns channel events into finished
//! calls.
//!
//! In comes [`PbxEvent`]: what a PBX told, in the words of no particular PBX. Out goes
//! [`FinishedCall`]: who spoke with whom, when and for how long, with the reason for each value.
//! This crate does no I/O, reads no clock and uses no other crate of the workspace.
//!
//! | module | what lives there |
//! |---|---|
//! | [`units`] | times, ids and durations as types |
//! | [`event`] | [`PbxEvent`], [`ChannelEvent`], [`Cdr`]: what comes in |
//! | [`decoded`] | what became of one message: an event, nothing, or why it cannot be read |
//! | [`framing`] | where a message ends, in the words of every splitter; the buffer before it |
//! | [`redact`] | the secrets of a request, removed from the texts of its answer |
//! | [`peer_text`] | refusals of a PBX or a broker, made safe for messages |
//! | [`json`] | JSON as pairs, borrowed, for the readers of all PBXs |
//! | [`timeline`] | what happened in it, small enough to be kept and enough to draw |
//! | [`call`] | [`FinishedCall`]: what goes out |
//! | [`shell`] | text as one word of a shell, for the commands in messages |
//! | [`trunk`] | which channel names belong to which trunk |
//! | `talk` | when the customer was connected with whom |
//! | `unmatched` | channels of no trunk that carried somebody from outside |
//! | [`reception`] | [`Reception`]: whether what a PBX tells arrives now |
//! | `settings` | [`Settings`]: what is to be known of the PBX, and the administrator's wishes |
//! | [`snapshots`] | what survives a restart |
//! | `facts` | what is known of an open call and each of its channels |
//! | `resolve` | the facts of an open call's channels to finished calls |
//! | `assemble` | [`Assembler`]: groups channels into open calls, and says when one is over |
//! | [`records`] | [`Folder`]: call detail records alone to finished calls |
//! | [`reconcile`] | what a second account of the same calls (`--catch-up`) adds to the first |
//!
//! Each uses those before it alone.

#![warn(missing_docs)]

pub mod age;
mod assemble;
pub mod call;
mod connection_clock;
pub mod decoded;
pub mod event;
mod facts;
pub mod framing;
pub mod json;
pub mod peer_text;
pub mod reception;
pub mod reconcile;
pub mod records;
pub mod redact;
mod resolve;
mod settings;
pub mod shell;
pub mod snapshots;
mod talk;
pub mod timeline;
pub mod trunk;
pub mod units;
mod unmatched;

pub use assemble::{Assembler, AssemblyCounts, Line, Timing};
pub use call::{Direction, FinishedCall, GivenIds, RawNumber, Variable};
pub use decoded::{Decoded, ReportedCall, ServerEvent, Unreadable, WrongCall};
pub use event::{
    Cdr, ChannelEvent, ChannelRef, ChannelState, ChannelTraits, Kind, Mark, MonitorMode, Origin,
    PbxEvent, Text,
};
pub use reception::Reception;
pub use reconcile::{Decision, Knowledge, Patience, Reconciler};
pub use records::Folder;
pub use settings::Settings;
pub use snapshots::OpenChange;
pub use timeline::{MomentKind, Role, Timeline};
pub use trunk::{Endpoints, TrunkEndpoint};
pub use units::{ClockDifference, EpochSeconds, EventTime, Extension, Linkedid, UniqueId};

pub(crate) use call::{DecidingEvents, is_did};
pub(crate) use event::{EventStamp, UNNAMED, WHO_ANSWERED};
pub(crate) use settings::CLOCK_TOLERANCE;
pub(crate) use timeline::Way;
pub(crate) use trunk::{Party, is_one_of, local_pair};
pub(crate) use units::clip;
