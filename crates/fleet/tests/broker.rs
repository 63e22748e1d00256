//! Does a real broker do what the rules rest on, and does the shell keep to them?

use callbridge_fleet::lease::handover::Patience;
use callbridge_fleet::lease::{LeaseKeeper, Terms};
use callbridge_model::status::{Lease, LeasePhase};
use callbridge_model::{Permit, clock};
use callbridge_source::amqp::Login;
use callbridge_source::url::{Broker as Address, TcpEndpoint};
use callbridge_source::{Fix, Secret};
use callbridge_testbed::broker::{ADMINISTRATOR, Broker, READER, SECRET, VHOST};
use callbridge_testbed::wait::{soon, until};
use futures_util::StreamExt as _;
use lapin::options::{BasicAckOptions, BasicConsumeOptions};
use lapin::types::FieldTable;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

/// Short enough to wait for, and longer than what two processes need to learn whose turn it is.
const TERMS: Terms = Terms {
    silence: Duration::from_millis(1500),
    window: Duration::from_secs(1),
};

/// Long enough for nobody to give its turn away a second time.
const PATIENCE: Patience = Patience {
    unable_for: Duration::from_millis(300),
    not_again_within: Duration::from_secs(3600),
};

fn login(node: &Broker, user: &str) -> Login {
    Login {
        broker: Address {
            endpoint: TcpEndpoint {
                host: "127.0.0.1".to_owned(),
                port: node.port(),
                tls: false,
            },
            others: Vec::new(),
            user: user.to_owned(),
            vhost: VHOST.to_owned(),
            heartbeat: 15,
        },
        secret: Secret::Value(SECRET.to_owned().into()),
        variable: "CALLBRIDGE_AMQP_SECRET",
        ca_file: None,
        within: Duration::from_secs(30),
    }
}

struct Process {
    permit: Permit,
    shown: watch::Receiver<Lease>,
    task: JoinHandle<()>,
}

impl Process {
    fn start(node: &Broker, name: &str, us: &str) -> Self {
        Self::able(node, name, us, watch::channel(true).1)
    }

    fn able(node: &Broker, name: &str, us: &str, able: watch::Receiver<bool>) -> Self {
        let permit = Permit::withheld();
        let keeper = LeaseKeeper::new(login(node, ADMINISTRATOR), name, TERMS, permit.clone());
        let mut keeper = keeper.able(able, PATIENCE);
        us.clone_into(&mut keeper.us);
        let shown = keeper.shown();
        let task = tokio::spawn(keeper.run(std::future::pending()));
        Self {
            permit,
            shown,
            task,
        }
    }

    async fn is(&mut self, phase: LeasePhase) -> Lease {
        let wanted = self.shown.wait_for(|it| it.state == phase);
        soon(phase.word(), wanted).await.expect("it lives").clone()
    }
}

#[tokio::test]
async fn one_holds_the_others_stand_by_and_when_it_ends_one_of_them_takes_over() {
    let node = Broker::shared();
    let mut first = Process::start(node, "lease-passes", "first");
    let silent = first.is(LeasePhase::Silent).await;
    assert!(silent.silent_until.is_some() && !first.permit.is_held());
    let held = first.is(LeasePhase::Holding).await;
    assert!(held.is_held() && held.silent_until.is_none());
    assert!(held.round_trip_ms.is_some());
    until("leave", async || first.permit.is_held()).await;
    let mut second = Process::start(node, "lease-passes", "second");
    // its ticks come to the one that holds, never back to itself
    let beside = first.shown.wait_for(|it| it.others == ["second"]);
    drop(soon("the second's tick", beside).await.expect("it lives"));
    assert_eq!(second.shown.borrow().state, LeasePhase::Standby);
    assert!(first.permit.is_held() && !second.permit.is_held());
    // the line goes with the task; leave ends by itself
    first.task.abort();
    second.is(LeasePhase::Holding).await;
    until("leave of the second", async || second.permit.is_held()).await;
    until("the end of the first's leave", async || {
        !first.permit.is_held()
    })
    .await;
    second.task.abort();
}

