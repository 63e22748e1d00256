//! Handles a live connection of any protocol: reads it without waiting for the intake, keeps it
//! alive with pings, and gives it up when it has died.

mod stall;

use crate::{Context, Error, LineError, NO_REASON, SourceFeed, Stream, Target};
use callbridge_call::EventTime;
use callbridge_call::framing::{Outgoing, ReadBuffer};
use stall::Stall;
use std::{convert::Infallible, time::Duration};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

const READ_BYTES: usize = 32 << 10;
/// A connection that was silent for too long is read for this much longer before it is given up. If
/// this process or this machine was suspended, bytes can wait in the socket although the time is
/// over.
const LAST_READ: Duration = Duration::from_secs(1);
/// How often the reader checks whether it was suspended, and whether a ping waits for its answer.
const STALL_CHECK: Duration = Duration::from_secs(1);

/// A connection that is logged in, of one of the protocols.
pub(crate) trait LiveLine {
    fn target(&self) -> &Target;

    /// Reports the result of the login, and queues the protocol's first requests.
    async fn begin(&mut self, _feed: &mut SourceFeed) -> Result<(), Error> {
        Ok(())
    }

    /// Waits until more data has arrived. Safe to cancel.
    async fn receive(&mut self) -> Result<(), Error>;

    /// Gives the received frames to the intake.
    async fn take_in(&mut self, feed: &mut SourceFeed) -> Result<(), Error>;

    /// Queues a ping, and other periodic questions.
    fn ping(&mut self, feed: &mut SourceFeed) -> Result<(), Error>;

    /// Returns when the oldest ping without an answer was sent. `None` on a connection that has not
    /// answered any yet, because not every PBX answers.
    fn unanswered_since(&self) -> Option<EventTime>;

    /// Sends everything in the queue, however long that takes.
    async fn send(&mut self) -> Result<(), Error>;
}

/// Reads a connection until it ends, and returns why it ended.
pub(crate) async fn listen(
    line: &mut impl LiveLine,
    context: &mut Context,
) -> Result<Infallible, Error> {
    let feed = &mut context.line;
    feed.up(true).await?;
    line.begin(feed).await?;
    let silent_after = context.access.settings.silent_after;
    let mut pings = interval(context.access.settings.ping_every);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stall_checks = interval(STALL_CHECK);
    stall_checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stall = Stall::new(feed.now());
    let mut received = Instant::now();
    loop {
        line.take_in(feed).await?;
        stall.check(feed.now(), line.unanswered_since());
        stall.report(feed);
        send_within(line, silent_after).await?;
        tokio::select! {
            biased;
            came = line.receive() => {
                came?;
                received = Instant::now();
            }
            _ = pings.tick() => line.ping(feed)?,
            () = feed.wait_to_report_dropped() => {
                feed.report_dropped();
            }
            _ = stall_checks.tick() => {}
            () = sleep_until(received + silent_after) => {
                let Ok(came) = timeout(LAST_READ, line.receive()).await else {
                    let silent = received.elapsed();
                    return Err(line.target().error(LineError::Silent(silent)));
                };
                came?;
                received = Instant::now();
            }
        }
        let stood_still = stall.check(feed.now(), line.unanswered_since());
        if stood_still {
            // This process was suspended and sent no pings, so the PBX's silence means nothing.
            received = Instant::now();
            line.ping(feed)?;
        }
        stall.report(feed);
    }
}

/// Sends everything in the queue. Fails if the connection does not take all bytes within this time.
pub(crate) async fn send_within(line: &mut impl LiveLine, within: Duration) -> Result<(), Error> {
    let sent = timeout(within, line.send()).await;
    sent.unwrap_or_else(|_| Err(line.target().error(LineError::Silent(within))))
}

/// The oldest ping of a connection that has no answer yet.
#[derive(Debug, Default)]
pub(crate) struct Pings {
    /// The oldest ping without an answer: its id, and when it was sent by our boot clock.
    waiting: Option<(String, EventTime)>,
    /// Set once a ping was answered.
    are_answered: bool,
}

impl Pings {
    /// Notes that a ping with this id is sent `now`. Ignored if an earlier ping has no answer yet.
    pub(crate) fn note_sent(&mut self, id: String, now: EventTime) {
        self.waiting.get_or_insert((id, now));
    }

    /// Returns the id of the ping that waits for its answer.
    pub(crate) fn waiting_id(&self) -> Option<&str> {
        self.waiting.as_ref().map(|(id, _)| id.as_str())
    }

    /// Notes that the waiting ping was answered. Returns when that ping was sent.
    pub(crate) fn note_answer(&mut self) -> Option<EventTime> {
        self.are_answered = true;
        self.waiting.take().map(|(_, asked)| asked)
    }

    pub(crate) fn unanswered_since(&self) -> Option<EventTime> {
        if !self.are_answered {
            return None;
        }
        self.waiting.as_ref().map(|(_, asked)| *asked)
    }
}

/// A TCP connection of a text protocol.
pub(crate) struct TcpLine {
    pub(crate) stream: Stream,
    pub(crate) target: Target,
}

impl TcpLine {
    /// Waits until more bytes have arrived. Safe to cancel.
    pub(crate) async fn receive(&mut self, buffer: &mut ReadBuffer) -> Result<(), Error> {
        let read = self.stream.read(buffer.space(READ_BYTES)).await;
        match read.map_err(|error| self.target.io_error(&error))? {
            0 => return Err(self.target.closed_error(NO_REASON)),
            read => buffer.mark_filled(read),
        }
        Ok(())
    }

    pub(crate) async fn send(&mut self, bytes: Outgoing) -> Result<(), Error> {
        if bytes.bytes().is_empty() {
            return Ok(());
        }
        let sending = async {
            self.stream.write_all(bytes.bytes()).await?;
            self.stream.flush().await
        };
        sending.await.map_err(|error| self.target.io_error(&error))
    }
}
