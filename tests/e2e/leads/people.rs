//! Tests that calls find their lead and employee even if the lists change while the program is
//! running.

use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::Place;
use crate::support::recordings::{self, LEADS, Recording, TRUNKS};
use callbridge_model::status::FindingKind;
use callbridge_sandbox::Server;

/// Creates a place with this CSV list of leads. Returns the place and the flags for reading the
/// list.
fn place_with_leads(leads: &str) -> (Place, Vec<String>) {
    let place = Place::new();
    let list = place.write("leads.csv", leads);
    let trunk = format!("--trunk=city=PJSIP/city,country=UZ,strip=9,lead=csv:{list}");
    let gsm = "--trunk=gsm=PJSIP/gsm,country=UZ,lead=var:LEAD_ID".to_owned();
    let flags = vec![
        place.file("recorded", "ami"),
        trunk,
        gsm,
        RATE_FLAG.to_owned(),
    ];
    (place, flags)
}

/// Compares the CRM's journal with the recorded calls.
async fn judge(crm: &Server, place: &Place, calls: &[Recording]) {
    crm::judge(crm, &place.letters().await, &recordings::expected(calls));
}

#[tokio::test]
async fn waiting_calls_are_sent_when_the_list_has_their_numbers() {
    let (place, flags) = place_with_leads("phone,leadId\n998901110002,4002\n");
    let crm = crm::start().await;
    // The first call is from 998901110001, and the second one is from 998901110003.
    let calls = ["inbound_answered", "forwarded_to_mobile"].map(recordings::one);
    calls
        .iter()
        .for_each(|call| place.append("recorded", &call.ami));
    let mut program = place.run(&crm.url(), &flags);
    program
        .until("two waiting calls", |status| status.books.waiting == 2)
        .await;

    let letters = place.letters().await;
    let reasons: Vec<_> = letters
        .iter()
        .map(|letter| letter["reason"].clone())
        .collect();
    assert_eq!(reasons, ["no_lead", "no_lead"]);
    let missing = place.command(&["lead", "missing", "--csv"]).await;
    let missing = String::from_utf8(missing.stdout).expect("UTF-8");
    let mut rows: Vec<&str> = missing.lines().skip(1).collect();
    rows.sort_unstable();
    let starts = ["+998901110001,1,2026-11-20T", "+998901110003,1,2026-11-20T"];
    assert!(
        rows.len() == 2 && rows[0].starts_with(starts[0]),
        "{missing}"
    );
    assert!(
        rows[1].starts_with(starts[1]) && rows[1].ends_with(",city"),
        "{missing}"
    );
    let check = ["lead", "check", "--json", "90 111 00 01"];
    let answer = place.lines(&check).await;
    assert_eq!(
        (&answer[0]["result"], &answer[0]["phone"]),
        (&"no_lead".into(), &"+998901110001".into())
    );

    place.write(
        "leads.csv",
        "phone,leadId\n+998 90 111-00-01,4001\n998901110003,4003\n",
    );
    let status = program.until("both journaled", |current| current.books.journaled == 2);
    let books = status.await.books;
    assert_eq!((books.waiting, books.dead), (0, 0));
    let answer = place.lines(&check).await;
    assert_eq!(
        (&answer[0]["result"], &answer[0]["leadId"]),
        (&"lead".into(), &4001.into())
    );
    assert!(place.lines(&["lead", "missing", "--json"]).await.is_empty());
    program.terminate().await;
    judge(&crm, &place, &calls).await;
}

/// Returns the message of the problem of this kind, if any.
fn problem(status: &callbridge_model::Status, kind: FindingKind) -> Option<String> {
    let found = status.problems.iter().find(|problem| problem.kind == kind);
    found.map(|problem| problem.message.clone())
}

