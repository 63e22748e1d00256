//! The bounded buffer between all sources and the intake.
//!
//! Two kinds of source share it. A live connection (AMI, WebSocket) never waits, because Asterisk
//! drops a reader that is slower than 100 ms. Frames without room are dropped, counted, and
//! reported as one gap as soon as there is room. A patient source (a broker, a file) waits. It has
//! its own smaller share, so a long file can never use the room of a live connection. The live
//! share is split equally among the live connections, so a flood from one PBX can't cost another
//! its calls.
//!
//! ```text
//!              frames   bytes      full means
//! live         61,440   28 MiB     dropped, counted, one gap
//! patient       4,096    4 MiB     wait
//! together     65,536   32 MiB
//! ```
//! Changes of a connection (up, down, gap, idle, done) have 1,024 additional places.

use crate::{Frame, Item, SourceId};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Sizes of the ring's two shares, each in frames and in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Frames of live connections that can wait for the intake.
    pub live_frames: u32,
    /// Bytes of frames of live connections that can wait for the intake.
    pub live_bytes: u32,
    /// Frames of brokers and files that can wait for the intake.
    pub patient_frames: u32,
    /// Bytes of frames of brokers and files: at least 1 MiB, the longest frame.
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

    /// Returns the number of bytes that a frame takes of the share. A frame that is longer than the
    /// whole share takes the whole share.
    fn cost(&self, frame: &Frame) -> u32 {
        let bytes = u32::try_from(frame.bytes.len()).unwrap_or(u32::MAX);
        bytes.min(self.bytes_max)
    }

    fn try_take(&self, frame: &Frame) -> Option<Permits> {
        let one = Arc::clone(&self.frames).try_acquire_owned().ok()?;
        let bytes = Arc::clone(&self.bytes).try_acquire_many_owned(self.cost(frame));
        Some([one, bytes.ok()?])
    }

    /// Waits for room for a frame. Safe to cancel, because permits that are already held are
    /// returned.
    async fn take(&self, frame: &Frame) -> Option<Permits> {
        let one = Arc::clone(&self.frames).acquire_owned().await.ok()?;
        let bytes = Arc::clone(&self.bytes).acquire_many_owned(self.cost(frame));
        Some([one, bytes.await.ok()?])
    }
}

/// Permits for one frame and for its bytes. When the permits are dropped, the ring has that room
/// again.
type Permits = [OwnedSemaphorePermit; 2];

/// An item of a source. If the item is a frame, the permits for its room in the ring. `None` for
/// other items.
type Entry = (SourceId, Item, Option<Permits>);

/// The sending end of the ring, for the sources. It is cheap to clone.
#[derive(Clone, Debug)]
pub struct Ring {
    sender: mpsc::Sender<Entry>,
    limits: Limits,
    live: RingShare,
    patient: RingShare,
}

/// The intake has ended, so items cannot be given to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the intake has ended")]
pub struct Gone;

impl Ring {
    /// Returns the ring for one of `sources` live connections. The live share is split equally
    /// among them, but each has room for at least one frame.
    #[must_use]
    pub fn for_one_of(&self, sources: u32) -> Self {
        let Limits {
            live_frames,
            live_bytes,
            ..
        } = self.limits;
        let part = |whole: u32| (whole / sources.max(1)).max(1);
        Self {
            live: RingShare::new(part(live_frames), part(live_bytes)),
            ..self.clone()
        }
    }

    /// Gives the frame of a live connection if there is room. Returns `false` if there is none.
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

    /// Gives the frame of a patient source, and waits for room. Safe to cancel before it returns:
    /// the frame is then not given.
    pub(crate) async fn give(&self, source: SourceId, frame: Frame) -> Result<(), Gone> {
        let place = self.sender.reserve().await.map_err(|_| Gone)?;
        let permits = tokio::select! {
            permits = self.patient.take(&frame) => permits,
            () = self.sender.closed() => return Err(Gone),
        };
        place.send((source, Item::Frame(frame), permits));
        Ok(())
    }

    /// Returns `true` if at least one place and one byte are free for frames of live connections.
    pub(crate) fn has_room(&self) -> bool {
        self.live.frames.available_permits() > 0 && self.live.bytes.available_permits() > 0
    }

    /// Reports a change of a connection, if a place is free.
    pub(crate) fn try_report(&self, source: SourceId, item: Item) -> Result<(), Box<Item>> {
        let sent = self.sender.try_send((source, item, None));
        sent.map_err(|refused| Box::new(refused.into_inner().1))
    }

    /// Reports a change of a connection, and waits for a free place.
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
    /// Returns the next item. `None` once every [`Ring`] is dropped. Safe to cancel.
    pub async fn next(&mut self) -> Option<(SourceId, Item)> {
        let (source, item, _permits) = self.receiver.recv().await?;
        Some((source, item))
    }

    /// Returns the next item without waiting. `None` if none has arrived. After
    /// [`next`](Self::next), the intake adds more items to its group with this function.
    pub fn try_next(&mut self) -> Option<(SourceId, Item)> {
        let (source, item, _permits) = self.receiver.try_recv().ok()?;
        Some((source, item))
    }
}

/// Makes the ring of a process, with both ends.
pub fn ring(limits: Limits) -> (Ring, Intake) {
    let places = limits.live_frames as usize + limits.patient_frames as usize + STATES;
    let (sender, receiver) = mpsc::channel(places);
    let ring = Ring {
        sender,
        limits,
        live: RingShare::new(limits.live_frames, limits.live_bytes),
        patient: RingShare::new(limits.patient_frames, limits.patient_bytes),
    };
    (ring, Intake { receiver })
}
