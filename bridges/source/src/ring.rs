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
use tokio::sync::{Semaphore, TryAcquireError, mpsc};

/// How much of each share there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Frames of live lines.
    pub live_frames: u32,
    /// Bytes of live lines.
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

#[derive(Debug)]
struct RingShare {
    frames: Semaphore,
    bytes: Semaphore,
    bytes_max: u32,
}

impl RingShare {
    fn new(frames: u32, bytes: u32) -> Self {
        Self {
            frames: Semaphore::new(frames as usize),
            bytes: Semaphore::new(bytes as usize),
            bytes_max: bytes,
        }
    }

    /// What a frame costs; one longer than the whole share costs all of it.
    fn cost(&self, frame: &Frame) -> u32 {
        let bytes = u32::try_from(frame.bytes.len()).unwrap_or(u32::MAX);
        bytes.min(self.bytes_max)
    }

    fn give_back(&self, cost: u32) {
        self.frames.add_permits(1);
        self.bytes.add_permits(cost as usize);
    }

    fn try_take(&self, cost: u32) -> bool {
        let taken = |result: Result<tokio::sync::SemaphorePermit<'_>, TryAcquireError>| {
            result.map(tokio::sync::SemaphorePermit::forget).is_ok()
        };
        if !taken(self.frames.try_acquire()) {
            return false;
        }
        if !taken(self.bytes.try_acquire_many(cost)) {
            self.frames.add_permits(1);
            return false;
        }
        true
    }

    async fn take(&self, cost: u32) {
        // Held, not forgotten, until both are there: a cancelled wait leaves nothing taken.
        let frame = self.frames.acquire().await;
        let bytes = self.bytes.acquire_many(cost).await;
        // Nobody closes these semaphores.
        if let (Ok(frame), Ok(bytes)) = (frame, bytes) {
            frame.forget();
            bytes.forget();
        }
    }
}

#[derive(Debug)]
struct Shares {
    live: RingShare,
    patient: RingShare,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShareKind {
    Live,
    Patient,
}

#[derive(Debug)]
struct Entry {
    source: SourceId,
    item: Item,
    /// What is given back when the entry is taken; nothing for a state.
    cost: Option<(ShareKind, u32)>,
}

/// The sources' end; cheap to clone.
#[derive(Clone, Debug)]
pub struct Ring {
    sender: mpsc::Sender<Entry>,
    shares: Arc<Shares>,
}

/// The intake has gone; there is nobody to give to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the intake has ended")]
pub struct Gone;

/// What became of a frame that does not wait.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Offered {
    Taken,
    Full,
}

impl Ring {
    /// Gives a live line's frame if there is room.
    pub(crate) fn offer(&self, source: SourceId, frame: Frame) -> Result<Offered, Gone> {
        let cost = self.shares.live.cost(&frame);
        if !self.shares.live.try_take(cost) {
            return if self.sender.is_closed() {
                Err(Gone)
            } else {
                Ok(Offered::Full)
            };
        }
        let entry = Entry {
            source,
            item: Item::Frame(frame),
            cost: Some((ShareKind::Live, cost)),
        };
        match self.sender.try_send(entry) {
            Ok(()) => Ok(Offered::Taken),
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.shares.live.give_back(cost);
                Ok(Offered::Full)
            }
            Err(mpsc::error::TrySendError::Closed(_)) => Err(Gone),
        }
    }

    /// Gives a patient source's frame, waiting for room. Safe to cancel before it returns: the
    /// frame is then not given.
    pub(crate) async fn give(&self, source: SourceId, frame: Frame) -> Result<(), Gone> {
        let place = self.sender.reserve().await.map_err(|_| Gone)?;
        let cost = self.shares.patient.cost(&frame);
        tokio::select! {
            () = self.shares.patient.take(cost) => {}
            () = self.sender.closed() => return Err(Gone),
        }
        place.send(Entry {
            source,
            item: Item::Frame(frame),
            cost: Some((ShareKind::Patient, cost)),
        });
        Ok(())
    }

    /// Whether a live line's frame would find room.
    pub(crate) fn has_room(&self) -> bool {
        let live = &self.shares.live;
        live.frames.available_permits() > 0 && live.bytes.available_permits() > 0
    }

    /// Tells what happened to a line, if a place is free.
    pub(crate) fn try_tell(&self, source: SourceId, item: Item) -> Result<(), Item> {
        let entry = Entry {
            source,
            item,
            cost: None,
        };
        self.sender
            .try_send(entry)
            .map_err(|refused| refused.into_inner().item)
    }

    /// Tells what happened to a line.
    pub(crate) async fn tell(&self, source: SourceId, item: Item) -> Result<(), Gone> {
        let entry = Entry {
            source,
            item,
            cost: None,
        };
        self.sender.send(entry).await.map_err(|_| Gone)
    }
}

/// The intake's end.
#[derive(Debug)]
pub struct Intake {
    receiver: mpsc::Receiver<Entry>,
    shares: Arc<Shares>,
}

impl Intake {
    /// The next item; `None` when every [`Ring`] is gone. Safe to cancel.
    pub async fn next(&mut self) -> Option<(SourceId, Item)> {
        let entry = self.receiver.recv().await?;
        Some(self.taken(entry))
    }

    /// The next item if one is there now: with [`next`](Self::next), this fills a group.
    pub fn try_next(&mut self) -> Option<(SourceId, Item)> {
        let entry = self.receiver.try_recv().ok()?;
        Some(self.taken(entry))
    }

    fn taken(&self, entry: Entry) -> (SourceId, Item) {
        match entry.cost {
            Some((ShareKind::Live, cost)) => self.shares.live.give_back(cost),
            Some((ShareKind::Patient, cost)) => self.shares.patient.give_back(cost),
            None => {}
        }
        (entry.source, entry.item)
    }
}

/// Makes the one ring of a process.
pub fn ring(limits: Limits) -> (Ring, Intake) {
    let shares = Arc::new(Shares {
        live: RingShare::new(limits.live_frames, limits.live_bytes),
        patient: RingShare::new(limits.patient_frames, limits.patient_bytes),
    });
    let places = limits.live_frames as usize + limits.patient_frames as usize + STATES;
    let (sender, receiver) = mpsc::channel(places);
    let ring = Ring {
        sender,
        shares: Arc::clone(&shares),
    };
    (ring, Intake { receiver, shares })
}
