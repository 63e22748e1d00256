//! Tests messages and greetings that the AMQP library lapin can't parse. They're written byte by
//! byte, since lapin can't write them either.

use super::stage::{Stage, settings, soon, wait_for_depth};
use callbridge_source::FrameVerdict;
use callbridge_testbed::broker::{ADMINISTRATOR, Broker, raw};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

#[tokio::test]
async fn poison_messages_are_read_and_acknowledged() {
    let broker = Broker::shared();
    broker.declare("poison").await;
    // The deepest table fills RabbitMQ's longest frame.
    for depth in [1_000, 18_000] {
        raw::publish(broker, "", b"poison", &raw::deep_headers(depth), b"deep").await;
    }
    let content_type = raw::content_type(b"\xff\xfe");
    raw::publish(broker, "", b"poison", &content_type, b"type").await;
    broker.bind_fanout("poison", "poison_fanout").await;
    raw::publish(
        broker,
        "poison_fanout",
        b"\xff",
        &raw::NO_PROPERTIES,
        b"key",
    )
    .await;
    broker.publish("poison", &["next"]).await;
    let mut stage = Stage::consume(broker, "poison", settings());
    stage.expect_up().await;
    let texts = stage.expect_texts(5).await;
    assert_eq!(texts, ["deep", "deep", "type", "key", "next"]);
    stage.verdicts.give(FrameVerdict::Committed { through: 5 });
    stage.request_stop();
    stage.wait_until_ended().await;
    wait_for_depth(broker, "poison", 0).await;
}

#[tokio::test]
async fn deep_greeting_of_a_broker_is_answered() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let url = format!("amqp://{ADMINISTRATOR}@127.0.0.1:{port}/%2F?queue=a&format=asterisk-cel");
    let _stage = Stage::start(&url, settings());
    let answer = soon("the response to the greeting", async {
        let (mut broker, _) = listener.accept().await.expect("a connection");
        let mut version = [0; 8];
        broker.read_exact(&mut version).await.expect("its version");
        let greeting = raw::deep_greeting(10_000);
        broker.write_all(&greeting).await.expect("written");
        let mut answer = [0; 11];
        broker.read_exact(&mut answer).await.expect("an answer");
        answer
    });
    let answer = answer.await;
    assert_eq!(answer[7..], [0, 10, 0, 11], "Connection.StartOk");
}
