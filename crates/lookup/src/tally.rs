//! Look-ups, counted by what became of them.

use callbridge_model::clock;
use prometheus_client::metrics::histogram::Histogram;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Outcome of a look-up, as a label of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Outcome {
    /// One lead has the number.
    Yes,
    /// Several leads have the number.
    Several,
    /// No lead is known: `no`.
    No,
    /// No answer came in time: `no`.
    Late,
    /// More were waiting than there is room for: `no`.
    Full,
    /// Address or secret of the client is not allowed: `no`.
    Refused,
    /// The request had another path or method: `no`.
    Bad,
}

impl Outcome {
    /// Every outcome, in the order in which they are shown.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;
}

/// Counts look-ups and their time.
#[derive(Debug)]
pub struct Tally {
    counts: [AtomicU64; Outcome::ALL.len()],
    /// Time from a whole request to its answer, in seconds.
    duration: Histogram,
}

impl Tally {
    /// Makes a tally with this histogram of times.
    pub fn new(duration: Histogram) -> Self {
        Self {
            counts: Default::default(),
            duration,
        }
    }

    pub(crate) fn count(&self, outcome: Outcome, begun: Duration) {
        self.counts[outcome as usize].fetch_add(1, Ordering::Relaxed);
        let took = clock::now().boot.saturating_sub(begun);
        self.duration.observe(took.as_secs_f64());
    }

    /// Returns the count of each outcome, under its label.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        let counts = Outcome::ALL.iter().zip(&self.counts);
        let counts = counts.map(|(it, count)| (it.into(), count.load(Ordering::Relaxed)));
        counts.collect()
    }
}
