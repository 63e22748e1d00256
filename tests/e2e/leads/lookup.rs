//! Tests that the lead shown while the phone rings is the one that the call is journaled with.

use crate::e2e::operations::monitoring;
use crate::e2e::webhooks;
use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::{Place, Program};
use crate::support::recordings;
use callbridge_model::Status;
use callbridge_sandbox::Server;
use callbridge_sandbox::token::IdSet;
use callbridge_testbed::calls::{Call, now};
use callbridge_testbed::wait::{soon, until};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;

const TRUNK: &str = "--trunk=city=PJSIP/city,country=UZ,strip=9,lead=directory";

/// Returns the lookup address found in the log, if any.
fn find_lookup_address(log: &str) -> Option<SocketAddr> {
    let mut lines = log.lines();
    let line = lines.find(|line| line.contains("answering lookups of callers"))?;
    let (_, port) = line.split_once("127.0.0.1:")?;
    let port = port.split(|c: char| !c.is_ascii_digit()).next()?;
    Some(SocketAddr::from(([127, 0, 0, 1], port.parse().ok()?)))
}

/// Returns the address on which `--lookup` with port 0 is listening.
async fn lookup_address(program: &Program) -> SocketAddr {
    until("the address of lookups in the log", async || {
        find_lookup_address(&program.log()).is_some()
    })
    .await;
    find_lookup_address(&program.log()).expect("an address")
}

/// Looks up a caller with this query, and returns the JSON of the response. Repeats the lookup
/// while the reason is `late`, since on a busy machine, callbridge responds with `no` if a lookup
/// takes too long.
async fn look_up(address: SocketAddr, query: &str) -> Value {
    for _ in 0..100 {
        let (status, body) = monitoring::get(address, &format!("/caller?{query}")).await;
        assert_eq!(status, 200, "{body}");
        let answer: Value = serde_json::from_str(&body).expect("JSON");
        if answer["reason"] != "late" {
            return answer;
        }
    }
    panic!("{query}: a hundred answers came late");
}

/// Repeats the lookup until the response has the fields in `wanted`, for up to 60 seconds.
async fn wait_for_answer(address: SocketAddr, query: &str, wanted: &Value) {
    let last = std::sync::Mutex::new(Value::Null);
    let lookups = until("an answer", async || {
        let answer = look_up(address, query).await;
        let fields = wanted.as_object().expect("fields").iter();
        let has_wanted_values = fields.clone().all(|(name, value)| answer[name] == *value);
        *last.lock().expect("not poisoned") = answer;
        has_wanted_values
    });
    let result = tokio::time::timeout(Duration::from_secs(60), lookups).await;
    assert!(result.is_ok(), "{query}: {last:?}, not {wanted}");
}

/// Creates a lead with this ID and phone number in the CRM.
async fn create_lead(crm: &Server, id: i64, phone: &str) {
    let lead = json!({
        "id": id, "name": "Anna, \"VIP\" ${SHELL(id)}", "responsibleId": 501,
        "contacts": [{"name": "Anna, \"VIP\" ${SHELL(id)}", "phones": [phone]}],
    });
    webhooks::admin(crm, "lead", &lead).await;
}

