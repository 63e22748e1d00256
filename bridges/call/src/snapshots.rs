//! What survives a restart: open calls as bytes.

/// An open call that changed or went since the last take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenChange {
    /// The assembler's own number for the call; stable over restarts.
    pub key: u64,
    /// The call as bytes for [`Assembler::restore`](crate::Assembler::restore); `None` when it is
    /// no longer open.
    pub snapshot: Option<Vec<u8>>,
}

/// A snapshot that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bytes are not what [`Assembler::take_changes`](crate::Assembler::take_changes) gave out.
    #[error("the open call {key} cannot be restored: {source}")]
    Snapshot {
        /// The call's number.
        key: u64,
        /// What is wrong with the bytes.
        source: serde_json::Error,
    },
}
