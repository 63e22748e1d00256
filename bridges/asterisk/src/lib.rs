//! Asterisk's formats to [`PbxEvent`](callbridge_call::PbxEvent): AMI text, AMI as JSON, CEL and
//! CDR.
//!
//! In come messages; out goes what they tell, borrowed from them: an [`AsteriskDecoder`] reads
//! them. No I/O, no clock; it uses `callbridge-call` alone. `callbridge-formats` joins it with
//! the formats of other PBXs, and finds where a message ends.
//!
//! | module | what lives there |
//! |---|---|
//! | `text` | bytes to text |
//! | `ami`, `event`, `key` | AMI: a message to borrowed pairs, and to its event |
//! | `repair`, `names`, `ami_json` | the same as JSON, mended where broken |
//! | `cel`, `cel_csv` | channel event logging |
//! | `columns` | the columns that `--columns` names |
//! | `cel_time`, `local_time` | its times, in whatever form and zone of each PBX |
//! | `cdr`, `cdr_csv`, `cdr_time` | call detail records |
//! | [`login`] | the login dialogue of AMI |
//! | [`subscription_probe`] | whether a line that is let in hears calls |
//! | [`survey`] | what an account may do and hear, and which endpoints there are |
//! | [`decoder`] | the one entry for all of them |

#![warn(missing_docs)]

mod ami;
mod ami1;
mod ami_json;
mod cdr;
mod cdr_csv;
mod cdr_time;
mod cel;
mod cel_csv;
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

pub use ami::{Pairs, is_banner};
pub use columns::{CsvColumns, MissingColumn};
pub use csv_record::fields;
pub use decoder::{AsteriskDecoder, AsteriskFormat, DecoderSettings};
pub use event::DECODED;
