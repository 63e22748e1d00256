//! Dead letters by cause. When one cause is fixed, all dead letters with it leave the list.

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

/// Makes a dead letter that FAILED with one of six leads.
fn failed(id: i64) -> Letter {
    let mut one = letter("Savdo", NOW, id);
    (one.reason, one.waiting) = (Reason::Failed, false);
    let call = one.call.as_mut().expect("a call");
    call.lead_id = LeadId::new(9001 + id % 6);
    one
}

async fn served() -> (Arc<Fake>, Served, Browser) {
    let mut known = morning("Savdo", NOW);
    known.letters = (1..=51).map(|id| (RowId(id), failed(id))).collect();
    let fake = Fake::new(known);
    let served = Served::new(Arc::clone(&fake), Manner::default()).await;
    let anna = served.visitor(PageRole::Admin).await;
    (fake, served, anna)
}

#[tokio::test]
async fn dead_letters_group_by_cause_and_fixed_cause_disappears() {
    let (fake, served, mut anna) = served().await;
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
    let (_, change, letters) = fake.known().acts.pop().expect("an act");
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
    let (fake, served, mut anna) = served().await;
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
    assert!(fake.known().acts.is_empty(), "it asks first");
    let file = anna
        .get("/letters/export?reason=failed&cause=lead%3A9003")
        .await;
    assert_eq!(file.body.lines().count(), 9);
    served.stop().await;
}

#[tokio::test]
async fn values_for_one_dead_letter_can_apply_to_its_whole_cause() {
    let (fake, served, mut anna) = served().await;
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
    assert_eq!(fake.known().acts.pop().expect("an act").2, 9);
    served.stop().await;
}

#[tokio::test]
async fn dead_letter_advice_follows_finding_in_reader_language() {
    let mut known = morning("Savdo", NOW);
    let mut letters = [failed(1), failed(2), failed(3), failed(4)];
    letters[0].finding = Some(Finding::LeadMissing);
    letters[1].finding = Some(Finding::LeadExists);
    letters[1].call.as_mut().expect("a call").employee_id = EmployeeId::new(777);
    // The call has no employee and its lead exists, so the missing value is unknown.
    letters[2].finding = Some(Finding::LeadExists);
    letters[2].call.as_mut().expect("a call").employee_id = None;
    known.letters = letters.into_iter().map(|it| (it.id, it)).collect();
    let served = Served::new(Fake::new(known), Manner::default()).await;
    let mut anna = served.visitor(PageRole::Admin).await;
    anna.language = "ru";
    for (id, said) in [
        (1, "Такого лида в CRM нет"),
        (2, "CRM не знает такого сотрудника"),
        (3, "Чаще всего в CRM нет такого лида или сотрудника"),
        (4, "Чаще всего в CRM нет такого лида или сотрудника"),
    ] {
        let page = anna.get(&format!("/letters/{id}")).await.body;
        assert!(page.contains(said), "{id}: {page}");
        // The page has buttons. Commands are for a terminal, and in English.
        let shown = page.split("<details>").next().expect("what is open");
        assert!(!shown.contains("callbridge dead"), "{id}: {shown}");
    }
    served.stop().await;
}

#[test]
fn cause_names_the_value_that_a_person_must_correct() {
    let (mut one, text) = (letter("101", NOW, 1), |letter: &Letter| {
        Cause::from_letter(letter).to_string()
    });
    one.call.as_mut().expect("a call").employee_id = EmployeeId::new(501);
    assert_eq!(text(&one), "lead:4001");
    // The lead exists, so the CRM does not know the employee.
    one.finding = Some(Finding::LeadExists);
    assert_eq!(text(&one), "employee:501");
    for (reason, about) in [
        (Reason::NoLead, "phone:+998902220001"),
        (Reason::AmbiguousLead, "phone:+998902220001"),
        (Reason::NoEmployee, "extension:101"),
        (Reason::Rejected, "lead:4001"),
        (Reason::Incomplete, ""),
        (Reason::Unreadable, ""),
    ] {
        one.reason = reason;
        assert_eq!(text(&one), about, "{reason:?}");
    }
    let mut other = failed(2);
    other.since = callbridge_call::EventTime::from_seconds(NOW - 9_000);
    let groups = CauseGroup::from_letters([failed(2), other, failed(3)].iter());
    let told = groups
        .iter()
        .map(|it| (it.cause.about.clone(), it.letters, it.since));
    let lead = |lead: &str| Some((About::Lead, lead.to_owned()));
    let expected = [
        (lead("9003"), 2, NOW - 9_000),
        (lead("9004"), 1, NOW - 5_000),
    ];
    assert!(told.eq(expected), "{groups:?}");
}
