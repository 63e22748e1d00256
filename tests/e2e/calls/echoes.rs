//! Compares the CRM's journal with the calls that were sent. In some tests, the CRM's own phone
//! system journals the calls too.

use crate::e2e::webhooks;
use crate::support::crm::RATE_FLAG;
use crate::support::program::{Place, Program};
use callbridge_model::Status;
use callbridge_model::status::{FindingKind, SentField};
use callbridge_sandbox::faults;
use callbridge_testbed::calls::{Call, recording};

/// Returns the messages of this kind in `status`.
fn said(status: &Status, kind: FindingKind) -> Vec<&str> {
    let problem = status.problems.iter().filter(|it| it.kind == kind);
    problem.map(|it| it.message.as_str()).collect()
}

fn compared(status: &Status) -> u64 {
    let talk = |it: &&callbridge_model::status::JournalField| it.field == SentField::Talk;
    let talk = status.journal_fields.iter().find(talk);
    talk.map_or(0, |it| it.compared)
}

async fn next(place: &Place, program: &mut Program, n: u32) -> Status {
    place.append("recorded", recording(&[Call::new(n, 4001)]).as_bytes());
    program.settled(u64::from(n)).await
}

#[tokio::test]
async fn missing_talk_time_in_journal_is_reported_until_field_is_set() {
    let place = Place::new();
    place.append("recorded", b"");
    let (crm, events, _authority) = webhooks::crm_with_events(&place, |config| {
        config.settings.names.talk = "spoken".to_owned();
    })
    .await;
    let trunk = "--trunk=city=PJSIP/city,country=UZ,strip=9,lead=var:LEAD_ID";
    let mut flags = vec![place.file("recorded", "ami"), trunk.to_owned()];
    flags.extend(events);
    flags.push(RATE_FLAG.to_owned());
    let mut program = place.run(&crm.url(), &flags);
    webhooks::send_to(&crm, &program).await;
    next(&place, &mut program, 1).await;
    let shown = |it: &Status| compared(it) > 0;
    let status = program.until("the call's event", shown).await;
    let words = "the journal shows no talk time (1 of 1 calls): is --field talk=talkTimeSec right?";
    assert_eq!(said(&status, FindingKind::FieldNotShown), [words]);
    let mut check = place.arguments(&crm.url(), &flags);
    check[0] = "check".to_owned();
    let check: Vec<&str> = check.iter().map(String::as_str).collect();
    let found = place.command(&check).await.stdout;
    let found = String::from_utf8_lossy(&found);
    assert!(found.contains(&format!("journal: {words}")), "{found}");
    program.kill().await;
    let offline = place.lines(&["status", "--json"]).await.remove(0);
    assert_eq!(offline["journalFields"][0]["missing"], 1, "{offline}");
    // With the right field name, the next call shows it.
    flags.push("--field=talk=spoken".to_owned());
    let mut program = place.run(&crm.url(), &flags);
    webhooks::send_to(&crm, &program).await;
    next(&place, &mut program, 2).await;
    let named = |it: &Status| it.journal_fields.iter().any(|it| it.name == "spoken");
    let status = program.until("the next call's event", named).await;
    assert_eq!(said(&status, FindingKind::FieldNotShown), [""; 0]);
    program.terminate().await;
}

#[tokio::test]
async fn other_provider_of_same_calls_is_reported_after_two_calls() {
    let place = Place::new();
    place.append("recorded", b"");
    let flags = [RATE_FLAG, "--field=phone=clientPhone"];
    let (_crm, mut program, _authority) = webhooks::start(&place, &flags, |config| {
        let shapes = "shape journal-foreign ONLINE_PBX";
        (_, config.settings.shapes) = faults::parse(shapes).expect("a shape");
    })
    .await;
    next(&place, &mut program, 1).await;
    let calls = |it: &Status| it.foreign_calls.iter().map(|it| it.calls).sum::<u64>();
    let status = program.until("one call", |it| calls(it) == 1).await;
    assert_eq!(
        said(&status, FindingKind::ForeignCalls),
        [""; 0],
        "one is no finding"
    );
    assert_eq!(said(&status, FindingKind::FieldNotShown), [""; 0]);
    next(&place, &mut program, 2).await;
    let status = program.until("two calls", |it| calls(it) == 2).await;
    let said = said(&status, FindingKind::ForeignCalls);
    assert!(
        said[0].starts_with("ONLINE_PBX journals our calls as well (2 in"),
        "{said:?}"
    );
    assert_eq!(status.books.journaled, 2);
    program.terminate().await;
}