#[tokio::test]
async fn lead_shown_while_ringing_is_lead_of_journaled_call() {
    let place = Place::new();
    place.append("recorded", b"");
    let flags = [TRUNK, RATE_FLAG, "--lookup=127.0.0.1:0"];
    let (crm, mut program, _authority) = webhooks::start(&place, &flags, |config| {
        config.settings.company.leads = IdSet::default();
    })
    .await;
    let address = lookup_address(&program).await;
    let call = recordings::one("inbound_answered");
    let phone = "phone=%2B998901110001&trunk=city";
    wait_for_answer(
        address,
        phone,
        &json!({"known": "no", "reason": "no_lead", "lead": null}),
    )
    .await;
    create_lead(&crm, 4001, "+998901110001").await;
    wait_for_answer(
        address,
        phone,
        &json!({"known": "yes", "lead": 4001, "reason": null}),
    )
    .await;
    wait_for_answer(
        address,
        "phone=901110001",
        &json!({"known": "yes", "lead": 4001}),
    )
    .await;

    place.append("recorded", &call.ami);
    program
        .until("the call", |status: &Status| status.books.journaled == 1)
        .await;
    crm::judge(&crm, &place.letters().await, &recordings::expected(&[call]));

    create_lead(&crm, 4002, "+998901110001").await;
    let several = json!({"known": "several", "lead": null, "name": null, "extension": null});
    wait_for_answer(address, phone, &several).await;
    let metrics = monitoring::metrics(&program).await;
    for answer in ["yes", "no", "several", "late", "full", "refused", "bad"] {
        let line = format!("callbridge_lookups_total{{answer=\"{answer}\"}} ");
        let found = metrics.lines().find_map(|row| row.strip_prefix(&line));
        let count: u64 = found.and_then(|count| count.parse().ok()).expect(&line);
        let is_asked = ["yes", "no", "several"].contains(&answer);
        assert!(count > 0 || !is_asked, "{line}{count}");
        assert!(count == 0 || is_asked || answer == "late", "{line}{count}");
    }
    assert!(
        metrics.contains("callbridge_lookup_duration_seconds_count "),
        "{metrics}"
    );
    let log = program.log();
    assert!(
        !log.contains("Anna") && !log.contains("998901110001"),
        "{log}"
    );
    program.terminate().await;
}

/// A change to a caller's leads in the CRM while the phone is ringing.
#[derive(Clone, Copy, Debug)]
enum LeadChange {
    Nothing,
    Renamed,
    /// The lead is merged into one that had a different number until then.
    Merged,
    /// The lead is merged into a second one, which is then merged into a third.
    MergedTwice,
    Deleted,
    Created,
}

/// Number of calls, how many leads each caller has when the call starts, and how the leads change
/// while the phone is ringing.
const RINGS: [(usize, i64, LeadChange); 10] = [
    (7, 1, LeadChange::Nothing),
    (3, 1, LeadChange::Renamed),
    (2, 1, LeadChange::Merged),
    (1, 1, LeadChange::MergedTwice),
    (1, 1, LeadChange::Deleted),
    (1, 2, LeadChange::Nothing),
    (1, 2, LeadChange::Merged),
    (1, 2, LeadChange::Deleted),
    (2, 0, LeadChange::Nothing),
    (1, 0, LeadChange::Created),
];

/// Returns the IDs of four leads for the n-th caller, two with the caller's number and two with
/// other numbers.
fn leads_of(n: u32) -> [i64; 4] {
    [5_000, 5_100, 5_200, 5_300].map(|from| from + i64::from(n))
}

/// Returns a phone number that no caller has.
fn other_phone(n: u32) -> String {
    Call::without_lead(1_000 + n).phone()
}

/// Makes a change in the CRM. `leads` is how many leads the caller has before that. Returns the
/// caller's lead after the change, or `None` if the caller has no lead or two.
async fn change_leads(crm: &Server, call: &Call, leads: i64, change: LeadChange) -> Option<i64> {
    let [own, second, third, fourth] = leads_of(call.n);
    let mut lead_left = if leads == 1 { Some(own) } else { None };
    match change {
        LeadChange::Nothing => {}
        LeadChange::Renamed => {
            let renamed = json!({"id": own, "name": "Berta", "responsibleId": 502});
            webhooks::admin(crm, "lead/update", &renamed).await;
        }
        LeadChange::Merged if leads == 2 => {
            webhooks::admin(crm, "lead/merge", &json!({"into": second, "from": [own]})).await;
            lead_left = Some(second);
        }
        LeadChange::Merged | LeadChange::MergedTwice => {
            create_lead(crm, third, &other_phone(call.n)).await;
            webhooks::admin(crm, "lead/merge", &json!({"into": third, "from": [own]})).await;
            lead_left = Some(third);
            if matches!(change, LeadChange::MergedTwice) {
                create_lead(crm, fourth, &other_phone(100 + call.n)).await;
                let second_merge = json!({"into": fourth, "from": [third]});
                webhooks::admin(crm, "lead/merge", &second_merge).await;
                lead_left = Some(fourth);
            }
        }
        LeadChange::Deleted => {
            webhooks::admin(crm, "lead/delete", &json!({"id": own})).await;
            lead_left = if leads == 2 { Some(second) } else { None };
        }
        LeadChange::Created => {
            create_lead(crm, own, &call.phone()).await;
            lead_left = Some(own);
        }
    }
    lead_left
}

