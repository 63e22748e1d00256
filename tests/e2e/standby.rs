//! Two senders of one token: who sends is decided by a lease, through kills, freezes and a broker
//! that goes away.

use crate::broker::Broker;
use crate::crm;
use crate::fleet::{collector, sender, stream};
use crate::program::{Place, Program};
use crate::recordings::{self, Recording, TRUNKS, in_a_row};
use callbridge_model::Status;
use callbridge_model::status::{FindingKind, LeasePhase, Todo};
use callbridge_sandbox::ViolationKind;
use rustix::process::Signal;

fn phase(status: &Status) -> Option<LeasePhase> {
    status.lease.as_ref().map(|it| it.state)
}

fn is(wanted: LeasePhase) -> impl Fn(&Status) -> bool {
    move |status| phase(status) == Some(wanted)
}

/// Calls in a stream of this name.
async fn forwarded(node: &Broker, name: &str, calls: &[Recording]) -> Place {
    let here = Place::new();
    for call in calls {
        here.append("recorded", &call.ami);
    }
    let file = here.file("recorded", "ami");
    let flags = [&file, TRUNKS[0], TRUNKS[1], "--until-idle"];
    let to = stream(node, name, &here);
    collector(&here, &to, &flags).succeeds().await;
    here
}

/// What is wrong with what both have sent in sum. What the one had sent the other sends again with
/// the same uuid, which makes no second record.
async fn wrong(crm: &callbridge_sandbox::Server, place: &Place, calls: &[Recording]) -> String {
    let expected = recordings::expected(calls);
    let mut wrong = crm::compare(crm, &place.letters().await, &expected);
    let repeats = |kind| kind == ViolationKind::RepeatAfter200;
    wrong.extend(crm::conduct(crm, repeats));
    wrong.join("\n")
}

/// The one that holds, told by a log line as well.
async fn holds(program: &mut Program, calls: u64) -> Status {
    let holding = |it: &Status| is(LeasePhase::Holding)(it) && it.books.finished >= calls;
    let status = program.until("it holds the lease", holding).await;
    let log = program.log();
    assert!(log.contains("the lease is ours"), "{log}");
    status
}

#[tokio::test]
async fn a_frozen_holder_and_a_killed_one_are_followed_by_the_standby_and_no_window_holds_more() {
    const CALLS: u64 = 150;
    let (node, crm) = (Broker::shared(), crm::start().await);
    let calls = in_a_row(usize::try_from(CALLS).expect("few"));
    let _collector = forwarded(node, "leased", &calls).await;
    let places = [Place::new(), Place::new()];
    let start = |place: &Place| {
        let from = stream(node, "leased", place);
        sender(place, &crm, &from, &["--standby=lease-of-both"])
    };
    let mut first = start(&places[0]);
    let comes = "the lease comes to the first";
    first.until(comes, is(LeasePhase::Silent)).await;
    let mut second = start(&places[1]);
    let read = |it: &Status| it.books.finished == CALLS;
    let standing = second.until("the standby reads the stream", read).await;
    assert_eq!(phase(&standing), Some(LeasePhase::Standby));
    assert_eq!((standing.books.ready, standing.pause), (CALLS, None));
    // the collector has done its work and gone, which whoever reads the stream is told
    let gone = |it: &&Todo| it.kind != FindingKind::SilentCollector;
    assert_eq!(standing.todo.iter().find(gone), None);

    // the holder freezes with calls in hand for as long as the other needs to take over
    holds(&mut first, CALLS).await;
    let some = |it: &Status| it.books.journaled + it.books.submitted > 5;
    first.until("some are sent", some).await;
    first.signal(Signal::STOP);
    holds(&mut second, CALLS).await;
    first.signal(Signal::CONT);
    first
        .until("it finds that it was left behind", is(LeasePhase::Standby))
        .await;

    // the new holder is killed with calls in hand, and the first goes on
    second.until("some are sent by the second", some).await;
    second.kill().await;
    holds(&mut first, CALLS).await;
    let status = first.settled(CALLS).await;
    assert!(status.books.balance(), "{:?}", status.books);
    assert_eq!(status.books.journaled, CALLS, "{:?}", status.books);
    first.terminate().await;
    assert_eq!(wrong(&crm, &places[0], &calls).await, "");
}

#[tokio::test]
async fn while_the_broker_is_away_nobody_sends_and_after_it_one_does() {
    let crm = crm::start().await;
    let node = tokio::task::spawn_blocking(Broker::start);
    let node = node.await.expect("a node");
    let calls = in_a_row(20);
    let _collector = forwarded(&node, "leased-away", &calls).await;
    let places = [Place::new(), Place::new()];
    let start = |place: &Place| {
        let from = stream(&node, "leased-away", place);
        sender(place, &crm, &from, &["--standby=lease-away"])
    };
    let mut first = start(&places[0]);
    let comes = "the lease comes to the first";
    first.until(comes, is(LeasePhase::Silent)).await;
    let mut second = start(&places[1]);
    let read = |it: &Status| it.books.finished == 20;
    second.until("the standby reads the stream", read).await;
    let node = tokio::task::spawn_blocking(move || {
        node.stop();
        node
    });
    let node = node.await.expect("it stops");
    let without = |it: &Status| {
        let lease = it.lease.as_ref();
        lease.is_some_and(|it| it.state == LeasePhase::Standby && it.why.is_some())
            && it.todo.iter().any(|it| it.what.contains("lease-away"))
    };
    first.until("the first's claim ends", without).await;
    second.until("the second tells of it", without).await;
    assert!(crm.journal().is_empty());
    let node = tokio::task::spawn_blocking(move || {
        node.start_again();
        node
    });
    let _node = node.await.expect("it starts");
    let mut both = [first, second];
    let mut holder = None;
    crate::wait::until("one of them holds", async || {
        for (at, program) in both.iter().enumerate() {
            let status = program.status().await;
            if status.as_ref().is_some_and(is(LeasePhase::Holding)) {
                holder = Some(at);
            }
        }
        holder.is_some()
    })
    .await;
    let holder = holder.expect("one");
    let status = both[holder].settled(20).await;
    assert_eq!(status.books.journaled, 20, "{:?}", status.books);
    let other = both[1 - holder].status().await.expect("a status");
    assert_eq!(phase(&other), Some(LeasePhase::Standby));
    for program in both {
        program.terminate().await;
    }
    assert_eq!(wrong(&crm, &places[holder], &calls).await, "");
}
