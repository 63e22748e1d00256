//! Tests which messages are consumed, acknowledged, refused, and requeued.

use super::stage::{Stage, settings, soon, wait_for_depth};
use callbridge_source::{FrameVerdict, Item, Outage, Settings};
use callbridge_testbed::broker::{ADMINISTRATOR, Broker};
use callbridge_testbed::proxy::Proxy;
use lapin::types::{AMQPValue, FieldTable};

/// Numbered CEL bodies.
fn bodies(range: std::ops::Range<u32>) -> Vec<String> {
    range
        .map(|n| format!("{{\"event_name\":\"HANGUP\",\"n\":{n}}}"))
        .collect()
}

/// Promise: A source's message is acknowledged after its call is committed.
#[tokio::test]
async fn messages_are_acknowledged_after_commit_and_not_before() {
    let broker = Broker::shared();
    broker.declare("commit").await;
    broker.publish("commit", &bodies(0..20)).await;
    let mut stage = Stage::consume(broker, "commit", settings());
    stage.expect_up().await;
    assert_eq!(stage.expect_texts(20).await, bodies(0..20));
    stage.verdicts.give(FrameVerdict::Committed { through: 12 });
    // Only a lost connection shows which messages the broker considers acknowledged.
    stage.request_stop();
    stage.verdicts.give(FrameVerdict::Committed { through: 15 });
    stage.wait_until_ended().await;
    wait_for_depth(broker, "commit", 5).await;
    let mut again = Stage::consume(broker, "commit", settings());
    again.expect_up().await;
    assert_eq!(again.expect_texts(5).await, bodies(15..20));
}

#[tokio::test]
async fn stop_waits_for_verdicts_on_delivered_messages() {
    let broker = Broker::shared();
    broker.declare("stop").await;
    broker.publish("stop", &bodies(0..3)).await;
    let mut stage = Stage::consume(broker, "stop", settings());
    stage.expect_up().await;
    stage.expect_texts(3).await;
    stage.request_stop();
    let verdicts = stage.verdicts.clone();
    verdicts.give(FrameVerdict::Committed { through: 2 });
    verdicts.give(FrameVerdict::Committed { through: 3 });
    stage.wait_until_ended().await;
    wait_for_depth(broker, "stop", 0).await;
}

#[tokio::test]
async fn unacknowledged_messages_are_redelivered_after_a_crash() {
    let broker = Broker::shared();
    broker.declare("crash").await;
    broker.publish("crash", &bodies(0..5)).await;
    let mut stage = Stage::consume(broker, "crash", settings());
    stage.expect_up().await;
    stage.expect_texts(5).await;
    stage.crash().await;
    wait_for_depth(broker, "crash", 5).await;
    let mut again = Stage::consume(broker, "crash", settings());
    again.expect_up_after_consumer().await;
    assert_eq!(again.expect_texts(5).await, bodies(0..5));
}

#[tokio::test]
async fn dead_letter_exchange_gets_only_refused_messages() {
    let broker = Broker::shared();
    broker.declare_with_refused("refused", "refused_dead").await;
    broker
        .publish("refused", &["a", "\u{1}", "b", "\u{2}", "c"])
        .await;
    let mut stage = Stage::consume(broker, "refused", settings());
    stage.expect_up().await;
    stage.expect_texts(5).await;
    stage.verdicts.give(FrameVerdict::Refused { seq: 2 });
    stage.verdicts.give(FrameVerdict::Refused { seq: 4 });
    stage.verdicts.give(FrameVerdict::Committed { through: 5 });
    wait_for_depth(broker, "refused_dead", 2).await;
    let dead = broker.take("refused_dead").await;
    let dead: Vec<_> = dead.iter().map(|message| &message.body[..]).collect();
    assert_eq!(dead, [b"\x01", b"\x02"]);
    stage.request_stop();
    stage.wait_until_ended().await;
    wait_for_depth(broker, "refused", 0).await;
}

