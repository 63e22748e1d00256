//! From the intake back to a source: what became of its frames, after the spool's commit.
//!
//! Giving a verdict never waits, so that the intake cannot hang on a source that hangs on the
//! ring. What is kept is bounded: one number, and the refused ones, which a source's prefetch
//! limits.

use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::{Notify, watch};

/// Refusals that wait for a source at most. A source that takes verdicts has no more frames than
/// its prefetch under way; one that takes none must not fill the memory.
const REFUSALS_MAX: usize = 65_536;

/// Outcome of frames in the intake, given after the spool's commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameVerdict {
    /// All frames up to this one are committed, but for those refused before.
    Committed {
        /// The last committed frame's `seq`.
        through: u64,
    },
    /// The frame cannot be read; it is kept as a dead letter and must not come again. Given before
    /// the `Committed` that covers it.
    Refused {
        /// `seq` of the frame that was refused.
        seq: u64,
    },
}

/// Verdicts given by the intake and not taken by the source yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PendingVerdicts {
    pub through: u64,
    /// Refused frames' `seq`, in ascending order.
    pub refused: Vec<u64>,
}

#[derive(Debug, Default)]
struct VerdictState {
    judged: Mutex<PendingVerdicts>,
    given: Notify,
}

/// The intake's end: gives verdicts, and holds a source back while the disk is full.
#[derive(Clone, Debug)]
pub struct Verdicts {
    shared: Arc<VerdictState>,
    paused: watch::Sender<bool>,
}

impl Verdicts {
    /// Gives one verdict; never waits.
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

    /// Stops consumption, or lets it go on: an AMQP source closes its line meanwhile, and the
    /// broker keeps what is not committed; a file is read no further. Lines without a memory (AMI,
    /// WebSocket) read on.
    pub fn pause(&self, is_paused: bool) {
        self.paused.send_replace(is_paused);
    }
}

/// The source's end: takes the verdicts, and obeys the pause.
#[derive(Debug)]
pub struct VerdictReader {
    shared: Arc<VerdictState>,
    paused: watch::Receiver<bool>,
}

impl VerdictReader {
    /// Waits until something was given, and takes it. Safe to cancel.
    pub(crate) async fn next(&self) -> PendingVerdicts {
        self.shared.given.notified().await;
        let mut judged = self.shared.judged.lock();
        let (through, refused) = (judged.through, std::mem::take(&mut judged.refused));
        PendingVerdicts { through, refused }
    }

    /// Waits until consumption is paused (`true`) or not. Safe to cancel.
    pub(crate) async fn paused(&self, wanted: bool) {
        let mut paused = self.paused.clone();
        // Once the intake is gone nothing pauses any more.
        if paused.wait_for(|now| *now == wanted).await.is_err() && wanted {
            std::future::pending::<()>().await;
        }
    }
}

/// Makes the way back for one source.
pub fn verdicts() -> (Verdicts, VerdictReader) {
    let shared = Arc::new(VerdictState::default());
    let paused = watch::Sender::new(false);
    let reader = VerdictReader {
        shared: Arc::clone(&shared),
        paused: paused.subscribe(),
    };
    (Verdicts { shared, paused }, reader)
}
