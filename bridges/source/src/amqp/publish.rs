//! A line to a broker on which each message is confirmed: what has no confirm is published again.

use super::stream::{KEPT, KEPT_BYTES, arguments, declare, find};
use super::{Login, words};
use crate::error::Error;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Confirmation, Connection, PublisherConfirm};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// An open line with a channel whose messages are confirmed.
pub struct ConfirmedLine {
    connection: Connection,
    /// The channel in confirm mode that every message of this line is published on.
    pub channel: Channel,
    since: Instant,
    /// Time allowed for an answer of the broker.
    within: Duration,
}

impl ConfirmedLine {
    /// Logs in and asks for confirms, beginning with another of the broker's nodes each `turn`: a
    /// node that was cut from the others lets in, and confirms nothing.
    ///
    /// # Errors
    /// What is wrong and what to do.
    pub async fn open(login: &Login, turn: usize) -> Result<Self, Error> {
        let (connection, target) = login.open_node_from(turn).await?;
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
            since: Instant::now(),
            within: login.within,
        })
    }

    /// Makes a stream of calls that is missing.
    ///
    /// # Errors
    /// The broker's words.
    pub async fn declare_calls(&self, stream: &str) -> Result<(), lapin::Error> {
        self.declare(stream, arguments(KEPT, KEPT_BYTES)).await
    }

    /// Makes a stream that is missing. One that is there stays as it is, whatever it keeps. What
    /// is refused closes a channel that was opened for it alone.
    ///
    /// # Errors
    /// The broker's words.
    pub async fn declare(&self, stream: &str, arguments: FieldTable) -> Result<(), lapin::Error> {
        match find(&self.connection.create_channel().await?, stream).await {
            Err(error) if words::is_not_found(&error) => {
                let channel = self.connection.create_channel().await?;
                declare(&channel, stream, arguments).await
            }
            found => found.map(drop),
        }
    }

    /// Runs the line's last request and closes the line; `None` when the broker did not answer
    /// within the login's time limit.
    pub async fn last<T>(self, answer: impl AsyncFnOnce(&Self) -> T) -> Option<T> {
        let answered = timeout(self.within, answer(&self)).await;
        self.close().await;
        answered.ok()
    }

    /// Returns `Ok` when a queue or stream of this name exists; the check declares nothing.
    ///
    /// # Errors
    /// The broker's words where it is not.
    pub async fn finds(&self, name: &str) -> Result<(), lapin::Error> {
        find(&self.channel, name).await.map(drop)
    }

    /// Checks that messages may be written: one is published to `nowhere`, a name without a queue,
    /// and comes back.
    ///
    /// # Errors
    /// The broker's words where they may not.
    pub async fn may_write(&self, nowhere: &str, body: &[u8]) -> Result<(), lapin::Error> {
        let sent = self.publish(None, nowhere, body, BasicProperties::default());
        sent.await?.await.map(drop)
    }

    /// Time since confirms were agreed on this line.
    pub fn up_for(&self) -> Duration {
        self.since.elapsed()
    }

    /// Sends one message to a queue or stream of this name, by way of an exchange to which it is
    /// bound with its name as key if one is given; it is taken when it is confirmed.
    ///
    /// # Errors
    /// When the line is lost.
    pub async fn publish(
        &self,
        exchange: Option<&str>,
        queue: &str,
        body: &[u8],
        properties: BasicProperties,
    ) -> Result<PublisherConfirm, lapin::Error> {
        let options = BasicPublishOptions {
            mandatory: true,
            ..BasicPublishOptions::default()
        };
        let sent = self.channel.basic_publish(
            exchange.unwrap_or_default().into(),
            queue.into(),
            options,
            body,
            properties,
        );
        sent.await
    }

    /// The same, and waits for the confirm.
    ///
    /// # Errors
    /// In words, when the broker has not taken it.
    pub async fn publish_confirmed(
        &self,
        queue: &str,
        body: &[u8],
        properties: BasicProperties,
    ) -> Result<(), String> {
        let words = |error: lapin::Error| error.to_string();
        let sent = self.publish(None, queue, body, properties).await;
        let confirmation = sent.map_err(words)?.await.map_err(words)?;
        refusal(&confirmation).map_or(Ok(()), Err)
    }

    /// Returns `true` while the channel counts as connected: a line that died unnoticed does so,
    /// too.
    pub fn is_open(&self) -> bool {
        self.channel.status().connected()
    }

    /// Closes the connection in an orderly way, waiting one second at most.
    pub async fn close(&self) {
        let closing = self.connection.close(200, "done".into());
        let _ = timeout(Duration::from_secs(1), closing).await;
    }
}

/// Properties of a persistent message published as `user`, which the broker holds to the login: a
/// reader of the same login believes it.
pub fn own_properties(user: &str, content_type: String) -> BasicProperties {
    BasicProperties::default()
        .with_content_type(content_type.into())
        .with_user_id(user.into())
        .with_delivery_mode(2)
        .with_app_id("callbridge".into())
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
