//! Keeps messages that the command has not accepted yet, and decides when it is tried again. Pure:
//! no clock, no process.

use super::history::Notification;
use std::time::Duration;

/// Maximum number of messages kept for a command that keeps failing. The oldest messages are
/// dropped.
const PENDING_MAX: usize = 500;
/// The wait after the first failure, and the longest wait. Each further failure doubles the wait.
const FIRST_WAIT: Duration = Duration::from_secs(5);
const LAST_WAIT: Duration = Duration::from_secs(300);

/// Messages in the order of delivery.
#[derive(Clone, Debug, Default)]
pub struct PendingNotifications {
    messages: Vec<Notification>,
    failures: u32,
    /// Time since boot before which the command is not run.
    not_before: Duration,
}

impl PendingNotifications {
    /// Adds messages, and returns how many older messages were dropped.
    pub fn add(&mut self, messages: Vec<Notification>) -> usize {
        self.messages.extend(messages);
        let excess = self.messages.len().saturating_sub(PENDING_MAX);
        self.messages.drain(..excess);
        excess
    }

    /// Returns the messages to deliver now. Empty during the wait after a failure.
    pub fn due(&self, boot: Duration) -> &[Notification] {
        if boot < self.not_before {
            return &[];
        }
        &self.messages
    }

    pub const fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Removes and returns the delivered messages.
    pub fn take_delivered(&mut self) -> Vec<Notification> {
        self.failures = 0;
        std::mem::take(&mut self.messages)
    }

    /// Records a failed run at `boot` (time since boot). Returns the wait before the next run.
    pub fn wait_after_failure(&mut self, boot: Duration) -> Duration {
        let doubled = FIRST_WAIT.saturating_mul(1 << self.failures.min(16));
        let wait = doubled.min(LAST_WAIT);
        self.failures += 1;
        self.not_before = boot + wait;
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notify::history::Turn;

    fn message(message: usize) -> Notification {
        Notification {
            kind: "dead_letters",
            state: Turn::Begins,
            since: 0,
            message: message.to_string(),
            command: String::new(),
        }
    }

    #[test]
    fn failed_messages_are_tried_again_after_growing_waits() {
        let mut pending = PendingNotifications::default();
        let mut boot = Duration::from_secs(1_000);
        assert_eq!(pending.add(vec![message(1)]), 0);
        for seconds in [5, 10, 20, 40, 80, 160, 300, 300] {
            assert_eq!(pending.due(boot).len(), 1);
            let wait = pending.wait_after_failure(boot);
            assert_eq!(wait, Duration::from_secs(seconds));
            pending.add(vec![]);
            assert!(pending.due(boot + wait - Duration::from_secs(1)).is_empty());
            boot += wait;
        }
        pending.add(vec![message(2)]);
        assert_eq!(pending.due(boot).len(), 2);
        assert_eq!(pending.take_delivered(), [message(1), message(2)]);
        assert!(pending.is_empty());
        pending.add(vec![message(3)]);
        assert_eq!(
            pending.wait_after_failure(boot),
            FIRST_WAIT,
            "a success begins anew"
        );
    }

    #[test]
    fn oldest_messages_are_dropped_beyond_the_limit() {
        let mut pending = PendingNotifications::default();
        let dropped = pending.add((0..PENDING_MAX + 3).map(message).collect());
        assert_eq!(dropped, 3);
        assert_eq!(pending.due(Duration::ZERO).first(), Some(&message(3)));
    }
}
