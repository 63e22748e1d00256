//! A broker's queue: consumed by us alone, acknowledged after the commit and on no other path.
//!
//! What is not acknowledged when the line ends, for whatever reason, the broker gives again.

mod connect;
pub mod publish;
mod stream;
mod tags;
mod transport;
mod words;

pub use connect::Login;
pub use stream::{declare_stream, place as stream_place, publisher as stream_publisher};
pub use words::{declare_command, declare_stream_command};

use crate::VerdictReader;
use crate::connect::Target;
use crate::error::Error;
use crate::source::{Access, Context, Stop, StreamFrom};
use crate::url::QueueSource;
use crate::{Position, StreamPosition};
use callbridge_formats::MESSAGE_BYTES_MAX;
use futures_util::StreamExt;
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicQosOptions, BasicRejectOptions,
    QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Channel, Connection};
use std::time::Duration;
use tags::{BrokerReply, Tags};

const CONSUMER: &str = "callbridge";

/// The consumer of one queue.
pub(crate) struct Consumer {
    source: QueueSource,
    /// Of a stream: the last message that was given to the ring.
    place: Option<StreamPosition>,
    verdicts: VerdictReader,
    /// Lines that were lost or not had: the next one begins with the next node.
    turn: usize,
}

impl Consumer {
    pub(crate) fn new(
        source: QueueSource,
        start: Option<StreamPosition>,
        verdicts: VerdictReader,
    ) -> Self {
        Self {
            place: start.filter(|place| source.is_stream && place.stream == source.queue),
            source,
            verdicts,
            turn: 0,
        }
    }

    /// One connection, from opening to its end: why it ended, or nothing when told to stop.
    pub(crate) async fn session(&mut self, context: &mut Context, stop: Stop) -> Option<Error> {
        let ended = self.line(context, stop).await;
        self.turn += usize::from(ended.is_some());
        ended
    }

    async fn line(&mut self, context: &mut Context, stop: Stop) -> Option<Error> {
        tokio::select! {
            () = self.verdicts.paused(false) => {}
            () = stop.told() => return None,
        }
        let login = login(&self.source, &context.access);
        let arguments = match self.source.is_stream {
            true => stream::from(self.place.as_ref(), context.access.settings.stream_from),
            false => FieldTable::default(),
        };
        let prefetch = context.access.settings.prefetch;
        let opened = tokio::select! {
            opened = open((&login, self.turn), &self.source, prefetch, arguments) => opened,
            () = stop.told() => return None,
        };
        let OpenQueue {
            connection,
            target,
            channel,
            consumer,
        } = match opened {
            Ok(opened) => opened,
            Err(error) => return Some(error),
        };
        let mut session = Session {
            source: &self.source,
            place: &mut self.place,
            verdicts: &self.verdicts,
            target,
            channel,
            tags: Tags::default(),
        };
        let ended = session.run(context, consumer, stop).await;
        // An orderly end lets the broker give the rest to the next consumer at once. On a line
        // that is lost already there is nothing to be orderly about.
        leave(&connection, "done", context.access.settings.connect_within).await;
        ended.err()
    }
}

fn login(source: &QueueSource, access: &Access) -> Login {
    Login {
        broker: source.broker.clone(),
        secret: access.secret.clone(),
        variable: "CALLBRIDGE_AMQP_SECRET",
        ca_file: access.ca_file.clone(),
        within: access.settings.connect_within,
    }
}

/// Logs in, finds the queue (with `declare=yes` a missing one is made), looks whether it may be
/// read, and leaves.
pub(crate) async fn probe(source: &QueueSource, access: &Access) -> Result<(), Error> {
    let login = login(source, access);
    let (connection, target) = login.open_node().await?;
    let found = queue(&connection, &target, source);
    let found = match tokio::time::timeout(login.within, found).await {
        Ok(Ok((channel, _))) => may_read(&channel, &target, source).await,
        Ok(Err(error)) => Err(error),
        Err(_) => Err(target.timed_out()),
    };
    leave(&connection, "done", login.within).await;
    found
}

