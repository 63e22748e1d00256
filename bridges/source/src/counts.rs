//! What a source has done so far, for `status` and the metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one source, shared between the source and whoever shows them.
#[derive(Clone, Debug, Default)]
pub struct Counts(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    frames: AtomicU64,
    bytes: AtomicU64,
    overflow: AtomicU64,
    reconnects: AtomicU64,
    too_long: AtomicU64,
}

/// The counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountsNow {
    /// Frames given to the ring.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Frames dropped because the ring was full; each run of them is told as one gap.
    pub overflow: u64,
    /// Times that a line which had been up was lost and is being opened again.
    pub reconnects: u64,
    /// Messages above 1 MiB: thrown away, or from a broker given shortened.
    pub too_long: u64,
}

impl Counts {
    /// All counters.
    pub fn now(&self) -> CountsNow {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CountsNow {
            frames: read(&self.0.frames),
            bytes: read(&self.0.bytes),
            overflow: read(&self.0.overflow),
            reconnects: read(&self.0.reconnects),
            too_long: read(&self.0.too_long),
        }
    }

    pub(crate) fn frame(&self, bytes: usize) {
        self.0.frames.fetch_add(1, Ordering::Relaxed);
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn overflow(&self) {
        self.0.overflow.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn reconnect(&self) {
        self.0.reconnects.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn too_long(&self) {
        self.0.too_long.fetch_add(1, Ordering::Relaxed);
    }
}
