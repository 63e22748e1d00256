//! What every session of a source needs: its settings, secret and roots, and the feed by which it
//! tells the ring: numbered frames, changes of state, gaps, counts. Whoever takes the items logs
//! them; here they are traced for debugging only.

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

/// Signal by which running sessions learn that they are to stop.
#[derive(Clone, Debug)]
pub(crate) struct Stop(pub(crate) watch::Receiver<bool>);

impl Stop {
    /// Waits until told to stop. Safe to cancel.
    pub(crate) async fn requested(&self) {
        // A closed channel means the same: whoever would tell us is gone.
        let _ = self.0.clone().wait_for(|stop| *stop).await;
    }
}

/// Settings, secret and roots with which a session opens its line.
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
            // The dialogues of AMI and event socket redact the texts themselves.
            redactor: Redactor::default(),
        }
    }
}

/// Feed and access of one source, handed from session to session.
pub(crate) struct Context {
    pub line: SourceFeed,
    pub access: Access,
}

/// A record as a source has it, before it is numbered.
#[derive(Default)]
pub(crate) struct FrameContent {
    pub bytes: Bytes,
    pub position: Option<FilePosition>,
    pub content_type: Option<SmolStr>,
    pub details: Option<Box<RecordDetails>>,
}

/// Between two looks whether the ring has room again.
const RETRY_AFTER: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct SourceFeed {
    pub id: SourceId,
    pub shown: String,
    pub ring: Ring,
    pub clock: Clock,
    pub counts: Counts,
    pub seq: u64,
    /// Moment at which the line came up; `None` while it is down.
    pub up: Option<Instant>,
    pub was_up: bool,
    /// Reason last reported for the line being down; `None` once it is up.
    pub reported: Option<String>,
    /// Frames dropped since the ring was found full, not told yet.
    pub dropped: u64,
}

impl SourceFeed {
    /// The line is up. `forgets`: what was said while it was lost is lost, and told as a gap.
    pub(crate) async fn up(&mut self, forgets: bool) -> Result<(), Gone> {
        if self.up.is_some() {
            return Ok(());
        }
        tracing::debug!(source = %self.shown, "source is up");
        self.up = Some(Instant::now());
        let why = self.reported.take();
        self.ring.report(self.id, Item::Up).await?;
        if forgets && self.was_up {
            let why = why.unwrap_or_else(|| "the connection was lost".to_owned());
            let why = format!("connected again, events may be missing: {why}");
            self.gap(why).await?;
        }
        self.was_up = true;
        Ok(())
    }

    /// The line is down, and was `silent` for so long before; told when the reason is new.
    /// `is_absent`: it is a file that is not there, and is waited for.
    pub(crate) async fn down(
        &mut self,
        why: String,
        fix: Fix,
        silent: Duration,
        is_absent: bool,
    ) -> Result<(), Gone> {
        if self.up.take().is_some() {
            self.counts.count(|it| it.reconnects += 1);
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

    /// Time since the line came up; zero when it is down.
    pub(crate) fn up_for(&self) -> Duration {
        self.up.map_or(Duration::ZERO, |since| since.elapsed())
    }

    pub(crate) async fn gap(&self, why: String) -> Result<(), Gone> {
        tracing::debug!(source = %self.shown, reason = %why, "gap");
        self.ring.report(self.id, Item::Gap { why }).await
    }

    /// Tells what is known of the line's events. Without waiting: where there is no room, it is
    /// told of another time the line is up.
    pub(crate) fn notice(&self, item: Item) {
        if let Err(item) = self.ring.try_report(self.id, item) {
            tracing::debug!(source = %self.shown, ?item, "no room to report it");
        }
    }

    /// Reports an item if there is room; `false` if there is none.
    pub(crate) fn try_report(&self, item: Item) -> bool {
        self.ring.try_report(self.id, item).is_ok()
    }

    /// The time by our boot clock.
    pub(crate) fn now(&self) -> EventTime {
        (self.clock)()
    }

    /// Tells of a point in the stream, after all frames given so far.
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

    fn given(&mut self, bytes: usize) {
        self.seq += 1;
        self.counts.count(|it| {
            it.frames += 1;
            it.bytes += bytes as u64;
        });
    }

    /// Gives a frame without waiting; with no room it is dropped, and the run of dropped ones is
    /// told as one gap as soon as there is room, before the next frame.
    pub(crate) fn offer(&mut self, bytes: Bytes) -> Result<(), Gone> {
        let length = bytes.len();
        if self.report_dropped() {
            let frame = self.frame(FrameContent {
                bytes,
                ..FrameContent::default()
            });
            if self.ring.offer(self.id, frame)? {
                self.given(length);
                return Ok(());
            }
        }
        if self.dropped == 0 {
            tracing::error!(source = %self.shown, "the buffer is full: frames are dropped");
        }
        self.dropped += 1;
        self.counts.count(|it| it.overflow += 1);
        Ok(())
    }

    /// Tells of dropped frames if there is room again; `false` while there is none. Also to be
    /// called when nothing arrives, so that the gap does not wait for the next frame.
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

    /// Waits until [`report_dropped`](Self::report_dropped) is to be tried although nothing
    /// arrives: 50 ms, or for ever while there is nothing to report.
    pub(crate) async fn dropped_to_report(&self) {
        if self.dropped == 0 {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(RETRY_AFTER).await;
    }

    /// Reports that a line has sent a message that is longer than any may be. It is thrown away, so
    /// events may be missing.
    pub(crate) async fn too_long(&mut self, bytes: Option<u64>) -> Result<(), Gone> {
        self.counts.count(|it| it.too_long += 1);
        let length = bytes.map_or_else(String::new, |bytes| format!(" of {bytes} bytes"));
        self.gap(format!(
            "a message{length} was thrown away: at most {MESSAGE_BYTES_MAX} bytes are read"
        ))
        .await
    }

    /// Gives a frame, waiting for room; its number. Safe to cancel: then it is not given.
    pub(crate) async fn give(&mut self, content: FrameContent) -> Result<u64, Gone> {
        let length = content.bytes.len();
        if content
            .details
            .as_ref()
            .is_some_and(|it| it.cut_from.is_some())
        {
            self.counts.count(|it| it.too_long += 1);
        }
        self.ring.give(self.id, self.frame(content)).await?;
        self.given(length);
        Ok(self.seq)
    }
}

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
    /// Messages above 1 MiB: on a line thrown away and reported as a gap, from a broker or a file
    /// given shortened.
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