#[tokio::test]
async fn missing_queue_is_named_with_command_and_used_once_declared() {
    let broker = Broker::shared();
    let mut stage = Stage::consume(broker, "missing", settings());
    let why = stage.expect_down().await;
    let vhost = broker.vhost();
    let command = format!("rabbitmqadmin --vhost={vhost} declare queue name=missing durable=true");
    assert!(
        why.contains("no queue missing") && why.contains(&command),
        "{why}"
    );
    broker.declare("missing").await;
    stage.expect_up().await;
}

#[tokio::test]
async fn declare_yes_creates_a_durable_queue_bound_to_the_exchange() {
    let broker = Broker::shared();
    let base = broker.url(ADMINISTRATOR);
    let url =
        format!("{base}?queue=declared&format=wazo&exchange=amq.headers&bind=name=CEL&declare=yes");
    let mut stage = Stage::start(&url, settings());
    stage.expect_up().await;
    let (_connection, channel) = broker.channel().await;
    for name in ["CEL", "Hangup"] {
        let mut headers = FieldTable::default();
        headers.insert("name".into(), AMQPValue::LongString(name.into()));
        let properties = lapin::BasicProperties::default().with_headers(headers);
        let options = lapin::options::BasicPublishOptions::default();
        let exchange = "amq.headers".into();
        let sent = channel.basic_publish(exchange, "".into(), options, name.as_bytes(), properties);
        sent.await.expect("sent").await.expect("confirmed");
    }
    broker.publish("declared", &["last"]).await;
    assert_eq!(stage.expect_texts(2).await, ["CEL", "last"]);
    // RabbitMQ refuses to declare a queue again as durable if it is not durable.
    broker.declare("declared").await;
    // The same URL also works if the queue already exists.
    stage.crash().await;
    wait_for_depth(broker, "declared", 2).await;
    let mut again = Stage::start(&url, settings());
    again.expect_up_after_consumer().await;
    assert_eq!(again.expect_texts(2).await, ["CEL", "last"]);
    let missing = format!("{base}?queue=declared2&format=wazo&exchange=none&declare=yes");
    let why = Stage::start(&missing, settings()).expect_down().await;
    assert!(
        why.contains("no exchange 'none'") && why.contains("exchange="),
        "{why}"
    );
}

/// `wazo-headers` as Wazo creates it, and a user's event on it.
#[tokio::test]
async fn several_wazo_header_bindings_deliver_each_event_once() {
    let broker = Broker::shared();
    let (_connection, channel) = broker.channel().await;
    let options = lapin::options::ExchangeDeclareOptions {
        durable: true,
        ..Default::default()
    };
    let kind = lapin::ExchangeKind::Headers;
    let made =
        channel.exchange_declare("wazo-headers".into(), kind, options, FieldTable::default());
    made.await.expect("an exchange");
    let url = format!(
        "{}?queue=callbridge_wazo&format=wazo&exchange=wazo-headers\
         &bind=name=CEL;name=Newchannel;name=Hangup&declare=yes",
        broker.url(ADMINISTRATOR)
    );
    let mut stage = Stage::start(&url, settings());
    stage.expect_up().await;
    for name in ["Newchannel", "VarSet", "CEL", "call_log_created", "Hangup"] {
        let mut headers = FieldTable::default();
        for (key, value) in [
            ("name", name),
            ("origin_uuid", "7a6f"),
            ("required_acl", ""),
        ] {
            headers.insert(key.into(), AMQPValue::LongString(value.into()));
        }
        let properties = lapin::BasicProperties::default().with_headers(headers);
        let options = lapin::options::BasicPublishOptions::default();
        let body = format!("{{\"name\": \"{name}\"}}");
        let sent = channel.basic_publish(
            "wazo-headers".into(),
            "".into(),
            options,
            body.as_bytes(),
            properties,
        );
        sent.await.expect("sent").await.expect("confirmed");
    }
    broker.publish("callbridge_wazo", &["last"]).await;
    let texts = stage.expect_texts(4).await.join(" ");
    insta::assert_snapshot!(
        texts,
        @r#"{"name": "Newchannel"} {"name": "CEL"} {"name": "Hangup"} last"#
    );
}

