//! Where one message ends and the next begins.

use crate::format::Format;
use crate::split::FormatSplitter;
use callbridge_call::framing::{FrameStep, ReadBuffer};

/// A piece that a [`Framer`] or [`Frames`] gives out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// One message, without the empty line or line end that closed it. Never empty.
    Message(&'a [u8]),
    /// A message longer than [`callbridge_call::framing::MESSAGE_BYTES_MAX`], thrown away.
    TooLong {
        /// Length of the message, in bytes.
        bytes: u64,
    },
}

/// Splits a stream that arrives in pieces into messages; how it is cut into pieces makes no
/// difference. Bytes are read straight into its [`buffer`](Self::buffer) and lent out from there.
/// It holds one message and one piece at most.
#[derive(Debug)]
pub struct Framer {
    splitter: FormatSplitter,
    buffer: ReadBuffer,
    position: u64,
}

impl Framer {
    /// A framer at the beginning of a stream of this format.
    pub fn new(format: Format) -> Self {
        Self::at(format, 0)
    }

    /// A framer at `position` bytes into a file.
    pub fn at(format: Format, position: u64) -> Self {
        let splitter = FormatSplitter::new(format.framing());
        Self {
            splitter,
            buffer: ReadBuffer::default(),
            position,
        }
    }

    /// Returns the buffer that the stream is read into.
    pub const fn buffer(&mut self) -> &mut ReadBuffer {
        &mut self.buffer
    }

    /// Takes a piece by copying it.
    pub fn push(&mut self, piece: &[u8]) {
        self.buffer.push(piece);
    }

    /// The next message that is whole; `None` until more has come in.
    #[allow(clippy::should_implement_trait, reason = "lends from its own buffer")]
    pub fn next(&mut self) -> Option<Frame<'_>> {
        self.advance(false)
    }

    /// Takes the message that has no end, when no more will come in. To be called until it gives
    /// `None`.
    pub fn finish(&mut self) -> Option<Frame<'_>> {
        self.advance(true)
    }

    /// Offset up to which the stream was given out or stepped over, in bytes: a file is read on
    /// from here.
    pub const fn position(&self) -> u64 {
        self.position
    }

    fn advance(&mut self, at_end: bool) -> Option<Frame<'_>> {
        let step = self.splitter.step(self.buffer.waiting(), at_end);
        let used = step.used();
        self.position += used as u64;
        let taken = self.buffer.take(used);
        match step {
            FrameStep::Message { from, to, .. } => Some(Frame::Message(&taken[from..to])),
            FrameStep::TooLong { bytes, .. } => Some(Frame::TooLong { bytes }),
            FrameStep::More { .. } => None,
        }
    }
}

/// Splits bytes that are all there into messages, borrowed from them.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    splitter: FormatSplitter,
    rest: &'a [u8],
}

impl<'a> Frames<'a> {
    /// Iterates over the messages of `bytes`, the last of which may lack its end.
    pub fn new(format: Format, bytes: &'a [u8]) -> Self {
        Self {
            splitter: FormatSplitter::new(format.framing()),
            rest: bytes,
        }
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Frame<'a>;

    #[inline]
    fn next(&mut self) -> Option<Frame<'a>> {
        let bytes = self.rest;
        let step = self.splitter.step(bytes, true);
        self.rest = &bytes[step.used()..];
        match step {
            FrameStep::Message { from, to, .. } => Some(Frame::Message(&bytes[from..to])),
            FrameStep::TooLong { bytes, .. } => Some(Frame::TooLong { bytes }),
            FrameStep::More { .. } => None,
        }
    }
}
