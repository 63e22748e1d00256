//! Decodes FreeSWITCH's formats to [`PbxEvent`](callbridge_call::PbxEvent), which are events from
//! the event socket and `mod_amqp`, and files written by `mod_json_cdr`. It also includes the
//! conversation with a live event socket.
//!
//! A [`Splitter`] finds the messages in a stream of bytes, and a [`Decoder`] turns them into events
//! that borrow from those bytes. There is no I/O and no clock, and the crate only depends on
//! `callbridge-call`.
//!
//! | module | contents |
//! |---|---|
//! | [`splitter`] | splits a stream or a file into messages |
//! | `block` | blocks of `Key: Value` lines, single headers, and percent-encoding |
//! | `fields` | reads the headers that rules need from a block or a JSON object |
//! | `rule` | the events that may matter for a call, and the subscription to them |
//! | `event` | converts these headers to channel events |
//! | `monitor` | channels that listen to others, and who can hear them |
//! | `cdr` | decodes the files written by `mod_json_cdr` |
//! | [`decoder`] | decodes messages in all formats |
//! | [`reader`] | splits the bytes of a live socket into frames |
//! | [`dialogue`] | login, subscription, the list of live channels, and the keep-alive |
//! | [`survey`] | facts about a switch, and what doesn't match the trunks |
//! | [`module_conf`] | checks the configuration files of mod_amqp and mod_json_cdr |
//! | `sessions` | compares the known live channels with the switch's count |

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
