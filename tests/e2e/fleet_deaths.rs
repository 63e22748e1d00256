//! Three collectors, a broker and a sender that die in turn: the short form of `tests/run fleet`.

use crate::broker::{self, Broker};
use crate::crm::{self, RATE, RATE_FLAG};
use crate::expected::Expected;
use crate::program::{Place, Program};
use crate::recordings::{self, Recording, TRUNKS, in_a_row};
use crate::wait;
use callbridge_sandbox::{Server, ViolationKind};
use rustix::process::Signal;
use std::sync::Arc;

/// Calls of each branch.
const CALLS: usize = 40;
const BRANCHES: usize = 3;

/// What dies, each with calls on their way.
#[derive(Clone, Copy, Debug)]
enum ShortFault {
    Collector,
    Sender,
    Broker,
    FrozenSender,
    StateLost,
}

const FAULTS: [ShortFault; 5] = [
    ShortFault::Collector,
    ShortFault::Sender,
    ShortFault::Broker,
    ShortFault::FrozenSender,
    ShortFault::StateLost,
];

fn stream(node: &Broker, place: &Place) -> String {
    let secret = place.write("secret", broker::SECRET);
    let url = node.url(broker::ADMINISTRATOR);
    format!("{url}?stream=deaths&declare=yes&secret-file={secret}")
}

fn collect(node: &Broker, place: &Place, n: usize) -> Program {
    let arguments = [
        "run".to_owned(),
        format!("--forward={}", stream(node, place)),
        place.file("recorded", "ami"),
        format!("--state={}", place.path("state")),
        format!("--pbx-id=branch{n}"),
        "--employees=101:501;102:502;103:503;104:504;105-desk:505".to_owned(),
        TRUNKS[0].to_owned(),
        TRUNKS[1].to_owned(),
    ];
    place.start(&arguments, &[])
}

fn send(node: &Broker, place: &Place, crm: &Server) -> Program {
    let arguments = [
        "run".to_owned(),
        format!("--source={}&format=call", stream(node, place)),
        format!("--crm-url={}", crm.url()),
        format!("--token-file={}", place.path("token")),
        format!("--state={}", place.path("state")),
        RATE_FLAG.to_owned(),
    ];
    place.start(&arguments, &[])
}

/// All that the branches' PBXs tell, as the journal has to have it.
fn wanted(calls: &[Recording]) -> Vec<Expected> {
    let branch = |n: usize| {
        let own = recordings::expected(calls).into_iter();
        own.map(move |call| call.on(&format!("branch{n}")))
    };
    (0..BRANCHES).flat_map(branch).collect()
}

/// A collector has forwarded all of its branch, and ends in order.
async fn all_forwarded(mut collector: Program) {
    let own = u64::try_from(CALLS).expect("few");
    let done = |it: &callbridge_model::Status| it.books.forwarded == own;
    let status = collector.until("all is forwarded", done).await;
    assert!(status.books.balance(), "{:?}", status.books);
    collector.terminate().await;
}

#[tokio::test]
async fn collectors_the_broker_and_the_sender_die_in_turn_and_every_call_is_journaled_once() {
    let (there, crm) = (Place::new(), crm::start().await);
    let node = tokio::task::spawn_blocking(Broker::start).await;
    let node = Arc::new(node.expect("a node"));
    let calls = in_a_row(CALLS);
    let branches: [Place; BRANCHES] = std::array::from_fn(|_| Place::new());
    let mut parts = calls.chunks(CALLS.div_ceil(FAULTS.len()));
    let mut collectors = Vec::new();
    for (n, place) in branches.iter().enumerate() {
        place.append("recorded", b"");
        collectors.push(collect(&node, place, n));
    }
    let mut sender = send(&node, &there, &crm);
    let mut told = 0;
    for fault in FAULTS {
        for call in parts.next().unwrap_or_default() {
            told += 1;
            branches
                .iter()
                .for_each(|place| place.append("recorded", &call.ami));
        }
        // Some of these are on their way to the journal, and most are not yet.
        let all = u64::try_from(told * BRANCHES).expect("few");
        let some = all - 20;
        let taken = |it: &callbridge_model::Status| it.books.finished >= some;
        match fault {
            ShortFault::Collector => {
                collectors.remove(0).kill().await;
                collectors.insert(0, collect(&node, &branches[0], 0));
            }
            ShortFault::Broker => {
                let node = Arc::clone(&node);
                let again = tokio::task::spawn_blocking(move || {
                    node.kill();
                    node.start_again();
                });
                again.await.expect("it starts again");
            }
            ShortFault::FrozenSender => {
                sender.until("some are taken", taken).await;
                sender.freeze().await;
                wait::pass(RATE.window * 2).await;
                sender.signal(Signal::CONT);
            }
            ShortFault::Sender | ShortFault::StateLost => {
                sender.until("some are taken", taken).await;
                sender.kill().await;
                if matches!(fault, ShortFault::StateLost) {
                    std::fs::remove_dir_all(there.at("state")).expect("gone");
                }
                sender = send(&node, &there, &crm);
            }
        }
        println!("{fault:?}: {} of {all} are journaled", crm.journal().len());
    }
    assert_eq!(told, CALLS);
    let all = u64::try_from(CALLS * BRANCHES).expect("few");
    let status = sender.settled(all).await;
    assert!(status.books.balance(), "{:?}", status.books);
    assert_eq!(status.books.journaled, all, "{:?}", status.books);
    for collector in collectors {
        all_forwarded(collector).await;
    }
    sender.terminate().await;
    let mut wrong = crm::compare(&crm, &there.letters().await, &wanted(&calls));
    // What a death left open, and all of a state made anew, is asked for with the same uuid.
    let repeats = |kind| kind == ViolationKind::RepeatAfter200;
    wrong.extend(crm::conduct(&crm, repeats));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
