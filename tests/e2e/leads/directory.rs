//! Tests that calls from unknown customers find leads that are created after the calls.

use crate::e2e::webhooks;
use crate::support::crm::{self, Expected, RATE_FLAG};
use crate::support::program::Place;
use crate::support::recordings::{self, Recording};
use callbridge_model::Status;
use callbridge_sandbox as sandbox;
use callbridge_sandbox::Server;
use callbridge_sandbox::token::{Grant, IdSet};
use callbridge_testbed::wait::until;
use rusqlite::Connection;
use serde_json::{Value, json};

/// Calls from the numbers …0001 to …0005, in this order, and from a hidden number.
const CALLS: [&str; 6] = [
    "inbound_answered",
    "inbound_no_answer",
    "forwarded_to_mobile",
    "hold_unhold",
    "missed_by_a_hair",
    "hidden_caller",
];

const TRUNKS: [&str; 3] = [
    "--trunk=city=PJSIP/city,country=UZ,strip=9,lead=directory",
    "--trunk=gsm=PJSIP/gsm,country=UZ,lead=directory",
    RATE_FLAG,
];

/// Starts a CRM that doesn't have any leads. The token may read leads.
async fn crm_without_leads() -> Server {
    let mut config = crm::settings();
    config.settings.company.leads = IdSet::default();
    let grant = Grant::parse("PERMISSION_OPEN_API_LEAD:READ");
    config.settings.company.grants.extend(grant);
    sandbox::start(config).await.expect("a sandbox")
}

/// Posts `body` to the CRM's admin path `path`, to change leads.
async fn administer(crm: &Server, path: &str, body: Value) {
    webhooks::admin(crm, path, &body).await;
}

/// Returns the JSON for a lead whose phones are `phone(n)` for each `n` in `phones`.
fn lead(id: i64, phones: &[u32]) -> Value {
    let phones: Vec<String> = phones.iter().map(|n| phone(*n)).collect();
    json!({"id": id, "name": "N", "contacts": [{"name": "A [VIP]", "phones": phones}]})
}

/// Returns a customer's number, which ends in the digit `n`.
fn phone(n: u32) -> String {
    format!("+99890111000{n}")
}

/// Returns the usual flags along with those in `more`.
fn flags(place: &Place, more: &[&str]) -> Vec<String> {
    let source = place.file("recorded", "ami");
    let flags = [source.as_str()].into_iter().chain(TRUNKS);
    flags
        .chain(more.iter().copied())
        .map(str::to_owned)
        .collect()
}

/// Returns the records that the CRM must have. Calls without a lead have a reason instead.
fn expected(calls: &[Recording], leads: [Option<i64>; 6], reasons: [&str; 6]) -> Vec<Expected> {
    let mut expected = recordings::expected(calls);
    for ((call, lead), reason) in expected.iter_mut().zip(leads).zip(reasons) {
        call.lead = lead;
        call.reason = lead.is_none().then(|| reason.to_owned());
    }
    expected
}

/// Creates one lead for number 1, two leads for number 2, a lead for number 3 that's merged into
/// lead 4003, and a deleted lead for number 4.
async fn create_leads(crm: &Server) {
    for (id, phones) in [
        (4001, &[7, 1][..]),
        (4002, &[2]),
        (4012, &[2]),
        (4003, &[]),
        (4013, &[3]),
    ] {
        administer(crm, "lead", lead(id, phones)).await;
    }
    let update = json!({"id": 4001, "statusId": 1, "responsibleId": 501});
    administer(crm, "lead/update", update).await;
    administer(crm, "lead", lead(4004, &[4])).await;
    administer(crm, "lead/delete", json!({"id": 4004})).await;
    administer(crm, "lead/merge", json!({"into": 4003, "from": [4013]})).await;
}

/// Returns the number of leads in the directory, if callbridge has one.
fn count_leads(status: &Status) -> Option<u64> {
    let directory = status.directory.as_ref();
    directory.map(|directory| directory.leads)
}

