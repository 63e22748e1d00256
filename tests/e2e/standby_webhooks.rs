//! Events of the CRM reach one of two machines, and both learn of them by the stream.

use crate::broker::Broker;
use crate::calls::{Call, recording};
use crate::fleet::{collector, sender, stream};
use crate::program::{Place, Program};
use crate::webhooks::{self, admin};
use callbridge_model::Status;
use callbridge_model::status::LeasePhase;
use callbridge_sandbox::Server;
use callbridge_sandbox::routes::Endpoint;
use callbridge_testkit::Wait as _;
use lapin::BasicProperties;
use lapin::options::BasicPublishOptions;
use serde_json::json;

/// A collector's trunk that finds leads, and one that leaves them to the sender.
const WITH_LEADS: &str = "--trunk=city=PJSIP/city,country=UZ,strip=9,lead=var:LEAD_ID";
const WITHOUT: &str = "--trunk=city=PJSIP/city,country=UZ,strip=9";
const DIRECTORY: &str = "--trunk=city=,country=UZ,lead=directory";
const EVENT: &str = "application/vnd.callbridge.webhook+json; version=1";

/// What came of events, as `status` counts it.
fn events(status: &Status, result: &str) -> u64 {
    let webhooks = status.webhooks.as_ref();
    let count = webhooks.and_then(|it| it.events.get(result));
    count.copied().unwrap_or(0)
}

fn is(wanted: LeasePhase) -> impl Fn(&Status) -> bool {
    move |status| status.lease.as_ref().map(|it| it.state) == Some(wanted)
}

/// These calls go into the stream, behind those that went before from the same place.
async fn forward(node: &Broker, name: &str, (here, trunk): (&Place, &str), calls: &[Call]) {
    here.append("recorded", recording(calls).as_bytes());
    let file = here.file("recorded", "ami");
    let flags = [&file, trunk, "--until-idle"];
    collector(here, &stream(node, name, here), &flags)
        .succeeds()
        .await;
}

/// An event that says that this call is in the journal, as nobody's.
async fn forge(node: &Broker, name: &str, call: &Call) {
    let (_connection, channel) = node.channel().await;
    let body = json!({
        "event": "forged", "installation": "1", "company": "77", "proof": "0".repeat(64),
        "kind": "CALL_COMPLETED", "call": {"uuid": call.uuid("pbx1"), "leads": []},
    });
    let options = BasicPublishOptions::default();
    let properties = BasicProperties::default().with_content_type(EVENT.into());
    let body = body.to_string();
    let sent = channel.basic_publish("".into(), name.into(), options, body.as_bytes(), properties);
    sent.await.expect("sent").await.expect("confirmed");
}

/// Requests that the CRM has answered, but those about its token.
fn requests(crm: &Server, of: impl Fn(Endpoint) -> bool) -> u64 {
    let counts = crm.admin(|core, _| core.counts().clone());
    let about = counts.iter().filter(|((endpoint, _), _)| of(*endpoint));
    about.map(|(_, count)| count).sum()
}

#[tokio::test]
async fn events_that_reach_the_standby_alone_settle_the_holders_calls_and_teach_both() {
    const CALLS: u64 = 60;
    let (node, here, there) = (Broker::shared(), Place::new(), Place::new());
    let places = [Place::new(), Place::new()];
    let (crm, taking, _authority) = webhooks::crm_with_events(&places[1], |_| {}).await;
    let calls = (1..=60).map(|n| Call::new(n, 4001)).collect::<Vec<_>>();
    let unknown = Call::without_lead(61);
    let later = Call {
        begins: unknown.begins + 100,
        n: 61,
        lead: None,
    };
    forward(node, "hooked", (&here, WITH_LEADS), &calls).await;
    let one = std::slice::from_ref(&unknown);
    forward(node, "hooked", (&there, WITHOUT), one).await;
    let start = |place: &Place, more: &[String]| {
        let mut flags = vec!["--standby=lease-hooked", DIRECTORY];
        flags.extend(more.iter().map(String::as_str));
        sender(place, &crm, &stream(node, "hooked", place), &flags)
    };
    // It takes events, too, as each of two machines would; none comes here.
    let mut first = start(&places[0], &["--webhook-listen=127.0.0.1:0".to_owned()]);
    let comes = "the lease comes to the first";
    first.until(comes, is(LeasePhase::Silent)).await;
    let mut second = start(&places[1], &taking);
    webhooks::send_to(&crm, &second).await;
    let read = |it: &Status| it.books.finished == CALLS + 1;
    second.until("the standby reads the stream", read).await;
    forge(node, "hooked", &calls[0]).await;

    let settled = |it: &Status| it.books.journaled == CALLS;
    let status = first.until("the holder's calls are settled", settled).await;
    assert!(status.books.balance(), "{:?}", status.books);
    settled_by_events(&crm, &status, CALLS);
    assert!(first.log().contains("journaled, a webhook says"));
    let status = second.until("the standby's books follow", settled).await;
    assert!(is(LeasePhase::Standby)(&status), "{:?}", status.lease);
    assert!(
        events(&status, "published") >= CALLS,
        "{:?}",
        status.webhooks
    );
    assert!(events(&status, "waits") >= CALLS, "{:?}", status.webhooks);

    make_lead(&crm, &unknown.phone()).await;
    let both = |it: &Status| it.books.journaled == CALLS + 1 && it.books.parked == 0;
    first.until("the waiting call has left", both).await;
    second.until("the standby is told", both).await;
    first.kill().await;
    let one = std::slice::from_ref(&later);
    forward(node, "hooked", (&there, WITHOUT), one).await;
    let holds = |it: &Status| is(LeasePhase::Holding)(it) && it.books.journaled == CALLS + 2;
    let status = second.until("the learned lead is used", holds).await;
    assert!(status.books.balance(), "{:?}", status.books);
    let taken = "webhooks that came before it was known";
    assert!(second.log().contains(taken), "{}", second.log());
    let journal = crm.journal();
    let record = journal.iter().find(|it| it.call.uuid == later.uuid("pbx1"));
    assert_eq!(record.expect("a record").call.lead_id, 4011);
    second.terminate().await;
    ignored(&places[1]).await;
}

