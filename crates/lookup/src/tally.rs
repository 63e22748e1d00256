//! Look-ups, counted by what became of them.

use callbridge_model::clock;
use prometheus_client::metrics::histogram::Histogram;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What became of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Outcome {
    /// One lead.
    Yes,
    /// Several leads.
    Several,
    /// None that we know of.
    No,
    /// None in the time there was: `no`.
    Late,
    /// More were waiting than there is room for: `no`.
    Full,
    /// Whoever asked may not: `no`.
    Refused,
    /// It was no question: `no`.
    Bad,
}

impl Outcome {
    /// All, in the order in which they are shown.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;
}

/// Counts look-ups and their time.
#[derive(Debug)]
pub struct Tally {
    counts: [AtomicU64; Outcome::ALL.len()],
    /// From a whole request to its answer, in seconds.
    duration: Histogram,
}

impl Tally {
    /// With this histogram of their time.
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

    /// How often each came.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        let counts = Outcome::ALL.iter().zip(&self.counts);
        let counts = counts.map(|(it, count)| (it.into(), count.load(Ordering::Relaxed)));
        counts.collect()
    }
}
