//! Tests 90 calls. The CRM does not know the lead of every third call, so 30 calls become dead
//! letters, and 60 are journaled. A retry with another lead journals the 30 calls too.

use crate::commands::sidecar::{PBX, Place, poll_until, start_crm};
use callbridge_sandbox::Server;
use callbridge_sandbox::window::Rate;
use callbridge_testbed::broker::{Broker, Taken};
use callbridge_testbed::calls::{Call, recording};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const CALLS: u32 = 90;
const UNKNOWN_LEAD: i64 = 9001;

fn ninety_calls() -> Vec<Call> {
    let mut calls = Vec::new();
    for n in 1..=CALLS {
        let lead = if n.is_multiple_of(3) {
            UNKNOWN_LEAD
        } else {
            4002
        };
        calls.push(Call::new(n, lead));
    }
    calls
}

fn uuids<'a>(calls: impl IntoIterator<Item = &'a Call>) -> BTreeSet<String> {
    calls.into_iter().map(|call| call.uuid(PBX)).collect()
}

/// Starts a CRM that accepts at most 60 requests in 6 s, ten times the real rate.
async fn strict_crm() -> Server {
    start_crm(|config| {
        config.settings.rate = Rate {
            requests: 60,
            window: Duration::from_secs(6),
        };
        config.settings.persist_after = Duration::from_millis(200);
    })
    .await
}

fn strict_flags(place: &Place, crm: &Server) -> Vec<String> {
    let mut flags = place.flags_of_file(&crm.url(), "calls.ami");
    flags.push("--rate=60/6s".to_owned());
    flags
}

/// Asserts that every call is journaled once under its uuid, that retried calls have the new lead,
/// and that the rate limit was kept.
fn assert_all_journaled(crm: &Server, calls: &[Call]) {
    let journal = crm.journal();
    let sent: BTreeSet<String> = journal
        .iter()
        .map(|record| record.call.uuid.clone())
        .collect();
    assert_eq!((journal.len(), sent), (calls.len(), uuids(calls)));
    for call in calls {
        let uuid = call.uuid(PBX);
        let record = journal
            .iter()
            .find(|record| record.call.uuid == uuid)
            .expect("a record");
        let lead = if call.lead == Some(UNKNOWN_LEAD) {
            4001
        } else {
            4002
        };
        assert_eq!(record.call.lead_id, lead, "{call:?}");
        assert_eq!(record.call.started_at, call.begins);
        assert_eq!(record.call.talk_time_sec, Some(4));
    }
    let fullest = crm.admin(|core, _| core.fullest());
    assert!(fullest.in_a_window <= 60, "{fullest:?}");
    assert_eq!(crm.violations(), []);
}

/// Waits until 60 calls are journaled and 30 are dead letters, and returns the dead letters.
async fn wait_for_thirty_dead_letters(place: &Place, calls: &[Call]) -> Vec<Value> {
    place.wait_for_number("/books/journaled", 60).await;
    place.wait_for_number("/books/dead", 30).await;
    let letters = place.dead_letters("--reason failed").await;
    let dead = letters.iter().map(|letter| text(&letter["uuid"]));
    let unknown = calls.iter().filter(|call| call.lead == Some(UNKNOWN_LEAD));
    assert_eq!(
        (letters.len(), dead.collect::<BTreeSet<_>>()),
        (30, uuids(unknown))
    );
    letters
}

