//! Look-ups, counted by what became of them.

use callbridge_model::clock;
use prometheus_client::metrics::histogram::Histogram;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What became of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    pub const ALL: [Self; 7] = [
        Self::Yes,
        Self::Several,
        Self::No,
        Self::Late,
        Self::Full,
        Self::Refused,
        Self::Bad,
    ];

    /// The value of the metric's label.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::Several => "several",
            Self::No => "no",
            Self::Late => "late",
            Self::Full => "full",
            Self::Refused => "refused",
            Self::Bad => "bad",
        }
    }
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
    pub fn counts(&self) -> [(&'static str, u64); Outcome::ALL.len()] {
        Outcome::ALL.map(|it| (it.word(), self.counts[it as usize].load(Ordering::Relaxed)))
    }
}
