//! What every session of a source needs, which is its settings, secret, and root certificates,
//! along with the feed to the ring, including frame numbers, state changes, gaps, and counters.
//! Items are logged by the intake, and only for debugging here.

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

/// A signal that asks running sessions to stop.
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

/// The settings, secret, and root certificates that a session uses to open its connection.
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
            // No secret is needed here, because the AMI and event socket dialogues redact the PBX's
            // texts themselves.
            redactor: Redactor::default(),
        }
    }
}

/// What a source passes on from session to session.
pub(crate) struct Context {
    pub line: SourceFeed,
    pub access: Access,
    pub stop: Stop,
    /// Whether the PBX has open calls, as far as the intake knows.
    pub calls: watch::Receiver<bool>,
}

/// A record from a source that doesn't have a number yet.
#[derive(Default)]
pub(crate) struct FrameContent {
    pub bytes: Bytes,
    pub position: Option<FilePosition>,
    pub content_type: Option<SmolStr>,
    pub details: Option<Box<RecordDetails>>,
}

/// How often to check whether the ring has room again.
const RETRY_AFTER: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct SourceFeed {
    pub id: SourceId,
    pub shown: String,
    pub ring: Ring,
    pub clock: Clock,
    pub counts: Counts,
    pub seq: u64,
    /// When the connection came up, or `None` while it's down.
    pub up: Option<Instant>,
    pub was_up: bool,
    /// The last reported reason why the connection is down, or `None` once it's up.
    pub reported: Option<String>,
    /// Number of frames that were dropped because the ring was full and haven't been reported yet.
    pub dropped: u64,
}

impl SourceFeed {
    /// Reports that the connection is up. `forgets` means that the PBX doesn't resend events after
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

    /// Reports that the connection is down, unless the reason is the same as before. `silent` is
    /// how long nothing was received before the connection was given up. `is_absent` means that the
    /// source is a file that doesn't exist yet.
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

    /// Returns how long the connection has been up, or zero while it's down.
    pub(crate) fn up_for(&self) -> Duration {
        self.up.map_or(Duration::ZERO, |since| since.elapsed())
    }

    pub(crate) async fn gap(&self, why: String) -> Result<(), Gone> {
        tracing::debug!(source = %self.shown, reason = %why, "gap");
        self.ring.report(self.id, Item::Gap { why }).await
    }

    /// Reports a fact about the connection's events without waiting. If the ring has no room, the
    /// item is dropped, and it's left to a later connection to report the fact.
    pub(crate) fn notice(&self, item: Item) {
        if let Err(item) = self.ring.try_report(self.id, item) {
            tracing::debug!(source = %self.shown, ?item, "no room to report it");
        }
    }

    /// Reports an item if there's room, or else returns `false`.
    pub(crate) fn try_report(&self, item: Item) -> bool {
        self.ring.try_report(self.id, item).is_ok()
    }

    /// Returns the time by our boot clock.
    pub(crate) fn now(&self) -> EventTime {
        (self.clock)()
    }

    /// Reports a point in the stream that comes after all frames passed on so far.
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

    /// Passes on a frame without waiting. If the ring has no room, the frame is dropped.
    /// Consecutive dropped frames are reported as a single gap as soon as there's room, before the
    /// next frame.
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

    /// Reports dropped frames as a gap if the ring has room again, or returns `false` if it's still
    /// full. This should be called even if nothing arrives, so that the gap doesn't have to wait
    /// for the next frame.
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

    /// Waits until [`report_dropped`](Self::report_dropped) should be called even though nothing
    /// has arrived, which is 50 ms, or forever while there's nothing to report.
    pub(crate) async fn wait_to_report_dropped(&self) {
        if self.dropped == 0 {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(RETRY_AFTER).await;
    }

    /// Reports that a connection has sent a message that's longer than the limit (`bytes`, if
    /// known). The message is discarded, so events may be missing.
    pub(crate) async fn too_long(&mut self, bytes: Option<u64>) -> Result<(), Gone> {
        self.counts.count(|counts| counts.too_long += 1);
        let length = bytes.map_or_else(String::new, |bytes| format!(" of {bytes} bytes"));
        self.gap(format!(
            "a message{length} was discarded: the limit is {MESSAGE_BYTES_MAX} bytes"
        ))
        .await
    }

    /// Passes a frame to the ring, waiting for room, and returns the frame's number. If this is
    /// canceled, the frame isn't passed on.
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

/// Counters for one source, shared between the source and the code that displays them.
#[derive(Clone, Debug, Default)]
pub struct Counts(Arc<Mutex<CountsNow>>);

/// The counters' values at a particular moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountsNow {
    /// Number of frames passed to the ring.
    pub frames: u64,
    /// Number of bytes in the frames passed to the ring, not counting their terminators.
    pub bytes: u64,
    /// Number of frames dropped because the ring was full. Consecutive dropped frames are reported
    /// as a single gap.
    pub overflow: u64,
    /// Number of times that a connection was lost after it had been up.
    pub reconnects: u64,
    /// Number of messages longer than 1 MiB. They're discarded and reported as a gap if they come
    /// from a live connection, and truncated if they come from a broker or a file.
    pub too_long: u64,
}

impl Counts {
    /// Returns a consistent copy of all counters.
    pub fn now(&self) -> CountsNow {
        *self.0.lock()
    }

    pub(crate) fn count(&self, count: impl FnOnce(&mut CountsNow)) {
        count(&mut self.0.lock());
    }
}
