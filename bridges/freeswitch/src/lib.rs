//! Decodes FreeSWITCH's formats to [`PbxEvent`](callbridge_call::PbxEvent): events of the event
//! socket and of `mod_amqp`, and the files of `mod_json_cdr`. Also has the dialogue with a live
//! event socket.
//!
//! Bytes go in, and events come out that borrow from them. A [`Splitter`] finds the messages, and a
//! [`Decoder`] reads them. There is no I/O and no clock. The crate uses only `callbridge-call`.
//!
//! | module | contents |
//! |---|---|
//! | [`splitter`] | separates a stream or a file into messages |
//! | `block` | blocks of `Key: Value` lines, single headers, and percent-encoding |
//! | `fields` | reads the headers that rules need, from a block or a JSON object |
//! | `rule` | the events on which a call can depend, and the subscription to them |
//! | `event` | converts these headers to channel events |
//! | `monitor` | channels that listen to others, and who hears them |
//! | `cdr` | decodes the files of `mod_json_cdr` |
//! | [`decoder`] | decodes the messages of all formats |
//! | [`reader`] | separates the bytes of a live socket into frames |
//! | [`dialogue`] | login, subscription, the list of live channels, the keep-alive |
//! | [`survey`] | facts about a switch, and what does not match the trunks |
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