/// Returns all calls' AMI events in chronological order, because the calls take place at the same
/// time.
fn sort_by_time<'a>(calls: impl Iterator<Item = &'a str>) -> String {
    let mut events: Vec<&str> = calls
        .flat_map(|call| call.split_inclusive("\r\n\r\n"))
        .collect();
    events.sort_by_key(|event| {
        let time = event
            .lines()
            .find_map(|line| line.strip_prefix("Timestamp: "));
        time.expect("a time").to_owned()
    });
    events.concat()
}

/// Returns the query that looks up this call's caller.
fn lookup_query(call: &Call) -> String {
    format!("trunk=city&phone={}", call.phone().replace('+', "%2B"))
}

/// Returns the fields in the response for a caller. `lead` is the caller's only lead, if any, and
/// `leads` is how many leads the caller had when the call started.
fn expected_answer(lead: Option<i64>, leads: i64) -> Value {
    match (lead, leads) {
        (Some(lead), _) => json!({"known": "yes", "lead": lead}),
        (None, 2) => json!({"known": "several", "lead": null, "name": null}),
        (None, _) => json!({"known": "no", "lead": null, "name": null}),
    }
}

#[tokio::test]
async fn twenty_calls_are_journaled_with_the_leads_shown_by_lookup() {
    let place = Place::new();
    place.append("recorded", b"");
    let flags = [TRUNK, RATE_FLAG, "--lookup=127.0.0.1:0"];
    let (crm, mut program, _authority) = webhooks::start(&place, &flags, |config| {
        config.settings.company.leads = IdSet::default();
    })
    .await;
    let address = lookup_address(&program).await;
    let rings = RINGS.iter().flat_map(|(times, leads, change)| {
        let ring = (*leads, *change);
        std::iter::repeat_n(ring, *times)
    });
    let begins = now() - 60;
    let rings: Vec<_> = rings
        .zip(1..)
        .map(|((leads, change), n)| {
            let call = Call::without_lead(n);
            (Call { begins, ..call }, leads, change)
        })
        .collect();
    assert_eq!(rings.len(), 20);
    for (call, leads, _) in &rings {
        let [own, second, ..] = leads_of(call.n);
        for id in [own, second]
            .iter()
            .take(usize::try_from(*leads).expect("few"))
        {
            create_lead(&crm, *id, &call.phone()).await;
        }
        let only_lead = if *leads == 1 { Some(own) } else { None };
        let answer = expected_answer(only_lead, *leads);
        wait_for_answer(address, &lookup_query(call), &answer).await;
    }

    let halves: Vec<_> = rings
        .iter()
        .map(|(call, ..)| {
            let events = call.ami();
            let end = events
                .find("Event: DialEnd")
                .expect("an event that ends the ringing");
            (events[..end].to_owned(), events[end..].to_owned())
        })
        .collect();
    let events_of_rings = sort_by_time(halves.iter().map(|(rings, _)| rings.as_str()));
    place.append("recorded", events_of_rings.as_bytes());
    let events_read = halves
        .iter()
        .map(|(rings, _)| rings.matches("\r\n\r\n").count());
    let events_read: usize = events_read.sum();
    program
        .until("twenty telephones that ring", |status| {
            let source = &status.sources[0];
            source.read + source.skipped == events_read as u64
        })
        .await;
    let mut shown = Vec::new();
    for (call, leads, change) in &rings {
        let lead_left = change_leads(&crm, call, *leads, *change).await;
        let query = lookup_query(call);
        wait_for_answer(address, &query, &expected_answer(lead_left, *leads)).await;
        if matches!(change, LeadChange::Renamed) {
            let renamed = json!({"lead": lead_left, "employee": 502});
            wait_for_answer(address, &query, &renamed).await;
        }
        shown.push((call, look_up(address, &query).await));
    }
    let events_of_ends = sort_by_time(halves.iter().map(|(_, ends)| ends.as_str()));
    place.append("recorded", events_of_ends.as_bytes());
    let status = program
        .until("twenty calls", |status| {
            status.books.finished == 20 && status.books.settled()
        })
        .await;
    let journal = crm.journal();
    for (call, shown) in &shown {
        let uuid = call.uuid("pbx1");
        let records: Vec<_> = journal
            .iter()
            .filter(|record| record.call.uuid == uuid)
            .collect();
        let leads: Vec<i64> = records.iter().map(|record| record.call.lead_id).collect();
        let lead: Vec<i64> = shown["lead"].as_i64().into_iter().collect();
        assert_eq!(leads, lead, "{call:?}, {shown}");
    }
    assert_eq!((journal.len(), status.books.journaled), (16, 16));
    assert_eq!(status.dead_letters["ambiguous_lead"], 1);
    assert_eq!(status.books.waiting, 3);
    assert_eq!(crm::conduct(&crm, |_| false), Vec::<String>::new());
    program.terminate().await;
}

