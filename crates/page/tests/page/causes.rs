//! Tests that dead letters are grouped by cause, and that all dead letters of a fixed cause leave
//! the list.

use crate::client::{Browser, Manner, Served};
use crate::fake::Fake;
use crate::morning::{letter, morning};
use callbridge_admin::{LetterChange, PageRole};
use callbridge_leads::lead_request::Finding;
use callbridge_model::{EmployeeId, LeadId, Reason};
use callbridge_page::backend::{About, Cause, CauseGroup};
use callbridge_spool::{Letter, RowId};
use std::sync::Arc;

const NOW: i64 = 1_795_158_000;

/// Makes a dead letter that the CRM answered with `FAILED`. Its lead is one of six.
fn failed_letter(id: i64) -> Letter {
    let mut failed = letter("Savdo", NOW, id);
    (failed.reason, failed.waiting) = (Reason::Failed, false);
    let call = failed.call.as_mut().expect("a call");
    call.lead_id = LeadId::new(9001 + id % 6);
    failed
}

async fn serve_failed_letters() -> (Arc<Fake>, Served, Browser) {
    let mut known = morning("Savdo", NOW);
    known.letters = (1..=51).map(|id| (RowId(id), failed_letter(id))).collect();
    let fake = Fake::new(known);
    let served = Served::new(Arc::clone(&fake), Manner::default()).await;
    let anna = served.visitor(PageRole::Admin).await;
    (fake, served, anna)
}

#[tokio::test]
async fn dead_letters_group_by_cause_and_fixed_cause_disappears() {
    let (fake, served, mut anna) = serve_failed_letters().await;
    let page = anna.get("/letters").await.body;
    let causes = page.split("class=\"causes\"").nth(1).expect("causes");
    let causes = causes.split("</ul>").next().expect("their end");
    assert_eq!(causes.matches("<li>").count(), 6, "{causes}");
    assert!(
        causes.contains("<b>Lead 9002</b>") && causes.contains("9 calls"),
        "{causes}"
    );
    let fields = [
        ("action", "retry"),
        ("scope", "all"),
        ("reason", "failed"),
        ("cause", "lead:9002"),
        ("lead", "4001"),
    ];
    let begun = anna.act("/letters", "/letters/act", &fields).await;
    assert_eq!(begun.status, 303, "{}", begun.body);
    let (_, change, letters) = fake.known().actions.pop().expect("an act");
    assert!(
        matches!(change, LetterChange::Retry { wish, dry_run: false }
        if wish.lead == LeadId::new(4001))
    );
    assert_eq!(letters, 9);
    let page = anna.get("/letters").await.body;
    assert!(!page.contains("Lead 9002"), "{page}");
    assert!(page.contains("Lead 9003"), "{page}");
    served.stop().await;
}

#[tokio::test]
async fn cause_filter_limits_dead_letter_list_and_bulk_action() {
    let (fake, served, mut anna) = serve_failed_letters().await;
    let page = anna
        .get("/letters?reason=failed&cause=lead%3A9003")
        .await
        .body;
    assert_eq!(page.matches("name=\"id\" value=").count(), 9, "{page}");
    assert!(
        page.contains("name=\"cause\" value=\"lead:9003\""),
        "{page}"
    );
    assert!(page.contains("all 9 of this list"), "{page}");
    assert!(page.contains("class=\"card act actions\""), "{page}");
    let fields = [
        ("action", "discard"),
        ("scope", "all"),
        ("reason", "failed"),
        ("cause", "lead:9003"),
    ];
    let asks = anna.act("/letters", "/letters/act", &fields).await;
    assert!(
        asks.body.contains("Discard 9 dead letters?"),
        "{}",
        asks.body
    );
    assert!(
        asks.body.contains("name=\"cause\" value=\"lead:9003\""),
        "{}",
        asks.body
    );
    assert!(fake.known().actions.is_empty(), "it asks first");
    let file = anna
        .get("/letters/export?reason=failed&cause=lead%3A9003")
        .await;
    assert_eq!(file.body.lines().count(), 9);
    served.stop().await;
}

