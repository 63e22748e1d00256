//! The users of `deploy/rabbitmq/fleet.json` on a real RabbitMQ: each right tried one by one, and
//! what `check` says of the exchange that a collector publishes to.

use crate::broker::{self, Broker};
use crate::program::Place;
use crate::words;
use lapin::options::{
    BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions,
    ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions,
    QueuePurgeOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, ErrorKind,
    ExchangeKind,
};
use serde_json::Value;

const TAKEN: &str = "taken";
const NO_ROUTE: &str = "NO_ROUTE";
const REFUSED: u16 = 403;

/// A user of the fleet at its broker.
struct Login {
    connection: Connection,
}

impl Login {
    async fn of(node: &Broker, user: &str) -> Self {
        let secret = broker::SECRET.replace(' ', "%20");
        let url = format!("amqp://{user}:{secret}@127.0.0.1:{}/calls", node.port());
        let connection = Connection::connect(&url, ConnectionProperties::default()).await;
        let connection = connection.expect("let in");
        Self { connection }
    }

    /// One channel for each try: a refusal closes it.
    async fn channel(&self) -> Channel {
        let channel = self.connection.create_channel().await.expect("a channel");
        let confirms = channel.confirm_select(ConfirmSelectOptions::default());
        confirms.await.expect("confirms");
        channel
    }

    /// What becomes of a mandatory message.
    async fn publishes(&self, exchange: &str, key: &str) -> String {
        let channel = self.channel().await;
        let options = BasicPublishOptions {
            mandatory: true,
            ..BasicPublishOptions::default()
        };
        let properties = BasicProperties::default();
        let sent = channel.basic_publish(exchange.into(), key.into(), options, b"?", properties);
        match sent.await.expect("sent").await {
            Ok(Confirmation::Ack(None)) => TAKEN.to_owned(),
            Ok(Confirmation::Ack(Some(returned))) => returned.reply_text.to_string(),
            Ok(other) => format!("{other:?}"),
            Err(error) => format!("{:?}", code(&error)),
        }
    }

    /// Whether the user may read it; nothing is taken from it.
    async fn reads(&self, queue: &str) -> Option<u16> {
        let channel = self.channel().await;
        let qos = channel.basic_qos(1, BasicQosOptions::default());
        qos.await.expect("a prefetch");
        let options = BasicConsumeOptions::default();
        let reading =
            channel.basic_consume(queue.into(), "tries".into(), options, FieldTable::default());
        reading.await.err().and_then(|error| code(&error))
    }

    async fn declares(&self, queue: &str, arguments: FieldTable) -> Option<u16> {
        let options = QueueDeclareOptions {
            durable: true,
            ..QueueDeclareOptions::default()
        };
        let channel = self.channel().await;
        let made = channel.queue_declare(queue.into(), options, arguments);
        made.await.err().and_then(|error| code(&error))
    }

    async fn declares_exchange(&self, exchange: &str) -> Option<u16> {
        let options = ExchangeDeclareOptions {
            durable: true,
            ..ExchangeDeclareOptions::default()
        };
        let (channel, none) = (self.channel().await, FieldTable::default());
        let made = channel.exchange_declare(exchange.into(), ExchangeKind::Direct, options, none);
        made.await.err().and_then(|error| code(&error))
    }

    async fn binds(&self, queue: &str, exchange: &str) -> Option<u16> {
        let (channel, none) = (self.channel().await, FieldTable::default());
        let (options, key) = (QueueBindOptions::default(), queue.into());
        let bound = channel.queue_bind(queue.into(), exchange.into(), key, options, none);
        bound.await.err().and_then(|error| code(&error))
    }

    async fn purges(&self, queue: &str) -> Option<u16> {
        let channel = self.channel().await;
        let purged = channel.queue_purge(queue.into(), QueuePurgeOptions::default());
        purged.await.err().and_then(|error| code(&error))
    }

