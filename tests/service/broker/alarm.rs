//! Tests a RabbitMQ alarm that blocks connections that publish. No dead letter is lost or delivered
//! twice.

use super::notices::{State, first_ids, ids, publish, queue};
use super::stage::{soon, wait_for_depth};
use callbridge_broker::notices::Queue;
use callbridge_source::amqp::{Login, publish::ConfirmedLine};
use callbridge_source::{BrokerUrl, Secret};
use callbridge_testbed::broker::{ADMINISTRATOR, Broker, SECRET};
use callbridge_testbed::wait::until;
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::time::{interval, timeout};

/// Time that the publisher has for a confirm. The alarm lasts for a multiple of this time.
const TIME_LIMIT: Duration = Duration::from_secs(1);
const ALARM: Duration = Duration::from_secs(5);
/// Time that the daemon allows its publisher to end.
const STOP_WITHIN: Duration = Duration::from_secs(8);

/// Waits until the publisher knows the broker's reason for blocking it.
async fn wait_until_blocked(queue: &Queue) {
    let mut problem = queue.problem();
    let blocked = problem.wait_for(Option::is_some);
    let shown = soon("the alarm", blocked).await.expect("it runs").clone();
    let shown = shown.expect("a problem");
    assert_eq!(shown.reason, "low on memory");
    assert!(
        shown.message.contains("rabbitmq-diagnostics alarms"),
        "{shown:?}"
    );
}

/// Lists the connections of callbridge each second for as long as the alarm lasts.
async fn check_one_connection(broker: &Broker) {
    let begun = Instant::now();
    let mut ticks = interval(Duration::from_secs(1));
    while begun.elapsed() < ALARM {
        ticks.tick().await;
        let states = tokio::task::block_in_place(|| broker.connections_of_callbridge());
        assert_eq!(states, ["blocked"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn alarm_on_open_connection_delivers_each_notice_once() {
    let broker = Broker::start();
    broker.declare("dead").await;
    let state = State::new();
    let queue = queue(&broker, "dead").with_time_limit(TIME_LIMIT);
    let (_stop, _task) = publish(&state, queue.clone());
    state.add_letters(0..1).await;
    state.wait_for_outbox(0).await;
    tokio::task::block_in_place(|| broker.raise_alarm());
    state.add_letters(1..21).await;
    wait_until_blocked(&queue).await;
    check_one_connection(&broker).await;
    assert_eq!(state.count_waiting().await, 20);
    // On a slow machine, the login of a probe can take longer than the time limit.
    until("a probe that names the alarm", async || {
        let refused = queue.probe().await.expect_err("blocked").to_string();
        refused.contains("low on memory")
    })
    .await;
    tokio::task::block_in_place(|| broker.end_alarm());
    state.wait_for_outbox(0).await;
    wait_for_depth(&broker, "dead", 21).await;
    assert_eq!(ids(&broker.take("dead").await), first_ids(21));
    let mut problem = queue.problem();
    let solved = problem.wait_for(Option::is_none);
    drop(soon("no problem", solved).await.expect("it runs"));
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_during_an_alarm_ends_in_time_and_repeats_nothing() {
    let broker = Broker::start();
    broker.declare("dead").await;
    tokio::task::block_in_place(|| broker.raise_alarm());
    let state = State::new();
    state.add_letters(0..20).await;
    let queue = queue(&broker, "dead").with_time_limit(TIME_LIMIT);
    let (stop, task) = publish(&state, queue.clone());
    wait_until_blocked(&queue).await;
    stop.send(()).expect("it runs");
    let ended = timeout(STOP_WITHIN, task).await;
    ended.expect("in time").expect("no panic");
    assert_eq!(state.count_waiting().await, 20);
    tokio::task::block_in_place(|| broker.end_alarm());
    let (_stop, _task) = publish(&state, queue);
    state.wait_for_outbox(0).await;
    assert_eq!(broker.depth("dead").await, 20);
    assert_eq!(ids(&broker.take("dead").await), first_ids(20));
}

#[tokio::test(flavor = "multi_thread")]
async fn check_during_an_alarm_is_answered_after_its_end() {
    let broker = Broker::start();
    let url = format!("{}?queue=dead", broker.url(ADMINISTRATOR));
    let url = BrokerUrl::queue(&url).expect("a URL");
    let login = Login::new(&url.broker, Secret::Value(SECRET.into()), None);
    tokio::task::block_in_place(|| broker.raise_alarm());
    let line = ConfirmedLine::open(&login, 0).await.expect("a login");
    let mut reason = line.blocked();
    let mut answer = pin!(line.may_write("no-such-queue"));
    // A confirm that the broker has already sent arrives within this time.
    let early = timeout(Duration::from_secs(2), &mut answer).await;
    assert!(early.is_err(), "{early:?}");
    let blocked = reason.wait_for(Option::is_some);
    drop(soon("the alarm", blocked).await.expect("it runs"));
    tokio::task::block_in_place(|| broker.end_alarm());
    soon("the answer", answer).await.expect("returned");
}
