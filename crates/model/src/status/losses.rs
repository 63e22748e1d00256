//! Counters that can mean a lost call.

use super::Status;
use std::collections::BTreeMap;

/// Durable counters that can mean a lost call, each with its meaning.
pub const LOSS_COUNTERS: [(&str, &str); 10] = [
    ("unidentified", "events without a unique id"),
    ("facts_dropped", "events beyond the limit of one call"),
    ("ghosts", "parts of channels that made no call"),
    ("forced", "calls ended before their hangup"),
    ("oversized", "calls ended because they were too large"),
    ("late", "events of calls that were over"),
    ("reused_ids", "calls with the ids of a finished call"),
    (
        "messages_ignored",
        "messages that are not for this version or login",
    ),
    ("unreadable_not_kept", "unreadable messages without room"),
    (
        "conflicts_not_kept",
        "conflicting calls beyond 100 with one ID and start",
    ),
];

impl Status {
    /// Copies the counters of [`LOSS_COUNTERS`] that are not 0 into the status.
    pub fn note_losses(&mut self, counters: &BTreeMap<String, u64>) {
        for (name, _) in LOSS_COUNTERS {
            if let Some(count) = counters.get(name).filter(|count| **count > 0) {
                self.losses.insert(name.to_owned(), *count);
            }
        }
    }
}
