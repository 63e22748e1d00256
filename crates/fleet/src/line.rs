//! The stream of last words at its broker: one line that says, another that reads.

use crate::error::Error;
use crate::roster::FleetMessage;
use crate::word::CONTENT_TYPE;
use callbridge_model::status::LastWord;
use callbridge_source::amqp::publish::{ConfirmedLine, own_properties, refusal};
use callbridge_source::amqp::{
    Login, declare_command, reply, route_commands, stream_arguments, stream_place, stream_publisher,
};
use callbridge_source::url::{Broker, Format};
use callbridge_source::{BrokerUrl, Secret, SourceUrl, Transport};
use futures_util::StreamExt as _;
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Connection};
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

/// What stands behind the name of the calls' stream.
const SUFFIX: &str = ".words";
/// How long a stream that we make keeps words, how much of them at most, and in what pieces they
/// are thrown away.
const KEPT: &str = "7D";
const KEPT_BYTES: i64 = 2_000_000_000;
const SEGMENT_BYTES: i64 = 50_000_000;
/// Messages on their way to a reader.
const PREFETCH: u16 = 1_000;
/// So many are acknowledged together: credit for more.
const ACKNOWLEDGED: u16 = 250;
/// A stream that gives nothing for so long holds nothing of what was asked for.
const QUIET: Duration = Duration::from_secs(3);
/// What stands in the last piece of the stream comes at once.
const LAST_PIECE: Duration = Duration::from_millis(300);

const ACCESS_REFUSED: u16 = 403;
const NOT_FOUND: u16 = 404;

/// A stream of last words, and how to log in.
#[derive(Clone, Debug)]
pub struct WordsStream {
    login: Login,
    calls: String,
    /// The exchange of the words; the broker's default exchange without one.
    exchange: Option<String>,
    declare: bool,
}

impl WordsStream {
    /// Beside the stream of `--forward`, or of `fleet --source`.
    pub fn of(url: &BrokerUrl, secret: Secret) -> Self {
        Self {
            login: Login::new(&url.broker, secret, url.ca_file.as_ref()),
            calls: url.name.clone(),
            exchange: (url.exchange.as_ref()).map(|calls| format!("{calls}{SUFFIX}")),
            declare: url.declare,
        }
    }

    /// Beside the stream of a source; nothing where it is another kind of source.
    pub fn of_source(url: &SourceUrl, secret: Secret) -> Option<Self> {
        match &url.transport {
            Transport::Amqp(queue) if queue.is_stream && queue.format == Format::Call => {
                Some(Self {
                    login: Login::new(&queue.broker, secret, url.ca_file.as_ref()),
                    calls: queue.queue.clone(),
                    exchange: None,
                    declare: queue.declare,
                })
            }
            Transport::Amqp(_)
            | Transport::Ami { .. }
            | Transport::Esl { .. }
            | Transport::WebSocket { .. }
            | Transport::File { .. } => None,
        }
    }

    /// Its name.
    pub fn name(&self) -> String {
        format!("{}{SUFFIX}", self.calls)
    }

    /// Logs in to say words; makes the stream where that is wished and it is missing.
    ///
    /// # Errors
    /// What is wrong and what to do.
    pub async fn open(&self) -> Result<ConfirmedLine, Error> {
        let line = ConfirmedLine::open(&self.login, 0).await?;
        if self.declare {
            let name = self.name();
            let mut arguments = stream_arguments(KEPT, KEPT_BYTES);
            let bytes = AMQPValue::LongLongInt(SEGMENT_BYTES);
            arguments.insert("x-stream-max-segment-size-bytes".into(), bytes);
            let made = timeout(self.login.within, line.declare(&name, arguments)).await;
            let made = made.map_err(|_| no_answer())?;
            made.map_err(|error| self.refused(&error))?;
        }
        Ok(line)
    }

    /// Says a word; it is said when a broker has confirmed it.
    ///
    /// # Errors
    /// What is wrong and what to do; the line is of no more use then.
    pub async fn say(&self, line: &ConfirmedLine, word: &LastWord) -> Result<(), Error> {
        let body = serde_json::to_vec(word).map_err(|error| Error::Lost(error.to_string()))?;
        self.publish(line, &self.name(), &body, word.at).await
    }

