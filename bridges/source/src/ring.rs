//! The bounded buffer between all sources and the intake.
//!
//! It's shared by two kinds of sources. A live connection (AMI, WebSocket) never waits, because
//! Asterisk drops any reader that's slower than 100 ms. Frames that don't fit are dropped, counted,
//! and reported as a single gap once there's room again. A patient source (a broker, a file) does
//! wait. It has its own smaller share, so a long file can never take room away from a live
//! connection. The live share is split equally among the live connections, so a flood from one PBX
//! can't cost another one its calls.
//!
//! ```text
//!              frames   bytes      if full
//! live         61,440   28 MiB     dropped, counted, reported as one gap
//! patient       4,096    4 MiB     the source waits
//! total        65,536   32 MiB
//! ```
//! Connection changes (up, down, gap, idle, done) have 1,024 additional places.

use crate::{Frame, Item, SourceId};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Sizes of the ring's two shares, each in frames and in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Number of frames from live connections that can wait for the intake.
    pub live_frames: u32,
    /// Number of bytes in frames from live connections that can wait for the intake.
    pub live_bytes: u32,
    /// Number of frames from brokers and files that can wait for the intake.
    pub patient_frames: u32,
    /// Number of bytes in frames from brokers and files that can wait for the intake, which must be
    /// at least 1 MiB, the length of the longest frame.
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

    /// Returns how many bytes of the share a frame takes up. A frame that's longer than the whole
    /// share takes up all of it.
    fn cost(&self, frame: &Frame) -> u32 {
        let bytes = u32::try_from(frame.bytes.len()).unwrap_or(u32::MAX);
        bytes.min(self.bytes_max)
    }

    fn try_take(&self, frame: &Frame) -> Option<Permits> {
        let one = Arc::clone(&self.frames).try_acquire_owned().ok()?;
        let bytes = Arc::clone(&self.bytes).try_acquire_many_owned(self.cost(frame));
        Some([one, bytes.ok()?])
    }

    /// Waits for room for a frame. Safe to cancel, because any permits already held are returned.
    async fn take(&self, frame: &Frame) -> Option<Permits> {
        let one = Arc::clone(&self.frames).acquire_owned().await.ok()?;
        let bytes = Arc::clone(&self.bytes).acquire_many_owned(self.cost(frame));
        Some([one, bytes.await.ok()?])
    }
}

/// Permits for one frame and for its bytes. Dropping them frees that room in the ring.
type Permits = [OwnedSemaphorePermit; 2];

/// An item from a source, along with the permits for its room in the ring if it's a frame.
type Entry = (SourceId, Item, Option<Permits>);

/// The sending ends of the ring, one for each source.
#[derive(Debug)]
pub struct RingEnds {
    sender: mpsc::Sender<Entry>,
    /// Frames and bytes of each live connection.
    live: (u32, u32),
    patient: RingShare,
}

/// The sending end of the ring for one source, with its own live share. It can't be cloned, so two
/// sources never use the same share.
#[derive(Debug)]
pub struct Ring {
    sender: mpsc::Sender<Entry>,
    live: RingShare,
    patient: RingShare,
}

/// An error indicating that the intake has ended, so items can't be passed to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the intake has ended")]
pub struct Gone;

impl RingEnds {
    /// Returns the end for another source.
    pub fn open(&self) -> Ring {
        let (frames, bytes) = self.live;
        Ring {
            sender: self.sender.clone(),
            live: RingShare::new(frames, bytes),
            patient: self.patient.clone(),
        }
    }
}

impl Ring {
    /// Passes on a live connection's frame if there's room, or else returns `false`.
    pub(crate) fn offer(&self, source: SourceId, frame: Frame) -> Result<bool, Gone> {
        let Some(permits) = self.live.try_take(&frame) else {
            if self.sender.is_closed() {
                return Err(Gone);
            }
            return Ok(false);
        };
        let entry = (source, Item::Frame(frame), Some(permits));
        match self.sender.try_send(entry) {
            Ok(()) => Ok(true),
            Err(mpsc::error::TrySendError::Full(_)) => Ok(false),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(Gone),
        }
    }

    /// Passes on a patient source's frame, waiting for room. If this is canceled before it returns,
    /// the frame isn't passed on.
    pub(crate) async fn give(&self, source: SourceId, frame: Frame) -> Result<(), Gone> {
        let place = self.sender.reserve().await.map_err(|_| Gone)?;
        let permits = tokio::select! {
            permits = self.patient.take(&frame) => permits,
            () = self.sender.closed() => return Err(Gone),
        };
        place.send((source, Item::Frame(frame), permits));
        Ok(())
    }

    /// Returns `true` if there's room for at least one frame and one byte from live connections.
    pub(crate) fn has_room(&self) -> bool {
        self.live.frames.available_permits() > 0 && self.live.bytes.available_permits() > 0
    }

    /// Reports a connection change if a place is available.
    pub(crate) fn try_report(&self, source: SourceId, item: Item) -> Result<(), Box<Item>> {
        let sent = self.sender.try_send((source, item, None));
        sent.map_err(|refused| Box::new(refused.into_inner().1))
    }

    /// Reports a connection change, waiting until a place is available.
    pub(crate) async fn report(&self, source: SourceId, item: Item) -> Result<(), Gone> {
        let sent = self.sender.send((source, item, None)).await;
        sent.map_err(|_| Gone)
    }
}

/// The receiving end of the ring, which all sources feed.
#[derive(Debug)]
pub struct Intake {
    receiver: mpsc::Receiver<Entry>,
}

impl Intake {
    /// Returns the next item, or `None` once every [`Ring`] has been dropped. Safe to cancel.
    pub async fn next(&mut self) -> Option<(SourceId, Item)> {
        let (source, item, _permits) = self.receiver.recv().await?;
        Some((source, item))
    }

    /// Returns the next item without waiting, or `None` if none has arrived. The intake uses this
    /// after [`next`](Self::next) to add more items to its group.
    pub fn try_next(&mut self) -> Option<(SourceId, Item)> {
        let (source, item, _permits) = self.receiver.try_recv().ok()?;
        Some((source, item))
    }
}

/// Makes the ring of a process, with both ends. The live share is split equally among the live
/// connections, but each has room for at least one frame.
pub fn ring(limits: Limits, live_connections: u32) -> (RingEnds, Intake) {
    let places = limits.live_frames as usize + limits.patient_frames as usize + STATES;
    let (sender, receiver) = mpsc::channel(places);
    let connections = live_connections.max(1);
    let ends = RingEnds {
        sender,
        live: (
            (limits.live_frames / connections).max(1),
            (limits.live_bytes / connections).max(1),
        ),
        patient: RingShare::new(limits.patient_frames, limits.patient_bytes),
    };
    (ends, Intake { receiver })
}