/// Ends a connection in an orderly way, and waits so long at most: a broker that died, or that
/// still starts, owes an answer that never comes.
async fn leave(connection: &Connection, words: &'static str, within: Duration) {
    let closing = connection.close(200, ShortString::from(words));
    let _ = tokio::time::timeout(within, closing).await;
}

/// Asks for a consumer with a priority that is no number: the broker looks at the right to read
/// first, then refuses the argument, so that nothing is delivered and nobody is in the way.
async fn may_read(channel: &Channel, target: &Target, source: &QueueSource) -> Result<(), Error> {
    const PRECONDITION_FAILED: u16 = 406;
    let mut no_number = FieldTable::default();
    no_number.insert("x-priority".into(), AMQPValue::LongString("none".into()));
    let queue = ShortString::from(source.queue.clone());
    let options = BasicConsumeOptions::default();
    let asked = channel.basic_consume(queue, ShortString::from(CONSUMER), options, no_number);
    match asked.await {
        Ok(_) => Ok(()),
        Err(error) => match words::reply(&error) {
            Some((PRECONDITION_FAILED, _)) => Ok(()),
            Some(_) | None => Err(words::consuming(target, source, &error)),
        },
    }
}

/// A line on which a queue is consumed.
struct OpenQueue {
    connection: Connection,
    target: Target,
    channel: Channel,
    consumer: lapin::Consumer,
}

struct Session<'a> {
    source: &'a QueueSource,
    place: &'a mut Option<StreamPosition>,
    verdicts: &'a VerdictReader,
    target: Target,
    channel: Channel,
    tags: Tags,
}

