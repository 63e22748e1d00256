//! The stream of status reports at its broker: one line that publishes, another that reads.

use crate::{Error, report::CONTENT_TYPE, roster::FleetMessage};
use callbridge_model::status::StatusReport;
use callbridge_model::status::findings::quoted;
use callbridge_source::amqp::publish::{CHECK_BODY, ConfirmedLine, own_properties, refusal};
use callbridge_source::amqp::{
    ACCESS_REFUSED, Login, NOT_FOUND, declare_command, reply, route_commands, stream_arguments,
    stream_place, stream_publisher,
};
use callbridge_source::{BrokerUrl, Secret, SourceUrl, url::Broker};
use futures_util::StreamExt as _;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::AMQPValue;
use lapin::{Channel, Connection, message::Delivery};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::{Instant, timeout, timeout_at};

/// The suffix that makes the stream's name from that of the calls' stream.
const SUFFIX: &str = ".words";
/// Age, total bytes and segment bytes of the stream that `declare=yes` makes.
const KEPT: &str = "7D";
const KEPT_BYTES: i64 = 2_000_000_000;
const SEGMENT_BYTES: i64 = 50_000_000;
/// Messages on their way to a reader.
const PREFETCH: u16 = 1_000;
/// Messages that are acknowledged together, as credit for more.
const ACKNOWLEDGED: u16 = 250;
/// Time without a message after which a stream holds nothing of what was asked for.
const QUIET: Duration = Duration::from_secs(3);
/// Time within which the last segment of the stream has arrived once its first message has.
const LAST_PIECE: Duration = Duration::from_millis(300);

/// A stream of status reports, and the login to its broker.
#[derive(Clone, Debug)]
pub struct ReportStream {
    login: Login,
    calls: String,
    /// The exchange of the reports; the broker's default exchange without one.
    exchange: Option<String>,
    declare: bool,
}

impl ReportStream {
    /// The stream beside that of `--forward`, or of `fleet --source`.
    pub fn of(url: &BrokerUrl, secret: Secret) -> Self {
        Self {
            login: Login::new(&url.broker, secret, url.ca_file.as_ref()),
            calls: url.name.clone(),
            exchange: (url.exchange.as_ref()).map(|calls| format!("{calls}{SUFFIX}")),
            declare: url.declare,
        }
    }

    /// The stream beside that of a source; `None` where it is another kind of source.
    pub fn of_source(url: &SourceUrl, secret: Secret) -> Option<Self> {
        url.stream_of_calls().map(|queue| Self {
            login: Login::new(&queue.broker, secret, url.ca_file.as_ref()),
            calls: queue.queue.clone(),
            exchange: None,
            declare: queue.declare,
        })
    }

    /// The name of the stream of status reports: `calls.words` beside `calls`.
    pub fn name(&self) -> String {
        format!("{}{SUFFIX}", self.calls)
    }

    /// Logs in to publish reports; makes the stream where `declare=yes` asks for that and it is
    /// missing.
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

    /// Publishes a report, and waits until a broker has confirmed it.
    ///
    /// # Errors
    /// What is wrong and what to do; the line is of no more use then.
    pub async fn publish(&self, line: &ConfirmedLine, report: &StatusReport) -> Result<(), Error> {
        let body = serde_json::to_vec(report).map_err(|error| Error::Lost(error.to_string()))?;
        self.send(line, &self.name(), &body, report.at).await
    }

    async fn send(
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
        let confirmed = timeout(self.login.within, published).await;
        let confirmed = confirmed.map_err(|_| Error::Lost("no confirm".to_owned()))?;
        let confirmation = confirmed.map_err(|error| self.refused(&error))?;
        match (refusal(&confirmation), &self.exchange) {
            (None, _) => Ok(()),
            (Some(words), None) => Err(self.missing(words)),
            (Some(words), Some(exchange)) => {
                let words = format!("exchange {exchange} routes to no queue ({words})");
                Err(self.unrouted(exchange, words))
            }
        }
    }

    /// Logs in, checks that the stream is there and may be written to, and leaves. Nothing is
    /// published: the message is addressed to a stream that cannot be there. By way of an exchange
    /// an empty message is published, for nothing else shows where it is routed; readers skip it.
    ///
    /// # Errors
    /// What is wrong and what to do.
    pub async fn probe(&self) -> Result<(), Error> {
        let line = self.open().await?;
        let found = line.last(async |line| {
            let found = line.finds(&self.name()).await;
            found.map_err(|error| self.refused(&error))?;
            if self.exchange.is_some() {
                return self.send(line, &self.name(), b"", 0).await;
            }
            let nowhere = format!("{}.callbridge-check", self.name());
            match self.send(line, &nowhere, CHECK_BODY, 0).await {
                Ok(()) => Ok(()),
                Err(Error::Stream { is_barred, .. }) if !is_barred => Ok(()),
                Err(error) => Err(error),
            }
        });
        found
            .await
            .map_err(|unanswered| Error::Lost(unanswered.to_string()))?
    }

