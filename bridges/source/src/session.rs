//! The parts that every session of a source needs: its settings, secret, and root certificates, and
//! the feed to the ring with numbered frames, changes of state, gaps, and counts. The intake logs
//! the items. This module logs them only for debugging.

use crate::ring::{Gone, Ring};
use crate::settings::{Clock, Secret, Settings};
use crate::{
    FilePosition, Fix, Frame, Item, Outage, RecordDetails, SourceId, connect::Target,
    url::TcpEndpoint,
};
use bytes::Bytes;
use callbridge_call::{EventTime, Mark, redact::Redactor};
use callbridge_formats::MESSAGE_BYTES_MAX;
use parking_lot::Mutex;
use smol_str::SmolStr;
use std::{path::PathBuf, sync::Arc, time::Duration};
use tokio::{sync::watch, time::Instant};

/// Signal that requests running sessions to stop.
#[derive(Clone, Debug)]
pub(crate) struct Stop(pub(crate) watch::Receiver<bool>);

impl Stop {
    /// Waits until a stop is requested. Safe to cancel.
    pub(crate) async fn requested(&self) {
        // A closed channel also means a stop, because the owner of its sender is gone.
        let _ = self.0.clone().wait_for(|stop| *stop).await;
    }

    /// Awaits `work`, or returns `None` if a stop is requested first.
    pub(crate) async fn interrupts<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = work => Some(done),
            () = self.requested() => None,
        }
    }
}

/// Settings, secret, and root certificates with which a session opens its connection.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub settings: Settings,
    pub secret: Secret,
    pub ca_file: Option<PathBuf>,
}

impl Access {
    pub(crate) fn target(&self, endpoint: &TcpEndpoint) -> Target {
        Target {
            endpoint: endpoint.clone(),
            ca_file: self.ca_file.clone(),
            within: self.settings.connect_within,
            // No secret is needed here, because the dialogues of AMI and of the event socket redact
            // the PBX's texts.
            redactor: Redactor::default(),
        }
    }
}

/// What one source passes from session to session.
pub(crate) struct Context {
    pub line: SourceFeed,
    pub access: Access,
    pub stop: Stop,
    /// Whether calls of the PBX are open, as the intake knows it.
    pub calls: watch::Receiver<bool>,
}

/// A record of a source, before it has a number.
#[derive(Default)]
pub(crate) struct FrameContent {
    pub bytes: Bytes,
    pub position: Option<FilePosition>,
    pub content_type: Option<SmolStr>,
    pub details: Option<Box<RecordDetails>>,
}

/// Time between two checks whether the ring has room again.
const RETRY_AFTER: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct SourceFeed {
    pub id: SourceId,
    pub shown: String,
    pub ring: Ring,
    pub clock: Clock,
    pub counts: Counts,
    pub seq: u64,
    /// Time at which the connection came up. `None` while it is down.
    pub up: Option<Instant>,
    pub was_up: bool,
    /// Last reported reason why the connection is down. `None` once it is up.
    pub reported: Option<String>,
    /// Frames dropped because the ring was full, and not reported yet.
    pub dropped: u64,
}

impl SourceFeed {
    /// Reports that the connection is up. `forgets` means that the PBX does not repeat events after
    /// an outage, so the outage is reported as a gap.
    pub(crate) async fn up(&mut self, forgets: bool) -> Result<(), Gone> {
        if self.up.is_some() {
            return Ok(());
        }
        tracing::debug!(source = %self.shown, "source is up");
        self.up = Some(Instant::now());
        let reported = self.reported.take();
        self.ring.report(self.id, Item::Up).await?;
        if forgets && self.was_up {
            let why = reported.unwrap_or_else(|| "the connection was lost".to_owned());
            self.gap(format!("connected again, events may be missing: {why}"))
                .await?;
        }
        self.was_up = true;
        Ok(())
    }

    /// Reports that the connection is down, if the reason is new. `silent` is the time without a
    /// byte before the connection was given up. `is_absent` means that the source is a file that
    /// does not exist yet.
    pub(crate) async fn down(
        &mut self,
        why: String,
        fix: Fix,
        silent: Duration,
        is_absent: bool,
    ) -> Result<(), Gone> {
        if self.up.take().is_some() {
            self.counts.count(|counts| counts.reconnects += 1);
        }
        if self.reported.as_ref() == Some(&why) {
            tracing::debug!(source = %self.shown, reason = %why, "source is still down");
            return Ok(());
        }
        tracing::debug!(source = %self.shown, reason = %why, "source is down");
        self.reported = Some(why.clone());
        let since = (self.clock)().minus(silent);
        let outage = Outage {
            why,
            since,
            is_ours: fix != Fix::Remote,
            is_absent,
        };
        self.report(Item::Down(outage)).await
    }

    /// Returns the time since the connection came up. Zero while it is down.
    pub(crate) fn up_for(&self) -> Duration {
        self.up.map_or(Duration::ZERO, |since| since.elapsed())
    }

    pub(crate) async fn gap(&self, why: String) -> Result<(), Gone> {
        tracing::debug!(source = %self.shown, reason = %why, "gap");
        self.ring.report(self.id, Item::Gap { why }).await
    }

