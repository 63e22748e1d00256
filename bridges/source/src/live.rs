//! Handles a live connection using any protocol. It's read without waiting for the intake, kept
//! alive with pings, and given up once it has died.

mod pings;
mod stall;

use crate::{Context, Error, LineError, NO_REASON, SourceFeed, Stream, Target};
use callbridge_call::framing::{Outgoing, ReadBuffer};
pub(crate) use pings::Pings;
use stall::Stall;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

const READ_BYTES: usize = 32 << 10;
/// How much longer a connection that has been silent for too long is read before it's given up. If
/// this process or machine was suspended, there may be bytes waiting in the socket even though the
/// timeout has passed.
const LAST_READ: Duration = Duration::from_secs(1);
/// How often the reader checks whether it was suspended and whether a ping is overdue.
const STALL_CHECK: Duration = Duration::from_millis(500);
/// Timeout for the response to the last ping before a clean stop.
const LAST_PING: Duration = Duration::from_secs(1);

/// A logged-in connection using any of the protocols.
pub(crate) trait LiveLine {
    fn target(&self) -> &Target;

    /// Reports the result of the login, and queues the protocol's first requests.
    async fn begin(&mut self, _feed: &mut SourceFeed) -> Result<(), Error> {
        Ok(())
    }

    /// Waits until more data has arrived. Safe to cancel.
    async fn receive(&mut self) -> Result<(), Error>;

    /// Passes the received frames to the intake.
    async fn take_in(&mut self, feed: &mut SourceFeed) -> Result<(), Error>;

    /// Queues a ping.
    fn ping(&mut self, feed: &mut SourceFeed);

    /// Queues the protocol's other periodic questions.
    fn ask(&mut self, _feed: &mut SourceFeed) -> Result<(), Error> {
        Ok(())
    }

    fn pings(&self) -> &Pings;

    /// Sends everything in the queue, however long that takes.
    async fn send(&mut self) -> Result<(), Error>;
}

/// Reads from a connection until a stop is requested or the connection ends, in which case the
/// reason is returned.
pub(crate) async fn listen(line: &mut impl LiveLine, context: &mut Context) -> Result<(), Error> {
    let feed = &mut context.line;
    let calls = &mut context.calls;
    feed.up(true).await?;
    line.begin(feed).await?;
    let settings = &context.access.settings;
    let silent_after = settings.silent_after;
    let mut pings = interval(settings.ping_every);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut pings_in_call = interval(settings.ping_every_in_call);
    pings_in_call.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stall_checks = interval(STALL_CHECK);
    stall_checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stall = Stall::new(feed.now());
    let mut received = Instant::now();
    let mut has_read = false;
    loop {
        // The intake must know of a stall before it gets the late frames.
        let checked = stall.check(feed.now(), line.pings(), has_read);
        stall.report(feed);
        if checked.stood_still {
            received = Instant::now();
        }
        line.take_in(feed).await?;
        has_read = false;
        if checked.ping {
            line.ping(feed);
        }
        send_within(line, silent_after).await?;
        tokio::select! {
            biased;
            () = context.stop.requested() => return finish(line, feed).await,
            came = line.receive() => {
                came?;
                has_read = true;
                received = Instant::now();
            }
            _ = pings.tick() => {
                line.ping(feed);
                line.ask(feed)?;
            }
            _ = pings_in_call.tick(), if *calls.borrow() => line.ping(feed),
            Ok(()) = calls.changed() => pings_in_call.reset_immediately(),
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
                has_read = true;
                received = Instant::now();
            }
        }
    }
}

/// Sends a final ping and reads until the response arrives. The intake then knows that nothing is
/// missing so far, so that the gap recorded at the next startup covers only the time in between.
async fn finish(line: &mut impl LiveLine, feed: &mut SourceFeed) -> Result<(), Error> {
    let asked = feed.now();
    line.ping(feed);
    let responds = async {
        line.send().await?;
        while line.pings().are_waiting() {
            line.receive().await?;
            line.take_in(feed).await?;
            if line.pings().last_answer().map(|answer| answer.asked) >= Some(asked) {
                break;
            }
        }
        Ok(())
    };
    timeout(LAST_PING, responds).await.unwrap_or(Ok(()))
}

/// Sends everything in the queue, failing if the connection doesn't accept all bytes within this
/// time.
pub(crate) async fn send_within(line: &mut impl LiveLine, within: Duration) -> Result<(), Error> {
    let sent = timeout(within, line.send()).await;
    sent.unwrap_or_else(|_| Err(line.target().error(LineError::Silent(within))))
}

/// A TCP connection using a text protocol.
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
