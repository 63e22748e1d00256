//! The formats of all PBXs, each with a single name. This crate splits bytes into messages, decodes
//! them, and recognizes bytes that aren't in the configured format.
//!
//! A [`Framer`] (or [`Frames`], if all bytes are available) finds the messages, and a [`Decoder`]
//! reads them, using the crate for the PBX in question as selected by the [`Format`]. There is no
//! I/O and no clock.
//!
//! | module | contents |
//! |---|---|
//! | [`format`](mod@format) | the formats' names and properties |
//! | [`framer`] | splits a stream into messages |
//! | [`decoder`] | decodes messages in all formats |
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
