//! Finds the open calls that an unreadable message names.
//!
//! The input is the bytes of the message. Every word in it that is the unique id or the linkedid of
//! an open call makes this call incomplete, because the message can have contained anything about
//! it.

use super::Assembler;
use crate::UniqueId;

/// Maximum number of bytes of a message that are searched.
const SEARCHED_MAX: usize = 64 * 1024;
/// Maximum number of ids in unreadable messages that one open call stores.
const IDS_MAX: usize = 64;

impl Assembler {
    /// Processes a message that cannot be read. Returns `true` if it names an open call.
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

/// Ids consist of letters, digits, and a few signs: `pbx-1_a.tashkent-1795151317.146`, a UUID.
const fn is_part_of_id(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_')
}
