//! What open calls may take of the memory: whoever names channels, bridges and variables decides
//! how long their texts are.
//!
//! A call is weighed when it is written down, by the bytes that takes: [`Assembler::take_changes`]
//! comes after each batch. One that has grown too large is ended with the next event, and where
//! all together are, the largest is: not the one longest silent, which may be anybody's.

use super::Assembler;
use super::calls::Calls;
use crate::resolve::Ended;

/// Bytes of one call. As many facts as a call may hold take a third of it, told in usual texts.
const CALL_BYTES_MAX: usize = 4 << 20;

impl Calls {
    /// What the call took when it was written down.
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

    fn largest(&self) -> Option<u64> {
        let all = self.iter();
        all.max_by_key(|(_, call)| call.size.bytes)
            .map(|(key, _)| key)
    }
}

impl Assembler {
    /// Ends what there is no room for.
    pub(super) fn limit_open_bytes(&mut self) {
        while let Some(key) = self.calls.oversized.pop_first() {
            let large = |bytes: usize| bytes > CALL_BYTES_MAX;
            if self
                .calls
                .get(key)
                .is_some_and(|call| large(call.size.bytes))
            {
                self.finish(key, Ended::TooLarge);
            }
        }
        let most = self.settings.open_bytes_max();
        while self.calls.bytes > most {
            let Some(key) = self.calls.largest() else {
                return;
            };
            self.finish(key, Ended::TooLarge);
        }
    }
}
