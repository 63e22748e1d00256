//! Writes that failed with a 5xx, and how they come again (§7.7: 3 to 5 attempts).
//!
//! ```text
//! soon    within a second of its 5xx: the document gives 5xx no wait of their own, and a second is
//!         the first step of its backoff
//! often   a sixth attempt of a write of which five failed while others passed
//! ```
//! An attempt counts for its write once others of its endpoint have passed since the one before and
//! none of them failed: what fails with all others is the service's trouble, and no limit of the
//! document. A question is asked anew as soon and as often as something is to be known.

use super::routes::Endpoint;
use callbridge_call::EventTime;
use std::collections::BTreeMap;
use std::time::Duration;

/// A second, less what the way of two requests may differ by.
const SOON: Duration = Duration::from_millis(900);
/// Attempts of one write (§7.7).
pub const ATTEMPTS_MAX: u32 = 5;
/// So long after its last attempt a write is sent on somebody's order, and begins again.
const SERIES: Duration = Duration::from_secs(3_600);
/// Most failed requests remembered.
const REMEMBERED_MAX: usize = 10_000;

/// What is wrong with a request that comes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// So long after its 5xx.
    Soon(Duration),
    /// As this attempt, counted from 1.
    Often(u32),
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestEnd {
    /// It was done.
    Passed,
    /// A 5xx.
    Failed,
    /// No answer: the client cannot know whether it was done.
    Lost,
    /// Neither speaks for the service nor against it.
    Other,
}

/// Answers of one endpoint so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct EndpointHistory {
    passed: u64,
    failed: u64,
}

#[derive(Clone, Copy, Debug)]
struct Failed {
    last: EventTime,
    answered: bool,
    attempts: u32,
    told: EndpointHistory,
}

impl Failed {
    /// Since the last attempt others passed, and none failed.
    const fn alone(&self, told: EndpointHistory) -> bool {
        told.passed > self.told.passed && told.failed == self.told.failed
    }
}

/// What failed so far.
#[derive(Clone, Debug, Default)]
pub struct Repeats {
    failed: BTreeMap<(Endpoint, uuid::Uuid), Failed>,
    told: BTreeMap<Endpoint, EndpointHistory>,
}

impl Repeats {
    /// A write comes, named by its fingerprint.
    pub fn asked(&self, endpoint: Endpoint, request: uuid::Uuid, now: EventTime) -> Option<Repeat> {
        let before = self.failed.get(&(endpoint, request))?;
        let since = now.since(before.last);
        if before.answered && since < SOON {
            return Some(Repeat::Soon(since));
        }
        let often =
            since < SERIES && before.attempts >= ATTEMPTS_MAX && before.alone(self.told(endpoint));
        often.then_some(Repeat::Often(before.attempts + 1))
    }

    /// The same request ended so.
    pub fn ended(
        &mut self,
        endpoint: Endpoint,
        request: uuid::Uuid,
        now: EventTime,
        end: RequestEnd,
    ) {
        let key = (endpoint, request);
        let told = self.told.entry(endpoint).or_default();
        let before = match end {
            RequestEnd::Passed => {
                told.passed += 1;
                self.failed.remove(&key);
                return;
            }
            RequestEnd::Other => {
                self.failed.remove(&key);
                return;
            }
            RequestEnd::Failed | RequestEnd::Lost => self.failed.get(&key).copied(),
        };
        let before = before.filter(|before| now.since(before.last) < SERIES);
        let attempts = before.map_or(1, |before| before.attempts + u32::from(before.alone(*told)));
        told.failed += 1;
        if self.failed.len() >= REMEMBERED_MAX {
            self.failed.clear();
        }
        let failed = Failed {
            last: now,
            answered: end == RequestEnd::Failed,
            attempts,
            told: *told,
        };
        self.failed.insert(key, failed);
    }

    fn told(&self, endpoint: Endpoint) -> EndpointHistory {
        self.told.get(&endpoint).copied().unwrap_or_default()
    }
}
