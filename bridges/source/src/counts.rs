//! What a source has done so far, for `status` and the metrics.

use std::sync::{Arc, Mutex, PoisonError};

/// Counters of one source, shared between the source and whoever shows them.
#[derive(Clone, Debug, Default)]
pub struct Counts(Arc<Mutex<CountsNow>>);

/// The counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountsNow {
    /// Frames given to the ring.
    pub frames: u64,
    /// Bytes of the frames given to the ring, without the line ends that closed them.
    pub bytes: u64,
    /// Frames dropped because the ring was full; each run of them is told as one gap.
    pub overflow: u64,
    /// Times that a line which had been up was lost and is being opened again.
    pub reconnects: u64,
    /// Messages above 1 MiB: thrown away, or from a broker given shortened.
    pub too_long: u64,
}

impl Counts {
    /// Returns a copy of all counters, taken at one moment.
    pub fn now(&self) -> CountsNow {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn count(&self, count: impl FnOnce(&mut CountsNow)) {
        count(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