#[tokio::test]
async fn bad_lead_list_row_is_reported_and_other_rows_are_used() {
    let (place, mut flags) = place_with_leads("phone,leadId\n998901110001,4009\n");
    let crm = crm::start().await;
    flags.push("--log-format=json".to_owned());
    let call = recordings::one("inbound_answered");
    place.append("recorded", b"");
    let mut program = place.run(&crm.url(), &flags);
    let status = program.until("the program answers", |_| true).await;
    assert_eq!(problem(&status, FindingKind::Lists), None);
    place.write(
        "leads.csv",
        "phone,leadId\n998901110001,4001\n+998 90 111 00 03 / +998901110004,4003\n",
    );
    let status = program
        .until("the bad row is reported", |current| {
            problem(current, FindingKind::Lists).is_some()
        })
        .await;
    let message = problem(&status, FindingKind::Lists).expect("a problem");
    assert!(
        message.contains("1 row of the list") && message.contains("line 3: `+998 90 111 00 03"),
        "{message}"
    );
    let log = program.log();
    assert!(
        log.contains("line 3: `+··· ·· ··· ·· ·· / +········0004` holds several"),
        "{log}"
    );

    place.append("recorded", &call.ami);
    program.settled(1).await;
    // If callbridge can't read the file, the last good rows stay in effect, and `status` reports
    // the file.
    std::fs::remove_file(place.path("leads.csv")).expect("removed");
    program
        .until("the missing file is reported", |current| {
            problem(current, FindingKind::Lists)
                .is_some_and(|text| text.contains("stay in use (1 row)"))
        })
        .await;
    let answer = place.lines(&["lead", "check", "--json", "901110001"]).await;
    assert_eq!(answer[0]["leadId"], 4001);
    place.write("leads.csv", "phone,leadId\n998901110001,4001\n");
    program
        .until("no problem found", |current| {
            problem(current, FindingKind::Lists).is_none()
        })
        .await;
    program.terminate().await;
    judge(&crm, &place, &[call]).await;
}

#[tokio::test]
async fn number_with_two_leads_is_dead_letter_until_lead_is_chosen() {
    let (place, flags) = place_with_leads("phone,leadId\n998901110001,4001\n998901110001,4002\n");
    let crm = crm::start().await;
    let call = recordings::one("inbound_answered");
    place.append("recorded", &call.ami);
    let mut program = place.run(&crm.url(), &flags);
    program
        .until("a dead letter", |status| status.books.dead == 1)
        .await;
    let letter = place.letters().await.remove(0);
    assert_eq!(letter["reason"], "ambiguous_lead");
    let message = letter["message"].as_str().expect("text");
    assert!(
        message.contains("4001") && message.contains("4002"),
        "{message}"
    );
    assert_eq!(crm.journal().len(), 0);

    let id = letter["id"].to_string();
    let id = id.trim_matches('"');
    let retry = place
        .lines(&["dead", "retry", "--json", "--lead", "4001", id])
        .await;
    assert_eq!(retry[0]["result"], "ready");
    program
        .until("the call is journaled", |status| {
            status.books.journaled == 1
        })
        .await;
    program.terminate().await;
    judge(&crm, &place, &[call]).await;
}

#[tokio::test]
async fn employees_come_from_file_and_unknown_extension_sends_none() {
    let (place, mut flags) = place_with_leads(LEADS);
    let crm = crm::start().await;
    let file = place.write("employees.csv", "extension,employeeId\n101,501\n");
    flags.push(format!("--employees={file}"));
    // Extension 101 answers the first call, and transfers the second one to 102.
    let calls = ["inbound_answered", "blind_transfer"].map(recordings::one);
    calls
        .iter()
        .for_each(|call| place.append("recorded", &call.ami));
    let mut program = place.run(&crm.url(), &flags);
    program.settled(2).await;
    program.terminate().await;
    let mut expected = recordings::expected(&calls);
    assert_eq!(expected[1].employee, Some(502));
    expected[1].employee = None;
    crm::judge(&crm, &place.letters().await, &expected);
}

