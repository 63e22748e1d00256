//! Where one message ends and the next begins, in the words that every splitter uses; and the
//! buffer in which the bytes of a stream wait for the rest of their message.

use std::fmt;

/// A message longer than this is not kept: it is stepped over to the next, and counted.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Result of one step of a splitter over the bytes at hand. Indexes count from their first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameStep {
    /// The bytes hold a whole message.
    Message {
        /// Index of the message's first byte.
        from: usize,
        /// Index behind the message's last byte, without what closed it.
        to: usize,
        /// So many bytes are done with.
        used: usize,
    },
    /// The end of a message longer than [`MESSAGE_BYTES_MAX`].
    TooLong {
        /// Length of the message, in bytes. Most of it can have been given up in earlier steps.
        bytes: u64,
        /// Index behind the message's last byte, without what closed it.
        to: usize,
        /// Number of bytes that are done with.
        used: usize,
    },
    /// The bytes hold no whole message.
    More {
        /// So many bytes can be forgotten.
        used: usize,
    },
}

impl FrameStep {
    /// So many bytes are done with.
    pub const fn used(self) -> usize {
        match self {
            Self::Message { used, .. } | Self::TooLong { used, .. } | Self::More { used } => used,
        }
    }
}

/// Bytes to send. They may hold a secret, so they are never printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Outgoing(Vec<u8>);

impl Outgoing {
    /// Wraps bytes that are ready to be sent.
    pub const fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Returns the bytes that go over the line.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Adds what is to be sent next.
    pub fn extend(&mut self, next: Self) {
        self.0.extend(next.0);
    }
}

impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Outgoing({} bytes)", self.0.len())
    }
}

/// Bytes that came in and were not given out yet. They are read straight into it
/// ([`space`](Self::space) and [`filled`](Self::filled)) and lent out from there; how they are cut
/// into pieces is not seen. It grows to what waits in it and one piece.
#[derive(Debug, Default)]
pub struct ReadBuffer {
    bytes: Vec<u8>,
    /// Bounds of the bytes that wait: `bytes[start..end]`.
    start: usize,
    end: usize,
}

impl ReadBuffer {
    /// Room for at least `bytes` more; say with [`filled`](Self::filled) how many came in.
    pub fn space(&mut self, bytes: usize) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.bytes.len() - self.end < bytes && self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.bytes.len() - self.end < bytes {
            self.bytes.resize(self.end + bytes, 0);
        }
        &mut self.bytes[self.end..]
    }

    /// The first `bytes` of [`space`](Self::space) hold what came in.
    pub fn filled(&mut self, bytes: usize) {
        self.end = self.bytes.len().min(self.end + bytes);
    }

    /// Takes a piece by copying it.
    pub fn push(&mut self, piece: &[u8]) {
        self.space(piece.len())[..piece.len()].copy_from_slice(piece);
        self.filled(piece.len());
    }

    /// Returns the bytes that came in and were not taken yet.
    #[inline]
    pub fn waiting(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Number of bytes that were not taken yet.
    pub const fn len(&self) -> usize {
        self.end - self.start
    }

    /// Returns `true` when no byte waits.
    pub const fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The first `bytes` of what waits, lent out for the last time: the rest waits on. All of it,
    /// where no more waits.
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
    fn what_was_not_taken_waits_through_every_move_of_the_buffer() {
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
    fn a_reader_that_keeps_up_needs_room_for_one_piece() {
        let mut buffer = ReadBuffer::default();
        for _ in 0..1000 {
            buffer.space(64)[..10].fill(b'x');
            buffer.filled(10);
            buffer.take(9);
            buffer.take(1);
        }
        assert_eq!(buffer.bytes.len(), 64);
    }
}
