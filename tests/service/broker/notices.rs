//! Tests that dead letters reach a queue, whatever the broker does meanwhile.

use super::stage::{soon, wait_for_depth};
use callbridge_broker::notices::Queue;
use callbridge_source::{Bounds, BrokerUrl, EventTime, Secret};
use callbridge_spool as spool;
use callbridge_spool::{Guard, Handle, Op, Settings, UnreadableBytes, tables};
use callbridge_testbed::broker::{ADMINISTRATOR, Broker, SECRET, Taken};
use lapin::types::{AMQPValue, FieldTable};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A spool that queues a notice for each dead letter.
pub struct State {
    pub handle: Handle,
    guard: Option<Guard>,
    _folder: tempfile::TempDir,
}

impl State {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let settings = Settings {
            notices: true,
            ..Settings::default()
        };
        let (handle, guard) = spool::open(folder.path(), settings).expect("a spool");
        Self {
            handle,
            guard: Some(guard),
            _folder: folder,
        }
    }

    /// Adds unreadable messages, which are the simplest dead letters.
    pub async fn add_letters(&self, range: std::ops::Range<u32>) {
        self.handle
            .write(range.map(unreadable_message).collect())
            .await
            .expect("stored");
    }

    pub async fn count_waiting(&self) -> usize {
        let notices = self
            .handle
            .read(|store| tables::outbox::notices(store, 10_000))
            .await;
        notices.expect("readable").len()
    }

    /// Waits until `wanted` notices are in the outbox.
    pub async fn wait_for_outbox(&self, wanted: usize) {
        let mut looks = tokio::time::interval(Duration::from_millis(20));
        let looking = async {
            while self.count_waiting().await != wanted {
                looks.tick().await;
            }
        };
        soon(&format!("{wanted} notices in the outbox"), looking).await;
    }
}

/// Returns the operation that adds the n-th unreadable message.
fn unreadable_message(n: u32) -> Op {
    Op::Unreadable(UnreadableBytes {
        source: "amqp://pbx".to_owned(),
        pbx: "hq".to_owned(),
        bytes: format!("message {n}").into_bytes(),
        cut_from: None,
        file: None,
        why: "the message names no event".to_owned(),
        at: EventTime::from_seconds(1_795_151_317),
        content_type: None,
    })
}

impl Drop for State {
    fn drop(&mut self) {
        if let Some(guard) = self.guard.take() {
            guard.close();
        }
    }
}

pub fn queue(broker: &Broker, name: &str) -> Queue {
    let url = format!("{}?queue={name}", broker.url(ADMINISTRATOR));
    let url = BrokerUrl::queue(&url).expect("good");
    let mut queue = Queue::new(&url, Secret::Value(SECRET.into()));
    queue.bounds = Bounds {
        first: Duration::from_millis(50),
        most: Duration::from_millis(200),
        ..Bounds::default()
    };
    queue
}

/// Publishes the notices of `state` until the returned sender is used or dropped.
pub fn publish(state: &State, queue: Queue) -> (oneshot::Sender<()>, JoinHandle<()>) {
    let (stop, stopped) = oneshot::channel::<()>();
    let spool = state.handle.clone();
    let task = tokio::spawn(queue.run(spool, async {
        let _ = stopped.await;
    }));
    (stop, task)
}

pub fn ids(taken: &[Taken]) -> Vec<String> {
    let ids = taken.iter().filter_map(|message| {
        let id = message.properties.message_id().as_ref();
        id.map(ToString::to_string)
    });
    let mut ids: Vec<_> = ids.collect();
    ids.dedup();
    ids
}

pub fn first_ids(many: u32) -> Vec<String> {
    (1..=many).map(|n| format!("{n}:1")).collect()
}

#[tokio::test]
async fn published_dead_letter_is_persistent_and_carries_reason() {
    let broker = Broker::shared();
    broker.declare("dead").await;
    let state = State::new();
    state.add_letters(0..1).await;
    let (_stop, _task) = publish(&state, queue(broker, "dead"));
    state.wait_for_outbox(0).await;
    // A later notice is published after its commit, without any other trigger.
    state.add_letters(1..2).await;
    wait_for_depth(broker, "dead", 2).await;
    let taken = broker.take("dead").await;
    assert_eq!(ids(&taken), first_ids(2));
    let letter = &taken[0];
    assert_eq!(letter.header("reason"), "unreadable");
    assert_eq!(letter.header("uuid"), "");
    assert_eq!(letter.header("state"), "dead");
    assert_eq!(*letter.properties.timestamp(), Some(1_795_151_317));
    assert_eq!(*letter.properties.delivery_mode(), Some(2));
    let body: serde_json::Value = serde_json::from_slice(&letter.body).expect("JSON");
    assert_eq!(body["reason"], "unreadable");
    assert_eq!(body["message"], "the message names no event");
}