/// The silence is longer than any test waits here: only what was handed over can make it shorter.
#[tokio::test]
async fn holders_that_are_stopped_in_order_leave_their_slots_to_the_next_which_keeps_no_silence() {
    const ROUNDS: usize = 10;
    let node = Broker::shared();
    let start = |us: &str, silence| {
        let terms = Terms { silence, ..TERMS };
        let permit = Permit::withheld();
        let login = login(node, ADMINISTRATOR);
        let mut keeper = LeaseKeeper::new(login, "lease-handed-on", terms, permit.clone());
        us.clone_into(&mut keeper.us);
        let (stop, stopped) = oneshot::channel::<()>();
        let shown = keeper.shown();
        let task = tokio::spawn(keeper.run(async { drop(stopped.await) }));
        let process = Process {
            permit,
            shown,
            task,
        };
        (process, stop)
    };
    let (mut holder, mut stop) = start("first", TERMS.silence);
    for round in 0..ROUNDS {
        holder.is(LeasePhase::Holding).await;
        let us = format!("of round {round}");
        let (next, next_stop) = start(&us, Duration::from_secs(100_000));
        let beside = holder.shown.wait_for(|it| it.others == [us.clone()]);
        drop(soon("its tick", beside).await.expect("it lives"));
        let now = clock::now().boot;
        let ended = [now, now + Duration::from_secs(5)];
        holder.permit.leave_behind(ended.to_vec());
        stop.send(()).expect("it lives");
        holder.task.await.expect("it ends in order");
        assert!(!holder.permit.is_held());
        (holder, stop) = (next, next_stop);
        holder.is(LeasePhase::Holding).await;
        let inherited = holder.permit.take_inherited();
        assert_eq!(inherited.len(), ended.len());
        for (inherited, ended) in inherited.iter().zip(ended) {
            assert!(*inherited >= ended, "{inherited:?} {ended:?}");
        }
    }
    holder.task.abort();
}

#[tokio::test]
async fn a_holder_that_cannot_send_gives_the_lease_to_one_that_can() {
    let node = Broker::shared();
    let (can, first_able) = watch::channel(true);
    let mut first = Process::able(node, "lease-given", "first", first_able);
    first.is(LeasePhase::Holding).await;
    let (other_can, second_able) = watch::channel(false);
    let mut second = Process::able(node, "lease-given", "second", second_able);
    let beside = first.shown.wait_for(|it| it.others == ["second"]);
    drop(soon("the second's tick", beside).await.expect("it lives"));
    can.send_replace(false);
    assert_eq!(first.shown.borrow().state, LeasePhase::Holding);
    other_can.send_replace(true);
    second.is(LeasePhase::Holding).await;
    assert_eq!(first.shown.borrow().state, LeasePhase::Standby);
    assert!(!first.permit.is_held());
    first.task.abort();
    second.task.abort();
}

/// The rules rest on this: what a consumer has not acknowledged comes to the next one first, and
/// is marked.
#[tokio::test]
async fn what_was_not_acknowledged_comes_to_the_next_consumer_first_and_is_marked() {
    let node = Broker::shared();
    let name = "lease-hands-on";
    let permit = Permit::withheld();
    let keeper = LeaseKeeper::new(login(node, ADMINISTRATOR), name, TERMS, permit);
    keeper.probe().await.expect("it can be had");
    let consume = async || {
        let (connection, channel) = node.channel().await;
        let (options, none) = (BasicConsumeOptions::default(), FieldTable::default());
        let consumer = channel.basic_consume(name.into(), "judge".into(), options, none);
        (connection, consumer.await.expect("a consumer"))
    };
    let (connection, mut consumer) = consume().await;
    let (_waits, mut waiting) = consume().await;
    let first = soon("the tick of the probe", consumer.next()).await;
    let first = first.expect("one").expect("a tick");
    assert!(!first.redelivered);
    node.publish(name, &["newer"]).await;
    let newer = soon("a newer one", consumer.next()).await;
    let newer = newer.expect("one").expect("a message");
    newer.ack(BasicAckOptions::default()).await.expect("acked");
    node.publish(name, &["newest"]).await;
    soon("the newest", consumer.next()).await;
    connection.close(200, "gone".into()).await.expect("closed");
    let mut told = Vec::new();
    for what in ["the tick again", "the newest again"] {
        let given = soon(what, waiting.next()).await;
        let given = given.expect("one").expect("a message");
        told.push((given.data.clone(), given.redelivered));
    }
    let wanted = [(first.data, true), (b"newest".to_vec(), true)];
    assert_eq!(told, wanted);
}

#[tokio::test]
async fn a_queue_that_is_made_otherwise_is_refused_and_named() {
    let node = Broker::shared();
    node.declare("lease-classic").await;
    let permit = Permit::withheld();
    let keeper = LeaseKeeper::new(login(node, ADMINISTRATOR), "lease-classic", TERMS, permit);
    let error = keeper.probe().await.expect_err("a classic queue");
    assert!(error.to_string().contains("made otherwise"), "{error}");
    assert_eq!(error.fix, Some(Fix::Settings));
    assert!(error.to_string().contains("queue lease-classic"), "{error}");
}

#[tokio::test]
async fn a_missing_right_is_named() {
    let node = Broker::shared();
    let permit = Permit::withheld();
    let keeper = LeaseKeeper::new(login(node, READER), "lease-rights", TERMS, permit);
    let error = keeper.probe().await.expect_err("no right to configure");
    let words = error.to_string();
    assert_eq!(error.fix, Some(Fix::Secret), "{words}");
    assert!(words.contains("may not declare the queue"), "{words}");
    assert!(!words.contains(SECRET), "{words}");
}
