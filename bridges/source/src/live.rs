//! A live line, whatever is spoken on it: it is read without ever waiting for the intake, kept
//! alive by a heart-beat, and given up when it has died.

use crate::{Context, Error, LineError, NO_REASON, SourceFeed, Stream, Target};
use callbridge_call::framing::{Outgoing, ReadBuffer};
use std::{convert::Infallible, time::Duration};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

const READ_BYTES: usize = 32 << 10;

/// A line that is logged in, in one of the dialects.
pub(crate) trait LiveLine {
    fn target(&self) -> &Target;

    /// Reports what the login gave, and queues the dialect's first requests.
    async fn begin(&mut self, _feed: &mut SourceFeed) -> Result<(), Error> {
        Ok(())
    }

    /// Waits until more has come in. Safe to cancel.
    async fn receive(&mut self) -> Result<(), Error>;

    /// Gives the intake what has come in.
    async fn take_in(&mut self, feed: &mut SourceFeed) -> Result<(), Error>;

    /// The heart-beat, and whatever else is asked from time to time: to be sent next.
    fn ping(&mut self, feed: &mut SourceFeed) -> Result<(), Error>;

    /// Sends what is to be sent, however long that takes.
    async fn send(&mut self) -> Result<(), Error>;
}

/// Reads a line until it ends; why it ended.
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
    let mut received = Instant::now();
    loop {
        line.take_in(feed).await?;
        send_within(line, silent_after).await?;
        tokio::select! {
            came = line.receive() => {
                came?;
                received = Instant::now();
            }
            () = feed.dropped_to_report() => {
                feed.report_dropped();
            }
            _ = pings.tick() => line.ping(feed)?,
            () = sleep_until(received + silent_after) => {
                return Err(line.target().error(LineError::Silent(silent_after)));
            }
        }
    }
}

/// Sends what is to be sent; a line that does not take it within this time counts as lost.
pub(crate) async fn send_within(line: &mut impl LiveLine, within: Duration) -> Result<(), Error> {
    let sent = timeout(within, line.send()).await;
    sent.unwrap_or_else(|_| Err(line.target().error(LineError::Silent(within))))
}

/// A TCP line on which text is spoken.
pub(crate) struct TcpLine {
    pub(crate) stream: Stream,
    pub(crate) target: Target,
}

impl TcpLine {
    /// Waits until more has come in. Safe to cancel.
    pub(crate) async fn receive(&mut self, buffer: &mut ReadBuffer) -> Result<(), Error> {
        let read = self.stream.read(buffer.space(READ_BYTES)).await;
        match read.map_err(|error| self.target.failed(&error))? {
            0 => return Err(self.target.closed(NO_REASON)),
            read => buffer.filled(read),
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
        sending.await.map_err(|error| self.target.failed(&error))
    }
}