#[tokio::test]
async fn second_consumer_is_refused_and_takes_over_after_first() {
    let broker = Broker::shared();
    broker.declare("exclusive").await;
    let mut first = Stage::consume(broker, "exclusive", settings());
    first.expect_up().await;
    let mut second = Stage::consume(broker, "exclusive", settings());
    let why = second.expect_down().await;
    assert!(
        why.contains("queue exclusive has another consumer"),
        "{why}"
    );
    first.request_stop();
    first.wait_until_ended().await;
    second.expect_up().await;
}

#[tokio::test]
async fn quorum_queue_has_only_one_consumer() {
    let broker = Broker::shared();
    let mut quorum = FieldTable::default();
    let kind = AMQPValue::LongString("quorum".into());
    quorum.insert("x-queue-type".into(), kind);
    broker.declare_with("quorum", quorum).await;
    broker.publish("quorum", &bodies(0..2)).await;
    let mut first = Stage::consume(broker, "quorum", settings());
    first.expect_up().await;
    assert_eq!(first.expect_texts(2).await, bodies(0..2));
    let why = Stage::consume(broker, "quorum", settings())
        .expect_down()
        .await;
    assert!(why.contains("queue quorum has another consumer"), "{why}");
    first.verdicts.give(FrameVerdict::Committed { through: 2 });
    first.request_stop();
    first.wait_until_ended().await;
    wait_for_depth(broker, "quorum", 0).await;
}

