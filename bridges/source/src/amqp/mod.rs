//! A broker's queue: consumed by us alone, acknowledged after the commit and on no other path.
//!
//! What is not acknowledged when the line ends, for whatever reason, the broker gives again.

pub mod attached;
mod bodies;
mod connect;
pub mod publish;
mod stream;
mod tags;
mod words;

pub use connect::Login;
pub use stream::{
    arguments as stream_arguments, place as stream_place, publisher as stream_publisher,
};
pub use words::{ACCESS_REFUSED, NOT_FOUND, PRECONDITION_FAILED};
pub use words::{declare_command, declare_stream_command, reply, route_commands};

use crate::{
    Access, Context, Error, FrameContent, Item, Position, QueueSource, RecordDetails, Stop,
    StreamFrom, StreamPosition, Target, VerdictReader, item::KEPT_BYTES, verdict::PendingVerdicts,
};
use attached::{Attached, Message, PROOF_WITHIN, PROOF_WITHIN_MOST};
use bodies::Bodies;
use callbridge_formats::MESSAGE_BYTES_MAX;
use futures_util::StreamExt;
use lapin::options::{
    BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicQosOptions, BasicRejectOptions,
    QueueBindOptions,
};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Channel, Connection, message::Delivery};
use std::time::Duration;
use tags::Tags;
use tokio::time::{Instant, sleep_until};

const CONSUMER: &str = "callbridge";
/// Most bytes of messages that were not taken yet: lapin holds them whole.
const HELD_BYTES_MAX: u64 = 16 << 20;

/// The consumer of one queue.
pub(crate) struct Consumer<'a> {
    source: &'a QueueSource,
    /// The last message of a stream that was given to the ring; `None` before the first, and for a
    /// queue.
    place: Option<StreamPosition>,
    /// The stream is another one than was read: it begins with its first message, wherever else
    /// the reading of a stream begins.
    is_replaced: bool,
    verdicts: VerdictReader,
    /// Lines so far: each one begins with the next node.
    turn: usize,
}

impl<'a> Consumer<'a> {
    pub(crate) fn new(
        source: &'a QueueSource,
        start: Option<StreamPosition>,
        verdicts: VerdictReader,
    ) -> Self {
        Self {
            place: start.filter(|place| source.is_stream && place.stream == source.queue),
            source,
            is_replaced: false,
            verdicts,
            turn: 0,
        }
    }

    /// One connection, from opening to its end: why it ended, or nothing when told to stop.
    pub(crate) async fn session(&mut self, context: &mut Context, stop: Stop) -> Result<(), Error> {
        let turn = self.turn;
        self.turn += 1;
        tokio::select! {
            () = self.verdicts.paused(false) => {}
            () = stop.requested() => return Ok(()),
        }
        let login = login(self.source, &context.access);
        let settings = &context.access.settings;
        let bodies = Bodies::new(MESSAGE_BYTES_MAX as u64, HELD_BYTES_MAX);
        let opening = async {
            let line = login.open_limited(turn, &bodies).await?;
            open(line, &login, self.source, settings.prefetch).await
        };
        let opened = tokio::select! {
            opened = opening => opened,
            () = stop.requested() => return Ok(()),
        };
        let (connection, target, channel) = opened?;
        let mut session = Session {
            attached: Attached::at(&self.source.queue, None, &[]),
            consumer: self,
            target,
            channel,
            bodies,
            tags: Tags::default(),
        };
        let ended = session.run(context, stop).await;
        // An orderly end lets the broker give the rest to the next consumer at once. On a line
        // that is lost already there is nothing to be orderly about.
        leave(&connection, "done", login.within).await;
        ended
    }
}

fn login(source: &QueueSource, access: &Access) -> Login {
    let secret = access.secret.clone();
    Login {
        within: access.settings.connect_within,
        ..Login::new(&source.broker, secret, access.ca_file.as_ref())
    }
}

