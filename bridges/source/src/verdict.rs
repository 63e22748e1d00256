//! The intake's verdicts on a source's frames, which are sent back after the spool's commit.
//!
//! Issuing a verdict never blocks, so the intake can't end up waiting for a source that's waiting
//! for the ring. Only the last committed frame's number and the refused frames' numbers are kept. A
//! source's prefetch limits how many frames can be refused.

use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::{Notify, watch};

/// Maximum number of refusals waiting for a source. A source that reads verdicts has at most
/// `prefetch` frames without one, but a source that never reads them mustn't fill up the memory.
const REFUSALS_MAX: usize = 65_536;

/// What became of frames in the intake, sent after the spool's commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameVerdict {
    /// All frames up to `through` have been committed, except for those that were refused before.
    Committed {
        /// The last committed frame's `seq`.
        through: u64,
    },
    /// The frame can't be read. It's kept as a dead letter and mustn't be redelivered. This verdict
    /// is sent before the `Committed` that covers the frame.
    Refused {
        /// The refused frame's `seq`.
        seq: u64,
    },
}

/// Verdicts that the source hasn't taken yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PendingVerdicts {
    pub through: u64,
    /// The refused frames' `seq`, in ascending order.
    pub refused: Vec<u64>,
}

#[derive(Debug, Default)]
struct VerdictState {
    judged: Mutex<PendingVerdicts>,
    given: Notify,
}

/// The intake's end of the channel for verdicts, which issues verdicts and pauses a source while
/// the disk is full.
#[derive(Clone, Debug)]
pub struct Verdicts {
    shared: Arc<VerdictState>,
    paused: watch::Sender<bool>,
    calls: watch::Sender<bool>,
}

impl Verdicts {
    /// Issues one verdict, without blocking.
    pub fn give(&self, verdict: FrameVerdict) {
        let mut judged = self.shared.judged.lock();
        match verdict {
            FrameVerdict::Committed { through } => judged.through = judged.through.max(through),
            FrameVerdict::Refused { seq } => {
                if judged.refused.len() < REFUSALS_MAX
                    && let Err(at) = judged.refused.binary_search(&seq)
                {
                    judged.refused.insert(at, seq);
                }
            }
        }
        drop(judged);
        self.shared.given.notify_one();
    }

    /// Pauses or resumes consumption. During a pause, an AMQP source closes its connection, leaving
    /// uncommitted messages with the broker, and a file isn't read. Live connections (AMI,
    /// WebSocket) are still read.
    pub fn pause(&self, is_paused: bool) {
        self.paused.send_replace(is_paused);
    }

    /// Tells the source whether its PBX has open calls, in which case a live connection is pinged
    /// more often, since only the responses show whether events arrive on time.
    pub fn note_calls(&self, are_open: bool) {
        self.calls
            .send_if_modified(|known| std::mem::replace(known, are_open) != are_open);
    }
}

/// The source's end of the channel for verdicts, which receives verdicts and shows whether the
/// intake has paused the source.
#[derive(Debug)]
pub struct VerdictReader {
    shared: Arc<VerdictState>,
    paused: watch::Receiver<bool>,
    calls: watch::Receiver<bool>,
}

impl VerdictReader {
    /// Waits until there are verdicts, and takes them. Safe to cancel.
    pub(crate) async fn next(&self) -> PendingVerdicts {
        self.shared.given.notified().await;
        let mut judged = self.shared.judged.lock();
        PendingVerdicts {
            through: judged.through,
            refused: std::mem::take(&mut judged.refused),
        }
    }

    /// Waits until consumption is paused (if `wanted` is `true`) or not paused (if it's `false`).
    /// Safe to cancel.
    pub(crate) async fn wait_for_pause(&self, wanted: bool) {
        let mut paused = self.paused.clone();
        // Once the intake has ended, nothing pauses the source anymore.
        if paused.wait_for(|now| *now == wanted).await.is_err() && wanted {
            std::future::pending::<()>().await;
        }
    }

    /// Returns a receiver for whether the PBX has open calls, which the intake keeps up to date.
    pub(crate) fn calls(&self) -> watch::Receiver<bool> {
        self.calls.clone()
    }
}

/// Creates both ends of the channel for one source's verdicts.
pub fn verdicts() -> (Verdicts, VerdictReader) {
    let shared = Arc::new(VerdictState::default());
    let paused = watch::Sender::new(false);
    let calls = watch::Sender::new(false);
    let reader = VerdictReader {
        shared: Arc::clone(&shared),
        paused: paused.subscribe(),
        calls: calls.subscribe(),
    };
    let verdicts = Verdicts {
        shared,
        paused,
        calls,
    };
    (verdicts, reader)
}