    async fn publish(
        &self,
        line: &ConfirmedLine,
        stream: &str,
        body: &[u8],
        at: i64,
    ) -> Result<(), Error> {
        let properties = own_properties(&self.login.broker.user, CONTENT_TYPE.to_owned())
            .with_timestamp(u64::try_from(at).unwrap_or(0));
        let published = async {
            let sent = line.publish(self.exchange.as_deref(), stream, body, properties);
            sent.await?.await
        };
        match timeout(self.login.within, published).await {
            Ok(Ok(confirmation)) => match (refusal(&confirmation), &self.exchange) {
                (None, _) => Ok(()),
                (Some(words), None) => Err(self.missing(words)),
                (Some(words), Some(exchange)) => {
                    let words = format!("exchange {exchange} routes to no queue ({words})");
                    Err(self.unrouted(exchange, words))
                }
            },
            Ok(Err(error)) => Err(self.refused(&error)),
            Err(_) => Err(Error::Lost("no confirm".to_owned())),
        }
    }

    /// Logs in, looks whether the stream is there and may be written to, and leaves. Nothing is
    /// published: what is asked for is a stream that cannot be there. By way of an exchange a word
    /// without words is, for nothing else shows where it leads; whoever reads it skips it.
    ///
    /// # Errors
    /// What is wrong and what to do.
    pub async fn probe(&self) -> Result<(), Error> {
        let line = self.open().await?;
        let found = line.last(async |line| {
            let found = line.finds(&self.name()).await;
            found.map_err(|error| self.refused(&error))?;
            if self.exchange.is_some() {
                return self.publish(line, &self.name(), b"", 0).await;
            }
            let nowhere = format!("{}.callbridge-check", self.name());
            match self.publish(line, &nowhere, b"", 0).await {
                Ok(()) => Ok(()),
                Err(Error::Stream { is_barred, .. }) if !is_barred => Ok(()),
                Err(error) => Err(error),
            }
        });
        found.await.ok_or_else(no_answer)?
    }

    /// Begins to read what was said since then, and all that is said from now on.
    ///
    /// # Errors
    /// What is wrong and what to do.
    pub async fn read(&self, since: Duration) -> Result<WordsReading, Error> {
        let connection = self.login.open().await?;
        let opened = timeout(self.login.within + QUIET, self.consume(&connection, since)).await;
        let (channel, consumer, last) = opened.map_err(|_| no_answer())??;
        Ok(WordsReading {
            words: self.clone(),
            _connection: connection,
            channel,
            consumer,
            last,
            caught_up: None,
            unacknowledged: 0,
            newest: 0,
        })
    }

    async fn consume(
        &self,
        connection: &Connection,
        since: Duration,
    ) -> Result<(Channel, lapin::Consumer, Option<u64>), Error> {
        let text = |text: &str| AMQPValue::LongString(text.into());
        let (looking, mut end) = self.consumer(connection, text("last"), 1).await?;
        let last = match timeout(QUIET, end.next()).await {
            Ok(Some(Ok(delivery))) => offset(&self.name(), &delivery),
            Ok(Some(Err(error))) => return Err(self.refused(&error)),
            Ok(None) => return Err(Error::Lost("the stream was deleted".to_owned())),
            Err(_) => None,
        };
        // It has seen where the end is: what it holds is given back with its channel.
        let _ = timeout(QUIET, looking.close(200, "seen".into())).await;
        let since = format!("{}s", since.as_secs().max(1));
        let (channel, consumer) = self.consumer(connection, text(&since), PREFETCH).await?;
        Ok((channel, consumer, last))
    }

    async fn consumer(
        &self,
        connection: &Connection,
        from: AMQPValue,
        prefetch: u16,
    ) -> Result<(Channel, lapin::Consumer), Error> {
        let lost = |error: lapin::Error| Error::Lost(error.to_string());
        let channel = connection.create_channel().await.map_err(lost)?;
        let qos = channel.basic_qos(prefetch, BasicQosOptions::default());
        qos.await.map_err(lost)?;
        let mut arguments = FieldTable::default();
        arguments.insert("x-stream-offset".into(), from);
        let options = BasicConsumeOptions::default();
        let consumer =
            channel.basic_consume(self.name().into(), "fleet".into(), options, arguments);
        let consumer = consumer.await.map_err(|error| self.refused(&error))?;
        Ok((channel, consumer))
    }

    fn unrouted(&self, exchange: &str, words: String) -> Error {
        let route = route_commands(&self.login.broker.vhost, exchange, &self.name());
        self.unfit(words, format!("make its way there: {route}"), false)
    }

    fn missing(&self, words: String) -> Error {
        let declare = declare_command(&self.login.broker.vhost, &self.name());
        let cure = format!(
            "make it: {declare} arguments='{{\"x-queue-type\":\"stream\",\"x-max-age\":\"{KEPT}\",\
             \"x-max-length-bytes\":{KEPT_BYTES}}}', or give declare=yes"
        );
        self.unfit(words, cure, false)
    }

