//! The queue that decides the lease, and what its user may lack.
//!
//! It is declared with all that the rules rest on, so that a queue which is there and is another
//! is refused by the broker: replicated, fed to one consumer at a time. Ticks never pile up: what
//! nobody takes is dropped after `KEPT_MILLIS`, and past `TICKS_MAX` none is taken. Both drop
//! nothing that the rules need, which is never older than some ten seconds.

use callbridge_model::status::findings::quoted;
use callbridge_source::amqp::publish::{ConfirmedLine, own_properties};
use callbridge_source::amqp::{ACCESS_REFUSED, Login, PRECONDITION_FAILED, may_read, reply};
use callbridge_source::{Error as SourceError, Fix, url::Broker};
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Confirmation, Consumer, PublisherConfirm};
use std::{collections::BTreeMap, fmt::Display, sync::OnceLock, time::Duration};
use tokio::time::timeout;

/// Most ticks that wait in the queue; more are refused.
const TICKS_MAX: i64 = 500;
/// A tick that waits for longer is dropped.
const KEPT_MILLIS: i64 = 300_000;
/// Ticks under way to one consumer: more than can wait.
const PREFETCH: u16 = 1000;
/// Number of times that a tick may be handed on from one consumer to the next before the broker
/// drops it.
const HANDED_ON_MAX: i64 = 1_000_000;

/// The name of a lease's queue, as somebody gave it.
///
/// # Errors
/// What is wrong with it.
pub fn name(text: &str) -> Result<String, &'static str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match text {
        "" => Err("is empty: name the queue that decides who sends"),
        long if long.len() > 200 => Err("is too long: at most 200 characters"),
        text if !text.chars().all(plain) => {
            Err("may have letters, digits, `-`, `_` and `.` alone: it names a queue")
        }
        text if text.starts_with("amq.") => Err("begins with `amq.`, as the broker's own names do"),
        text => Ok(text.to_owned()),
    }
}

/// A fault for which the lease can be neither held nor taken over.
#[derive(Debug, thiserror::Error)]
#[error("{words}")]
pub struct Error {
    words: String,
    /// The side on which the fault is mended; `None` where that is not known.
    pub fix: Option<Fix>,
}

impl Error {
    /// The line was lost, or the broker did not answer in time.
    pub(crate) fn lost(why: impl Display) -> Self {
        let words = format!("the connection to the broker was lost ({why})");
        Self { words, fix: None }
    }
}

impl From<SourceError> for Error {
    /// The broker cannot be reached or does not let us in.
    fn from(error: SourceError) -> Self {
        let (words, fix) = (error.to_string(), Some(error.fix()));
        Self { words, fix }
    }
}

/// The queue of a lease, and how to log in to its broker.
#[derive(Clone, Debug)]
pub(crate) struct LeaseQueue {
    pub(crate) login: Login,
    pub(crate) name: String,
}

/// A line on which the queue is there, and messages are confirmed.
pub(crate) struct LeaseLine {
    pub(crate) line: ConfirmedLine,
    queue: LeaseQueue,
    /// The consumer, held for as long as the line: one that is dropped is cancelled, and the broker
    /// would feed the next before it hands on what was not acknowledged here.
    consumed: OnceLock<Consumer>,
}

impl LeaseQueue {
    fn failed(&self, what: &'static str, error: &lapin::Error) -> Error {
        let Some((code, text)) = reply(error) else {
            return Error::lost(error);
        };
        let words = self.login.redact(&text);
        let queue = &self.name;
        let Broker { user, vhost, .. } = &self.login.broker;
        match code {
            ACCESS_REFUSED => Error {
                words: format!(
                    "user {user} may not {what} ({words}); give it the right: rabbitmqctl \
                     set_permissions -p {} {} CONFIGURE WRITE READ, with {queue} in CONFIGURE \
                     and READ, and {queue} and amq.default in WRITE",
                    quoted(vhost),
                    quoted(user)
                ),
                fix: Some(Fix::Secret),
            },
            PRECONDITION_FAILED => Error {
                words: format!(
                    "queue {queue} is there and is made otherwise ({words}); delete it, or give \
                     --standby another name"
                ),
                fix: Some(Fix::Settings),
            },
            _ => self.refused(&words),
        }
    }

    fn refused(&self, words: &str) -> Error {
        let words = format!("queue {}: {words}", self.name);
        Error { words, fix: None }
    }

    /// Waits for the broker's answer to something.
    async fn answered<T>(
        &self,
        what: &'static str,
        asked: impl Future<Output = Result<T, lapin::Error>>,
    ) -> Result<T, Error> {
        let answered = timeout(self.login.within, asked).await;
        let answered = answered.map_err(|_| Error::lost("no answer"))?;
        answered.map_err(|error| self.failed(what, &error))
    }

