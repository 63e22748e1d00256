//! A broker's queue. We're its only consumer, and only acknowledge messages once they've been
//! committed.
//!
//! If the connection ends, the broker redelivers all messages that haven't been acknowledged.

mod bodies;
mod connect;
mod frames;
mod messages;
pub mod publish;
mod tags;

pub use connect::Login;
pub use messages::{ACCESS_REFUSED, NOT_FOUND, PRECONDITION_FAILED};
pub use messages::{declare_command, reply};

use crate::{
    Access, Context, Error, FrameContent, QueueSource, RecordDetails, Stop, Target, VerdictReader,
    item::KEPT_BYTES, verdict::PendingVerdicts,
};
use bodies::Bodies;
use callbridge_formats::MESSAGE_BYTES_MAX;
use futures_util::StreamExt;
use lapin::options::{
    BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicQosOptions, BasicRejectOptions,
    QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Channel, Connection, Queue, message::Delivery};
use smol_str::SmolStr;
use std::time::Duration;
use tags::Tags;

const CONSUMER: &str = "callbridge";
/// Maximum number of bytes in received messages that the source hasn't taken yet. lapin (the AMQP
/// library) keeps them in memory.
const HELD_BYTES_MAX: u64 = 16 << 20;

/// The consumer of one queue.
pub(crate) struct Consumer<'a> {
    source: &'a QueueSource,
    verdicts: VerdictReader,
    /// Number of connections so far. Each new connection starts with the broker's next node.
    turn: usize,
}

impl<'a> Consumer<'a> {
    pub(crate) fn new(source: &'a QueueSource, verdicts: VerdictReader) -> Self {
        Self {
            source,
            verdicts,
            turn: 0,
        }
    }