    /// Reports a fact about the connection's events without waiting. If the ring has no room, the
    /// item is dropped, and only a later connection can report the fact.
    pub(crate) fn notice(&self, item: Item) {
        if let Err(item) = self.ring.try_report(self.id, item) {
            tracing::debug!(source = %self.shown, ?item, "no room to report it");
        }
    }

    /// Reports an item if there is room. Returns `false` if there is none.
    pub(crate) fn try_report(&self, item: Item) -> bool {
        self.ring.try_report(self.id, item).is_ok()
    }

    /// Returns the time of our boot clock.
    pub(crate) fn now(&self) -> EventTime {
        (self.clock)()
    }

    /// Reports a point in the stream, after all frames given so far.
    pub(crate) async fn mark(&self, mark: Mark) -> Result<(), Gone> {
        let arrived = (self.clock)();
        self.report(Item::Mark { mark, arrived }).await
    }

    pub(crate) async fn report(&self, item: Item) -> Result<(), Gone> {
        self.ring.report(self.id, item).await
    }

    fn frame(&self, content: FrameContent) -> Frame {
        Frame {
            seq: self.seq + 1,
            arrived: (self.clock)(),
            bytes: content.bytes,
            position: content.position,
            content_type: content.content_type,
            details: content.details,
        }
    }

    fn count_frame(&mut self, bytes: usize) {
        self.seq += 1;
        self.counts.count(|counts| {
            counts.frames += 1;
            counts.bytes += bytes as u64;
        });
    }

    /// Gives a frame without waiting. If the ring has no room, the frame is dropped. Frames that
    /// were dropped in a row are reported as one gap as soon as there is room, before the next
    /// frame.
    pub(crate) fn offer(&mut self, bytes: Bytes) -> Result<(), Gone> {
        let length = bytes.len();
        if self.report_dropped() {
            let frame = self.frame(FrameContent {
                bytes,
                ..FrameContent::default()
            });
            if self.ring.offer(self.id, frame)? {
                self.count_frame(length);
                return Ok(());
            }
        }
        if self.dropped == 0 {
            tracing::error!(source = %self.shown, "the buffer is full: frames are dropped");
        }
        self.dropped += 1;
        self.counts.count(|counts| counts.overflow += 1);
        Ok(())
    }

    /// Reports dropped frames as a gap, if the ring has room again. Returns `false` if the ring is
    /// still full. Call this even if nothing arrives, so the gap does not wait for the next frame.
    pub(crate) fn report_dropped(&mut self) -> bool {
        let dropped = self.dropped;
        if dropped > 0 {
            let why =
                format!("frames were dropped because the buffer to the intake was full: {dropped}");
            let gap = Item::Gap { why };
            if !self.ring.has_room() || self.ring.try_report(self.id, gap).is_err() {
                return false;
            }
            self.dropped = 0;
        }
        true
    }

    /// Waits until [`report_dropped`](Self::report_dropped) should be called although nothing
    /// arrives: 50 ms, or forever while there is nothing to report.
    pub(crate) async fn wait_to_report_dropped(&self) {
        if self.dropped == 0 {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(RETRY_AFTER).await;
    }

    /// Reports that a connection has sent a message that is longer than the limit (`bytes`, if
    /// known). The message is discarded, so events may be missing.
    pub(crate) async fn too_long(&mut self, bytes: Option<u64>) -> Result<(), Gone> {
        self.counts.count(|counts| counts.too_long += 1);
        let length = bytes.map_or_else(String::new, |bytes| format!(" of {bytes} bytes"));
        self.gap(format!(
            "a message{length} was discarded: the limit is {MESSAGE_BYTES_MAX} bytes"
        ))
        .await
    }

    /// Gives a frame to the ring, and waits for room. Returns the frame's number. Safe to cancel: a
    /// canceled call gives no frame.
    pub(crate) async fn give(&mut self, content: FrameContent) -> Result<u64, Gone> {
        let length = content.bytes.len();
        if content
            .details
            .as_ref()
            .is_some_and(|details| details.cut_from.is_some())
        {
            self.counts.count(|counts| counts.too_long += 1);
        }
        self.ring.give(self.id, self.frame(content)).await?;
        self.count_frame(length);
        Ok(self.seq)
    }
}

/// Counters of one source, shared between the source and the code that shows them.
#[derive(Clone, Debug, Default)]
pub struct Counts(Arc<Mutex<CountsNow>>);

/// The counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountsNow {
    /// Frames given to the ring.
    pub frames: u64,
    /// Bytes of the frames given to the ring, without the line ends that closed them.
    pub bytes: u64,
    /// Frames dropped because the ring was full. Frames that were dropped in a row are reported as
    /// one gap.
    pub overflow: u64,
    /// Number of times that a connection was lost after it had been up.
    pub reconnects: u64,
    /// Messages longer than 1 MiB. From a live connection, they are discarded and reported as a
    /// gap. From a broker or a file, they are cut.
    pub too_long: u64,
}

impl Counts {
    /// Returns a copy of all counters, taken at one moment.
    pub fn now(&self) -> CountsNow {
        *self.0.lock()
    }

    pub(crate) fn count(&self, count: impl FnOnce(&mut CountsNow)) {
        count(&mut self.0.lock());
    }
}