#[tokio::test]
async fn mistyped_employee_extension_is_named_with_suggestion() {
    let (place, mut flags) = place_with_leads(LEADS);
    let crm = crm::start().await;
    flags.push("--employees=1O1:501;102:502".to_owned());
    place.append("recorded", &recordings::one("inbound_answered").ami);
    let mut program = place.run(&crm.url(), &flags);
    let status = program
        .until("the employee is reported", |current| {
            let employees = current.employees.iter();
            let unlisted = employees.flat_map(|employees| &employees.unlisted);
            unlisted.count() == 1 && problem(current, FindingKind::Employees).is_some()
        })
        .await;
    let message = problem(&status, FindingKind::Employees).expect("a problem");
    assert!(
        message.contains("extension 1O1") && message.contains("did you mean 101?"),
        "{message}"
    );
    let employees = status.employees.expect("employees");
    assert_eq!((employees.calls, employees.matched), (1, 0));
    assert_eq!(employees.unlisted[0].extension, "101");
    program.terminate().await;
}

/// Promise: A retried dead letter keeps its uuid.
#[tokio::test]
async fn unknown_lead_makes_dead_letter_and_retry_keeps_uuid() {
    let (place, flags) = place_with_leads("phone,leadId\n998901110001,4999\n998901110003,4003\n");
    let crm = crm::start().await;
    let calls = ["inbound_answered", "forwarded_to_mobile"].map(recordings::one);
    calls
        .iter()
        .for_each(|call| place.append("recorded", &call.ami));
    let mut program = place.run(&crm.url(), &flags);
    program
        .until("a dead letter", |status| status.books.dead == 1)
        .await;
    let letter = place.letters().await.remove(0);
    assert_eq!(letter["reason"], "failed");
    assert_eq!(letter["uuid"], recordings::expected(&calls)[0].uuid);
    let retry = [
        "dead", "retry", "--json", "--lead", "4001", "--reason", "failed",
    ];
    assert_eq!(place.lines(&retry).await[0]["leadId"], 4001);
    program
        .until("both journaled", |status| status.books.journaled == 2)
        .await;
    program.terminate().await;
    judge(&crm, &place, &calls).await;
}

#[tokio::test]
async fn calls_left_out_by_a_trunk_are_counted_and_not_sent() {
    let (place, crm) = (Place::new(), crm::start().await);
    let names = ["inbound_answered", "inbound_no_answer", "outbound_gsm"];
    let calls = names.map(recordings::one);
    calls
        .iter()
        .for_each(|call| place.append("recorded", &call.ami));
    let flags = [
        &place.file("recorded", "ami"),
        "--trunk=city=PJSIP/city,country=UZ,lead=var:LEAD_ID,unanswered=no",
        "--trunk=gsm=PJSIP/gsm,country=UZ,lead=var:LEAD_ID,journal=no",
        RATE_FLAG,
    ];
    let mut program = place.run(&crm.url(), &flags);
    let status = program
        .until("one call journaled and two left out", |current| {
            current.books.journaled == 1 && current.books.skipped == 2
        })
        .await;
    assert_eq!(status.books.finished, 1);
    program.terminate().await;
    judge(&crm, &place, &calls[..1]).await;
}

#[tokio::test]
async fn dry_run_sends_nothing_and_the_next_run_sends_the_call() {
    let (place, crm) = (Place::new(), crm::start().await);
    let call = recordings::one("inbound_answered");
    place.append("recorded", &call.ami);
    let source = place.file("recorded", "ami");
    let flags = [&source, TRUNKS[0], RATE_FLAG, "--until-idle"];
    let dry_flags = [&flags[..], &["--dry-run"]].concat();
    place.run(&crm.url(), &dry_flags).expect_success().await;
    let status = place.lines(&["status", "--json"]).await;
    assert_eq!(status[0]["books"]["ready"], 1);
    assert_eq!(crm.admin(|core, _| core.journal.accepted()), 0);
    place.run(&crm.url(), &flags).expect_success().await;
    judge(&crm, &place, &[call]).await;
}
