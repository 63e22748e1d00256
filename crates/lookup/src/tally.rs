//! Counts lookups by outcome.

use crate::answer::Answer;
use callbridge_model::clock;
use prometheus_client::metrics::histogram::Histogram;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The lookup outcomes, in order, as labels in the metrics. `yes` and `several` mean that one or
/// several leads have the number, and `no` that no lead is known. With `late`, there was no result
/// in time, with `full`, the queue was full, with `refused`, the client's address or secret isn't
/// allowed, and with `bad`, the path or method is wrong.
const LABELS: [&str; 7] = ["yes", "several", "no", "late", "full", "refused", "bad"];

/// Counts lookups and their durations.
#[derive(Debug)]
pub struct Tally {
    counts: [(&'static str, AtomicU64); LABELS.len()],
    /// Seconds from a complete request to its response.
    duration: Histogram,
}

impl Tally {
    pub fn new(duration: Histogram) -> Self {
        Self {
            counts: LABELS.map(|label| (label, AtomicU64::new(0))),
            duration,
        }
    }

    pub(crate) fn count(&self, answer: &Answer, begun: Duration) {
        let mut counts = self.counts.iter();
        if let Some((_, count)) = counts.find(|(label, _)| *label == answer.label()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let took = clock::now().boot.saturating_sub(begun);
        self.duration.observe(took.as_secs_f64());
    }

    /// Returns the count of each outcome by its label.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        let mut counts = Vec::new();
        for (label, count) in &self.counts {
            counts.push((*label, count.load(Ordering::Relaxed)));
        }
        counts
    }
}
