//! Decodes Asterisk's formats to [`PbxEvent`](callbridge_call::PbxEvent): AMI text, AMI as JSON,
//! CEL, and CDR.
//!
//! Messages go in, and events come out that borrow from them. An [`AsteriskDecoder`] reads the
//! messages. There is no I/O and no clock. The crate uses only `callbridge-call`.
//! `callbridge-formats` combines it with the formats of other PBXs, and separates the messages.
//!
//! | module | contents |
//! |---|---|
//! | `text` | bytes to text |
//! | `ami`, `event`, `key` | AMI: the pairs of a message, and its event |
//! | `repair`, `names`, `ami_json` | AMI as JSON, repaired if it is broken |
//! | `cel`, `cel_csv`, `cel_number` | channel event logging |
//! | `columns` | the columns that `--columns` names |
//! | `cdr`, `cdr_csv` | call detail records |
//! | `cel_time`, `cdr_time`, `local_time` | the times of CEL and CDRs, in any form |
//! | `wall_clock` | the local time of each PBX, by the configured zone or by unique IDs |
//! | [`login`] | the login dialogue of AMI |
//! | [`subscription_probe`] | whether a connection that is logged in receives events of calls |
//! | [`survey`] | the rights of an account, and the endpoints of its PBX |
//! | [`decoder`] | decodes the messages of all formats |

#![warn(missing_docs)]

mod ami;
mod ami1;
mod ami_json;
mod cdr;
mod cdr_csv;
mod cdr_time;
mod cel;
mod cel_csv;
mod cel_number;
mod cel_time;
mod columns;
mod csv_record;
pub mod decoder;
mod event;
mod key;
mod local_time;
pub mod login;
mod names;
mod repair;
pub mod subscription_probe;
pub mod survey;
mod text;
mod wall_clock;

pub use ami::{Pairs, is_banner};
pub use columns::{CsvColumns, MissingColumn};
pub use csv_record::{cell_value, fields};
pub use decoder::{AsteriskDecoder, AsteriskFormat, DecoderSettings};
pub use event::DECODED;
pub use wall_clock::WrongZone;
