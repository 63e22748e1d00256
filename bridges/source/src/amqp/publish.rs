//! A connection to a broker that confirms each message. The caller must publish a message without a
//! confirm again.

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

/// An open connection with a channel whose messages are confirmed.
pub struct ConfirmedLine {
    connection: Connection,
    /// The channel in confirm mode on which every message of this connection is published.
    pub channel: Channel,
    blocks: Blocks,
    since: Instant,
    /// Time limit for an answer of the broker.
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
    fn watch(connection: &Connection) -> Self {
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
    /// Logs in and requests confirms. `turn` selects the broker's node to try first. Callers
    /// increase it with each connection, because a node that was cut off from the others accepts a
    /// login and confirms nothing.
    ///
    /// # Errors
    /// The problem, and what to do.
    pub async fn open(login: &Login, turn: usize) -> Result<Self, Error> {
        let (connection, target) = login.open_node_from(turn).await?;
        let blocks = Blocks::watch(&connection);
        let opening = async {
            confirmed_channel(&connection)
                .await
                .map_err(|error| target.closed_error(error.to_string()))
        };
        // A broker that dies, or that is still starting, never answers.
        let channel = target.in_time(opening).await?;
        Ok(Self {
            connection,
            channel,
            blocks,
            since: Instant::now(),
            within: login.within,
        })
    }

    /// Runs `answer`, the last request on this connection, and then closes the connection.
    ///
    /// # Errors
    /// If the broker blocks the connection, or does not answer within the login's time limit.
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

    /// Subscribes to the broker's reason for blocking this connection. The reason is `None` while
    /// the broker accepts messages.
    pub fn blocked(&self) -> watch::Receiver<Option<String>> {
        self.blocks.reason.clone()
    }

    /// Returns `true` while the broker blocks this connection, which is still open.
    pub fn is_blocked(&self) -> bool {
        self.is_open() && self.blocks.reason.borrow().is_some()
    }

    /// Returns `Ok` if a queue of this name exists. The check declares nothing.
    ///
    /// # Errors
    /// The broker's error if it does not exist.
    pub async fn find_queue(&self, name: &str) -> Result<(), lapin::Error> {
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

    /// Returns the time since this connection was set up for confirms.
    pub fn up_for(&self) -> Duration {
        self.since.elapsed()
    }

    /// Sends one message to a queue of this name. The broker has accepted the message once it is
    /// confirmed.
    ///
    /// # Errors
    /// If the connection is lost.
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

    /// Returns `true` while the channel counts as connected. A connection that died unnoticed also
    /// counts as connected.
    pub fn is_open(&self) -> bool {
        self.channel.status().connected()
    }

    /// Closes the connection cleanly, and waits for at most one second. A blocked connection is not
    /// closed, because nothing can be written to it.
    pub async fn close(&self) {
        if self.is_blocked() {
            return;
        }
        let closing = self.connection.close(200, "done".into());
        let _ = timeout(Duration::from_secs(1), closing).await;
    }
}

/// Returns a new channel in confirm mode.
async fn confirmed_channel(connection: &Connection) -> Result<Channel, lapin::Error> {
    let channel = connection.create_channel().await?;
    channel
        .confirm_select(ConfirmSelectOptions::default())
        .await?;
    Ok(channel)
}

/// Returns the broker's reason for not accepting a message. `None` if the broker accepted it. If no
/// queue takes a mandatory message, the broker returns the message, and then acknowledges it.
pub fn refusal(confirmation: &Confirmation) -> Option<String> {
    match confirmation {
        Confirmation::Ack(None) => None,
        Confirmation::Ack(Some(returned)) => Some(returned.reply_text.to_string()),
        Confirmation::Nack(_) => Some("refused; check whether the queue is full".to_owned()),
        Confirmation::NotRequested => Some("not confirmed".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapin::message::{BasicReturnMessage, Delivery};

    /// Returns the confirmation of a mandatory message that no queue took.
    fn ack_of_returned_message() -> Confirmation {
        Confirmation::Ack(Some(BasicReturnMessage {
            delivery: Delivery::mock(0, "".into(), "calls".into(), false, Vec::new()),
            reply_code: 312,
            reply_text: "NO_ROUTE".into(),
        }))
    }

    #[test]
    fn message_counts_as_queued_only_after_a_plain_ack() {
        assert_eq!(refusal(&Confirmation::Ack(None)), None);
        let returned = refusal(&ack_of_returned_message());
        assert_eq!(returned.as_deref(), Some("NO_ROUTE"));
        assert!(refusal(&Confirmation::Nack(None)).is_some());
        assert!(refusal(&Confirmation::NotRequested).is_some());
    }
}
