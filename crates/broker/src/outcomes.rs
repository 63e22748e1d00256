//! What became of calls goes back into the stream that they came from, so that a state made anew,
//! or another that follows, need not ask the CRM.
//!
//! An outcome stands in the spool's outbox from the commit that settled its call until the stream
//! has it; a kill between these publishes it twice, which says the same. Where the stream does not
//! take them, calls are sent as ever, and a state made anew looks for them in the journal.

use crate::forwarder::Error;
use callbridge_call::framing::MESSAGE_BYTES_MAX;
use callbridge_message::{MessageKind, Outcomes};
use callbridge_source::amqp::Login;
use callbridge_source::amqp::publish::{ConfirmedLine, own_properties};
use callbridge_source::url::{SourceUrl, Transport};
use callbridge_source::{Backoff, Bounds, Secret, chance};
use callbridge_spool::{Elsewhere, Handle, Op, OutcomeRow, ToldOutcome, tables};
use lapin::BasicProperties;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// Outcomes of one message.
const BATCH: usize = 500;
/// Between two messages, unless that many wait.
const EVERY: Duration = Duration::from_secs(3);
/// At the end, for what became of the last calls.
const FLUSH_WITHIN: Duration = Duration::from_secs(2);
/// Who may not write to the stream is seldom let to from one moment to the next.
const BOUNDS: Bounds = Bounds {
    first: Duration::from_secs(1),
    most: Duration::from_secs(300),
    healthy: Duration::from_secs(60),
};

/// No queue has this name: whoever may write is told so, and whoever may not is told that.
pub(crate) const NOWHERE: &str = "callbridge.no-such-queue";

/// The way of outcomes to their stream.
pub struct OutcomePublisher {
    login: Login,
    stream: String,
    /// Why outcomes wait, for `status`.
    untold: watch::Sender<Option<String>>,
}

impl OutcomePublisher {
    /// The stream that is read as this source; `None` where it is none of calls.
    pub fn of(url: &SourceUrl, secret: impl FnOnce() -> Secret) -> Option<Self> {
        let Transport::Amqp(source) = &url.transport else {
            return None;
        };
        (source.is_stream && source.format.tells_whole_calls()).then(|| Self {
            login: Login {
                broker: source.broker.clone(),
                secret: secret(),
                variable: "CALLBRIDGE_AMQP_SECRET",
                ca_file: url.ca_file.clone(),
                within: callbridge_source::Settings::default().connect_within,
            },
            stream: source.queue.clone(),
            untold: watch::Sender::new(None),
        })
    }

    /// Why outcomes wait; nothing while the stream takes them.
    pub fn untold(&self) -> watch::Receiver<Option<String>> {
        self.untold.subscribe()
    }

    /// Whether this login may write to the stream; nothing is written.
    ///
    /// # Errors
    /// What is wrong and what to do.
    pub async fn probe(&self) -> Result<(), Error> {
        let line = ConfirmedLine::open(&self.login).await?;
        let asked = async {
            let sent = line.publish(NOWHERE, b"", BasicProperties::default());
            sent.await?.await
        };
        let answered = timeout(self.login.within, asked).await;
        line.close().await;
        match answered {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(self.not_taken(error.to_string())),
            Err(_) => Err(Error::Lost("no answer".to_owned())),
        }
    }

    /// Whether the broker refuses messages that nobody reads, for their length: one is sent to
    /// where no queue is.
    ///
    /// # Errors
    /// What is wrong and what to do.
    pub async fn probe_length(&self) -> Result<bool, Error> {
        const PRECONDITION_FAILED: &str = "PRECONDITION_FAILED";
        let line = ConfirmedLine::open(&self.login).await?;
        let long = vec![b' '; MESSAGE_BYTES_MAX + 1];
        let asked = async {
            let sent = line.publish(NOWHERE, &long, BasicProperties::default());
            sent.await?.await
        };
        let answered = timeout(self.login.within, asked).await;
        line.close().await;
        match answered {
            Ok(Ok(_)) => Ok(false),
            Ok(Err(error)) if error.to_string().contains(PRECONDITION_FAILED) => Ok(true),
            Ok(Err(error)) => Err(self.not_taken(error.to_string())),
            Err(_) => Err(Error::Lost("no answer".to_owned())),
        }
    }

    fn not_taken(&self, words: String) -> Error {
        Error::NotTaken {
            stream: self.stream.clone(),
            words,
            cure: format!(
                "let {} write to amq.default, so that a state that is gone is made anew without a \
                 request for each call",
                self.login.broker.user
            ),
        }
    }

