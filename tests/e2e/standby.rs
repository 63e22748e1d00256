//! Two senders of one token: who sends is decided by a lease, through kills, freezes and a broker
//! that goes away.

use crate::broker::{self, Broker};
use crate::crm;
use crate::fleet::{collector, sender, stream};
use crate::program::{Place, Program};
use crate::recordings::{self, Recording, TRUNKS, in_a_row};
use callbridge_model::Status;
use callbridge_model::status::{FindingKind, LeasePhase, Todo};
use callbridge_sandbox::ViolationKind;
use callbridge_testbed::port::free_addr;
use rustix::process::Signal;

/// What the log says of a turn that begins without silence.
const INHERITED: &str = "what it has sent counts as ours";

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
    first.freeze().await;
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

/// Its budget goes with its turn: the other sends within the rest of the window, and no window
/// holds more.
#[tokio::test]
async fn a_holder_that_is_stopped_in_order_hands_over_without_silence() {
    const CALLS: u64 = 150;
    let (node, crm) = (Broker::shared(), crm::start().await);
    let calls = in_a_row(usize::try_from(CALLS).expect("few"));
    let _collector = forwarded(node, "leased-on", &calls).await;
    let places = [Place::new(), Place::new()];
    let start = |place: &Place| {
        let from = stream(node, "leased-on", place);
        sender(place, &crm, &from, &["--standby=lease-on"])
    };
    let mut first = start(&places[0]);
    let comes = "the lease comes to the first";
    first.until(comes, is(LeasePhase::Silent)).await;
    let mut second = start(&places[1]);
    let read = |it: &Status| it.books.finished == CALLS;
    second.until("the standby reads the stream", read).await;
    holds(&mut first, CALLS).await;
    let some = |it: &Status| it.books.journaled + it.books.submitted > 5;
    first.until("some are sent", some).await;
    first.terminate().await;
    holds(&mut second, CALLS).await;
    assert!(second.log().contains(INHERITED), "{}", places[0].logs());
    second.settled(CALLS).await;

    // and back again, to a process that has just begun
    let mut first = start(&places[0]);
    first.until("it reads the stream", read).await;
    second.terminate().await;
    holds(&mut first, CALLS).await;
    assert!(first.log().contains(INHERITED), "{}", places[1].logs());
    let status = first.settled(CALLS).await;
    assert!(status.books.balance(), "{:?}", status.books);
    assert_eq!(status.books.journaled, CALLS, "{:?}", status.books);
    first.terminate().await;
    assert_eq!(wrong(&crm, &places[0], &calls).await, "");
}

/// What is wrong with the way to the CRM from one machine alone is that machine's.
#[tokio::test]
async fn a_holder_without_a_way_to_the_crm_gives_the_lease_to_a_standby_that_has_one() {
    const CALLS: u64 = 5;
    let (node, crm) = (Broker::shared(), crm::start().await);
    let calls = in_a_row(usize::try_from(CALLS).expect("few"));
    let _collector = forwarded(node, "leased-apart", &calls).await;
    let places = [Place::new(), Place::new()];
    let from = stream(node, "leased-apart", &places[0]);
    let nowhere = [
        "run".to_owned(),
        format!("--source={from}&format=call"),
        format!("--crm-url=http://{}", free_addr()),
        format!("--token-file={}", places[0].path("token")),
        format!("--state={}", places[0].path("state")),
        "--standby=lease-apart".to_owned(),
        crm::RATE_FLAG.to_owned(),
    ];
    let mut first = places[0].start(&nowhere, &[]);
    let comes = "the lease comes to the first";
    first.until(comes, is(LeasePhase::Silent)).await;
    let from = stream(node, "leased-apart", &places[1]);
    holds(&mut first, CALLS).await;
    let cannot = |standby: &'static str| {
        move |it: &Status| {
            let lease = |it: &&Todo| it.kind == FindingKind::Lease;
            let what = it.todo.iter().find(lease).map(|it| it.what.clone());
            what.is_some_and(|it| it.contains("cannot send since") && it.contains(standby))
        }
    };
    let alone = "it says that it cannot send, and nobody could";
    first.until(alone, cannot("no standby that can")).await;
    let mut second = sender(&places[1], &crm, &from, &["--standby=lease-apart"]);
    let other = "it says that the other could";
    first
        .until(other, cannot("is handed over after two minutes"))
        .await;
    let named = "the standby names who holds and cannot";
    second.until(named, cannot("holds and cannot send")).await;
    let left = "it gives the lease away";
    first.until(left, is(LeasePhase::Standby)).await;
    let log = first.log();
    assert!(log.contains("another machine says that it could"), "{log}");
    holds(&mut second, CALLS).await;
    let status = second.settled(CALLS).await;
    assert_eq!(status.books.journaled, CALLS, "{:?}", status.books);
    assert_eq!(
        phase(&first.status().await.expect("a status")),
        Some(LeasePhase::Standby)
    );
    first.terminate().await;
    second.terminate().await;
    assert_eq!(wrong(&crm, &places[1], &calls).await, "");
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

