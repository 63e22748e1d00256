//! Tests actions on the page: dead letters are retried, and numbers get leads.

use super::browser::Browser;
use crate::commands::sidecar::{Place, RunningCommand, poll_until, start_crm};
use callbridge_sandbox::Server;
use callbridge_testbed::calls::{Call, recording};
use reqwest::StatusCode;

const UNKNOWN_LEAD: i64 = 9_001;

/// Starts a CRM, a daemon that reads these calls, and a browser with a login.
async fn stage(place: &Place, calls: &[Call]) -> (Server, RunningCommand, Browser) {
    let crm = start_crm(|_| {}).await;
    place.write("calls.ami", recording(calls));
    let mut flags = place.flags_of_file(&crm.url(), "calls.ami");
    flags.push("--page=127.0.0.1:0".to_owned());
    let running = place.start_daemon(&flags).await;
    let browser = Browser::with_login(place).await;
    (crm, running, browser)
}

/// Submits the form for all failed dead letters, and waits until the job has ended.
async fn run_job(browser: &Browser, token: &str, action: &str) {
    let fields = [
        ("token", token),
        ("scope", "all"),
        ("reason", "failed"),
        ("lead", "4001"),
        ("action", action),
    ];
    let answer = browser.post("/letters/act", &fields).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.text);
    let job = answer.location.expect("a job to look at");
    poll_until("the job's end", async || {
        let text = browser.page(&job).await;
        text.contains(r#"max="30" value="30""#).then_some(())
    })
    .await;
}

#[tokio::test]
async fn dry_run_keeps_dead_letters_and_retry_with_lead_sends_them() {
    let place = Place::new();
    let mut calls = Vec::new();
    for n in 1..=90_u32 {
        let lead = if n.is_multiple_of(3) {
            UNKNOWN_LEAD
        } else {
            4_002
        };
        calls.push(Call::new(n, lead));
    }
    let (crm, running, browser) = stage(&place, &calls).await;
    place.wait_for_number("/books/journaled", 60).await;
    place.wait_for_number("/books/dead", 30).await;
    let token = browser.token("/letters?reason=failed").await;
    run_job(&browser, &token, "dry_run").await;
    assert_eq!(
        place.number("/books/dead").await,
        Some(30),
        "a dry run sends nothing"
    );
    run_job(&browser, &token, "retry").await;
    place.wait_for_number("/books/journaled", 90).await;
    let journal = crm.journal();
    assert_eq!(journal.len(), 90);
    let retried_count = journal
        .iter()
        .filter(|record| record.call.lead_id == 4_001)
        .count();
    assert_eq!(retried_count, 30);
    assert_eq!(crm.violations(), []);
    running.stop().await;
}

#[tokio::test]
async fn assigned_lead_sends_waiting_calls_and_can_be_unassigned() {
    let place = Place::new();
    // Sixty calls, each from another customer.
    let calls: Vec<Call> = (1..=60).map(Call::without_lead).collect();
    let (crm, running, browser) = stage(&place, &calls).await;
    place.wait_for_number("/books/waiting", 60).await;
    let numbers = browser.page("/numbers").await;
    assert!(
        numbers.contains(&calls[0].phone()),
        "the whole number, which a user can call"
    );
    let token = browser.token("/numbers").await;
    for call in &calls {
        let phone = call.phone();
        let fields = [
            ("token", token.as_str()),
            ("phone", phone.as_str()),
            ("lead", "4001"),
        ];
        let answer = browser.post("/numbers/give", &fields).await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.text);
    }
    place.wait_for_number("/books/journaled", 60).await;
    assert_eq!(place.number("/books/waiting").await, Some(0));
    assert!(
        crm.journal()
            .iter()
            .all(|record| record.call.lead_id == 4_001)
    );
    let phone = calls[0].phone();
    let fields = [("token", token.as_str()), ("phone", phone.as_str())];
    let answer = browser.post("/numbers/take", &fields).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.text);
    let assigned = place.run_on_state("lead given --json").await.lines();
    assert_eq!(assigned.len(), 59);
    assert!(
        assigned.iter().all(|lead| lead["who"].is_string()),
        "the user who assigned the lead"
    );
    running.stop().await;
}

#[tokio::test]
async fn user_with_view_role_can_change_nothing() {
    let place = Place::new();
    let (_crm, running, _) = stage(&place, &[Call::new(1, UNKNOWN_LEAD)]).await;
    place.wait_for_number("/books/dead", 1).await;
    let output = place
        .run_on_state("page --role view")
        .await
        .expect_success();
    let url = output.trim().strip_prefix("open: ").expect("a link");
    let path = &url[url.find("/open/").expect("a path")..];
    let (mut viewer, _) = Browser::without_login(&place).await;
    viewer.cookie = viewer.post(path, &[]).await.cookie;
    let letters = viewer.page("/letters").await;
    assert!(!letters.contains(r#"value="retry""#), "{letters}");
    let token = viewer.token("/letters").await; // the token of the logout form
    for path in ["/letters/act", "/numbers/give", "/numbers/take"] {
        let fields = [
            ("token", token.as_str()),
            ("id", "1"),
            ("action", "discard"),
            ("phone", "+998901110001"),
            ("lead", "4001"),
        ];
        let answer = viewer.post(path, &fields).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}");
    }
    assert_eq!(place.number("/books/dead").await, Some(1));
    running.stop().await;
}
