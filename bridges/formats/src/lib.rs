//! The formats of all PBXs, each with one name. This crate separates messages, decodes them, and
//! recognizes bytes that are in another format than the configured one.
//!
//! Bytes go in. A [`Framer`] (or [`Frames`], if all bytes are there) finds the messages, and a
//! [`Decoder`] reads them. There is no I/O and no clock. The crate of each PBX decodes its
//! messages. A [`Format`] selects it.
//!
//! | module | contents |
//! |---|---|
//! | [`format`](mod@format) | the formats' names and traits |
//! | [`framer`] | separates a stream into messages |
//! | [`decoder`] | decodes the messages of all formats |
//! | [`likeness`] | what bytes in the wrong format look like |
//! | [`message`] | a finished call as a JSON message |

#![warn(missing_docs)]

pub mod decoder;
pub mod format;
pub mod framer;
pub mod likeness;
pub mod message;

pub use decoder::{Decoder, is_header};
pub use format::{Format, Framing, UnknownFormat};
pub use framer::{Frame, Framer, Frames};
pub use likeness::{FormatFit, Likeness};

pub use callbridge_asterisk::{DecoderSettings, WrongZone};
pub use callbridge_call::framing::MESSAGE_BYTES_MAX;
pub use callbridge_call::{Decoded, ServerEvent, Unreadable};