    fn unfit(&self, words: String, cure: String, is_barred: bool) -> Error {
        let stream = self.name();
        Error::Stream {
            stream,
            words,
            cure,
            is_barred,
        }
    }

    fn refused(&self, error: &lapin::Error) -> Error {
        let Broker { user, vhost, .. } = &self.login.broker;
        let Some((code, words)) = reply(error) else {
            return Error::Lost(error.to_string());
        };
        match (code, &self.exchange) {
            (NOT_FOUND, Some(exchange)) if words.contains("no exchange") => {
                self.unrouted(exchange, words)
            }
            (NOT_FOUND, _) => self.missing(words),
            (ACCESS_REFUSED, exchange) => {
                let (names, pattern) = match exchange.as_deref() {
                    None => ("amq.default", r"amq\.default".to_owned()),
                    Some(exchange) => {
                        let calls = exchange.strip_suffix(SUFFIX).unwrap_or(exchange);
                        (
                            exchange,
                            format!(r"{}(\.words)?", calls.replace('.', r"\.")),
                        )
                    }
                };
                let cure = format!(
                    "let {user} write to {names}, and a sender read the stream, too: rabbitmqctl \
                     set_permissions -p {vhost} {user} '^$' '^{pattern}$' '^{}(\\.words)?$' (of a \
                     collector: '^$' in place of the last)",
                    self.calls
                );
                self.unfit(words, cure, true)
            }
            _ => Error::Lost(words),
        }
    }
}

fn no_answer() -> Error {
    Error::Lost("no answer".to_owned())
}

fn offset(stream: &str, delivery: &Delivery) -> Option<u64> {
    stream_place(stream, &delivery.properties, &delivery.data).map(|place| place.offset)
}

/// What is read of a stream.
#[derive(Debug)]
pub enum WordsEvent {
    /// A message.
    Message(FleetMessage),
    /// All that was there is read; what comes from now on is said while we listen.
    CaughtUp,
}

/// A stream that is read.
pub struct WordsReading {
    words: WordsStream,
    /// A line ends when nobody holds it.
    _connection: Connection,
    channel: Channel,
    consumer: lapin::Consumer,
    /// The message that began the last piece of the stream when we looked.
    last: Option<u64>,
    /// When everything is read; `None` before it is known.
    caught_up: Option<CatchingUp>,
    unacknowledged: u16,
    newest: u64,
}

#[derive(Clone, Copy)]
enum CatchingUp {
    At(Instant),
    Done,
}

impl WordsReading {
    /// What comes next.
    ///
    /// # Errors
    /// When the line is lost.
    pub async fn next(&mut self) -> Result<WordsEvent, Error> {
        self.acknowledge().await?;
        let until = match (self.caught_up, self.last) {
            (Some(CatchingUp::Done), _) => None,
            (Some(CatchingUp::At(at)), _) => Some(at),
            (None, Some(_)) => Some(Instant::now() + QUIET),
            (None, None) => Some(Instant::now()),
        };
        let next = match until {
            None => self.consumer.next().await,
            Some(until) => match timeout_at(until, self.consumer.next()).await {
                Ok(next) => next,
                Err(_) => {
                    self.caught_up = Some(CatchingUp::Done);
                    return Ok(WordsEvent::CaughtUp);
                }
            },
        };
        let delivery = match next {
            Some(Ok(delivery)) => delivery,
            Some(Err(error)) => return Err(self.words.refused(&error)),
            None => {
                return Err(Error::Lost(
                    "the stream was deleted, or its node went".to_owned(),
                ));
            }
        };
        self.unacknowledged += 1;
        self.newest = delivery.delivery_tag;
        let live = matches!(self.caught_up, Some(CatchingUp::Done));
        if self.caught_up.is_none() && offset(&self.words.name(), &delivery) >= self.last {
            self.caught_up = Some(CatchingUp::At(Instant::now() + LAST_PIECE));
        }
        Ok(WordsEvent::Message(FleetMessage {
            publisher: stream_publisher(&delivery.properties, &self.words.login.broker.user),
            body: delivery.data,
            live,
        }))
    }

    /// Before the next is waited for: whoever leaves off waiting loses none.
    async fn acknowledge(&mut self) -> Result<(), Error> {
        if self.unacknowledged < ACKNOWLEDGED {
            return Ok(());
        }
        self.unacknowledged = 0;
        let options = BasicAckOptions { multiple: true };
        let acked = self.channel.basic_ack(self.newest, options);
        acked
            .await
            .map(drop)
            .map_err(|error| Error::Lost(error.to_string()))
    }
}