    /// Publishes outcomes until `shutdown`, then those that are left, if that can be had within
    /// some seconds.
    pub async fn run(self, spool: Handle, shutdown: impl Future<Output = ()>) {
        let mut publishing = Publishing {
            publisher: self,
            spool,
            line: None,
            told: None,
        };
        tokio::select! {
            () = publishing.keep_empty() => {}
            () = shutdown => {}
        }
        let flushed = timeout(FLUSH_WITHIN, publishing.empty()).await;
        if !matches!(flushed, Ok(Ok(()))) {
            tracing::debug!("outcomes are left to be told after the next start");
        }
        if let Some(line) = publishing.line.take() {
            line.close().await;
        }
    }
}

struct Publishing {
    publisher: OutcomePublisher,
    spool: Handle,
    line: Option<ConfirmedLine>,
    /// Why outcomes wait, as last told.
    told: Option<String>,
}

impl Publishing {
    async fn keep_empty(&mut self) {
        let mut backoff = Backoff::new(BOUNDS);
        loop {
            tokio::time::sleep(EVERY).await;
            match self.empty().await {
                Ok(()) => {
                    backoff.reset();
                    if self.told.take().is_some() {
                        self.publisher.untold.send_replace(None);
                        tracing::info!("outcomes go into the stream again");
                    }
                }
                Err(Error::Spool(callbridge_spool::Error::Closed)) => return,
                Err(error) => {
                    let line = self.line.take();
                    let up = line.map_or(Duration::ZERO, |line| line.up_for());
                    let reason = error.to_string();
                    if self.told.as_ref() != Some(&reason) {
                        tracing::warn!(
                            %reason,
                            "what becomes of calls cannot be told in their stream; they are sent \
                             as ever"
                        );
                        self.publisher.untold.send_replace(Some(reason.clone()));
                        self.told = Some(reason);
                    }
                    tokio::time::sleep(backoff.wait(up, chance())).await;
                }
            }
        }
    }

    async fn empty(&mut self) -> Result<(), Error> {
        loop {
            let due = self
                .spool
                .read(|store| tables::elsewhere::outcomes(store, BATCH));
            let due = due.await?;
            let Some(OutcomeRow { id: through, .. }) = due.last().copied() else {
                return Ok(());
            };
            let line = match self.line.take() {
                Some(line) => line,
                None => ConfirmedLine::open(&self.publisher.login).await?,
            };
            let within = self.publisher.login.within;
            match timeout(within, self.publish(&line, &due)).await {
                Ok(published) => published?,
                Err(_) => return Err(Error::Lost("no confirm".to_owned())),
            }
            self.line = Some(line);
            let told = Op::Elsewhere(Elsewhere::Told { through });
            self.spool.write(vec![told]).await?;
        }
    }

    async fn publish(&self, line: &ConfirmedLine, due: &[OutcomeRow]) -> Result<(), Error> {
        let (body, user) = (body(due), &self.publisher.login.broker.user);
        let taken =
            line.publish_confirmed(&self.publisher.stream, body.as_bytes(), properties(user));
        taken.await.map_err(|words| self.publisher.not_taken(words))
    }
}

/// The body of a message of these outcomes.
pub fn body(due: &[OutcomeRow]) -> String {
    let mut told = Outcomes::default();
    for it in due {
        let uuid = it.uuid.0;
        match it.told {
            ToldOutcome::Journaled => told.journaled.push(uuid),
            ToldOutcome::Discarded => told.discarded.push(uuid),
            ToldOutcome::Again => {
                told.again.insert(uuid, it.generation);
                continue;
            }
        }
        if it.generation > 0 {
            told.generations.insert(uuid, it.generation);
        }
    }
    told.write()
}

/// What stands around it. The broker holds `user` to the login.
pub(crate) fn properties(user: &str) -> BasicProperties {
    own_properties(user, MessageKind::Outcomes.content_type())
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_model::CallUuid;

    #[test]
    fn outcomes_are_told_by_what_became_of_the_calls_as_the_login_that_they_are_read_by() {
        let uuid = |n: u8| format!("00000000-0000-0000-0000-00000000000{n}");
        let row = |n: u8, told, generation| OutcomeRow {
            id: n.into(),
            uuid: CallUuid(uuid(n).parse().expect("a uuid")),
            told,
            generation,
        };
        use ToldOutcome::{Again, Discarded, Journaled};
        let again = body(&[row(1, Journaled, 0), row(1, Again, 1), row(2, Journaled, 2)]);
        let told = Outcomes::read(again.as_bytes()).expect("read");
        assert_eq!((told.journaled.len(), told.again.len()), (2, 1));
        assert_eq!(told.generations.into_values().collect::<Vec<_>>(), [2]);
        let body = body(&[
            row(1, Journaled, 0),
            row(2, Discarded, 0),
            row(3, Journaled, 0),
        ]);
        let (one, two, three) = (uuid(1), uuid(2), uuid(3));
        let expected = format!(r#"{{"discarded":["{two}"],"journaled":["{one}","{three}"]}}"#);
        assert_eq!(body, expected);
        assert!(Outcomes::read(body.as_bytes()).is_ok());
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
