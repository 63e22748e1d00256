//! FreeSWITCH's formats to [`PbxEvent`](callbridge_call::PbxEvent): events of the event socket and
//! of `mod_amqp`, and the files of `mod_json_cdr`; and the dialogue with a live event socket.
//!
//! In come bytes; out goes what they tell, borrowed from them. A [`Splitter`] finds the messages, a
//! [`Decoder`] reads them. No I/O, no clock; it uses `callbridge-call` alone.
//!
//! | module | what lives there |
//! |---|---|
//! | [`splitter`] | a stream or a file to messages |
//! | `block` | a block of `Key: Value` lines to pairs, and single headers; its percent-encoding |
//! | `fields` | a block or a JSON object to the few headers that a rule reads |
//! | `rule` | which events a call can depend on, and are asked for |
//! | `event` | those headers to channel events |
//! | `monitor` | channels that listen to others, and who hears them |
//! | `cdr` | the file of `mod_json_cdr` |
//! | [`decoder`] | the one entry for all of them |
//! | [`reader`] | the bytes of a live socket to its frames |
//! | [`dialogue`] | login, subscription, the list of live channels, the keep-alive |
//! | [`survey`] | what a switch is, and what of it does not fit the trunks |
//! | [`module_conf`] | what its files have mod_amqp publish and mod_json_cdr write |
//! | `sessions` | the channels that live, against the switch's number of them |

#![warn(missing_docs)]

mod block;
mod cdr;
pub mod decoder;
pub mod dialogue;
mod event;
mod fields;
pub mod module_conf;
mod monitor;
pub mod reader;
mod rule;
mod sessions;
pub mod splitter;
pub mod survey;

pub use decoder::Decoder;
pub use rule::subscription;
pub use splitter::Splitter;
