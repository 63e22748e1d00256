//! What open calls may take of the memory: whoever names channels, bridges and variables decides
//! how long their texts are.
//!
//! A call is weighed when it is written down, by the bytes that takes, after each batch. One that
//! has grown too large is ended with the next event, and where all together are, the largest is:
//! not the one longest silent, which may be anybody's.

use super::calls::OpenCalls;

/// Bytes of one call. As many facts as a call may hold take a third of it, told in usual texts.
pub(super) const CALL_BYTES_MAX: usize = 4 << 20;

impl OpenCalls {
    /// Notes the bytes that the call took when it was written down.
    pub(super) fn weigh(&mut self, key: u64, bytes: usize) {
        let Some(call) = self.get_mut(key) else {
            return;
        };
        let before = std::mem::replace(&mut call.size.bytes, bytes);
        self.bytes = self.bytes.saturating_sub(before) + bytes;
        if bytes > CALL_BYTES_MAX {
            self.oversized.insert(key);
        }
    }

    pub(super) fn largest(&self) -> Option<u64> {
        let all = self.iter();
        all.max_by_key(|(_, call)| call.size.bytes)
            .map(|(key, _)| key)
    }
}
