//! The formats of all PBXs, each under one name: where a message ends, what it tells, and what
//! bytes look like that are said to be of another.
//!
//! In come bytes; a [`Framer`] (or [`Frames`], where all bytes are there) finds the messages, a
//! [`Decoder`] reads them. No I/O, no clock. What a message means is known by the crate of its
//! PBX, for which a [`Format`] stands here.
//!
//! | module | what lives there |
//! |---|---|
//! | [`format`](mod@format) | the formats' names and traits |
//! | [`framer`] | a stream to messages |
//! | [`decoder`] | the one entry for all of them |
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

pub use callbridge_asterisk::DecoderSettings;
pub use callbridge_call::framing::MESSAGE_BYTES_MAX;
pub use callbridge_call::{Decoded, ServerEvent, Unreadable};