#[tokio::test]
async fn lookup_of_frozen_daemon_hangs_and_of_killed_one_is_refused() {
    let (place, crm) = (Place::new(), crm::start().await);
    place.append("recorded", b"");
    let source = place.file("recorded", "ami");
    let program = place.run(&crm.url(), &[&source, TRUNK, "--lookup=127.0.0.1:0"]);
    let address = lookup_address(&program).await;
    wait_for_answer(address, "phone=901110001", &json!({"known": "no"})).await;
    program.freeze().await;
    let exchange = async {
        tokio::time::timeout(
            Duration::from_millis(200),
            monitoring::get(address, "/caller"),
        )
        .await
    };
    assert!(soon("the timeout of the lookup", exchange).await.is_err());
    program.signal(Signal::CONT);
    wait_for_answer(address, "phone=901110001", &json!({"known": "no"})).await;
    program.kill().await;
    let result = tokio::net::TcpStream::connect(address).await;
    assert!(result.is_err(), "no process listens at the address");
}

#[tokio::test]
async fn lookup_on_network_address_needs_allow_list_and_secret() {
    let (place, crm) = (Place::new(), crm::start().await);
    place.append("recorded", b"");
    let source = place.file("recorded", "ami");
    let secret = format!("--lookup-secret-file={}", place.write("secret", "s3cret\n"));
    let (open, allow) = ("--lookup=0.0.0.0:0", "--lookup-allow=127.0.0.0/8");
    for refused in [vec![open], vec![open, allow], vec![open, &secret]] {
        let flags = [&[&*source, TRUNK], &refused[..]].concat();
        let program = place.run(&crm.url(), &flags);
        assert_eq!(program.ended().await.code(), Some(64), "{refused:?}");
    }
    let missing = format!("--lookup-secret-file={}", place.path("nowhere"));
    let flags = [&source, TRUNK, "--lookup=127.0.0.1:0", &missing];
    let program = place.run(&crm.url(), &flags);
    assert_eq!(program.ended().await.code(), Some(78));

    let flags = [&source, TRUNK, "--lookup=127.0.0.1:0", allow, &secret];
    let program = place.run(&crm.url(), &flags);
    let address = lookup_address(&program).await;
    let (status, body) = monitoring::get(address, "/caller?phone=901110001&format=hash").await;
    assert_eq!(status, 401);
    assert!(
        body.starts_with("known=no&") && body.ends_with("&reason=refused"),
        "{body}"
    );
    assert!(!program.log().contains("s3cret"));
    program.terminate().await;
}