/// Few pages and questions were needed, and each call was sent once.
fn settled_by_events(crm: &Server, status: &Status, calls: u64) {
    // A fresh state looks for its calls, and asks for some before it is known that events come.
    let confirmed = events(status, "confirmed");
    assert!(confirmed * 4 >= calls * 3, "{:?}", status.webhooks);
    let questions = requests(crm, |it| matches!(it, Endpoint::Filter | Endpoint::Request));
    assert!(questions * 4 <= calls, "{questions} pages and questions");
    let sent = requests(crm, |it| it == Endpoint::CallHistory);
    assert_eq!(sent, calls);
}

/// A person makes a lead in the CRM.
async fn make_lead(crm: &Server, phone: &str) {
    let contacts = json!([{"name": "A", "phones": [phone]}]);
    let lead = json!({"id": 4011, "name": "N", "contacts": contacts});
    admin(crm, "lead", &lead).await;
}

/// The forged event was ignored, and counted.
async fn ignored(place: &Place) {
    let folder = place.at("state");
    let counters = tokio::task::spawn_blocking(move || {
        let settings = callbridge_spool::Settings::default();
        let (spool, guard) = callbridge_spool::open(&folder, settings).expect("opens");
        let counters = spool.read(|store| Ok(store.counters())).wait();
        guard.close();
        counters.expect("readable")
    });
    let counters = counters.await.expect("read");
    assert_eq!(counters.get("messages_ignored"), Some(&1), "{counters:?}");
}

#[tokio::test]
async fn while_the_broker_is_away_events_are_refused_and_the_crm_brings_them_again() {
    let node = tokio::task::spawn_blocking(Broker::start);
    let node = node.await.expect("a node");
    let place = Place::new();
    let (crm, taking, _authority) = webhooks::crm_with_events(&place, |_| {}).await;
    let mut flags = vec!["--standby=lease-hooked-away", DIRECTORY];
    flags.extend(taking.iter().map(String::as_str));
    let from = stream(&node, "hooked-away", &place);
    let mut program: Program = sender(&place, &crm, &from, &flags);
    webhooks::send_to(&crm, &program).await;
    let lead = |id: i64| {
        let contacts = json!([{"name": "A", "phones": ["+998901110001"]}]);
        json!({"id": id, "name": "N", "contacts": contacts})
    };
    admin(&crm, "lead", &lead(4011)).await;
    let takes = |it: &Status| events(it, "published") == 1 && events(it, "waits") == 1;
    program
        .until("the first event is in the stream", takes)
        .await;
    let node = tokio::task::spawn_blocking(move || {
        node.stop();
        node
    });
    let node = node.await.expect("it stops");
    admin(&crm, "lead", &lead(4012)).await;
    let refused = |it: &Status| events(it, "unpublished") > 0;
    let status = program.until("the second is refused", refused).await;
    assert_eq!(events(&status, "published"), 1);
    let log = program.log();
    assert!(
        log.contains("an event does not get into the stream"),
        "{log}"
    );
    let node = tokio::task::spawn_blocking(move || {
        node.start_again();
        node
    });
    let _node = node.await.expect("it starts");
    // A delivery has three more tries, after 30 s, 5 and 30 minutes (§6.9): new ones find the line.
    let (mut newest, mut tried) = (4012, status);
    while events(&tried, "published") == 1 {
        newest += 1;
        admin(&crm, "lead", &lead(newest)).await;
        let judged = |it: &Status| events(it, "published") + events(it, "unpublished");
        let before = judged(&tried);
        let more = |it: &Status| judged(it) > before;
        tried = program.until("an event is judged", more).await;
    }
    admin(&crm, "clock", &json!({"aheadSec": 3600})).await;
    let made = u64::try_from(newest - 4010).expect("a count");
    let again = |it: &Status| events(it, "published") == made && events(it, "waits") == made;
    program.until("what was refused came again", again).await;
    program.terminate().await;
}
