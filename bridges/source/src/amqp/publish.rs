//! A connection to a broker that confirms each message. If a message isn't confirmed, the caller
//! must publish it again.

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

/// Body of a message that's only used to check whether the broker accepts messages.
///
/// It mustn't be empty. During an alarm, RabbitMQ blocks a connection after the header of the first
/// message, and since a message without a body ends there, the broker would still accept and
/// confirm it.
pub const CHECK_BODY: &[u8] = b"check";

/// An open connection, along with a channel whose messages are confirmed.
pub struct ConfirmedLine {
    connection: Connection,
    /// The channel in confirm mode on which all of this connection's messages are published.
    pub channel: Channel,
    blocks: Blocks,
    since: Instant,
    /// Timeout for the broker's responses.
    within: Duration,
}

/// The broker's reason for blocking a connection, which is kept up to date by a task.
///
/// A RabbitMQ node with a memory or disk alarm stops reading from every connection that publishes,
/// and sends `connection.blocked`. Anything already sent is read once the alarm is over, so a
/// message that's published again on a second connection will be duplicated.
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

/// The broker hasn't responded in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// The broker is blocking the connection for this reason.
    Blocked(String),
    /// There's no known reason.
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
    /// Logs in and turns on publisher confirms. `turn` selects which of the broker's nodes to try
    /// first. Callers increment it with each connection, because a node that has been cut off from
    /// the others accepts a login but never confirms anything.
    ///
    /// # Errors
    /// Returns the problem and what to do about it.
    pub async fn open(login: &Login, turn: usize) -> Result<Self, Error> {
        let (connection, target) = login.open_node_from(turn).await?;
        let blocks = Blocks::watch(&connection);
        let opening = async {
            confirmed_channel(&connection)
                .await
                .map_err(|error| target.closed_error(error.to_string()))
        };
        // A broker that's dying or still starting never responds.
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
    /// Returns an error if the broker blocks the connection or doesn't respond within the login's
    /// timeout.
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

    /// Subscribes to the broker's reason for blocking this connection, which is `None` while the
    /// broker accepts messages.
    pub fn blocked(&self) -> watch::Receiver<Option<String>> {
        self.blocks.reason.clone()
    }

    /// Returns `true` if the connection is still open but currently blocked by the broker.
    pub fn is_blocked(&self) -> bool {
        self.is_open() && self.blocks.reason.borrow().is_some()
    }

    /// Checks that a queue with this name exists, without declaring anything.
    ///
    /// # Errors
    /// Returns the broker's error if the queue doesn't exist.
    pub async fn find_queue(&self, name: &str) -> Result<(), lapin::Error> {
        find(&self.channel, name).await.map(drop)
    }

    /// Checks that this login may publish by sending a message to `nowhere`, a name that no queue
    /// has, which the broker then returns. During an alarm, there's no response until the alarm is
    /// over.
    ///
    /// # Errors
    /// Returns the broker's reason for rejecting the message.
    pub async fn may_write(&self, nowhere: &str) -> Result<(), lapin::Error> {
        self.may_write_body(nowhere, CHECK_BODY).await
    }

    /// Checks that this login may publish this body, in the same way as
    /// [`may_write`](Self::may_write).
    ///
    /// # Errors
    /// Returns the broker's reason for rejecting the message.
    pub async fn may_write_body(&self, nowhere: &str, body: &[u8]) -> Result<(), lapin::Error> {
        let sent = self.publish(nowhere, body, BasicProperties::default());
        sent.await?.await.map(drop)
    }

    /// Returns how long ago this connection was set up for confirms.
    pub fn up_for(&self) -> Duration {
        self.since.elapsed()
    }

    /// Sends one message to the queue with this name. The broker has accepted it once it's
    /// confirmed.
    ///
    /// # Errors
    /// Returns an error if the connection is lost.
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

    /// Returns `true` as long as the channel is considered connected, which is also the case if the
    /// connection died without anyone noticing.
    pub fn is_open(&self) -> bool {
        self.channel.status().connected()
    }

    /// Closes the connection cleanly, waiting for at most one second. A blocked connection isn't
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

/// Returns the broker's reason for not accepting a message, or `None` if it did. A mandatory
/// message that can't be routed to any queue is returned by the broker before it's acknowledged.
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

    /// Returns the confirmation of a mandatory message that couldn't be routed to any queue.
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
