//! Finds the open calls that an unreadable message mentions.
//!
//! Any word in the message's bytes that is the unique ID or linkedid of an open call makes that
//! call incomplete, because the message may have contained anything about it.

use super::Assembler;
use crate::UniqueId;

/// Maximum number of bytes to search in a message.
const SEARCHED_MAX: usize = 64 * 1024;
/// Maximum number of IDs from unreadable messages stored per open call.
const IDS_MAX: usize = 64;

impl Assembler {
    /// Processes an unreadable message, returning `true` if it mentions an open call.
    pub fn on_unreadable(&mut self, bytes: &[u8]) -> bool {
        let searched = bytes.get(..SEARCHED_MAX).unwrap_or(bytes);
        let mut is_named = false;
        for part in searched.split(|byte| !is_part_of_id(*byte)) {
            let text = String::from_utf8_lossy(part);
            let word = text.trim_matches('.');
            let Some(key) = self.calls.find(word) else {
                continue;
            };
            let (Some(call), Some(id)) = (self.calls.get_mut(key), UniqueId::new(word)) else {
                continue;
            };
            is_named = true;
            if call.unread.len() < IDS_MAX && call.unread.insert(id) {
                self.changes.insert(key);
            }
        }
        is_named
    }
}

/// IDs consist of letters, digits, and a few punctuation marks, as in
/// `pbx-1_a.tashkent-1795151317.146` or a UUID.
const fn is_part_of_id(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_')
}
