//! Several machines around one stream: who of them is silent, and which of them sends.
//!
//! Each collector and each sender publishes a status report each minute, into a stream beside that
//! of the calls (`docs/fleet.md`), and whoever reads it sees who is silent.
//!
//! In comes a [`Status`](callbridge_model::Status), out go reports; in come the reports of all, out
//! goes a table. Nothing of it touches the calls: it has lines of its own, and what fails is logged
//! once.
//!
//! | module | what lives there |
//! |---|---|
//! | [`report`] | one report, made and read; pure |
//! | [`schedule`] | when one is due; pure |
//! | [`roster`] | reports to the table; pure |
//! | [`text`] | the table for people; pure |
//! | [`metrics`] | the table as metrics; pure |
//! | [`stream`] | the stream of reports at a broker: published to, read from |
//! | [`reports`] | the loops of a daemon: publishes its own, reads those of others |
//! | [`command`] | `callbridge fleet` |
//! | [`lease`] | which of several machines sends (`--standby`) |

pub mod command;
pub mod error;
pub mod lease;
pub mod metrics;
pub mod report;
pub mod reports;
pub mod roster;
pub mod schedule;
pub mod stream;
pub mod text;

pub use command::{FleetOptions, run};
pub use error::Error;
pub use reports::FleetReports;
pub use roster::PbxOwners;
pub use stream::ReportStream;
