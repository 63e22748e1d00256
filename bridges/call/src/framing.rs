//! The result types shared by all splitters, which find where one message ends and the next begins,
//! and the buffer that holds a stream's bytes until their message is complete.

use std::fmt;

/// Maximum length of a message in bytes. Longer ones are skipped and counted.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// The byte-order mark with which Windows tools, spreadsheets, and database clients start UTF-8
/// text. In concatenated files, it may also appear in the middle.
pub const BYTE_ORDER_MARK: [u8; 3] = *b"\xEF\xBB\xBF";

/// Returns how many bytes to skip before the next message, including byte-order marks, empty lines,
/// whitespace, and NUL bytes.
#[inline]
pub const fn bytes_before_message(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    loop {
        rest = match rest {
            [0xEF, 0xBB, 0xBF, rest @ ..] | [b'\r' | b'\n' | b' ' | b'\0', rest @ ..] => rest,
            _ => return bytes.len() - rest.len(),
        };
    }
}

/// Strips the byte-order mark from a message that didn't come from a splitter, such as a broker's
/// message body or a request.
#[inline]
pub fn without_byte_order_mark(message: &[u8]) -> &[u8] {
    message.strip_prefix(&BYTE_ORDER_MARK).unwrap_or(message)
}

/// The result of one splitter step over the available bytes. Indexes are relative to the first
/// available byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameStep {
    /// The bytes contain a complete message.
    Message {
        /// Index of the message's first byte.
        from: usize,
        /// Index just past the message's last byte, not including its terminator.
        to: usize,
        /// Number of bytes consumed.
        used: usize,
    },
    /// The end of a message longer than [`MESSAGE_BYTES_MAX`].
    TooLong {
        /// Length of the message in bytes, most of which earlier steps may have already discarded.
        bytes: u64,
        /// Index just past the message's last byte, not including its terminator.
        to: usize,
        /// Number of bytes consumed.
        used: usize,
    },
    /// The bytes don't contain a complete message.
    More {
        /// Number of bytes that can be discarded.
        used: usize,
    },
}

impl FrameStep {
    /// Returns the number of bytes consumed.
    pub const fn used(self) -> usize {
        match self {
            Self::Message { used, .. } | Self::TooLong { used, .. } | Self::More { used } => used,
        }
    }
}

/// Bytes to send. They may contain a secret, so they're never printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Outgoing(Vec<u8>);

impl Outgoing {
    /// Wraps bytes that are ready to be sent.
    pub const fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Returns the bytes to send.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Appends the bytes of `next`.
    pub fn extend(&mut self, next: Self) {
        self.0.extend(next.0);
    }
}

impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Outgoing({} bytes)", self.0.len())
    }
}

/// Received bytes that haven't been taken yet.
///
/// They're read directly into the buffer (using [`space`](Self::space) and
/// [`mark_filled`](Self::mark_filled)) and borrowed from it. It makes no difference how they're
/// split into pieces on arrival. The buffer grows as large as the waiting bytes plus one piece.
#[derive(Debug, Default)]
pub struct ReadBuffer {
    bytes: Vec<u8>,
    /// Bounds of the waiting bytes, which are `bytes[start..end]`.
    start: usize,
    end: usize,
}

impl ReadBuffer {
    /// Returns free space for at least `bytes` bytes. Use [`mark_filled`](Self::mark_filled) to
    /// report how many were received.
    pub fn space(&mut self, bytes: usize) -> &mut [u8] {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
        if self.bytes.len() - self.end < bytes && self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.bytes.len() - self.end < bytes {
            self.bytes.resize(self.end + bytes, 0);
        }
        &mut self.bytes[self.end..]
    }

    /// Marks the first `bytes` bytes of [`space`](Self::space) as received.
    pub fn mark_filled(&mut self, bytes: usize) {
        self.end = self.bytes.len().min(self.end + bytes);
    }

    /// Appends a copy of a piece of the received bytes.
    pub fn push(&mut self, piece: &[u8]) {
        self.space(piece.len())[..piece.len()].copy_from_slice(piece);
        self.mark_filled(piece.len());
    }

    /// Returns the received bytes that haven't been taken yet.
    #[inline]
    pub fn waiting(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Returns the number of bytes that haven't been taken yet.
    pub const fn len(&self) -> usize {
        self.end - self.start
    }

    /// Returns `true` if there are no bytes waiting.
    pub const fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Removes and returns the first `bytes` waiting bytes, or all of them if there are fewer.
    #[inline]
    pub fn take(&mut self, bytes: usize) -> &[u8] {
        let from = self.start;
        self.start = self.end.min(from.saturating_add(bytes));
        &self.bytes[from..self.start]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_buffer_keeps_waiting_bytes_when_it_moves_them() {
        let mut buffer = ReadBuffer::default();
        assert!(buffer.is_empty());
        let (mut given, mut taken) = (Vec::new(), Vec::new());
        for round in 0..200_u8 {
            let piece = vec![round; usize::from(round % 17)];
            given.extend_from_slice(&piece);
            buffer.push(&piece);
            taken.extend_from_slice(buffer.take(usize::from(round % 13)));
            assert_eq!([taken.as_slice(), buffer.waiting()].concat(), given);
            assert_eq!(buffer.len(), given.len() - taken.len());
        }
        taken.extend_from_slice(buffer.take(usize::MAX));
        assert_eq!((taken, buffer.is_empty()), (given, true));
    }

    #[test]
    fn read_buffer_does_not_grow_if_every_piece_is_taken() {
        let mut buffer = ReadBuffer::default();
        for _ in 0..1000 {
            buffer.space(64)[..10].fill(b'x');
            buffer.mark_filled(10);
            buffer.take(9);
            buffer.take(1);
        }
        assert_eq!(buffer.bytes.len(), 64);
    }
}