    async fn deletes(&self, queue: &str) -> Option<u16> {
        let channel = self.channel().await;
        let deleted = channel.queue_delete(queue.into(), QueueDeleteOptions::default());
        deleted.await.err().and_then(|error| code(&error))
    }
}

fn code(error: &lapin::Error) -> Option<u16> {
    match error.kind() {
        ErrorKind::ProtocolError(error) => Some(error.get_id()),
        other => panic!("no refusal: {other:?}"),
    }
}

/// A node of its own: what is tried here stands in the streams afterwards.
async fn fleet_node() -> Broker {
    let made = tokio::task::spawn_blocking(|| {
        let node = Broker::start();
        node.import("fleet.json");
        node
    });
    made.await.expect("a node")
}

#[tokio::test]
async fn a_collector_reaches_its_two_streams_alone_and_a_sender_what_it_needs() {
    let node = fleet_node().await;
    let refused = format!("{:?}", Some(REFUSED));
    let none = FieldTable::default;

    let collector = Login::of(&node, "branch1").await;
    assert_eq!(collector.publishes("collectors", "calls").await, TAKEN);
    let (exchange, stream) = ("collectors.words", "calls.words");
    assert_eq!(collector.publishes(exchange, stream).await, TAKEN);
    // The lease's queue, by each way that there is.
    for (exchange, key, becomes) in [
        ("", "calls.lease", refused.as_str()),
        ("collectors", "calls.lease", NO_ROUTE),
        ("collectors.words", "calls.lease", NO_ROUTE),
        ("amq.direct", "calls.lease", &refused),
        ("amq.fanout", "calls.lease", &refused),
        ("amq.topic", "calls.lease", &refused),
        // Nor one stream by the exchange of the other, nor any by the default exchange.
        ("collectors", "calls.words", NO_ROUTE),
        ("collectors.words", "calls", NO_ROUTE),
        ("", "calls", &refused),
        ("", "calls.words", &refused),
    ] {
        let became = collector.publishes(exchange, key).await;
        assert_eq!(became, becomes, "{exchange:?} {key}");
    }
    for queue in ["calls", "calls.words", "calls.lease"] {
        assert_eq!(collector.reads(queue).await, Some(REFUSED), "{queue}");
        assert_eq!(collector.purges(queue).await, Some(REFUSED), "{queue}");
        assert_eq!(collector.deletes(queue).await, Some(REFUSED), "{queue}");
        let bound = collector.binds(queue, "collectors").await;
        assert_eq!(bound, Some(REFUSED), "{queue}");
    }
    assert_eq!(collector.declares("mine", none()).await, Some(REFUSED));
    assert_eq!(collector.declares_exchange("mine").await, Some(REFUSED));

    let sender = Login::of(&node, "sender").await;
    for queue in ["calls", "calls.words", "calls.lease"] {
        assert_eq!(sender.publishes("", queue).await, TAKEN, "{queue}");
    }
    assert_eq!(sender.publishes("collectors", "calls").await, refused);
    assert_eq!(sender.reads("calls.lease").await, None);
    let mut lease = none();
    let text = |text: &str| AMQPValue::LongString(text.into());
    lease.insert("x-queue-type".into(), text("quorum"));
    lease.insert("x-single-active-consumer".into(), AMQPValue::Boolean(true));
    lease.insert("x-max-length".into(), AMQPValue::LongInt(500));
    lease.insert("x-overflow".into(), text("reject-publish"));
    lease.insert("x-message-ttl".into(), AMQPValue::LongInt(300_000));
    lease.insert("x-delivery-limit".into(), AMQPValue::LongInt(1_000_000));
    assert_eq!(sender.declares("calls.lease", lease).await, None);
    for queue in ["calls", "calls.words"] {
        assert_eq!(sender.deletes(queue).await, Some(REFUSED), "{queue}");
    }
    assert_eq!(sender.declares("mine", none()).await, Some(REFUSED));
    assert_eq!(sender.declares_exchange("mine").await, Some(REFUSED));
}