    /// Runs one connection until it ends, and returns why it ended, or `Ok` if a stop was
    /// requested.
    pub(crate) async fn session(&mut self, context: &mut Context, stop: Stop) -> Result<(), Error> {
        let turn = self.turn;
        self.turn += 1;
        tokio::select! {
            () = self.verdicts.wait_for_pause(false) => {}
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
            consumer: self,
            target,
            channel,
            bodies,
            tags: Tags::default(),
        };
        let ended = session.run(context, stop).await;
        // After a clean close, the broker immediately delivers unacknowledged messages to the next
        // consumer. If the connection has already been lost, closing it has no effect.
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

/// Logs in, finds the queue, checks that the user may read it, and disconnects. With `declare=yes`,
/// the queue is created if it's missing.
pub(crate) async fn probe(source: &QueueSource, access: &Access) -> Result<(), Error> {
    let login = login(source, access);
    let (connection, target) = login.open_node_from(0).await?;
    let found = match target.in_time(queue(&connection, &target, source)).await {
        Ok((channel, _)) => may_read(&channel, &source.queue)
            .await
            .map_err(|error| messages::consume_error(&target, source, &error)),
        Err(error) => Err(error),
    };
    leave(&connection, "done", login.within).await;
    found
}

/// Closes a connection cleanly, waiting no longer than `within`, since a broker that died or is
/// still starting never responds.
async fn leave(connection: &Connection, message: &'static str, within: Duration) {
    let closing = connection.close(200, ShortString::from(message));
    let _ = tokio::time::timeout(within, closing).await;
}

/// Checks that a queue may be read by requesting a consumer whose priority isn't a number. The
/// broker first checks the read permission and then rejects the argument, so it doesn't deliver
/// anything, and no other consumer is affected.
///
/// # Errors
/// Returns the broker's error if the queue may not be read.
pub async fn may_read(channel: &Channel, queue: &str) -> Result<(), lapin::Error> {
    let mut no_number = FieldTable::default();
    no_number.insert("x-priority".into(), AMQPValue::LongString("none".into()));
    let options = BasicConsumeOptions::default();
    let request = channel.basic_consume(queue.into(), CONSUMER.into(), options, no_number);
    match request.await {
        Err(error) if !is_precondition_failed(&error) => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

fn is_precondition_failed(error: &lapin::Error) -> bool {
    messages::reply(error).is_some_and(|(code, _)| code == messages::PRECONDITION_FAILED)
}

struct Session<'a, 'q> {
    /// The consumer that this connection belongs to.
    consumer: &'a mut Consumer<'q>,
    target: Target,
    channel: Channel,
    bodies: Bodies,
    tags: Tags,
}

impl Session<'_, '_> {
    async fn run(&mut self, context: &mut Context, stop: Stop) -> Result<(), Error> {
        let mut consumer = self.consume().await?;
        context.line.up(false).await?;
        loop {
            tokio::select! {
                delivery = consumer.next() => {
                    let delivery = self.check_delivery(delivery)?;
                    tokio::select! {
                        given = self.give(context, delivery) => given?,
                        () = stop.requested() => {}
                    }
                }
                judged = self.consumer.verdicts.next() => self.answer(&judged).await?,
                () = self.consumer.verdicts.wait_for_pause(true) => return Err(Error::Paused),
                () = stop.requested() => return self.drain(context).await,
            }
        }
    }

    async fn consume(&self) -> Result<lapin::Consumer, Error> {
        let options = BasicConsumeOptions {
            exclusive: true,
            ..BasicConsumeOptions::default()
        };
        let queue = ShortString::from(self.consumer.source.queue.clone());
        let arguments = FieldTable::default();
        let consumed = self
            .channel
            .basic_consume(queue, CONSUMER.into(), options, arguments);
        let answer = async {
            consumed.await.map_err(|error| {
                messages::consume_error(&self.target, self.consumer.source, &error)
            })
        };
        self.target.in_time(answer).await
    }

    async fn cancel(&self) -> Result<(), Error> {
        let options = BasicCancelOptions::default();
        let cancelled = self.channel.basic_cancel(CONSUMER.into(), options);
        self.await_answer(cancelled).await
    }

    fn line_error(&self, error: &lapin::Error) -> Error {
        messages::line_error(&self.target, &self.consumer.source.broker, error)
    }

    fn check_delivery(
        &self,
        delivery: Option<Result<Delivery, lapin::Error>>,
    ) -> Result<Delivery, Error> {
        let queue = &self.consumer.source.queue;
        let delivery = delivery.ok_or_else(|| {
            self.target.closed_error(format!(
                "the broker stopped delivering from queue {queue}: the queue was deleted, or its \
                 node went down"
            ))
        })?;
        delivery.map_err(|error| self.line_error(&error))
    }

    /// Passes one message to the ring. While the ring is full, any verdicts that arrive are still
    /// passed on to the broker.
    async fn give(&mut self, context: &mut Context, mut delivery: Delivery) -> Result<(), Error> {
        let cut_from = self.bodies.note_taken(delivery.data.len());
        if delivery.data.len() > MESSAGE_BYTES_MAX {
            delivery.data.truncate(KEPT_BYTES);
        }
        let bytes = bytes::Bytes::from(delivery.data);
        let mut content_type = None;
        if self.consumer.source.format.carries_whole_calls() {
            let property = delivery.properties.content_type().as_ref();
            content_type = property.map(|text| SmolStr::from(text.as_str()));
        }
        let details = cut_from.map(|length| {
            Box::new(RecordDetails {
                cut_from: Some(length),
                ..RecordDetails::default()
            })
        });
        let mut giving = std::pin::pin!(context.line.give(FrameContent {
            bytes,
            position: None,
            content_type,
            details,
        }));
        loop {
            tokio::select! {
                seq = &mut giving => {
                    self.tags.outstanding.insert(seq?, delivery.delivery_tag);
                    return Ok(());
                }
                judged = self.consumer.verdicts.next() => self.answer(&judged).await?,
                () = self.consumer.verdicts.wait_for_pause(true) => return Err(Error::Paused),
            }
        }
    }

    /// Stops consuming, and waits up to `drain_within` for the verdicts on messages that were
    /// passed to the ring.
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
        // The broker redelivers any messages it didn't get a response to, and the spool recognizes
        // the calls that it already has.
        waited.unwrap_or(Ok(()))
    }

    async fn answer(&mut self, judged: &PendingVerdicts) -> Result<(), Error> {
        let (rejected, ack_through) = self.tags.apply(judged);
        for tag in rejected {
            // callbridge keeps this message as a dead letter, so the broker mustn't redeliver it.
            // If the queue has a dead-letter exchange, the broker sends the message there.
            let options = BasicRejectOptions { requeue: false };
            self.await_answer(self.channel.basic_reject(tag, options))
                .await?;
        }
        match ack_through {
            Some(tag) => {
                let through = BasicAckOptions { multiple: true };
                self.await_answer(self.channel.basic_ack(tag, through))
                    .await
            }
            None => Ok(()),
        }
    }

    /// Awaits a method's outcome within the target's timeout, because a broker that has just died
    /// never responds.
    async fn await_answer<T>(
        &self,
        answer: impl Future<Output = Result<T, lapin::Error>>,
    ) -> Result<T, Error> {
        let answer = async { answer.await.map_err(|error| self.line_error(&error)) };
        self.target.in_time(answer).await
    }
}

/// Finds or creates the queue on a connection to one of the nodes. Returns the connection, the
/// node, and a channel on which the queue can be consumed.
async fn open(
    (connection, target): (Connection, Target),
    login: &Login,
    source: &QueueSource,
    prefetch: u16,
) -> Result<(Connection, Target, Channel), Error> {
    let opening = async {
        let (channel, consumers) = queue(&connection, &target, source).await?;
        // A quorum queue accepts other consumers in addition to an exclusive one, so this has to be
        // checked here.
        if consumers > 0 {
            return Err(messages::occupied_error(
                &target,
                source,
                "the broker lists one",
            ));
        }
        channel
            .basic_qos(prefetch, BasicQosOptions::default())
            .await
            .map_err(|error| messages::line_error(&target, &source.broker, &error))?;
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

/// Returns a channel on which the queue was found, and how many consumers the queue has. With
/// `declare=yes`, the queue is created if it's missing.
async fn queue(
    connection: &Connection,
    target: &Target,
    source: &QueueSource,
) -> Result<(Channel, u32), Error> {
    let mut channel = new_channel(connection, target, source).await?;
    let mut consumers = 0;
    match find(&channel, &source.queue).await {
        Ok(found) => consumers = found.consumer_count(),
        Err(error) if source.declare && messages::is_not_found(&error) => {
            // The rejection has closed the channel.
            channel = new_channel(connection, target, source).await?;
            declare(&channel, &source.queue)
                .await
                .map_err(|error| messages::find_error(target, source, &error))?;
        }
        Err(error) => return Err(messages::find_error(target, source, &error)),
    }
    if source.declare {
        bind(&channel, source)
            .await
            .map_err(|error| messages::find_error(target, source, &error))?;
    }
    Ok((channel, consumers))
}

async fn new_channel(
    connection: &Connection,
    target: &Target,
    source: &QueueSource,
) -> Result<Channel, Error> {
    connection
        .create_channel()
        .await
        .map_err(|error| messages::line_error(target, &source.broker, &error))
}

/// Binds the queue to the exchange given by `exchange=`, if any.
async fn bind(channel: &Channel, source: &QueueSource) -> Result<(), lapin::Error> {
    let Some(exchange) = &source.exchange else {
        return Ok(());
    };
    for bind in source.bind.as_deref().unwrap_or_default().split(';') {
        let queue = ShortString::from(source.queue.clone());
        let exchange = ShortString::from(exchange.clone());
        let (key, headers) = binding(bind);
        let options = QueueBindOptions::default();
        channel
            .queue_bind(queue, exchange, key, options, headers)
            .await?;
    }
    Ok(())
}

/// Finds an existing queue. If the broker rejects this, it closes the channel.
async fn find(channel: &Channel, name: &str) -> Result<Queue, lapin::Error> {
    let passive = QueueDeclareOptions {
        passive: true,
        ..QueueDeclareOptions::default()
    };
    let found = channel.queue_declare(name.into(), passive, FieldTable::default());
    found.await
}

/// Creates a durable queue. If the broker rejects this, it closes the channel.
async fn declare(channel: &Channel, name: &str) -> Result<(), lapin::Error> {
    let durable = QueueDeclareOptions {
        durable: true,
        ..QueueDeclareOptions::default()
    };
    let made = channel.queue_declare(name.into(), durable, FieldTable::default());
    made.await.map(drop)
}

/// Parses one of the bindings in `bind=`, which is either a routing key or `NAME=VALUE,…`, all of
/// which must be in a message's headers.
fn binding(bind: &str) -> (ShortString, FieldTable) {
    let mut headers = FieldTable::default();
    if !bind.contains('=') {
        return (ShortString::from(bind.to_owned()), headers);
    }
    headers.insert("x-match".into(), AMQPValue::LongString("all".into()));
    for pair in bind.split(',') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = AMQPValue::LongString(value.into());
        headers.insert(ShortString::from(name.to_owned()), value);
    }
    (ShortString::from(String::new()), headers)
}