#[tokio::test]
async fn values_for_one_dead_letter_can_apply_to_its_whole_cause() {
    let (fake, served, mut anna) = serve_failed_letters().await;
    let page = anna.get("/letters/7").await.body;
    assert!(
        page.contains("the same for all 9 calls of this cause"),
        "{page}"
    );
    let fields = [
        ("action", "retry"),
        ("one", "7"),
        ("id", "7"),
        ("scope", "all"),
        ("reason", "failed"),
        ("cause", "lead:9002"),
        ("lead", "4001"),
    ];
    let begun = anna.act("/letters/7", "/letters/act", &fields).await;
    assert_eq!(begun.status, 303, "{}", begun.body);
    assert_eq!(fake.known().actions.pop().expect("an act").2, 9);
    served.stop().await;
}

#[tokio::test]
async fn dead_letter_advice_follows_finding_in_reader_language() {
    let mut known = morning("Savdo", NOW);
    let mut letters = [
        failed_letter(1),
        failed_letter(2),
        failed_letter(3),
        failed_letter(4),
    ];
    letters[0].finding = Some(Finding::LeadMissing);
    letters[1].finding = Some(Finding::LeadExists);
    letters[1].call.as_mut().expect("a call").employee_id = EmployeeId::new(777);
    // The call has no employee and its lead exists, so the missing value is unknown.
    letters[2].finding = Some(Finding::LeadExists);
    letters[2].call.as_mut().expect("a call").employee_id = None;
    known.letters = letters
        .into_iter()
        .map(|letter| (letter.id, letter))
        .collect();
    let served = Served::new(Fake::new(known), Manner::default()).await;
    let mut anna = served.visitor(PageRole::Admin).await;
    anna.language = "ru";
    for (id, advice) in [
        (1, "Такого лида в CRM нет"),
        (2, "CRM не знает такого сотрудника"),
        (3, "Чаще всего в CRM нет такого лида или сотрудника"),
        (4, "Чаще всего в CRM нет такого лида или сотрудника"),
    ] {
        let page = anna.get(&format!("/letters/{id}")).await.body;
        assert!(page.contains(advice), "{id}: {page}");
        // The visible part of the page has buttons, and no English commands for a terminal.
        let shown = page.split("<details>").next().expect("what is open");
        assert!(!shown.contains("callbridge dead"), "{id}: {shown}");
    }
    served.stop().await;
}

fn cause_text(letter: &Letter) -> String {
    Cause::from_letter(letter).to_string()
}

#[test]
fn cause_names_the_value_that_a_person_must_correct() {
    let mut dead_letter = letter("101", NOW, 1);
    dead_letter.call.as_mut().expect("a call").employee_id = EmployeeId::new(501);
    assert_eq!(cause_text(&dead_letter), "lead:4001");
    // The lead exists, so the CRM does not know the employee.
    dead_letter.finding = Some(Finding::LeadExists);
    assert_eq!(cause_text(&dead_letter), "employee:501");
    for (reason, about) in [
        (Reason::NoLead, "phone:+998902220001"),
        (Reason::AmbiguousLead, "phone:+998902220001"),
        (Reason::NoEmployee, "extension:101"),
        (Reason::Rejected, "lead:4001"),
        (Reason::Incomplete, ""),
        (Reason::Unreadable, ""),
    ] {
        dead_letter.reason = reason;
        assert_eq!(cause_text(&dead_letter), about, "{reason:?}");
    }
    let mut other = failed_letter(2);
    other.since = callbridge_call::EventTime::from_seconds(NOW - 9_000);
    let groups = CauseGroup::from_letters([failed_letter(2), other, failed_letter(3)].iter());
    let summaries = groups
        .iter()
        .map(|group| (group.cause.about.clone(), group.letters, group.since));
    let expected = [("9003", 2, NOW - 9_000), ("9004", 1, NOW - 5_000)]
        .map(|(lead, count, since)| (Some((About::Lead, lead.to_owned())), count, since));
    assert!(summaries.eq(expected), "{groups:?}");
}
