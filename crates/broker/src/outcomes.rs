//! What became of calls goes back into the stream that they came from, so that a state made anew,
//! or another that follows, need not ask the CRM.
//!
//! An outcome stands in the spool's outbox from the commit that settled its call until the stream
//! has it; a kill between these publishes it twice, which says the same. Where the stream does not
//! take them, calls are sent as ever, and a state made anew looks for them in the journal.

use crate::drain::{Destination, Error, NOWHERE, Outbox, keep_empty};
use callbridge_call::framing::MESSAGE_BYTES_MAX;
use callbridge_formats::message::{MessageKind, Outcomes};
use callbridge_source::amqp::publish::{ConfirmedLine, own_properties};
use callbridge_source::{Bounds, Secret, SourceUrl, amqp::Login};
use callbridge_spool::{Handle, Op, PeerOutcome, tables};
use lapin::BasicProperties;
use std::time::Duration;
use tokio::sync::watch;

/// Most outcomes that one message carries.
const BATCH: usize = 500;
/// Between two messages, unless that many wait.
const EVERY: Duration = Duration::from_secs(3);

/// The way of outcomes to their stream.
pub struct OutcomePublisher {
    to: Destination,
    /// Reason for which outcomes wait, shown by `status`; `None` while the stream takes them.
    unreported: watch::Sender<Option<String>>,
}

impl OutcomePublisher {
    /// The stream that is read as this source; `None` where it is none of calls.
    pub fn of(url: &SourceUrl, secret: impl FnOnce() -> Secret) -> Option<Self> {
        url.stream_of_calls().map(|source| Self {
            to: Destination {
                login: Login::new(&source.broker, secret(), url.ca_file.as_ref()),
                exchange: None,
                queue: source.queue.clone(),
            },
            unreported: watch::Sender::new(None),
        })
    }

    /// Subscribes to the reason for which outcomes wait; `None` while the stream takes them.
    pub fn unreported(&self) -> watch::Receiver<Option<String>> {
        self.unreported.subscribe()
    }

    /// Checks that this login may write to the stream; nothing is written.
    ///
    /// # Errors
    /// What is wrong and what to do.
    pub async fn probe(&self) -> Result<(), Error> {
        let line = ConfirmedLine::open(&self.to.login, 0).await?;
        let asked = line.last(async |line| line.may_write(NOWHERE).await);
        let answered = asked.await.map_err(Error::unanswered)?;
        answered.map_err(|error| self.failed(&error).redacted(&self.to.login))
    }

    /// Returns `true` when the broker refuses a message that is one byte too long. The message is
    /// published to a queue that does not exist.
    ///
    /// # Errors
    /// The problem and its fix.
    pub async fn probe_length(&self) -> Result<bool, Error> {
        const PRECONDITION_FAILED: &str = "PRECONDITION_FAILED";
        let body = vec![b' '; MESSAGE_BYTES_MAX + 1];
        let line = ConfirmedLine::open(&self.to.login, 0).await?;
        let asked = line.last(async |line| line.may_write_body(NOWHERE, &body).await);
        match asked.await.map_err(Error::unanswered)? {
            Ok(()) => Ok(false),
            Err(error) if error.to_string().contains(PRECONDITION_FAILED) => Ok(true),
            Err(error) => Err(self.failed(&error).redacted(&self.to.login)),
        }
    }

    /// Publishes outcomes until `shutdown`, then those that are left, if that can be had within
    /// some seconds.
    pub async fn run(self, spool: Handle, shutdown: impl Future<Output = ()>) {
        keep_empty(self, spool, shutdown).await;
    }
}

impl Outbox for OutcomePublisher {
    /// With their place in the outbox.
    type Item = (Outcomes, i64);
    const WAITS: &str =
        "results of calls cannot be written into their stream; calls are sent as before";
    const GOES_ON: Option<&str> = Some("resumed writing results of calls into their stream");
    const LEFT: &str = "outcomes are left to be written after the next start";
    const FLUSH_WITHIN: Duration = Duration::from_secs(2);

    fn destination(&self) -> &Destination {
        &self.to
    }

    /// Up to 300 s between two tries: a login without the right to write is seldom given it from
    /// one moment to the next.
    fn bounds(&self) -> Bounds {
        Bounds {
            first: Duration::from_secs(1),
            most: Duration::from_secs(300),
            healthy: Duration::from_secs(60),
        }
    }

    async fn wait(_changed: &mut watch::Receiver<u64>) -> bool {
        tokio::time::sleep(EVERY).await;
        true
    }

    async fn due(&mut self, spool: &Handle, _lost: bool) -> Result<Vec<Self::Item>, Error> {
        let due = spool.read(|store| tables::outbox::outcomes(store, BATCH));
        Ok(due.await?.into_iter().collect())
    }

    fn message(&self, (outcomes, _): &Self::Item) -> (String, BasicProperties) {
        (outcomes.write(), properties(&self.to.login.broker.user))
    }

    fn confirmed(&self, outcomes: Vec<Self::Item>, _all: bool) -> Vec<Op> {
        let published = |(_, through)| Op::PeerOutcome(PeerOutcome::Published(through));
        outcomes.into_iter().map(published).collect()
    }

    fn failed(&self, error: &lapin::Error) -> Error {
        self.returned(error.to_string())
    }

    fn returned(&self, words: String) -> Error {
        Error::NotTaken {
            what: format!("stream {} did not take a call", self.to.queue),
            words,
            cure: format!(
                "let {} write to amq.default, so that a state that is gone is made anew without a \
                 request for each call",
                self.to.login.broker.user
            ),
        }
    }

    fn show(&self, error: Option<&Error>) {
        let reason = error.map(ToString::to_string);
        self.unreported.send_if_modified(|unreported| {
            let is_new = *unreported != reason;
            *unreported = reason;
            is_new
        });
    }
}

/// Properties of a message of outcomes; the broker compares `user` with the login.
pub(crate) fn properties(user: &str) -> BasicProperties {
    own_properties(user, MessageKind::Outcomes.content_type())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_go_out_as_the_login_that_they_are_read_by() {
        let properties = properties("sender");
        let text = |text: &Option<lapin::types::ShortString>| {
            text.as_ref().map(|it| it.as_str().to_owned())
        };
        assert_eq!(text(properties.user_id()).as_deref(), Some("sender"));
        let kind = text(properties.content_type());
        assert_eq!(MessageKind::of(kind.as_deref()), MessageKind::Outcomes);
        assert_eq!(*properties.delivery_mode(), Some(2));
    }
}