async fn retry_dead_letters(place: &Place) {
    let retry = "dead retry --reason failed --lead 4001";
    let refused = place.run_on_state(retry).await;
    assert_eq!(refused.code, 64, "{refused:?}");
    assert!(refused.err.contains("30 different numbers"), "{refused:?}");
    assert!(refused.err.contains("add --yes"), "{refused:?}");
    assert_eq!(place.number("/books/dead").await, Some(30));
    let output = place
        .run_on_state(&format!("{retry} --yes"))
        .await
        .expect_success();
    assert_eq!(output.lines().count(), 30, "{output}");
    assert!(
        output
            .lines()
            .all(|line| line.ends_with("ready, lead 4001")),
        "{output}"
    );
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Asserts that the notices in RabbitMQ match the listed dead letters, and have the headers that
/// readers select by.
fn assert_notices_match(letters: &[Value], notices: &[Taken]) {
    let bodies = notices.iter().map(|notice| {
        let properties = &notice.properties;
        let body: Value = serde_json::from_slice(&notice.body).expect("JSON");
        assert_eq!(notice.header("reason"), "failed");
        assert_eq!(notice.header("uuid"), text(&body["uuid"]));
        assert_eq!(notice.header("linkedid"), text(&body["linkedid"]));
        assert_eq!(notice.header("trunk"), "city");
        assert_eq!(*properties.delivery_mode(), Some(2), "persistent");
        assert_eq!(notice.header("state"), "dead");
        assert_eq!(*properties.timestamp(), body["since"].as_u64());
        let id = properties
            .message_id()
            .as_ref()
            .map(|id| id.as_str().to_owned());
        assert_eq!(id, Some(format!("{}:1", body["id"])), "ID:ATTEMPT");
        (text(&body["uuid"]), body)
    });
    // After an outage, a notice can come twice with the same message id.
    let bodies: BTreeMap<String, Value> = bodies.collect();
    let letters = letters
        .iter()
        .map(|letter| (text(&letter["uuid"]), letter.clone()));
    assert_eq!(bodies, letters.collect());
}

/// Asserts that the notices report each dead letter as retried, and then as journaled.
fn assert_retry_notices(letters: &[Value], notices: &[Taken]) {
    let mut closed: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for notice in notices {
        let body: Value = serde_json::from_slice(&notice.body).expect("JSON");
        let (id, state) = (body["id"].to_string(), text(&body["state"]));
        assert_eq!(notice.header("state"), state);
        assert_eq!(*notice.properties.timestamp(), body["since"].as_u64());
        let message_id = notice.properties.message_id().as_ref();
        let expected_id = format!("{id}:1:{state}");
        assert_eq!(
            message_id.map(|found| found.as_str()),
            Some(expected_id.as_str())
        );
        assert_eq!(body["call"]["leadId"], 4001, "the lead of the retry");
        let reported = closed.entry(id).or_default();
        // A notice that the broker confirmed late can come twice with the same message id.
        if reported.last() != Some(&state) {
            reported.push(state);
        }
    }
    let expected = letters.iter().map(|letter| {
        let states = ["retried", "journaled"].map(str::to_owned);
        (letter["id"].to_string(), states.to_vec())
    });
    assert_eq!(closed, expected.collect());
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_survive_broker_outage_and_retry_journals_them() {
    let broker = Broker::start();
    broker.declare("callbridge_dead_letters").await;
    let (place, crm, calls) = (Place::new(), strict_crm().await, ninety_calls());
    place.write("calls.ami", recording(&calls));
    let mut flags = strict_flags(&place, &crm);
    let queue = format!("{}?queue=callbridge_dead_letters", broker.url("callbridge"));
    flags.push(format!("--dead-letter-queue={queue}"));
    let daemon = place.start_daemon(&flags).await;
    poll_until("a first notice", async || {
        (broker.depth("callbridge_dead_letters").await > 0).then_some(())
    })
    .await;
    broker.stop();
    let letters = wait_for_thirty_dead_letters(&place, &calls).await;
    broker.start_again();
    poll_until("the notices of 30 letters", async || {
        (broker.depth("callbridge_dead_letters").await >= 30).then_some(())
    })
    .await;
    assert_notices_match(&letters, &broker.take("callbridge_dead_letters").await);
    retry_dead_letters(&place).await;
    place.wait_for_number("/books/journaled", 90).await;
    assert_eq!(place.dead_letters("").await, [] as [Value; 0]);
    daemon.stop().await;
    assert_retry_notices(&letters, &broker.take("callbridge_dead_letters").await);
    assert_all_journaled(&crm, &calls);
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_without_daemon_is_sent_by_the_next_daemon() {
    let (place, crm, calls) = (Place::new(), strict_crm().await, ninety_calls());
    place.write("calls.ami", recording(&calls));
    place.run_until_idle(&strict_flags(&place, &crm)).await;
    wait_for_thirty_dead_letters(&place, &calls).await;
    retry_dead_letters(&place).await;
    assert_eq!(crm.journal().len(), 60, "nothing is sent past the daemon");
    assert_eq!(place.number("/books/ready").await, Some(30));
    place.run_until_idle(&strict_flags(&place, &crm)).await;
    assert_all_journaled(&crm, &calls);
}