/// What `check` says of calls and of last words that go by this exchange.
async fn checked(node: &Broker, exchange: &str) -> [Value; 2] {
    let place = Place::new();
    let secret = place.write("secret", broker::SECRET);
    let url = node.url(broker::ADMINISTRATOR);
    let forward = format!("{url}?stream=routed&exchange={exchange}&secret-file={secret}");
    let text = words::check(&place, &forward).await;
    let lines = text.lines().map(serde_json::from_str::<Value>);
    let lines: Vec<Value> = lines.collect::<Result<_, _>>().expect("JSON lines");
    ["forward ", "status reports "].map(|name| {
        let is = |line: &&Value| line["name"].as_str().is_some_and(|it| it.starts_with(name));
        let line = lines.iter().find(is).cloned();
        line.unwrap_or_else(|| panic!("no {name}: {text}"))
    })
}

#[tokio::test]
async fn check_names_an_exchange_that_is_missing_or_routes_nowhere() {
    let node = Broker::shared();
    let (streams, exchange) = (["routed", "routed.words"], "routed-by");
    for stream in streams {
        node.declare_stream(stream).await;
    }
    for found in checked(node, exchange).await {
        let what = found["what"].as_str().expect("words");
        assert!(what.contains("no exchange 'routed-by"), "{found}");
    }

    let (_connection, channel) = node.channel().await;
    for stream in streams {
        let exchange = stream.replace("routed", exchange);
        let (options, none) = (ExchangeDeclareOptions::default(), FieldTable::default());
        let made = channel.exchange_declare(exchange.into(), ExchangeKind::Direct, options, none);
        made.await.expect("an exchange");
    }
    let bindings = ["", ".words"].map(|suffix| {
        format!("source=routed-by{suffix} destination=routed{suffix} routing_key=routed{suffix}")
    });
    let found = checked(node, exchange).await;
    assert_eq!(found[0]["ok"], false, "calls have no way: {found:?}");
    for (found, binding) in found.into_iter().zip(bindings) {
        let [what, todo] = ["what", "todo"].map(|key| found[key].as_str().expect("words"));
        let is_named = what.contains("routes to no queue") && todo.contains(&binding);
        assert!(is_named, "{found}");
    }

    for stream in streams {
        let exchange = stream.replace("routed", exchange);
        let (options, none) = (QueueBindOptions::default(), FieldTable::default());
        let (queue, key) = (stream.into(), stream.into());
        let bound = channel.queue_bind(queue, exchange.into(), key, options, none);
        bound.await.expect("bound");
    }
    let [calls, last_words] = checked(node, exchange).await;
    assert_eq!(calls["what"], "the stream is there");
    assert_eq!(last_words["what"], "the stream takes them");
}

#[tokio::test]
async fn a_stream_that_is_made_has_an_end_and_one_that_is_there_stays_as_it_is() {
    let (node, place) = (Broker::shared(), Place::new());
    let secret = place.write("secret", broker::SECRET);
    node.declare_stream("endless").await;
    for stream in ["endless", "bounded"] {
        let url = node.url(broker::ADMINISTRATOR);
        let url = format!("{url}?stream={stream}&declare=yes&secret-file={secret}");
        let checked = words::check(&place, &url).await;
        assert!(checked.contains("the stream is there"), "{checked}");
    }
    // Declaring it once more is refused where the arguments are others.
    let mut arguments = FieldTable::default();
    for (key, value) in [("x-queue-type", "stream"), ("x-max-age", "30D")] {
        arguments.insert(key.into(), AMQPValue::LongString(value.into()));
    }
    let bytes = AMQPValue::LongLongInt(10_000_000_000);
    arguments.insert("x-max-length-bytes".into(), bytes);
    node.declare_with("bounded", arguments).await;
}