#[tokio::test]
async fn missing_queue_is_reported_and_keeps_its_notices() {
    let broker = Broker::shared();
    let state = State::new();
    state.add_letters(0..3).await;
    let missing = queue(broker, "dead_missing");
    let why = missing
        .probe()
        .await
        .expect_err("there is none")
        .to_string();
    let vhost = broker.vhost();
    let command =
        format!("rabbitmqadmin --vhost={vhost} declare queue name=dead_missing durable=true");
    assert!(why.contains(&command), "{why}");
    let (stop, task) = publish(&state, missing.clone());
    let mut problem = missing.problem();
    let refused = problem.wait_for(Option::is_some);
    let refused = soon("the problem", refused).await.expect("it runs").clone();
    let refused = refused.expect("a problem");
    assert_eq!(refused.reason, "NO_ROUTE");
    assert!(refused.message.contains(&command), "{refused:?}");
    // On stop, the publisher tries one last time. Notices that were not accepted stay in the
    // outbox.
    stop.send(()).expect("it runs");
    soon("the end", task).await.expect("no panic");
    assert_eq!(state.count_waiting().await, 3);
    broker.declare("dead_missing").await;
    missing.probe().await.expect("it is there");
    let (_stop, _task) = publish(&state, missing);
    state.wait_for_outbox(0).await;
    assert_eq!(ids(&broker.take("dead_missing").await), first_ids(3));
}

#[tokio::test]
async fn full_queue_keeps_the_notices_in_the_outbox() {
    let broker = Broker::shared();
    let mut full = FieldTable::default();
    full.insert("x-max-length".into(), AMQPValue::LongInt(2));
    let reject = AMQPValue::LongString("reject-publish".into());
    full.insert("x-overflow".into(), reject);
    broker.declare_with("dead_full", full).await;
    let state = State::new();
    let full = queue(broker, "dead_full");
    let mut problem = full.problem();
    let (_stop, _task) = publish(&state, full);
    let mut seen = Vec::new();
    for n in 0..6 {
        state.add_letters(n..n + 1).await;
    }
    let refused = problem.wait_for(Option::is_some);
    let refused = soon("the problem", refused).await.expect("it runs").clone();
    assert!(refused.is_some_and(|refusal| refusal.message.contains("make room in it")));
    let draining = async {
        while seen.len() < 6 {
            seen.extend(ids(&broker.take("dead_full").await));
        }
    };
    soon("six messages", draining).await;
    seen.sort();
    seen.dedup();
    assert_eq!(seen, first_ids(6));
    state.wait_for_outbox(0).await;
    let solved = problem.wait_for(Option::is_none);
    drop(soon("no problem", solved).await.expect("it runs"));
}

#[tokio::test]
async fn notices_left_at_shutdown_are_published_before_it_ends() {
    let broker = Broker::shared();
    broker.declare("dead_end").await;
    let state = State::new();
    // This is one notice more than are published at a time. The stop has seconds to publish them,
    // however slow the machine is.
    state.add_letters(0..101).await;
    let (stop, task) = publish(&state, queue(broker, "dead_end"));
    stop.send(()).expect("it runs");
    soon("the end", task).await.expect("no panic");
    assert_eq!(state.count_waiting().await, 0);
    assert_eq!(ids(&broker.take("dead_end").await), first_ids(101));
}

/// Promise: Dead letters reach RabbitMQ, and a broker outage loses none.
#[tokio::test]
async fn broker_killed_during_publishing_loses_no_dead_letter() {
    let broker = Broker::start().declare_for_good("dead_outage").await;
    let state = State::new();
    let (_stop, _task) = publish(&state, queue(&broker, "dead_outage"));
    state.add_letters(0..10).await;
    state.wait_for_outbox(0).await;
    // Confirmed notices are on the broker's disk, and the others are in the outbox.
    state.add_letters(10..510).await;
    let broker = tokio::task::spawn_blocking(|| {
        broker.kill();
        broker
    });
    let broker = soon("the end", broker).await.expect("it ends");
    state.add_letters(510..530).await;
    assert!(state.count_waiting().await >= 20);
    let broker = tokio::task::spawn_blocking(|| {
        broker.start_again();
        broker
    });
    let broker = soon("the start", broker).await.expect("it starts");
    state.wait_for_outbox(0).await;
    let mut seen = ids(&broker.take("dead_outage").await);
    seen.sort_by_key(|id| id.trim_end_matches(":1").parse::<u32>().ok());
    seen.dedup();
    assert_eq!(seen, first_ids(530));
}
