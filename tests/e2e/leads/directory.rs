//! Tests that calls of unknown customers find leads that are created after the calls.

use crate::e2e::webhooks;
use crate::support::crm::{self, Expected, RATE_FLAG};
use crate::support::program::Place;
use crate::support::recordings::{self, Recording};
use callbridge_sandbox as sandbox;
use callbridge_sandbox::Server;
use callbridge_sandbox::token::{Grant, IdSet};
use serde_json::{Value, json};

/// Calls from …0001, …0002, …0003, …0004, …0005, and from a hidden number.
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

/// Starts a CRM without leads. Its token can read leads.
async fn without_leads() -> Server {
    let mut config = crm::settings();
    config.settings.company.leads = IdSet::default();
    let read = Grant::parse("PERMISSION_OPEN_API_LEAD:READ");
    config.settings.company.grants.extend(read);
    sandbox::start(config).await.expect("a sandbox")
}

/// Changes leads in the CRM, as an administrator could.
async fn administer(crm: &Server, act: &str, body: Value) {
    webhooks::admin(crm, act, &body).await;
}

fn lead(id: i64, phones: &[u32]) -> Value {
    let phones: Vec<String> = phones.iter().map(|n| phone(*n)).collect();
    json!({"id": id, "name": "N", "contacts": [{"name": "A [VIP]", "phones": phones}]})
}

fn phone(n: u32) -> String {
    format!("+99890111000{n}")
}

fn flags(place: &Place, more: &[&str]) -> Vec<String> {
    let source = place.file("recorded", "ami");
    let flags = [source.as_str()].into_iter().chain(TRUNKS);
    flags
        .chain(more.iter().copied())
        .map(str::to_owned)
        .collect()
}

fn expected(calls: &[Recording], leads: [Option<i64>; 6], reasons: [&str; 6]) -> Vec<Expected> {
    let mut expected = recordings::expected(calls);
    for ((call, lead), reason) in expected.iter_mut().zip(leads).zip(reasons) {
        call.lead = lead;
        call.reason = lead.is_none().then(|| reason.to_owned());
    }
    expected
}

/// Creates one lead for a customer, two for one phone, one merged lead, and one deleted lead.
async fn make_leads(crm: &Server) {
    for (id, phones) in [
        (4001, &[7, 1][..]),
        (4002, &[2]),
        (4012, &[2]),
        (4003, &[]),
        (4013, &[3]),
    ] {
        administer(crm, "lead", lead(id, phones)).await;
    }
    let known = json!({"id": 4001, "statusId": 1, "responsibleId": 501});
    administer(crm, "lead/update", known).await;
    administer(crm, "lead", lead(4004, &[4])).await;
    administer(crm, "lead/delete", json!({"id": 4004})).await;
    administer(crm, "lead/merge", json!({"into": 4003, "from": [4013]})).await;
}

/// Without webhooks, no event reports a merge. callbridge asks again for the leads that have the
/// number.
#[tokio::test]
async fn ambiguous_number_is_resolved_by_lead_merge_without_webhooks() {
    let (place, crm) = (Place::new(), without_leads().await);
    for id in [4002, 4012] {
        administer(&crm, "lead", lead(id, &[2])).await;
    }
    let call = recordings::one("inbound_no_answer");
    place.append("recorded", b"");
    let mut program = place.run(&crm.url(), &flags(&place, &["--lead-directory"]));
    let read = |it: &callbridge_model::Status| {
        let directory = it.directory.as_ref();
        directory.is_some_and(|it| it.leads == 2)
    };
    program.until("both leads", read).await;
    let merge = json!({"into": 4002, "from": [4012]});
    administer(&crm, "lead/merge", merge).await;
    place.append("recorded", &call.ami);
    let torn = |it: &callbridge_model::Status| it.dead_letters.contains_key("ambiguous_lead");
    program.until("a letter", torn).await;
    let done = |it: &callbridge_model::Status| it.books.journaled == 1;
    program.until("the lead that is left", done).await;
    program.terminate().await;
    let mut expected = recordings::expected(&[call]);
    expected[0].lead = Some(4002);
    crm::judge(&crm, &place.letters().await, &expected);
}

/// Promise: A waiting call is sent once its number has a lead.
#[tokio::test]
async fn waiting_calls_are_sent_once_directory_has_their_leads() {
    let (place, crm) = (Place::new(), without_leads().await);
    let calls = CALLS.map(recordings::one);
    calls
        .iter()
        .for_each(|call| place.append("recorded", &call.ami));
    let mut program = place.run(&crm.url(), &flags(&place, &[]));
    program
        .until("six waiting calls", |it| it.books.waiting == 6)
        .await;
    program.terminate().await;

    make_leads(&crm).await;
    let mut program = place.run(&crm.url(), &flags(&place, &["--lead-directory"]));
    let done = |it: &callbridge_model::Status| it.books.journaled == 2 && it.books.dead == 1;
    let status = program.until("two calls with their leads", done).await;
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
        "of two leads nobody is shown"
    );
    let check = place.lines(&["lead", "check", "--json", &phone(1)]).await;
    let shown = json!({
        "name": "A [VIP]", "responsible": 501, "responsibleName": "Employee 501", "stage": "New",
    });
    assert_eq!(check[0]["profile"], shown);
    let list = place.lines(&["lead", "list", "--json"]).await;
    let known = |it: &&Value| it["phone"] == phone(1) && it["profile"] == shown;
    assert_eq!(list.iter().filter(known).count(), 1, "{list:?}");
    let words = place.command(&["lead", "list"]).await.stdout;
    let words = String::from_utf8(words).expect("UTF-8");
    let ends = |it: &str| it.ends_with("  A [VIP], New, employee 501 (Employee 501)");
    assert!(words.lines().any(ends), "{words}");
    assert!(
        list.iter()
            .any(|it| it["phone"] == phone(3) && it["leads"] == json!([4003])),
        "{list:?}"
    );
    let letters = place.letters().await;
    let torn = letters.iter().find(|it| it["reason"] == "ambiguous_lead");
    let words = torn.expect("a letter")["message"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert!(words.contains("4002") && words.contains("4012"), "{words}");
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
    let refused = |it: &callbridge_model::Status| {
        let backfill = it.directory.as_ref().and_then(|it| it.backfill.as_deref());
        it.books.journaled == 1 && backfill == Some("no_grant")
    };
    program.until("one call, and no right", refused).await;
    let words = "PERMISSION_OPEN_API_LEAD:READ";
    assert!(program.log().contains(words), "{}", program.log());
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
    let heard =
        |it: &callbridge_model::Status| it.directory.as_ref().is_some_and(|it| it.leads == 3);
    program.until("three leads are left", heard).await;
    calls
        .iter()
        .for_each(|call| place.append("recorded", &call.ami));
    let first = |it: &callbridge_model::Status| {
        (it.books.journaled, it.books.dead, it.books.waiting) == (1, 1, 4)
    };
    program.until("the call of the merged lead", first).await;
    let letters = place.letters().await;
    let said = |words: &str| {
        let message = |it: &Value| it["message"].as_str().is_some_and(|it| it.contains(words));
        assert!(letters.iter().any(message), "{words}: {letters:?}");
    };
    said("the directory has leads 4002 and 4012 for the number");
    said("deleted 20");

    administer(&crm, "lead", lead(4001, &[1])).await;
    program
        .until("a lead that was made", |it| it.books.journaled == 2)
        .await;
    administer(&crm, "lead/delete", json!({"id": 4012})).await;
    let status = program
        .until("one lead of two", |it| it.books.journaled == 3)
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
