//! FreeSWITCH's formats to [`PbxEvent`](callbridge_call::PbxEvent): events of the event socket and
//! of `mod_amqp`, and the files of `mod_json_cdr`.
//!
//! In come bytes; out goes what they tell, borrowed from them. A [`Splitter`] finds the messages, a
//! [`Decoder`] reads them. No I/O, no clock; it uses `callbridge-call` alone.
//!
//! | module | what lives there |
//! |---|---|
//! | [`splitter`] | a stream or a file to messages |
//! | `block` | a block of `Key: Value` lines to pairs; its percent-encoding |
//! | `fields` | a block or a JSON object to the few headers that a rule reads |
//! | `rule` | which events a call can depend on |
//! | `event` | those headers to channel events |
//! | `cdr` | the file of `mod_json_cdr` |
//! | [`decoder`] | the one entry for all of them |

mod block;
mod cdr;
pub mod decoder;
mod event;
mod fields;
mod rule;
pub mod splitter;

pub use decoder::{Decoder, DecoderSettings};
pub use splitter::Splitter;