/// The same source as another user.
fn as_user(source: &str, user: &str) -> String {
    let source = source.replace(&format!("{}@", broker::ADMINISTRATOR), &format!("{user}@"));
    source.replace("&declare=yes", "")
}

#[tokio::test]
async fn check_names_each_right_that_a_standby_and_its_events_lack() {
    let (node, crm, place) = (Broker::shared(), crm::start().await, Place::new());
    node.declare_stream("rights").await;
    let all = [
        "^lease-rights$",
        r"^(lease-rights|amq\.default)$",
        "^(lease-rights|rights)$",
    ];
    node.let_in("with-rights", all);
    let source = as_user(&stream(node, "rights", &place), "with-rights");
    let arguments = [
        "check".to_owned(),
        "--json".to_owned(),
        "--standby=lease-rights".to_owned(),
        format!("--source={source}&format=call"),
        format!("--crm-url={}", crm.url()),
        format!("--token-file={}", place.path("token")),
        format!("--state={}", place.path("state")),
        format!("--webhook-listen={}", free_addr()),
    ];
    let arguments = arguments.each_ref().map(String::as_str);
    // Configure, write and read, and what is said of lease and events without it.
    let cases = [
        (all, "", true),
        (["^$", all[1], all[2]], "declare the queue", true),
        (
            [all[0], "^lease-rights$", all[2]],
            "publish to the queue",
            false,
        ),
        ([all[0], all[1], "^rights$"], "read the queue", true),
    ];
    for (rights, lacks, events) in cases {
        node.permit("with-rights", rights);
        let output = place.command(&arguments).await;
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        let found = |name: &str| {
            let lines = text
                .lines()
                .map(|line| serde_json::from_str(line).expect("JSON"));
            let mut found = lines.filter(|it: &serde_json::Value| {
                it["name"].as_str().is_some_and(|it| it.starts_with(name))
            });
            found.next().unwrap_or_else(|| panic!("{name}: {text}"))
        };
        let lease = found("standby lease-rights");
        assert_eq!(lease["ok"], lacks.is_empty(), "{rights:?} {lease}");
        if !lacks.is_empty() {
            let what = lease["what"].as_str().unwrap_or_default();
            assert!(
                what.starts_with(&format!("user with-rights may not {lacks}")),
                "{lease}"
            );
            let todo = lease["todo"].as_str().unwrap_or_default();
            assert!(todo.contains("rabbitmqctl set_permissions"), "{lease}");
        }
        let webhooks = found("webhooks amqp://");
        assert_eq!(webhooks["ok"], events, "{rights:?} {webhooks}");
        let todo = webhooks["todo"].as_str().unwrap_or_default();
        let cure = "let with-rights write to amq.default";
        assert!(events || todo.starts_with(cure), "{webhooks}");
        if !(lacks.is_empty() && events) {
            assert_eq!(output.status.code(), Some(77), "{text}");
        }
    }
}

#[tokio::test]
async fn a_sender_that_may_not_tell_what_became_of_calls_says_so_until_it_may() {
    let (node, crm, place) = (Broker::shared(), crm::start().await, Place::new());
    let _collector = forwarded(node, "mute", &in_a_row(1)).await;
    node.let_in("mute-sender", ["^$", "^$", "^mute$"]);
    let source = as_user(&stream(node, "mute", &place), "mute-sender");
    let mut program = sender(&place, &crm, &source, &[]);
    let said = |it: &Status| {
        it.books.journaled == 1
            && it.untold_outcomes.is_some()
            && it.todo.iter().any(|it| it.kind == FindingKind::Outcomes)
    };
    let status = program.until("it says that it may not", said).await;
    let why = status.untold_outcomes.unwrap_or_default();
    assert!(why.contains("mute-sender write to amq.default"), "{why}");
    node.permit("mute-sender", ["^$", r"^amq\.default$", "^mute$"]);
    let told = |it: &Status| it.untold_outcomes.is_none();
    program.until("it may, and tells", told).await;
    program.terminate().await;
}