/// Without webhooks, no event reports a merge, so callbridge rereads an ambiguous number's leads.
#[tokio::test]
async fn ambiguous_number_is_resolved_by_lead_merge_without_webhooks() {
    let (place, crm) = (Place::new(), crm_without_leads().await);
    for id in [4002, 4012] {
        administer(&crm, "lead", lead(id, &[2])).await;
    }
    let call = recordings::one("inbound_no_answer");
    place.append("recorded", b"");
    let mut program = place.run(&crm.url(), &flags(&place, &["--lead-directory"]));
    program
        .until("both leads", |status| count_leads(status) == Some(2))
        .await;
    let merge = json!({"into": 4002, "from": [4012]});
    administer(&crm, "lead/merge", merge).await;
    place.append("recorded", &call.ami);
    program
        .until("a dead letter", |status| {
            status.dead_letters.contains_key("ambiguous_lead")
        })
        .await;
    program
        .until("the lead that is left", |status| {
            status.books.journaled == 1
        })
        .await;
    program.terminate().await;
    let mut expected = recordings::expected(&[call]);
    expected[0].lead = Some(4002);
    crm::judge(&crm, &place.letters().await, &expected);
}

fn has_read_all_leads(place: &Place) -> bool {
    let spool = Connection::open(place.at("state/spool.db")).expect("the state");
    let text = "SELECT value FROM meta WHERE key = 'directory.backfill'";
    let stored = spool.query_row(text, [], |row| row.get::<_, String>(0));
    let backfill: Value = serde_json::from_str(&stored.expect("a row")).expect("JSON");
    backfill["lastRead"] == true
}

/// A lead that the CRM doesn't have would turn the number's waiting call into a dead letter.
#[tokio::test]
async fn lead_outside_the_directory_is_assigned_only_with_yes() {
    let (place, crm) = (Place::new(), crm_without_leads().await);
    administer(&crm, "lead", lead(4002, &[9])).await;
    place.append("recorded", &recordings::one("inbound_answered").ami);
    let mut program = place.run(&crm.url(), &flags(&place, &["--lead-directory"]));
    program
        .until("a waiting call and a known lead", |status| {
            count_leads(status) == Some(1) && status.books.waiting == 1
        })
        .await;
    // Only the second round reaches leads without a time. It begins at once after a restart.
    program.terminate().await;
    let mut program = place.run(&crm.url(), &flags(&place, &["--lead-directory"]));
    until("all leads", async || has_read_all_leads(&place)).await;
    let number = phone(1);
    let give = ["lead", "give", &number, "9999"];
    let refused = place.command(&give).await;
    assert_eq!(refused.status.code(), Some(64));
    let question = "Lead 9999 isn't among the CRM's leads. Assign it anyway?";
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(error.contains(question), "{error}");
    assert_eq!(place.lines(&["lead", "given", "--json"]).await.len(), 0);
    let assigned = place.command(&[&give[..], &["--yes"]].concat()).await;
    assert!(assigned.status.success());
    program
        .until("a dead letter", |status| status.books.dead == 1)
        .await;
    let corrected = place.command(&["lead", "give", &number, "4002"]).await;
    let shown = String::from_utf8(corrected.stdout).expect("UTF-8");
    let (_, command) = shown.split_once("callbridge ").expect("a command");
    let resend: Vec<&str> = command.split_whitespace().collect();
    assert!(place.command(&resend).await.status.success(), "{shown}");
    program
        .until("a journaled call", |status| status.books.journaled == 1)
        .await;
    program.terminate().await;
}