impl Session<'_> {
    async fn run(
        &mut self,
        context: &mut Context,
        mut consumer: lapin::Consumer,
        stop: Stop,
    ) -> Result<(), Error> {
        context.line.up(false).await?;
        let mut quiet = tokio::time::Instant::now() + stream::QUIET_MAX;
        loop {
            tokio::select! {
                delivery = consumer.next() => {
                    quiet = tokio::time::Instant::now() + stream::QUIET_MAX;
                    let delivery = self.delivered(delivery)?;
                    let given = tokio::select! {
                        given = self.give(context, delivery) => given,
                        () = stop.told() => continue,
                    };
                    given?;
                }
                judged = self.verdicts.next() => {
                    let answers = self.tags.judged(&judged);
                    self.answer(&answers).await?;
                }
                () = tokio::time::sleep_until(quiet), if self.source.is_stream => {
                    consumer = self.consume_again(context.access.settings.stream_from).await?;
                    quiet = tokio::time::Instant::now() + stream::QUIET_MAX;
                }
                () = self.verdicts.paused(true) => return Err(Error::Paused),
                () = stop.told() => {
                    self.drain(context).await?;
                    return Ok(());
                }
            }
        }
    }

    /// Consumes a stream again, from behind the last message that was taken. A consumer on a node
    /// that was cut from the others may get nothing any more, for ever and without a word, when
    /// all is well again (RabbitMQ 3.10): a quiet stream and a deaf consumer look the same.
    async fn consume_again(&self, from: StreamFrom) -> Result<lapin::Consumer, Error> {
        let cancelled = self
            .channel
            .basic_cancel(CONSUMER.into(), BasicCancelOptions::default());
        self.soon(cancelled).await?;
        let arguments = stream::from(self.place.as_ref(), from);
        let queue = ShortString::from(self.source.queue.clone());
        let options = BasicConsumeOptions::default();
        let consumed = self
            .channel
            .basic_consume(queue, CONSUMER.into(), options, arguments);
        self.soon(consumed).await
    }

    fn lost(&self, error: &lapin::Error) -> Error {
        words::lost(&self.target, &self.source.broker, error)
    }

    fn delivered(
        &self,
        delivery: Option<Result<Delivery, lapin::Error>>,
    ) -> Result<Delivery, Error> {
        match delivery {
            Some(Ok(delivery)) => Ok(delivery),
            Some(Err(error)) => Err(self.lost(&error)),
            None => Err(self.target.closed(format!(
                "the broker ended the consumption of queue {}: it was deleted, or its node went",
                self.source.queue
            ))),
        }
    }

    /// Gives one message to the ring. While there is no room, verdicts are still answered: the
    /// intake may be waiting for nothing else.
    async fn give(&mut self, context: &mut Context, delivery: Delivery) -> Result<(), Error> {
        let mut bytes = bytes::Bytes::from(delivery.data);
        if bytes.len() > MESSAGE_BYTES_MAX {
            bytes.truncate(MESSAGE_BYTES_MAX);
            context.line.counts.too_long();
        }
        let place = match self.source.is_stream {
            true => Some(
                stream::place(&self.source.queue, &delivery.properties).ok_or_else(|| {
                    let words = "a message of the stream says no offset: is it a stream?";
                    self.target.not_that(words.to_owned())
                })?,
            ),
            false => None,
        };
        // An offset in the middle of a chunk: what stands before it is given once more.
        if let (Some(new), Some(last)) = (&place, self.place.as_ref())
            && new.offset <= last.offset
        {
            let options = BasicAckOptions::default();
            return self
                .soon(self.channel.basic_ack(delivery.delivery_tag, options))
                .await;
        }
        let told = self.source.format.tells_whole_calls();
        let (properties, login) = (&delivery.properties, &self.source.broker.user);
        let publisher = told.then(|| Box::new(stream::publisher(properties, login)));
        let position = place.clone().map(Position::Stream);
        let mut giving = std::pin::pin!(context.line.give_message(bytes, position, publisher));
        loop {
            tokio::select! {
                seq = &mut giving => {
                    self.tags.given(seq?, delivery.delivery_tag);
                    if place.is_some() {
                        *self.place = place;
                    }
                    return Ok(());
                }
                judged = self.verdicts.next() => {
                    let answers = self.tags.judged(&judged);
                    self.answer(&answers).await?;
                }
                () = self.verdicts.paused(true) => return Err(Error::Paused),
            }
        }
    }

    /// Takes no more, and waits a little for the verdicts on what was given.
    async fn drain(&mut self, context: &Context) -> Result<(), Error> {
        let options = BasicCancelOptions::default();
        let cancelled = self.channel.basic_cancel(CONSUMER.into(), options);
        self.soon(cancelled).await?;
        let answered = async {
            while !self.tags.is_empty() {
                let judged = self.verdicts.next().await;
                let answers = self.tags.judged(&judged);
                self.answer(&answers).await?;
            }
            Ok(())
        };
        match tokio::time::timeout(context.access.settings.drain_within, answered).await {
            Ok(answered) => answered,
            // The broker gives them again; they are known by then, or taken then.
            Err(_) => Ok(()),
        }
    }

    async fn answer(&self, answers: &[BrokerReply]) -> Result<(), Error> {
        for answer in answers {
            match answer {
                // A stream keeps what is in it: there is nothing to be rejected.
                BrokerReply::Reject(tag) if self.source.is_stream => {
                    let options = BasicAckOptions::default();
                    self.soon(self.channel.basic_ack(*tag, options)).await?;
                }
                BrokerReply::Reject(tag) => {
                    let options = BasicRejectOptions { requeue: false };
                    self.soon(self.channel.basic_reject(*tag, options)).await?;
                }
                BrokerReply::AckThrough(tag) => {
                    let options = BasicAckOptions { multiple: true };
                    self.soon(self.channel.basic_ack(*tag, options)).await?;
                }
            }
        }
        Ok(())
    }

    /// What is said to a broker that died in that moment must not wait for ever.
    async fn soon<T>(
        &self,
        said: impl Future<Output = Result<T, lapin::Error>>,
    ) -> Result<T, Error> {
        match tokio::time::timeout(self.target.within, said).await {
            Ok(said) => said.map_err(|error| self.lost(&error)),
            Err(_) => Err(self.target.timed_out()),
        }
    }
}

