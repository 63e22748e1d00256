//! A line to a broker on which each message is confirmed: what has no confirm is published again.

use super::{Login, find};
use crate::error::Error;
use futures_util::StreamExt as _;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::{BasicProperties, Channel, Confirmation, Connection, Event, PublisherConfirm};
use std::fmt;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// Body of a message that only checks whether the broker accepts messages.
///
/// The body must not be empty. During an alarm, RabbitMQ blocks a connection after the header of
/// the first message. A message without a body ends there, so the broker still takes and confirms
/// it.
pub const CHECK_BODY: &[u8] = b"check";

/// An open line with a channel whose messages are confirmed.
pub struct ConfirmedLine {
    connection: Connection,
    /// The channel in confirm mode that every message of this line is published on.
    pub channel: Channel,
    blocks: Blocks,
    since: Instant,
    /// Time allowed for an answer of the broker.
    within: Duration,
}

/// The broker's reason for blocking a connection, kept up to date by a task.
///
/// A RabbitMQ node with a memory or disk alarm stops reading from every connection that publishes,
/// and sends `connection.blocked`. Bytes that were already sent are read after the alarm, so a
/// message that is published again on a second connection arrives twice.
struct Blocks {
    reason: watch::Receiver<Option<String>>,
    task: JoinHandle<()>,
}

impl Blocks {
    fn of(connection: &Connection) -> Self {
        let (sender, reason) = watch::channel(None);
        let mut events = connection.events_listener();
        let task = tokio::spawn(async move {
            while let Some(event) = events.next().await {
                match event {
                    Event::ConnectionBlocked(reason) => sender.send_replace(Some(reason)),
                    Event::ConnectionUnblocked => sender.send_replace(None),
                    _ => continue,
                };
            }
        });
        Self { reason, task }
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The broker has not answered in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// The broker blocks the connection, for this reason.
    Blocked(String),
    /// The reason is unknown.
    Silent,
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blocked(reason) => write!(f, "the broker blocks the connection: {reason}"),
            Self::Silent => f.write_str("no answer"),
        }
    }
}

impl ConfirmedLine {
    /// Logs in and asks for confirms, beginning with another of the broker's nodes each `turn`: a
    /// node that was cut from the others lets in, and confirms nothing.
    ///
    /// # Errors
    /// What is wrong and what to do.
    pub async fn open(login: &Login, turn: usize) -> Result<Self, Error> {
        let (connection, target) = login.open_node_from(turn).await?;
        let blocks = Blocks::of(&connection);
        let opening = async {
            let channel = connection.create_channel().await?;
            let confirms = ConfirmSelectOptions::default();
            channel.confirm_select(confirms).await?;
            Ok(channel)
        };
        let closed = |error: lapin::Error| target.closed(error.to_string());
        // A broker that dies, or that still starts, owes answers that never come.
        let opening = target.in_time(async { opening.await.map_err(closed) });
        let channel = opening.await?;
        Ok(Self {
            connection,
            channel,
            blocks,
            since: Instant::now(),
            within: login.within,
        })
    }

    /// Runs the line's last request and closes the line.
    ///
    /// # Errors
    /// When the broker blocks the line, or does not answer within the login's time limit.
    pub async fn last<T>(self, answer: impl AsyncFnOnce(&Self) -> T) -> Result<T, Unanswered> {
        let mut reason = self.blocks.reason.clone();
        let answered = tokio::select! {
            answered = timeout(self.within, answer(&self)) => {
                answered.map_err(|_| Unanswered::Silent)
            }
            Ok(blocked) = reason.wait_for(Option::is_some) => {
                Err(Unanswered::Blocked(blocked.clone().unwrap_or_default()))
            }
        };
        self.close().await;
        answered
    }

    /// Subscribes to the broker's reason for blocking this line; `None` while it takes messages.
    pub fn blocked(&self) -> watch::Receiver<Option<String>> {
        self.blocks.reason.clone()
    }

    /// Returns `true` while the broker blocks this line, which is still connected.
    pub fn is_blocked(&self) -> bool {
        self.is_open() && self.blocks.reason.borrow().is_some()
    }

    /// Returns `Ok` when a queue of this name exists; the check declares nothing.
    ///
    /// # Errors
    /// The broker's words where it is not.
    pub async fn finds(&self, name: &str) -> Result<(), lapin::Error> {
        find(&self.channel, name).await.map(drop)
    }

    /// Checks that this login can publish: the broker returns a message to `nowhere`, a name that
    /// no queue has. During an alarm there is no answer before the alarm ends.
    ///
    /// # Errors
    /// The broker's reason for refusing the message.
    pub async fn may_write(&self, nowhere: &str) -> Result<(), lapin::Error> {
        self.may_write_body(nowhere, CHECK_BODY).await
    }

    /// Checks that this login can publish this body, as [`may_write`](Self::may_write) does.
    ///
    /// # Errors
    /// The broker's reason for refusing the message.
    pub async fn may_write_body(&self, nowhere: &str, body: &[u8]) -> Result<(), lapin::Error> {
        let sent = self.publish(nowhere, body, BasicProperties::default());
        sent.await?.await.map(drop)
    }

    /// Time since confirms were agreed on this line.
    pub fn up_for(&self) -> Duration {
        self.since.elapsed()
    }

    /// Sends one message to a queue of this name; it is taken when it is confirmed.
    ///
    /// # Errors
    /// When the line is lost.
    pub async fn publish(
        &self,
        queue: &str,
        body: &[u8],
        properties: BasicProperties,
    ) -> Result<PublisherConfirm, lapin::Error> {
        let options = BasicPublishOptions {
            mandatory: true,
            ..BasicPublishOptions::default()
        };
        let sent = self
            .channel
            .basic_publish("".into(), queue.into(), options, body, properties);
        sent.await
    }

    /// Returns `true` while the channel counts as connected: a line that died unnoticed does so,
    /// too.
    pub fn is_open(&self) -> bool {
        self.channel.status().connected()
    }

    /// Closes the connection in an orderly way, waiting one second at most. Nothing can be written
    /// on a blocked line, not even its end.
    pub async fn close(&self) {
        if self.is_blocked() {
            return;
        }
        let closing = self.connection.close(200, "done".into());
        let _ = timeout(Duration::from_secs(1), closing).await;
    }
}

/// Returns the broker's reason for not taking a message; `None` when it did. A mandatory message
/// that no queue takes is returned, and then acknowledged.
pub fn refusal(confirmation: &Confirmation) -> Option<String> {
    match confirmation {
        Confirmation::Ack(None) => None,
        Confirmation::Ack(Some(returned)) => Some(returned.reply_text.to_string()),
        Confirmation::Nack(_) => Some("refused, it may be full".to_owned()),
        Confirmation::NotRequested => Some("not confirmed".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_acknowledgement_means_that_a_queue_has_it() {
        assert_eq!(refusal(&Confirmation::Ack(None)), None);
        assert!(refusal(&Confirmation::Nack(None)).is_some());
        assert!(refusal(&Confirmation::NotRequested).is_some());
    }
}
