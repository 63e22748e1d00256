//! Types for telephone calls, and the assembler that turns channel events into finished calls.
//!
//! The input is [`PbxEvent`]: an event of a PBX in a form that does not depend on its kind. The
//! output is [`FinishedCall`]: who spoke with whom, when, and for how long, with the reason for
//! each value. This crate does no I/O, reads no clock, and uses no other crate of the workspace.
//!
//! | module | contents |
//! |---|---|
//! | [`units`] | times, ids and durations as types |
//! | [`event`] | [`PbxEvent`], [`ChannelEvent`], [`Cdr`]: the input |
//! | [`decoded`] | the result of decoding a message: an event, nothing, or why it is unreadable |
//! | [`framing`] | the result types of all splitters of messages, and the read buffer |
//! | [`redact`] | removes the secrets of a request from the texts of its answer |
//! | [`peer_text`] | makes the refusals of a PBX or a broker safe for messages |
//! | [`json`] | borrowed JSON as a list of pairs, for the decoders of all PBXs |
//! | [`timeline`] | the moments of a call, small enough to store and sufficient to draw it |
//! | [`call`] | [`FinishedCall`]: the output |
//! | [`shell`] | quotes text as one word of a shell, for the commands in messages |
//! | [`trunk`] | which channel names belong to which trunk |
//! | `talk` | when the customer was connected with whom |
//! | `unmatched` | channels of no trunk that carried an outside number |
//! | [`reception`] | [`Reception`]: whether messages of the PBX arrive now |
//! | `settings` | [`Settings`]: facts about the PBX, and the administrator's choices |
//! | [`snapshots`] | the state that survives a restart |
//! | `facts` | the known facts of an open call and of each of its channels |
//! | `resolve` | makes finished calls from the facts of an open call's channels |
//! | `assemble` | [`Assembler`]: groups channels into open calls, and decides when one is over |
//! | [`records`] | [`Folder`]: makes finished calls from call detail records only |
//! | [`reconcile`] | adds a second account of the same calls (`--catch-up`) to the first |
//!
//! Each module uses only the modules above it.

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
pub use connection_clock::PROMPT_RESPONSE;
pub use decoded::{Decoded, ReportedCall, ServerEvent, Unreadable, WrongCall};
pub use event::{
    Cdr, ChannelEvent, ChannelRef, ChannelState, ChannelTraits, Kind, Mark, MonitorMode, Origin,
    PbxEvent, Text,
};
pub use reception::Reception;
pub use reconcile::{Decision, Knowledge, Patience, Reconciler, better_account};
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