/// Logs in, finds or makes the queue, and begins to consume it.
async fn open(
    (login, turn): (&Login, usize),
    source: &QueueSource,
    prefetch: u16,
    arguments: FieldTable,
) -> Result<OpenQueue, Error> {
    let (connection, target) = login.open_node_from(turn).await?;
    let lost = |error: lapin::Error| words::lost(&target, &source.broker, &error);
    let opening = async {
        let (channel, consumers) = queue(&connection, &target, source).await?;
        // A quorum queue takes an exclusive consumer and lets others in beside it.
        if consumers > 0 && !source.is_stream {
            return Err(words::occupied(&target, source, "it is consumed already"));
        }
        let qos = channel.basic_qos(prefetch, BasicQosOptions::default());
        qos.await.map_err(lost)?;
        let options = BasicConsumeOptions {
            exclusive: !source.is_stream,
            ..BasicConsumeOptions::default()
        };
        let queue = ShortString::from(source.queue.clone());
        let consumer = channel.basic_consume(queue, CONSUMER.into(), options, arguments);
        match consumer.await {
            Ok(consumer) => Ok((channel, consumer)),
            Err(error) => Err(words::consuming(&target, source, &error)),
        }
    };
    let opened = match tokio::time::timeout(login.within, opening).await {
        Ok(opened) => opened,
        Err(_) => Err(target.timed_out()),
    };
    match opened {
        Ok((channel, consumer)) => Ok(OpenQueue {
            connection,
            target,
            channel,
            consumer,
        }),
        Err(error) => {
            leave(&connection, "refused", login.within).await;
            Err(error)
        }
    }
}

/// A channel on which the queue was found, and how many consume it; with `declare=yes` a missing
/// one is made.
async fn queue(
    connection: &Connection,
    target: &Target,
    source: &QueueSource,
) -> Result<(Channel, u32), Error> {
    let lost = |error: lapin::Error| words::lost(target, &source.broker, &error);
    let refused = |error: lapin::Error| words::finding(target, source, &error);
    let name = || ShortString::from(source.queue.clone());
    let mut channel = connection.create_channel().await.map_err(lost)?;
    let passive = QueueDeclareOptions {
        passive: true,
        ..QueueDeclareOptions::default()
    };
    let found = channel.queue_declare(name(), passive, FieldTable::default());
    let mut consumers = 0;
    match found.await {
        Ok(found) => consumers = found.consumer_count(),
        Err(error) if source.declare && words::is_not_found(&error) => {
            // The refusal has closed the channel.
            channel = connection.create_channel().await.map_err(lost)?;
            let durable = QueueDeclareOptions {
                durable: true,
                ..QueueDeclareOptions::default()
            };
            let made = channel.queue_declare(name(), durable, stream::kind(source.is_stream));
            made.await.map_err(refused)?;
        }
        Err(error) => return Err(refused(error)),
    }
    if let (true, Some(exchange)) = (source.declare, &source.exchange) {
        for bind in source.bind.as_deref().unwrap_or_default().split(';') {
            let (key, headers) = binding(bind);
            let exchange = ShortString::from(exchange.clone());
            let options = QueueBindOptions::default();
            let bound = channel.queue_bind(name(), exchange, key, options, headers);
            bound.await.map_err(refused)?;
        }
    }
    Ok((channel, consumers))
}

/// One of `bind=`: a routing key, or `NAME=VALUE,…` that all have to be in a message's headers.
fn binding(bind: &str) -> (ShortString, FieldTable) {
    let mut headers = FieldTable::default();
    if !bind.contains('=') {
        return (ShortString::from(bind.to_owned()), headers);
    }
    let text = |value: &str| AMQPValue::LongString(value.into());
    headers.insert("x-match".into(), text("all"));
    for pair in bind.split(',') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        headers.insert(ShortString::from(name.to_owned()), text(value));
    }
    (ShortString::from(String::new()), headers)
}
