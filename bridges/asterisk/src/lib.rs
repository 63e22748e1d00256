//! Decodes Asterisk's formats to [`PbxEvent`](callbridge_call::PbxEvent), which are AMI text, AMI
//! as JSON, CEL, and CDRs.
//!
//! An [`AsteriskDecoder`] turns messages into events that borrow from them. There is no I/O and no
//! clock, and the crate only depends on `callbridge-call`. `callbridge-formats` combines it with
//! other PBXs' formats and takes care of splitting messages.
//!
//! | module | contents |
//! |---|---|
//! | `text` | bytes to text |
//! | `ami`, `event`, `key` | AMI, from the pairs of a message to its event |
//! | `repair`, `names`, `ami_json` | AMI as JSON, repaired if it's broken |
//! | `cel`, `cel_csv`, `cel_number` | channel event logging |
//! | `columns` | the columns listed in `--columns` |
//! | `cdr`, `cdr_csv` | call detail records |
//! | `cel_time`, `cdr_time`, `local_time` | the times of CEL and CDRs, in any form |
//! | `wall_clock` | each PBX's local time, according to the time zone or its unique IDs |
//! | [`login`] | the AMI login |
//! | [`subscription_probe`] | whether a logged-in connection receives call events |
//! | [`survey`] | an account's permissions, and its PBX's endpoints |
//! | [`decoder`] | decodes messages in all formats |

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
