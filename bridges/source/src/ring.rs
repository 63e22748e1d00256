//! The bounded way from all sources to the intake.
//!
//! Two kinds of source share it. A line without a memory (AMI, WebSocket) never waits: Asterisk
//! drops a reader that is slower than 100 ms, so what finds no room is dropped, counted, and told
//! as one gap as soon as there is room. A source that remembers (a broker, a file) waits, and has
//! a smaller share of its own, so that a long file can never crowd out a live line.
//!
//! ```text
//!              frames   bytes      full means
//! live lines   61,440   28 MiB     dropped, counted, one gap
//! patient       4,096    4 MiB     wait
//! together     65,536   32 MiB
//! ```
//! What happens to a line (up, down, gap, idle, done) has 1,024 places besides.

use crate::{Frame, Item, SourceId};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Sizes of the ring's two shares, each in frames and in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Frames of live lines that may wait for the intake.
    pub live_frames: u32,
    /// Bytes of live lines' frames that may wait for the intake.
    pub live_bytes: u32,
    /// Frames of brokers and files.
    pub patient_frames: u32,
    /// Bytes of brokers and files; at least the longest frame, 1 MiB.
    pub patient_bytes: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            live_frames: 61_440,
            live_bytes: 28 << 20,
            patient_frames: 4_096,
            patient_bytes: 4 << 20,
        }
    }
}

const STATES: usize = 1_024;

#[derive(Clone, Debug)]
struct RingShare {
    frames: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    bytes_max: u32,
}

impl RingShare {
    fn new(frames: u32, bytes: u32) -> Self {
        Self {
            frames: Arc::new(Semaphore::new(frames as usize)),
            bytes: Arc::new(Semaphore::new(bytes as usize)),
            bytes_max: bytes,
        }
    }

    /// Returns the bytes that a frame takes of the share; one longer than the whole share takes all
    /// of it.
    fn cost(&self, frame: &Frame) -> u32 {
        let bytes = u32::try_from(frame.bytes.len()).unwrap_or(u32::MAX);
        bytes.min(self.bytes_max)
    }

    fn try_take(&self, frame: &Frame) -> Option<Permits> {
        let one = Arc::clone(&self.frames).try_acquire_owned().ok()?;
        let bytes = Arc::clone(&self.bytes).try_acquire_many_owned(self.cost(frame));
        Some([one, bytes.ok()?])
    }

    /// Safe to cancel: what is held of the two is given back.
    async fn take(&self, frame: &Frame) -> Option<Permits> {
        let one = Arc::clone(&self.frames).acquire_owned().await.ok()?;
        let bytes = Arc::clone(&self.bytes).acquire_many_owned(self.cost(frame));
        Some([one, bytes.await.ok()?])
    }
}

/// Room for a frame and for its bytes, given back when they are dropped.
type Permits = [OwnedSemaphorePermit; 2];

/// An item of a source, with the room that a frame takes of its share; `None` for a state.
type Entry = (SourceId, Item, Option<Permits>);

/// The sources' end; cheap to clone.
#[derive(Clone, Debug)]
pub struct Ring {
    sender: mpsc::Sender<Entry>,
    live: RingShare,
    patient: RingShare,
}

/// The intake has gone; there is nobody to give to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the intake has ended")]
pub struct Gone;

impl Ring {
    /// Gives a live line's frame if there is room; `false` where there is none.
    pub(crate) fn offer(&self, source: SourceId, frame: Frame) -> Result<bool, Gone> {
        let Some(permits) = self.live.try_take(&frame) else {
            return match self.sender.is_closed() {
                true => Err(Gone),
                false => Ok(false),
            };
        };
        let entry = (source, Item::Frame(frame), Some(permits));
        match self.sender.try_send(entry) {
            Ok(()) => Ok(true),
            Err(mpsc::error::TrySendError::Full(_)) => Ok(false),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(Gone),
        }
    }

    /// Gives a patient source's frame, waiting for room. Safe to cancel before it returns: the
    /// frame is then not given.
    pub(crate) async fn give(&self, source: SourceId, frame: Frame) -> Result<(), Gone> {
        let place = self.sender.reserve().await.map_err(|_| Gone)?;
        let permits = tokio::select! {
            permits = self.patient.take(&frame) => permits,
            () = self.sender.closed() => return Err(Gone),
        };
        place.send((source, Item::Frame(frame), permits));
        Ok(())
    }

    /// Returns `true` when at least one place and one byte are free for live lines' frames.
    pub(crate) fn has_room(&self) -> bool {
        self.live.frames.available_permits() > 0 && self.live.bytes.available_permits() > 0
    }

    /// Tells what happened to a line, if a place is free.
    pub(crate) fn try_report(&self, source: SourceId, item: Item) -> Result<(), Box<Item>> {
        let sent = self.sender.try_send((source, item, None));
        sent.map_err(|refused| Box::new(refused.into_inner().1))
    }

    /// Tells what happened to a line.
    pub(crate) async fn report(&self, source: SourceId, item: Item) -> Result<(), Gone> {
        let sent = self.sender.send((source, item, None)).await;
        sent.map_err(|_| Gone)
    }
}

/// The one receiving end of the ring, which all sources feed.
#[derive(Debug)]
pub struct Intake {
    receiver: mpsc::Receiver<Entry>,
}

impl Intake {
    /// The next item; `None` when every [`Ring`] is gone. Safe to cancel.
    pub async fn next(&mut self) -> Option<(SourceId, Item)> {
        let (source, item, _permits) = self.receiver.recv().await?;
        Some((source, item))
    }

    /// The next item if one is there now: with [`next`](Self::next), this fills a group.
    pub fn try_next(&mut self) -> Option<(SourceId, Item)> {
        let (source, item, _permits) = self.receiver.try_recv().ok()?;
        Some((source, item))
    }
}

/// Makes the one ring of a process.
pub fn ring(limits: Limits) -> (Ring, Intake) {
    let places = limits.live_frames as usize + limits.patient_frames as usize + STATES;
    let (sender, receiver) = mpsc::channel(places);
    let ring = Ring {
        sender,
        live: RingShare::new(limits.live_frames, limits.live_bytes),
        patient: RingShare::new(limits.patient_frames, limits.patient_bytes),
    };
    (ring, Intake { receiver })
}
