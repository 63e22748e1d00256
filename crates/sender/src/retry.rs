//! When a call that failed is tried again, and whether its failures are its own.

use super::schedule::{Jitter, OTHERS_FIRST};
use callbridge_spool::RowId;
use std::collections::BTreeMap;
use std::time::Duration;

/// Calls whose failures are remembered.
const BLAMED_MAX: usize = 10_000;

/// In an outage a call is a probe once in so many.
const PROBES_MAX: u32 = 4;

/// Failures of one call, by what passed meanwhile.
#[derive(Clone, Copy, Debug, Default)]
struct Blame {
    /// Failures at a time when others passed, as far as was known.
    tries: u32,
    /// Failures after which others passed.
    alone: u32,
    /// Failures since others passed last.
    together: u32,
    /// None has passed since the last.
    open: bool,
}

/// Failures of calls, and the chance in what is waited after them.
#[derive(Debug)]
pub(super) struct Retry {
    pub(super) jitter: Jitter,
    blamed: BTreeMap<RowId, Blame>,
}

impl Retry {
    /// Nothing has failed yet; the seed is that of the jitter.
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            jitter: Jitter::new(seed),
            blamed: BTreeMap::new(),
        }
    }

    /// Failures of this call while others passed.
    pub(super) fn failures(&self, row: RowId) -> u32 {
        self.blamed.get(&row).map_or(0, |blame| blame.alone)
    }

    /// A call failed once more, by itself or with others.
    fn blame(&mut self, row: RowId, itself: bool) -> Blame {
        if self.blamed.len() >= BLAMED_MAX && !self.blamed.contains_key(&row) {
            self.blamed.pop_first();
        }
        let blame = self.blamed.entry(row).or_default();
        blame.tries = blame.tries.saturating_add(u32::from(itself));
        blame.together = blame.together.saturating_add(1);
        blame.open = true;
        *blame
    }

    /// A submission passed: those that failed before it failed alone.
    pub(super) fn others_passed(&mut self, row: RowId) {
        self.blamed.remove(&row);
        for blame in self.blamed.values_mut().filter(|blame| blame.open) {
            blame.open = false;
            blame.together = 0;
            blame.alone = blame.alone.saturating_add(1);
        }
    }

    /// The call is no longer to be tried.
    pub(super) fn forget(&mut self, row: RowId) {
        self.blamed.remove(&row);
    }

    /// So often the call failed alone before the last start.
    pub(super) fn recall(&mut self, row: RowId, failures: u32) {
        if failures > 0 {
            self.blamed.entry(row).or_insert(Blame {
                tries: failures,
                alone: failures,
                together: 0,
                open: false,
            });
        }
    }

    /// In a trouble a call waits until the next probe, or one after it: that takes another call
    /// where there is one. Else it waits as long as its failures are unlikely.
    pub(super) fn wait(
        &mut self,
        row: RowId,
        until_probe: Option<Duration>,
        share: f64,
        unsent: u64,
    ) -> Duration {
        let Some(until) = until_probe else {
            let tries = self.blame(row, true).tries;
            return self.jitter.backoff(tries, share);
        };
        let together = self.blame(row, false).together;
        let others = u32::try_from(unsent.saturating_sub(1)).unwrap_or(u32::MAX);
        match together.min(others).min(PROBES_MAX) {
            0 => until,
            probes => until * probes + OTHERS_FIRST,
        }
    }
}
