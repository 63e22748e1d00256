//! The vocabulary of telephone calls, and the assembler that turns channel events into finished
//! calls.
//!
//! In comes [`Told`]: what a PBX told, in the words of no particular PBX. Out goes
//! [`FinishedCall`]: who spoke with whom, when and for how long, with the reason for each value.
//! This crate does no I/O, reads no clock and uses no other crate of the workspace.
//!
//! | module | what lives there |
//! |---|---|
//! | [`units`] | times, ids and durations as types |
//! | [`event`] | [`Told`], [`ChannelEvent`], [`Cdr`]: what comes in |
//! | [`call`] | [`FinishedCall`]: what goes out |
//! | [`timeline`] | what happened in it, small enough to be kept and enough to draw |
//! | [`trunk`] | which channel names belong to which trunk |
//! | [`assembler`] | [`Assembler`]: groups channels into open calls, and says when one is over |
//! | [`fold`] | [`Folder`]: call detail records alone to finished calls |
//! | [`reconcile`] | what a second account of the same calls (`--catch-up`) adds to the first |
//! | `resolve` | the facts of an open call's channels to finished calls |
//! | `unmatched` | channels of no trunk that carried somebody from outside |
//! | `talk` | when the customer was connected with whom |

pub mod assembler;
pub mod call;
pub mod event;
pub mod fold;
pub mod reconcile;
mod resolve;
mod talk;
pub mod timeline;
pub mod trunk;
pub mod units;
mod unmatched;

pub use assembler::{Assembler, Counts, OpenChange, Settings};
pub use call::{Direction, FinishedCall};
pub use event::{Cdr, ChannelEvent, ChannelRef, Kind, Mark, Origin, Told};
pub use fold::Folder;
pub use reconcile::{Decision, Knowledge, Patience, Reconciler};
pub use trunk::{Endpoint, Endpoints};
pub use units::{EpochSeconds, EventTime, Extension, Linkedid, UniqueId};
