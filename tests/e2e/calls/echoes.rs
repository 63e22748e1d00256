//! Tests that differences between the CRM's journal and the sent calls are reported. In one test,
//! another provider journals the calls as well.

use crate::e2e::webhooks;
use crate::support::crm::RATE_FLAG;
use crate::support::program::{Place, Program};
use callbridge_model::Status;
use callbridge_model::status::{FindingKind, SentField};
use callbridge_sandbox::faults;
use callbridge_testbed::calls::{Call, recording};

/// Returns the messages of all problems of this kind.
fn problem_messages(status: &Status, kind: FindingKind) -> Vec<&str> {
    let problems = status.problems.iter();
    let problems = problems.filter(|problem| problem.kind == kind);
    problems.map(|problem| problem.message.as_str()).collect()
}

/// Returns the number of calls whose talk time was compared with the journal.
fn count_compared(status: &Status) -> u64 {
    let mut fields = status.journal_fields.iter();
    let talk = fields.find(|field| field.field == SentField::Talk);
    talk.map_or(0, |field| field.compared)
}

/// Returns the number of calls from other providers.
fn count_foreign(status: &Status) -> u64 {
    let providers = status.foreign_calls.iter();
    providers.map(|provider| provider.calls).sum()
}

/// Writes the `n`-th call to the source, and waits until `n` calls have been settled.
async fn journal_call(place: &Place, program: &mut Program, n: u32) -> Status {
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
    webhooks::send_events_to(&crm, &program).await;
    journal_call(&place, &mut program, 1).await;
    let status = program
        .until("the call's event", |current| count_compared(current) > 0)
        .await;
    let message =
        "the journal shows no talk time (1 of 1 calls): is --field talk=talkTimeSec right?";
    assert_eq!(
        problem_messages(&status, FindingKind::FieldNotShown),
        [message]
    );
    let mut check = place.arguments(&crm.url(), &flags);
    check[0] = "check".to_owned();
    let check: Vec<&str> = check.iter().map(String::as_str).collect();
    let found = place.command(&check).await.stdout;
    let found = String::from_utf8_lossy(&found);
    assert!(found.contains(&format!("journal: {message}")), "{found}");
    program.kill().await;
    let offline = place.lines(&["status", "--json"]).await.remove(0);
    assert_eq!(offline["journalFields"][0]["missing"], 1, "{offline}");
    // With the right field name, the journal shows the next call's talk time.
    flags.push("--field=talk=spoken".to_owned());
    let mut program = place.run(&crm.url(), &flags);
    webhooks::send_events_to(&crm, &program).await;
    journal_call(&place, &mut program, 2).await;
    let status = program
        .until("the next call's event", |current| {
            let mut fields = current.journal_fields.iter();
            fields.any(|field| field.name == "spoken")
        })
        .await;
    assert_eq!(
        problem_messages(&status, FindingKind::FieldNotShown),
        [""; 0]
    );
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
    journal_call(&place, &mut program, 1).await;
    let status = program
        .until("one call", |status| count_foreign(status) == 1)
        .await;
    assert_eq!(
        problem_messages(&status, FindingKind::ForeignCalls),
        [""; 0],
        "one call is not reported"
    );
    assert_eq!(
        problem_messages(&status, FindingKind::FieldNotShown),
        [""; 0]
    );
    journal_call(&place, &mut program, 2).await;
    let status = program
        .until("two calls", |status| count_foreign(status) == 2)
        .await;
    let messages = problem_messages(&status, FindingKind::ForeignCalls);
    assert!(
        messages[0].starts_with("ONLINE_PBX journals our calls as well (2 in"),
        "{messages:?}"
    );
    assert_eq!(status.books.journaled, 2);
    program.terminate().await;
}