    /// Begins to read the reports of the time `since`, and all that come from now on.
    ///
    /// # Errors
    /// What is wrong and what to do.
    pub async fn read(&self, since: Duration) -> Result<ReportReading, Error> {
        let connection = self.login.open().await?;
        let opened = timeout(self.login.within + QUIET, self.consume(&connection, since)).await;
        let (channel, consumer, last) = opened.map_err(|_| no_answer())??;
        Ok(ReportReading {
            stream: self.clone(),
            _connection: connection,
            channel,
            consumer,
            progress: last.map_or_else(|| Progress::LastPiece(Instant::now()), Progress::Old),
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
        let channel = connection.create_channel().await;
        let channel = channel.map_err(|error| self.lost(&error))?;
        let qos = channel.basic_qos(prefetch, BasicQosOptions::default());
        qos.await.map_err(|error| self.lost(&error))?;
        let arguments = BTreeMap::from([("x-stream-offset".into(), from)]).into();
        let options = BasicConsumeOptions::default();
        let consumer =
            channel.basic_consume(self.name().into(), "fleet".into(), options, arguments);
        let consumer = consumer.await.map_err(|error| self.refused(&error))?;
        Ok((channel, consumer))
    }

    fn lost(&self, error: &lapin::Error) -> Error {
        Error::Lost(self.login.redact(&error.to_string()))
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
        Error::Stream {
            stream: self.name(),
            words,
            cure,
            is_barred,
        }
    }

    fn refused(&self, error: &lapin::Error) -> Error {
        let Broker { user, vhost, .. } = &self.login.broker;
        let Some((code, text)) = reply(error) else {
            return Error::Lost(error.to_string());
        };
        let words = self.login.redact(&text);
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
                        let pattern = format!(r"{}(\.words)?", calls.replace('.', r"\."));
                        (exchange, pattern)
                    }
                };
                let cure = format!(
                    "let {user} write to {names}, and a sender read the stream, too: rabbitmqctl \
                     set_permissions -p {} {} '^$' {} {} (of a collector: '^$' in place of the \
                     last)",
                    quoted(vhost),
                    quoted(user),
                    quoted(&format!("^{pattern}$")),
                    quoted(&format!(r"^{}(\.words)?$", self.calls))
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

/// An open reader of the stream.
pub struct ReportReading {
    stream: ReportStream,
    /// A line ends when nobody holds it.
    _connection: Connection,
    channel: Channel,
    consumer: lapin::Consumer,
    progress: Progress,
    unacknowledged: u16,
    newest: u64,
}

/// Progress towards the end of the old messages.
#[derive(Clone, Copy)]
enum Progress {
    /// The last segment has not begun: it does with the message of this offset.
    Old(u64),
    /// All of the last segment is here by then.
    LastPiece(Instant),
    /// All old messages are read.
    Live,
}

impl ReportReading {
    /// Waits for the next message, unread and unchecked; `None` once all older ones are read, and
    /// those that come from then on are live. Safe to cancel: no message is lost.
    ///
    /// # Errors
    /// When the line is lost.
    pub async fn next(&mut self) -> Result<Option<FleetMessage>, Error> {
        // Before the next message is waited for: a caller that gives up waiting loses none.
        if self.unacknowledged >= ACKNOWLEDGED {
            self.unacknowledged = 0;
            let options = BasicAckOptions { multiple: true };
            let acked = self.channel.basic_ack(self.newest, options).await;
            acked.map_err(|error| Error::Lost(error.to_string()))?;
        }
        let until = match self.progress {
            Progress::Old(_) => Some(Instant::now() + QUIET),
            Progress::LastPiece(at) => Some(at),
            Progress::Live => None,
        };
        let next = match until {
            None => self.consumer.next().await,
            Some(until) => match timeout_at(until, self.consumer.next()).await {
                Ok(next) => next,
                Err(_) => {
                    self.progress = Progress::Live;
                    return Ok(None);
                }
            },
        };
        let gone = || Error::Lost("the stream was deleted, or its node went".to_owned());
        let delivery = next.ok_or_else(gone)?;
        let delivery = delivery.map_err(|error| self.stream.refused(&error))?;
        self.unacknowledged += 1;
        self.newest = delivery.delivery_tag;
        if let Progress::Old(last) = self.progress
            && offset(&self.stream.name(), &delivery) >= Some(last)
        {
            self.progress = Progress::LastPiece(Instant::now() + LAST_PIECE);
        }
        Ok(Some(FleetMessage {
            publisher: stream_publisher(&delivery.properties, &self.stream.login.broker.user),
            body: delivery.data,
            live: matches!(self.progress, Progress::Live),
        }))
    }
}