    /// Logs in and sees that the queue is there as it should be. Each `turn` begins with another of
    /// the broker's nodes: one may let us in and be cut off from the others, so that nothing there
    /// is ever confirmed.
    pub(crate) async fn open(&self, turn: usize) -> Result<LeaseLine, Error> {
        let line = ConfirmedLine::open(&self.login, turn).await?;
        let options = QueueDeclareOptions {
            durable: true,
            ..QueueDeclareOptions::default()
        };
        let name = self.name.as_str().into();
        let declared = line.channel.queue_declare(name, options, arguments());
        if let Err(error) = self.answered("declare the queue", declared).await {
            line.close().await;
            return Err(error);
        }
        Ok(LeaseLine {
            line,
            queue: self.clone(),
            consumed: OnceLock::new(),
        })
    }
}

impl LeaseLine {
    /// Acknowledges all through this place on the channel.
    pub(crate) async fn acknowledge(&self, through: u64) -> Result<(), Error> {
        let all = BasicAckOptions { multiple: true };
        let acked = self.line.channel.basic_ack(through, all);
        self.queue.answered("acknowledge ticks", acked).await
    }

    /// Consumes the queue: fed now, or when it is our turn.
    pub(crate) async fn consume(&self) -> Result<Consumer, Error> {
        let channel = &self.line.channel;
        let qos = channel.basic_qos(PREFETCH, BasicQosOptions::default());
        self.queue.answered("read the queue", qos).await?;
        let name = self.queue.name.as_str().into();
        let (options, none) = (BasicConsumeOptions::default(), FieldTable::default());
        let consumer = channel.basic_consume(name, "callbridge".into(), options, none);
        let consumer = self.queue.answered("read the queue", consumer).await?;
        Ok(self.consumed.get_or_init(|| consumer).clone())
    }

    /// Publishes a tick; a majority has it when it is confirmed.
    pub(crate) async fn publish(&self, body: &[u8]) -> Result<PublisherConfirm, Error> {
        let user = &self.queue.login.broker.user;
        let properties = own_properties(user, "application/json".to_owned());
        let sent = self.line.publish(None, &self.queue.name, body, properties);
        self.queue.answered("publish to the queue", sent).await
    }

    /// Turns the broker's answer to a published tick into success or the fault that it names.
    pub(crate) fn confirmed(
        &self,
        confirmation: Result<Confirmation, lapin::Error>,
    ) -> Result<(), Error> {
        let refused = |words: &str| Err(self.queue.refused(words));
        match confirmation {
            Ok(Confirmation::Ack(None)) => Ok(()),
            Ok(Confirmation::Ack(Some(returned))) => {
                refused(&self.queue.login.redact(returned.reply_text.as_str()))
            }
            Ok(Confirmation::Nack(_)) => refused(
                "a tick was not taken: it is full, or too few of its nodes are up; see that most \
                 of them are",
            ),
            Ok(Confirmation::NotRequested) => refused("a tick was not confirmed"),
            Err(error) => Err(self.queue.failed("publish to the queue", &error)),
        }
    }

    /// Tries everything that holding the lease needs, without taking anybody's turn.
    pub(crate) async fn probe(&self, tick: &[u8]) -> Result<(), Error> {
        let within = self.queue.login.within;
        self.publish_confirmed(tick, within).await?;
        let may_read = may_read(&self.line.channel, &self.queue.name);
        self.queue.answered("read the queue", may_read).await
    }

    /// Publishes a tick and waits until a majority has it.
    pub(crate) async fn publish_confirmed(
        &self,
        tick: &[u8],
        within: Duration,
    ) -> Result<(), Error> {
        let published = async { self.confirmed(self.publish(tick).await?.await) };
        let confirmed = timeout(within, published).await;
        confirmed.unwrap_or_else(|_| Err(Error::lost("no confirm")))
    }
}

fn arguments() -> FieldTable {
    let number = AMQPValue::LongLongInt;
    let text = |text: &str| AMQPValue::LongString(text.into());
    FieldTable::from(BTreeMap::from([
        ("x-queue-type".into(), text("quorum")),
        ("x-single-active-consumer".into(), AMQPValue::Boolean(true)),
        ("x-max-length".into(), number(TICKS_MAX)),
        ("x-overflow".into(), text("reject-publish")),
        ("x-message-ttl".into(), number(KEPT_MILLIS)),
        ("x-delivery-limit".into(), number(HANDED_ON_MAX)),
    ]))
}
