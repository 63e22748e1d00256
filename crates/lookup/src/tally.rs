//! Counts lookups by outcome.

use crate::answer::Answer;
use callbridge_model::clock;
use prometheus_client::metrics::histogram::Histogram;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Outcomes of lookups as labels of the metrics, in their order. `yes` and `several`: one or
/// several leads have the number. `no`: no lead is known. `late`: no answer in time. `full`: the
/// queue is full. `refused`: the client's address or secret is not allowed. `bad`: another path or
/// method.
const LABELS: [&str; 7] = ["yes", "several", "no", "late", "full", "refused", "bad"];

/// Counts lookups and their time.
#[derive(Debug)]
pub struct Tally {
    counts: [(&'static str, AtomicU64); LABELS.len()],
    /// Seconds from a complete request to its answer.
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
