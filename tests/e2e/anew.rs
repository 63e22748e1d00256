//! A sender's state is gone, and made anew from the stream: what was sent is not sent once more.

use crate::broker::{self, Broker};
use crate::crm;
use crate::fleet::{message, sender};
use crate::program::{Place, Program};
use callbridge_model::{Status, clock};
use callbridge_sandbox::routes::Endpoint;
use callbridge_sandbox::{Server, ViolationKind};
use lapin::types::{AMQPValue, FieldTable};
use serde_json::json;
use std::collections::BTreeSet;

/// Calls in the stream before the state is gone.
const CALLS: u64 = 400;
/// So many of them are journaled when the sender is killed, at least.
const SENT: u64 = 250;
/// Calls that may be sent twice: those whose place in the journal was not told, or that were not
/// written yet, at the kill and after it.
const IN_HAND: u64 = 70;

async fn stream_of_calls(node: &Broker, name: &str) {
    let mut stream = FieldTable::default();
    let kind = AMQPValue::LongString("stream".into());
    stream.insert("x-queue-type".into(), kind);
    node.declare_with(name, stream).await;
    let mut bodies = Vec::new();
    for n in 0..CALLS {
        let mut told = message(&format!("{n}.1"));
        told["startedAt"] = json!(1_795_100_000 + n * 20);
        bodies.push(told.to_string());
    }
    // One waits for a lead.
    let mut parked = message("parked.1");
    for field in ["leadId", "variables"] {
        parked.as_object_mut().expect("an object").remove(field);
    }
    bodies.push(parked.to_string());
    node.publish(name, &bodies).await;
}

fn source(node: &Broker, name: &str, user: &str, place: &Place) -> String {
    let secret = place.write("secret", broker::SECRET);
    format!("{}?stream={name}&secret-file={secret}", node.url(user))
}

const TRUNK: &str = "--trunk=city=,country=UZ,lead=var:LEAD_ID";

fn requests(crm: &Server, endpoint: Endpoint) -> u64 {
    crm.admin(|core, _| {
        let counts = core.counts().iter();
        let of = counts.filter(|((of, _), _)| *of == endpoint);
        of.map(|(_, count)| *count).sum()
    })
}

/// Nothing is there twice, and no window was exceeded.
fn judge(crm: &Server, calls: u64) {
    let journal = crm.journal();
    let uuids: BTreeSet<&str> = journal.iter().map(|it| it.call.uuid.as_str()).collect();
    let rows = u64::try_from(journal.len()).expect("few");
    assert_eq!(u64::try_from(uuids.len()), Ok(rows), "doubled");
    assert_eq!(rows, calls);
    // What was in hand at the kill is sent once more with its uuid: no second record.
    let repeats = |kind| kind == ViolationKind::RepeatAfter200;
    let wrong = crm::conduct(crm, repeats);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Sends most of the stream, and is killed with calls in hand; its state is gone then.
async fn sent_and_lost(place: &Place, crm: &Server, source: &str) {
    let mut first = sender(place, crm, source, &[TRUNK]);
    let most = |it: &Status| it.books.journaled >= SENT && it.books.finished > CALLS;
    let status = first.until("most are journaled", most).await;
    assert!(!status.books.settled(), "calls are in hand");
    first.kill().await;
    std::fs::remove_dir_all(place.at("state")).expect("gone");
}

/// A fresh state reads the stream, whose last call happened now: it is there before the first of
/// the older ones is sent, however slow the machine.
async fn made_anew(place: &Place, crm: &Server, node: &Broker, name: &str, user: &str) -> Program {
    let source = source(node, name, user, place);
    let now = clock::now().wall.floor_seconds().get();
    let mut live = message("live.1");
    live["startedAt"] = json!(now - 5);
    live["durationSec"] = json!(5);
    node.publish(name, &[live.to_string()]).await;
    let sent_before = u64::try_from(crm.journal().len()).expect("few");
    let mut second = sender(place, crm, &source, &[TRUNK]);
    let status = second.settled(CALLS + 2).await;
    assert_eq!(
        (status.books.journaled, status.books.parked),
        (CALLS + 1, 1)
    );
    assert!(status.books.balance(), "{:?}", status.books);
    assert_eq!(status.backlog.sought, 0);
    let journal = crm.journal();
    let place = journal.iter().position(|it| it.call.started_at == now - 5);
    let place = place.expect("the live call");
    // On a slow machine, the sender before had sent almost all.
    let is_behind = CALLS.saturating_sub(sent_before) > IN_HAND;
    assert!(
        !is_behind || place + 1 < journal.len(),
        "it waited for all that is older"
    );
    second
}

#[tokio::test]
async fn a_state_that_is_gone_is_made_anew_by_the_outcomes_in_the_stream() {
    let (place, crm) = (Place::new(), crm::start().await);
    let (node, name) = (Broker::shared(), "anew-outcomes");
    stream_of_calls(node, name).await;
    let from = source(node, name, broker::ADMINISTRATOR, &place);
    sent_and_lost(&place, &crm, &from).await;
    let before = requests(&crm, Endpoint::CallHistory);
    let user = broker::ADMINISTRATOR;
    let second = made_anew(&place, &crm, node, name, user).await;
    second.terminate().await;
    judge(&crm, CALLS + 1);
    let after = requests(&crm, Endpoint::CallHistory) - before;
    let few = CALLS - SENT + IN_HAND;
    assert!(after <= few, "{after} submissions, {before} before");
    // A third state knows all of it without a page and without a call.
    let both = [Endpoint::CallHistory, Endpoint::Filter];
    let before = both.map(|it| requests(&crm, it));
    std::fs::remove_dir_all(place.at("state")).expect("gone");
    let mut third = sender(&place, &crm, &from, &[TRUNK]);
    let status = third.settled(CALLS + 2).await;
    assert_eq!(
        (status.books.journaled, status.books.parked),
        (CALLS + 1, 1)
    );
    third.terminate().await;
    assert_eq!(both.map(|it| requests(&crm, it)), before);
}

#[tokio::test]
async fn without_the_right_to_tell_outcomes_pages_of_the_journal_find_what_was_sent() {
    let (place, crm) = (Place::new(), crm::start().await);
    let (node, name) = (Broker::shared(), "anew-pages");
    stream_of_calls(node, name).await;
    let from = source(node, name, broker::READER, &place);
    sent_and_lost(&place, &crm, &from).await;
    let told = "results of calls cannot be written into their stream";
    assert!(place.logs().contains(told), "{}", place.logs());
    let before = requests(&crm, Endpoint::CallHistory);
    let second = made_anew(&place, &crm, node, name, broker::READER).await;
    let log = second.log();
    assert!(log.contains("are looked for in the CRM's journal"), "{log}");
    second.terminate().await;
    judge(&crm, CALLS + 1);
    let after = requests(&crm, Endpoint::CallHistory) - before;
    let few = CALLS - SENT + IN_HAND;
    assert!(after <= few, "{after} submissions, {before} before");
}