#[tokio::test]
async fn deleted_queue_is_reported_and_consumed_again() {
    let broker = Broker::shared();
    broker.declare("deleted").await;
    let mut stage = Stage::consume(broker, "deleted", settings());
    stage.expect_up().await;
    broker.delete("deleted").await;
    let why = stage.expect_down().await;
    assert!(why.contains("deleted"), "{why}");
    broker.declare("deleted").await;
    loop {
        match stage.next().await {
            Item::Up => break,
            Item::Down(Outage { why, .. }) => assert!(why.contains("no queue deleted"), "{why}"),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn pause_requeues_uncommitted_messages_until_resume() {
    let broker = Broker::shared();
    broker.declare("pause").await;
    broker.publish("pause", &bodies(0..4)).await;
    let mut stage = Stage::consume(broker, "pause", settings());
    stage.expect_up().await;
    stage.expect_texts(4).await;
    stage.verdicts.pause(true);
    assert!(stage.expect_down().await.starts_with("paused"));
    wait_for_depth(broker, "pause", 4).await;
    // A verdict on requeued messages has no effect.
    stage.verdicts.give(FrameVerdict::Committed { through: 4 });
    stage.verdicts.pause(false);
    stage.expect_up().await;
    assert_eq!(stage.expect_texts(4).await, bodies(0..4));
    stage.verdicts.give(FrameVerdict::Committed { through: 8 });
    stage.request_stop();
    stage.wait_until_ended().await;
    wait_for_depth(broker, "pause", 0).await;
}

#[tokio::test]
async fn unacknowledged_messages_never_exceed_the_prefetch() {
    let broker = Broker::shared();
    broker.declare("prefetch").await;
    broker.publish("prefetch", &bodies(0..30)).await;
    let few = Settings {
        prefetch: 10,
        ..settings()
    };
    let mut stage = Stage::consume(broker, "prefetch", few);
    stage.expect_up().await;
    stage.expect_texts(10).await;
    assert_eq!(broker.depth("prefetch").await, 20);
    stage.verdicts.give(FrameVerdict::Committed { through: 10 });
    assert_eq!(stage.expect_texts(10).await, bodies(10..20));
}

#[tokio::test]
async fn wrong_secret_vhost_or_missing_right_is_named() {
    let broker = Broker::shared();
    let folder = tempfile::tempdir().expect("a folder");
    let wrong = folder.path().join("secret");
    std::fs::write(&wrong, "wrong\n").expect("written");
    let base = broker.url(ADMINISTRATOR);
    let secret = format!("&secret-file={}", wrong.display());
    let why = Stage::start(&cel_url(&base, &secret), settings())
        .expect_down()
        .await;
    assert!(why.contains("login refused"), "{why}");
    let missing_vhost = base.replace(broker.vhost(), "none");
    let why = Stage::start(&cel_url(&missing_vhost, ""), settings())
        .expect_down()
        .await;
    assert!(why.contains("rabbitmqctl add_vhost none"), "{why}");
    // `asterisk` can only publish.
    let why = Stage::start(&cel_url(&broker.url("asterisk"), ""), settings())
        .expect_down()
        .await;
    assert!(
        why.contains("rabbitmqctl list_user_permissions asterisk"),
        "{why}"
    );
}

/// Returns the URL of the queue `asterisk_cel` of the broker `base`. `more` has further parameters,
/// such as `&secret-file=/run/secret`.
fn cel_url(base: &str, more: &str) -> String {
    format!("{base}?queue=asterisk_cel&format=asterisk-cel{more}")
}

#[tokio::test]
async fn definitions_user_consumes_and_rejects_asterisk_messages() {
    let broker = Broker::shared();
    let base = broker.url("callbridge");
    let url = format!("{base}?queue=asterisk_cel&format=asterisk-cel");
    let mut stage = Stage::start(&url, settings());
    stage.expect_up().await;
    broker.publish("asterisk_cel", &["\u{1}"]).await;
    stage.expect_frame().await;
    stage.verdicts.give(FrameVerdict::Refused { seq: 1 });
    stage.verdicts.give(FrameVerdict::Committed { through: 1 });
    wait_for_depth(broker, "asterisk_unreadable", 1).await;
}

#[tokio::test]
async fn silent_connection_is_closed_by_heartbeat_and_reopened() {
    let broker = Broker::shared();
    broker.declare("silent").await;
    let proxy = Proxy::start(broker.port()).await;
    let url = format!(
        "amqp://{ADMINISTRATOR}@127.0.0.1:{}/{}?queue=silent&format=asterisk-cel&heartbeat=2",
        proxy.port(),
        broker.vhost()
    );
    let mut stage = Stage::start(&url, settings());
    stage.expect_up().await;
    proxy.freeze();
    let why = stage.expect_down().await;
    assert!(why.contains("no byte for 4 s"), "{why}");
    broker.publish("silent", &["after"]).await;
    loop {
        match stage.next().await {
            Item::Up => break,
            Item::Down(Outage { why, .. }) => assert!(why.contains("another consumer"), "{why}"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(stage.expect_texts(1).await, ["after"]);
}

#[tokio::test]
async fn broker_restart_after_kill_loses_no_message() {
    let broker = Broker::start().declare_for_good("killed").await;
    broker.publish("killed", &bodies(0..3)).await;
    let mut stage = Stage::consume(&broker, "killed", settings());
    stage.expect_up().await;
    stage.expect_texts(3).await;
    let broker = tokio::task::spawn_blocking(|| {
        broker.kill();
        broker.start_again();
        broker
    });
    let broker = soon("the broker", broker).await.expect("it starts");
    loop {
        match stage.next().await {
            Item::Up => break,
            Item::Down(_) => {}
            other => panic!("{other:?}"),
        }
    }
    let again = stage.expect_texts(3).await;
    assert_eq!(again, bodies(0..3));
    stage.verdicts.give(FrameVerdict::Committed { through: 6 });
    stage.request_stop();
    stage.wait_until_ended().await;
    wait_for_depth(&broker, "killed", 0).await;
}