/// Logs in, finds the queue (with `declare=yes` a missing one is made), looks whether it may be
/// read, and leaves.
pub(crate) async fn probe(source: &QueueSource, access: &Access) -> Result<(), Error> {
    let login = login(source, access);
    let (connection, target) = login.open_node_from(0).await?;
    let refused = |error: lapin::Error| words::consuming(&target, source, &error);
    let found = match target.in_time(queue(&connection, &target, source)).await {
        Ok((channel, _)) => may_read(&channel, &source.queue).await.map_err(refused),
        Err(error) => Err(error),
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

/// Checks that a queue may be read: a consumer is asked for with a priority that is no number. The
/// broker checks the right to read first, then refuses the argument, so that nothing is delivered
/// and nobody is in the way.
///
/// # Errors
/// The broker's words where it may not.
pub async fn may_read(channel: &Channel, queue: &str) -> Result<(), lapin::Error> {
    let mut no_number = FieldTable::default();
    no_number.insert("x-priority".into(), AMQPValue::LongString("none".into()));
    let options = BasicConsumeOptions::default();
    let asked = channel.basic_consume(queue.into(), CONSUMER.into(), options, no_number);
    match asked.await {
        Err(error) if words::reply(&error).is_none_or(|it| it.0 != words::PRECONDITION_FAILED) => {
            Err(error)
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

struct Session<'a, 'q> {
    /// The consumer whose connection this is.
    consumer: &'a mut Consumer<'q>,
    /// State of the check that the stream is the one that was read before.
    attached: Attached,
    target: Target,
    channel: Channel,
    bodies: Bodies,
    tags: Tags,
}

impl Session<'_, '_> {
    async fn run(&mut self, context: &mut Context, stop: Stop) -> Result<(), Error> {
        let mut consumer = self.consume(context).await?;
        context.line.up(false).await?;
        let mut begun = Instant::now();
        let mut came = begun;
        loop {
            let (mut replaced, mut again) = (None, false);
            // Each delivery moves it, though it is not the awaited one.
            let proof_due = (came + PROOF_WITHIN).min(begun + PROOF_WITHIN_MOST);
            tokio::select! {
                delivery = consumer.next() => {
                    came = Instant::now();
                    let delivery = self.delivered(delivery)?;
                    replaced = tokio::select! {
                        took = self.take(context, delivery) => took?,
                        () = stop.requested() => continue,
                    };
                }
                judged = self.consumer.verdicts.next() => self.answer(&judged).await?,
                () = sleep_until(proof_due), if self.attached.is_unproved() => {
                    replaced = Some(self.attached.overdue());
                }
                () = sleep_until(came + stream::QUIET_MAX), if self.consumer.source.is_stream => {
                    again = true;
                }
                () = self.consumer.verdicts.paused(true) => return Err(Error::Paused),
                () = stop.requested() => return self.drain(context).await,
            }
            if let Some(why) = replaced {
                context.line.report(Item::Replaced { why }).await?;
                (self.consumer.place, self.consumer.is_replaced) = (None, true);
                again = true;
            }
            if again {
                // From the last message that was taken. A consumer on a node that was cut from the
                // others may get nothing any more, for ever and without a word, when all is well
                // again (RabbitMQ 3.10): a quiet stream and a deaf consumer look the same.
                self.cancel().await?;
                self.bodies.cleared();
                consumer = self.consume(context).await?;
                begun = Instant::now();
                came = begun;
            }
        }
    }

    /// Begins to consume: a stream at the message that was taken last, which shows whether it is
    /// the stream that was read.
    async fn consume(&mut self, context: &Context) -> Result<lapin::Consumer, Error> {
        let settings = &context.access.settings;
        let (name, place) = (&self.consumer.source.queue, self.consumer.place.as_ref());
        self.attached = Attached::at(name, place, &settings.streams.skip);
        let arguments = match (self.consumer.source.is_stream, self.consumer.is_replaced) {
            (false, _) => FieldTable::default(),
            (true, true) => stream::from(self.attached.first, StreamFrom::First),
            (true, false) => stream::from(self.attached.first, settings.streams.from),
        };
        let options = BasicConsumeOptions {
            exclusive: !self.consumer.source.is_stream,
            ..BasicConsumeOptions::default()
        };
        let queue = ShortString::from(name.clone());
        let channel = &self.channel;
        let consumed = channel.basic_consume(queue, CONSUMER.into(), options, arguments);
        let refused = |error| words::consuming(&self.target, self.consumer.source, &error);
        let consumed = async { consumed.await.map_err(refused) };
        self.target.in_time(consumed).await
    }

    async fn cancel(&self) -> Result<(), Error> {
        let options = BasicCancelOptions::default();
        let cancelled = self.channel.basic_cancel(CONSUMER.into(), options);
        self.soon(cancelled).await
    }

    fn lost(&self, error: &lapin::Error) -> Error {
        words::lost(&self.target, &self.consumer.source.broker, error)
    }

    fn delivered(
        &self,
        delivery: Option<Result<Delivery, lapin::Error>>,
    ) -> Result<Delivery, Error> {
        let queue = &self.consumer.source.queue;
        let delivery = delivery.ok_or_else(|| {
            self.target.closed(format!(
                "the broker ended the consumption of queue {queue}: it was deleted, or its node \
                 went"
            ))
        })?;
        delivery.map_err(|error| self.lost(&error))
    }

    /// Takes one message; why the stream is not the one that was read, if it shows that. What a
    /// stream gives once more, or what is to be skipped, is acknowledged alone.
    async fn take(
        &mut self,
        context: &mut Context,
        mut delivery: Delivery,
    ) -> Result<Option<String>, Error> {
        let cut_from = self.bodies.taken(delivery.data.len());
        if delivery.data.len() > MESSAGE_BYTES_MAX {
            delivery.data.truncate(KEPT_BYTES);
        }
        if !self.consumer.source.is_stream {
            self.give(context, delivery, None, cut_from).await?;
            return Ok(None);
        }
        let (queue, properties) = (&self.consumer.source.queue, &delivery.properties);
        let place = stream::place(queue, properties, &delivery.data).ok_or_else(|| {
            let words = "a message of the stream says no offset: is it a stream?";
            self.target.not_that(words.to_owned())
        })?;
        let last = self.consumer.place.as_ref().map(|last| last.offset);
        let skips = &context.access.settings.streams.skip;
        match self.attached.came(&place, last) {
            Message::Replaced(why) => return Ok(Some(why)),
            Message::New if skips.iter().any(|it| it.is_of(queue, place.offset)) => {
                let (source, offset) = (queue.as_str(), place.offset);
                tracing::warn!(source, offset, "--stream-skip: it is not read");
            }
            Message::New => {
                self.give(context, delivery, Some(place), cut_from).await?;
                return Ok(None);
            }
            Message::Known => {}
        }
        self.acknowledge(delivery.delivery_tag, false).await?;
        Ok(None)
    }

    /// Gives one message to the ring. While there is no room, verdicts are still answered: the
    /// intake may be waiting for nothing else.
    async fn give(
        &mut self,
        context: &mut Context,
        delivery: Delivery,
        place: Option<StreamPosition>,
        cut_from: Option<u64>,
    ) -> Result<(), Error> {
        let bytes = bytes::Bytes::from(delivery.data);
        let whole_calls = self.consumer.source.format.carries_whole_calls();
        let (properties, login) = (&delivery.properties, &self.consumer.source.broker.user);
        let publisher = whole_calls.then(|| Box::new(stream::publisher(properties, login)));
        let details = cut_from.map(|length| {
            Box::new(RecordDetails {
                cut_from: Some(length),
                ..RecordDetails::default()
            })
        });
        let mut giving = std::pin::pin!(context.line.give(FrameContent {
            bytes,
            position: place.clone().map(Position::Stream),
            publisher,
            details,
        }));
        loop {
            tokio::select! {
                seq = &mut giving => {
                    self.tags.outstanding.insert(seq?, delivery.delivery_tag);
                    if place.is_some() {
                        self.consumer.place = place;
                    }
                    return Ok(());
                }
                judged = self.consumer.verdicts.next() => self.answer(&judged).await?,
                () = self.consumer.verdicts.paused(true) => return Err(Error::Paused),
            }
        }
    }

    /// Takes no more, and waits a little for the verdicts on what was given.
    async fn drain(&mut self, context: &Context) -> Result<(), Error> {
        self.cancel().await?;
        let answered = async {
            while !self.tags.outstanding.is_empty() {
                let judged = self.consumer.verdicts.next().await;
                self.answer(&judged).await?;
            }
            Ok(())
        };
        let waited = tokio::time::timeout(context.access.settings.drain_within, answered).await;
        // What is left the broker gives again; it is known by then, or taken then.
        waited.unwrap_or(Ok(()))
    }

    async fn answer(&mut self, judged: &PendingVerdicts) -> Result<(), Error> {
        let (rejected, ack_through) = self.tags.judged(judged);
        for tag in rejected {
            if self.consumer.source.is_stream {
                // A stream keeps what is in it: there is nothing to be rejected.
                self.acknowledge(tag, false).await?;
            } else {
                // Kept by us: not again, and to the queue's dead-letter exchange.
                let options = BasicRejectOptions { requeue: false };
                self.soon(self.channel.basic_reject(tag, options)).await?;
            }
        }
        match ack_through {
            Some(tag) => self.acknowledge(tag, true).await,
            None => Ok(()),
        }
    }

    async fn acknowledge(&self, tag: u64, multiple: bool) -> Result<(), Error> {
        let acknowledged = self.channel.basic_ack(tag, BasicAckOptions { multiple });
        self.soon(acknowledged).await
    }

    /// Awaits the outcome of a method within the target's time limit: a broker that died in that
    /// moment never answers.
    async fn soon<T>(
        &self,
        said: impl Future<Output = Result<T, lapin::Error>>,
    ) -> Result<T, Error> {
        let said = async { said.await.map_err(|error| self.lost(&error)) };
        self.target.in_time(said).await
    }
}

/// Finds or makes the queue on a line to a node; the two, and a channel to consume it on.
async fn open(
    (connection, target): (Connection, Target),
    login: &Login,
    source: &QueueSource,
    prefetch: u16,
) -> Result<(Connection, Target, Channel), Error> {
    let lost = |error: lapin::Error| words::lost(&target, &source.broker, &error);
    let opening = async {
        let (channel, consumers) = queue(&connection, &target, source).await?;
        // A quorum queue takes an exclusive consumer and lets others in beside it.
        if consumers > 0 && !source.is_stream {
            return Err(words::occupied(&target, source, "it is consumed already"));
        }
        let qos = channel.basic_qos(prefetch, BasicQosOptions::default());
        qos.await.map_err(lost)?;
        Ok(channel)
    };
    match target.in_time(opening).await {
        Ok(channel) => Ok((connection, target, channel)),
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
    let mut consumers = 0;
    match stream::find(&channel, &source.queue).await {
        Ok(found) => consumers = found.consumer_count(),
        Err(error) if source.declare && words::is_not_found(&error) => {
            // The refusal has closed the channel.
            channel = connection.create_channel().await.map_err(lost)?;
            let arguments = match source.is_stream {
                true => stream::arguments(stream::KEPT, stream::KEPT_BYTES),
                false => FieldTable::default(),
            };
            let made = stream::declare(&channel, &source.queue, arguments);
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