/// Promise: A waiting call is sent once its number has a lead.
#[tokio::test]
async fn waiting_calls_are_sent_once_directory_has_their_leads() {
    let (place, crm) = (Place::new(), crm_without_leads().await);
    let calls = CALLS.map(recordings::one);
    calls
        .iter()
        .for_each(|call| place.append("recorded", &call.ami));
    let mut program = place.run(&crm.url(), &flags(&place, &[]));
    program
        .until("six waiting calls", |status| status.books.waiting == 6)
        .await;
    program.terminate().await;

    create_leads(&crm).await;
    let mut program = place.run(&crm.url(), &flags(&place, &["--lead-directory"]));
    let status = program
        .until("two calls with their leads", |current| {
            current.books.journaled == 2 && current.books.dead == 1
        })
        .await;
    assert_eq!(status.books.waiting, 3);
    let directory = status.directory.expect("a directory");
    assert_eq!(
        (directory.backfill.as_deref(), directory.reason),
        (Some("waiting"), None)
    );

    let check = place.lines(&["lead", "check", "--json", &phone(2)]).await;
    assert_eq!(check[0]["result"], "ambiguous_lead");
    assert_eq!(check[0]["known"].as_array().map(Vec::len), Some(2));
    assert_eq!(
        check[0]["profile"]["name"],
        Value::Null,
        "no profile is shown for two leads"
    );
    let check = place.lines(&["lead", "check", "--json", &phone(1)]).await;
    let profile = json!({
        "name": "A [VIP]", "responsible": 501, "responsibleName": "Employee 501", "stage": "New",
    });
    assert_eq!(check[0]["profile"], profile);
    let list = place.lines(&["lead", "list", "--json"]).await;
    let known = list
        .iter()
        .filter(|row| row["phone"] == phone(1) && row["profile"] == profile);
    assert_eq!(known.count(), 1, "{list:?}");
    let table = place.command(&["lead", "list"]).await.stdout;
    let table = String::from_utf8(table).expect("UTF-8");
    let end = "  A [VIP], New, employee 501 (Employee 501)";
    assert!(table.lines().any(|line| line.ends_with(end)), "{table}");
    assert!(
        list.iter()
            .any(|row| row["phone"] == phone(3) && row["leads"] == json!([4003])),
        "{list:?}"
    );
    let letters = place.letters().await;
    let ambiguous = letters
        .iter()
        .find(|letter| letter["reason"] == "ambiguous_lead");
    let message = ambiguous.expect("a dead letter")["message"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert!(
        message.contains("4002") && message.contains("4012"),
        "{message}"
    );
    program.terminate().await;
    let reasons = [
        "no_lead",
        "ambiguous_lead",
        "no_lead",
        "no_lead",
        "no_lead",
        "no_lead",
    ];
    let leads = [Some(4001), None, Some(4003), None, None, None];
    crm::judge(
        &crm,
        &place.letters().await,
        &expected(&calls, leads, reasons),
    );
}

#[tokio::test]
async fn missing_right_to_read_leads_is_logged_and_calls_continue() {
    let (place, crm) = (Place::new(), crm::start().await);
    let call = recordings::one("inbound_answered");
    place.append("recorded", &call.ami);
    let trunk = "--trunk=city=PJSIP/city,country=UZ,lead=directory;var:LEAD_ID";
    let source = place.file("recorded", "ami");
    let flags = [&source, trunk, RATE_FLAG, "--lead-directory"];
    let mut program = place.run(&crm.url(), &flags);
    program
        .until("one call, and no right", |status| {
            let directory = status.directory.as_ref();
            let backfill = directory.and_then(|directory| directory.backfill.as_deref());
            status.books.journaled == 1 && backfill == Some("no_grant")
        })
        .await;
    let grant = "PERMISSION_OPEN_API_LEAD:READ";
    assert!(program.log().contains(grant), "{}", program.log());
    program.terminate().await;
    crm::judge(&crm, &place.letters().await, &recordings::expected(&[call]));
}

#[tokio::test]
async fn lead_webhooks_release_waiting_calls_and_others_get_reasons() {
    let place = Place::new();
    let calls = CALLS.map(recordings::one);
    place.append("recorded", b"");
    let (crm, mut program, _authority) = webhooks::start(&place, &TRUNKS, |config| {
        config.settings.company.leads = IdSet::default();
    })
    .await;
    for (id, phones) in [
        (4002, &[2][..]),
        (4012, &[2]),
        (4003, &[]),
        (4013, &[3]),
        (4004, &[4]),
    ] {
        administer(&crm, "lead", lead(id, phones)).await;
    }
    administer(&crm, "lead/merge", json!({"into": 4003, "from": [4013]})).await;
    administer(&crm, "lead/delete", json!({"id": 4004})).await;
    program
        .until("three leads are left", |status| {
            count_leads(status) == Some(3)
        })
        .await;
    calls
        .iter()
        .for_each(|call| place.append("recorded", &call.ami));
    program
        .until("the call of the merged lead", |status| {
            let books = &status.books;
            (books.journaled, books.dead, books.waiting) == (1, 1, 4)
        })
        .await;
    let letters = place.letters().await;
    for wanted in [
        "two leads in the CRM have this number: 4002 and 4012 (directory)",
        "deleted 20",
    ] {
        let mut messages = letters
            .iter()
            .filter_map(|letter| letter["message"].as_str());
        assert!(
            messages.any(|text| text.contains(wanted)),
            "{wanted}: {letters:?}"
        );
    }

    administer(&crm, "lead", lead(4001, &[1])).await;
    program
        .until("a lead that was made", |status| status.books.journaled == 2)
        .await;
    administer(&crm, "lead/delete", json!({"id": 4012})).await;
    let status = program
        .until("one lead of two", |current| current.books.journaled == 3)
        .await;
    assert_eq!((status.books.waiting, status.books.dead), (3, 0));
    program.terminate().await;
    let leads = [Some(4001), Some(4002), Some(4003), None, None, None];
    crm::judge(
        &crm,
        &place.letters().await,
        &expected(&calls, leads, ["no_lead"; 6]),
    );
}
