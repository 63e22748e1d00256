//! Types for phone calls, and the assembler that turns channel events into finished calls.
//!
//! The input is [`PbxEvent`], which represents an event in the same way for every kind of PBX. The
//! output is [`FinishedCall`], which says who talked to whom, when, and for how long, and gives the
//! reason for each value. This crate does no I/O, reads no clock, and doesn't depend on any other
//! crate in the workspace.
//!
//! | module | contents |
//! |---|---|
//! | [`units`] | types for times, IDs, and durations |
//! | [`event`] | the input: [`PbxEvent`], [`ChannelEvent`], and [`Cdr`] |
//! | [`decoded`] | the result of decoding a message: an event, nothing, or why it's unreadable |
//! | [`framing`] | the result types of all message splitters, and the read buffer |
//! | [`redact`] | removes a request's secrets from the texts in its response |
//! | [`peer_text`] | makes error messages from a PBX or a broker safe to display |
//! | [`json`] | borrowed JSON as a list of pairs, for all PBX decoders |
//! | [`timeline`] | the moments of a call, compact enough to store and sufficient to draw it |
//! | [`call`] | the output: [`FinishedCall`] |
//! | [`shell`] | quotes text as a single shell word, for the commands in messages |
//! | [`trunk`] | which channel names belong to which trunk |
//! | `talk` | when the customer was connected, and with whom |
//! | `unmatched` | channels that carried an outside number but don't match any trunk |
//! | [`reception`] | [`Reception`], which says whether messages from the PBX are arriving |
//! | `settings` | [`Settings`], with facts about the PBX and the administrator's choices |
//! | [`snapshots`] | the state that survives a restart |
//! | `facts` | what's known about an open call and each of its channels |
//! | `resolve` | turns the facts about an open call's channels into finished calls |
//! | `assemble` | [`Assembler`], which groups channels into calls and decides when one is over |
//! | [`records`] | [`Folder`], which makes finished calls from call detail records alone |
//! | [`reconcile`] | merges a second record of the same calls (`--catch-up`) into the first |
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
