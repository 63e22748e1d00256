//! Where one message ends and the next begins, in the words that every splitter uses.

/// A message longer than this is not kept: it is stepped over to the next, and counted.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// What the bytes at hand hold. Indexes count from their first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameStep {
    /// One message is whole.
    Message {
        /// Where it begins.
        from: usize,
        /// Where it ends, without what closed it.
        to: usize,
        /// So many bytes are done with.
        used: usize,
    },
    /// The end of a message longer than [`MESSAGE_BYTES_MAX`].
    TooLong {
        /// How long it was.
        bytes: u64,
        /// So many bytes are done with.
        used: usize,
    },
    /// No message is whole.
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
