//! What became of deliveries: the journal of attempts (§6.9.5) and the dead rows (§3.4).

use callbridge_call::EventTime;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::time::Duration;
use uuid::Uuid;

/// How long both are kept.
pub const KEPT_FOR: Duration = Duration::from_secs(7 * 86_400);
/// Most entries of each; the oldest go first.
pub const KEPT_MAX: usize = 10_000;

/// Which event to which installation: the pair that receivers know it by (§6.9.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DeliveryId {
    /// `eventId`
    pub event: Uuid,
    /// `X-Webhook-Installation-Id`
    pub installation: i64,
}

/// An entry of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// When it ended.
    pub at: EventTime,
    /// Which delivery.
    #[serde(flatten)]
    pub id: DeliveryId,
    /// The event's name.
    pub event_type: String,
    /// Whose event.
    pub company: i64,
    /// From 1.
    pub number: u32,
    /// The status of the answer, if there was one.
    pub status: Option<u16>,
    /// What went wrong.
    pub error: Option<String>,
    /// From the first byte sent to the outcome.
    pub duration_ms: u64,
}

/// A row that is never sent again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadRow {
    /// When it died.
    pub at: EventTime,
    /// Which delivery.
    #[serde(flatten)]
    pub id: DeliveryId,
    /// The event's name.
    pub event_type: String,
    /// Attempts made before.
    pub attempts: u32,
    /// Why.
    pub why: String,
}

/// Entries by age, seven days of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Kept<T>(VecDeque<(EventTime, T)>);

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Kept<T> {
    /// Adds one.
    pub fn push(&mut self, at: EventTime, entry: T) {
        if self.0.len() == KEPT_MAX {
            self.0.pop_front();
        }
        self.0.push_back((at, entry));
    }

    /// Drops what is older than seven days.
    pub fn forget(&mut self, now: EventTime) {
        while self
            .0
            .front()
            .is_some_and(|(at, _)| now.since(*at) > KEPT_FOR)
        {
            self.0.pop_front();
        }
    }

    /// Oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, entry)| entry)
    }
}
