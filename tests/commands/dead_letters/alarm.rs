//! Tests that `status` reports a RabbitMQ alarm while dead letters wait to be published, and that
//! the daemon stops without delay.

use crate::commands::sidecar::{Place, poll_until, start_crm};
use callbridge_testbed::broker::Broker;
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread")]
async fn broker_alarm_is_shown_as_a_problem_in_status() {
    let broker = Broker::start();
    broker.declare("letters").await;
    tokio::task::block_in_place(|| broker.raise_alarm());
    let (place, crm) = (Place::new(), start_crm(|_| ()).await);
    place.write("calls.ami", "no event\r\n\r\n".repeat(20));
    let mut flags = place.flags_of_file(&crm.url(), "calls.ami");
    let url = broker.url("callbridge");
    flags.push(format!("--dead-letter-queue={url}?queue=letters"));
    let daemon = place.start_daemon(&flags).await;
    let (status, outbox) = poll_until("the alarm", async || {
        let status = place.status().await?;
        let outbox = status["outboxes"][0].clone();
        (outbox["problem"]["reason"] == "low on memory").then_some((status, outbox))
    })
    .await;
    assert_eq!(outbox["name"], "dead_letters");
    assert_eq!(outbox["messages"], 20);
    let problems = status["problems"].as_array().expect("findings").iter();
    let alarms = problems.filter(|finding| finding["kind"] == "dead_letter_queue");
    let messages: Vec<_> = alarms
        .filter_map(|finding| finding["message"].as_str())
        .collect();
    assert_eq!(messages.len(), 1, "{status}");
    assert!(
        messages[0].contains("rabbitmq-diagnostics alarms"),
        "{messages:?}"
    );
    let start = Instant::now();
    daemon.stop().await;
    assert!(start.elapsed() < Duration::from_secs(10));
    tokio::task::block_in_place(|| broker.end_alarm());
    place.run_until_idle(&flags).await;
    assert_eq!(broker.depth("letters").await, 20, "each once");
}
