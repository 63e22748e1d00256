//! Tests that the page of a running daemon shows the calls, in the language of the user.

use super::browser::Browser;
use super::door::{PASSWORD, password_line};
use crate::commands::sidecar::{Place, RunningCommand, poll_until, start_crm};
use callbridge_sandbox::Server;
use callbridge_testbed::calls::{Call, moved_to, now, recording};
use reqwest::{Method, StatusCode};
use std::io::Write as _;

const MISSED: &str = include_str!("../../recordings/inbound_no_answer/ami.raw");
const CALLED_BACK: &str = include_str!("../../recordings/outbound_answered/ami.raw");
/// The caller in one recording, and the called number in the other.
const CUSTOMERS: [&str; 2] = ["+998901110002", "+998901110001"];

/// Starts a CRM and a daemon with a page, which reads the recording `calls`.
async fn daemon(place: &Place, calls: &str, more: &[&str]) -> (Server, RunningCommand) {
    let crm = start_crm(|_| {}).await;
    place.write("calls.ami", calls);
    let mut flags = place.flags_of_file(&crm.url(), "calls.ami");
    flags.push("--page=127.0.0.1:0".to_owned());
    flags.extend(more.iter().map(ToString::to_string));
    let running = place.start_daemon(&flags).await;
    (crm, running)
}

/// Waits until the page at `path` contains `words`, and returns the text of the page.
async fn wait_for_page_text(browser: &Browser, path: &str, words: &str) -> String {
    poll_until(&format!("{words} on {path}"), async || {
        let text = browser.page(path).await;
        text.contains(words).then_some(text)
    })
    .await
}

fn digits(number: &str) -> &str {
    number.trim_start_matches('+')
}

/// Returns the row of a CSV file that starts with `start`.
fn row<'a>(csv: &'a str, start: &str) -> &'a str {
    csv.lines()
        .find(|line| line.starts_with(start))
        .unwrap_or_else(|| panic!("no {start} in {csv}"))
}

#[tokio::test]
async fn missed_customer_is_listed_until_called_back_by_employee() {
    let place = Place::new();
    let begin = now() - 3_000;
    let missed = moved_to(MISSED, begin);
    let employees = "--employees=101:501;102:502";
    let (_crm, running) = daemon(&place, &missed, &[employees]).await;
    let browser = Browser::with_login(&place).await;
    let dial = format!("tel:{}", CUSTOMERS[0]);
    let waiting = wait_for_page_text(&browser, "/missed", &dial).await;
    assert!(waiting.contains("4002"), "with the lead: {waiting}");
    let csv = browser.page("/missed.csv").await;
    assert!(
        csv.contains(&format!("{},4002,city,", CUSTOMERS[0])),
        "{csv}"
    );

    let back = moved_to(CALLED_BACK, begin + 600);
    let back = back.replace(digits(CUSTOMERS[1]), digits(CUSTOMERS[0]));
    let file = std::fs::OpenOptions::new()
        .append(true)
        .open(place.path("calls.ami"));
    file.expect("the file")
        .write_all(back.as_bytes())
        .expect("written");
    let missed_page = wait_for_page_text(&browser, "/missed", "No customer waits").await;
    assert!(!missed_page.contains(CUSTOMERS[0]), "{missed_page}");

    let week = "/employees.csv?span=week"; // the test can run at midnight
    let csv = browser.page(week).await;
    let heading = "extension,employeeId,answered,missed,outbound,talkSec";
    assert!(
        csv.trim_start_matches('\u{feff}').starts_with(heading),
        "{csv}"
    );
    assert!(
        row(&csv, "101,").starts_with("101,501,0,0,1,4,,600.0"),
        "{csv}"
    );
    assert!(row(&csv, "102,").starts_with("102,,0,1,0,0,"), "{csv}");
    let table = browser.page("/employees?span=week").await;
    for number in ["101", "102", "501"] {
        assert!(table.contains(number), "{number}: {table}");
    }
    running.stop().await;
}

#[tokio::test]
async fn check_run_from_page_shows_each_finding_of_command() {
    let place = Place::new();
    let (crm, running) = daemon(&place, "", &[]).await;
    let browser = Browser::with_login(&place).await;
    let first_page = browser.page("/check").await;
    assert!(
        first_page.contains("The check was not run yet."),
        "{first_page}"
    );
    let token = browser.token("/check").await;
    let answer = browser.post("/check", &[("token", &token)]).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.text);
    let found = wait_for_page_text(&browser, "/check", "Run at").await;
    let found = found.replace("&#38;", "&").replace("&amp;", "&");
    let mut words = vec!["check".to_owned(), "--json".to_owned()];
    words.extend(place.flags_of_file(&crm.url(), "calls.ami"));
    let findings = place.run_command(&words).await.lines();
    assert!(findings.len() > 3, "{findings:?}");
    for finding in findings {
        let name = finding["name"].as_str().expect("a name");
        assert!(found.contains(&format!(">{name}<")), "{name}: {found}");
    }
    running.stop().await;
}

/// Promise: A user who is removed from the password file is logged out at once.
#[tokio::test]
async fn removal_from_password_file_logs_out_only_that_user() {
    let place = Place::new();
    let (anna, bek) = (password_line("anna", "admin"), password_line("bek", "view"));
    let file = place.write("people", format!("{anna}{bek}"));
    let flag = format!("--page-password-file={}", file.display());
    let (_crm, running) = daemon(&place, "", &[&flag]).await;
    let mut browsers = Vec::new();
    for name in ["anna", "bek"] {
        let (mut browser, _) = Browser::without_login(&place).await;
        let fields = [("name", name), ("password", PASSWORD)];
        browser.cookie = browser.post("/login", &fields).await.cookie;
        browser.page("/calls").await;
        browsers.push(browser);
    }
    let new = place.write("people.new", anna);
    std::fs::rename(new, file).expect("in its place");
    poll_until("the logout of bek", async || {
        let answer = browsers[1].get("/calls").await;
        (answer.status == StatusCode::SEE_OTHER).then_some(())
    })
    .await;
    let fields = [("name", "bek"), ("password", PASSWORD)];
    let refused_login = browsers[1].post("/login", &fields).await;
    assert_eq!(
        refused_login.status,
        StatusCode::FORBIDDEN,
        "{}",
        refused_login.text
    );
    browsers[0].page("/calls").await;
    running.stop().await;
}

#[tokio::test]
async fn problems_and_fixes_are_shown_in_browser_language() {
    let place = Place::new();
    let (_crm, running) = daemon(&place, &recording(&[Call::new(1, 9_001)]), &[]).await;
    place.wait_for_number("/books/dead", 1).await;
    let browser = Browser::with_login(&place).await;
    let texts = [
        ("en", include_str!("../../../crates/page/texts/en.json")),
        ("ru", include_str!("../../../crates/page/texts/ru.json")),
        ("uz", include_str!("../../../crates/page/texts/uz.json")),
    ];
    for (language, texts) in texts {
        let texts: serde_json::Value = serde_json::from_str(texts).expect("JSON");
        for (path, key) in [
            ("/", "kind.dead_letters"),
            ("/letters?reason=failed", "reason.failed"),
            ("/letters?reason=failed", "remedy.failed"),
            ("/", "detail.dead_letters"),
            ("/letters?reason=failed", "why.failed"),
        ] {
            // In English, findings are shown with their own messages.
            if language == "en" && (key.starts_with("detail.") || key.starts_with("why.")) {
                continue;
            }
            let request = browser.request(Method::GET, path);
            let answer = browser
                .send(request.header("Accept-Language", language))
                .await;
            let words = texts[key].as_str().expect("a text").replace('\'', "&#39;");
            // Compare only the text before its first placeholder.
            let words = words.split('{').next().unwrap_or_default();
            assert!(
                answer.text.contains(words),
                "{language} {key}: {}",
                answer.text
            );
        }
    }
    running.stop().await;
}

/// Returns the text between the first `from` and the next `to`.
fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let rest = text.split_once(from).map(|(_, rest)| rest);
    let found = rest.and_then(|rest| rest.split_once(to));
    found.map_or_else(|| panic!("no {from}…{to} in {text}"), |(found, _)| found)
}

#[tokio::test]
async fn dead_letter_count_is_equal_on_page_and_in_status() {
    let place = Place::new();
    let old = 3 * 86_400;
    let calls = (1..=4).map(|n| match n {
        // A call three days ago, with a lead that the CRM does not know.
        1 => Call {
            begins: now() - old,
            ..Call::new(n, 9_001)
        },
        2 => Call::new(n, 4_001),
        _ => Call::without_lead(n),
    });
    let calls: Vec<Call> = calls.collect();
    let unreadable = "\u{1} no colon at all\r\n\r\n";
    let bytes = [&recording(&calls[..2]), unreadable, &recording(&calls[2..])].concat();
    let (_crm, running) = daemon(&place, &bytes, &[]).await;
    for (book, count) in [
        ("journaled", 1),
        ("dead", 1),
        ("waiting", 2),
        ("unreadable", 1),
    ] {
        place
            .wait_for_number(&format!("/books/{book}"), count)
            .await;
    }
    let browser = Browser::with_login(&place).await;
    let today = browser.page("/").await;
    assert!(
        between(&today, "href=\"/letters\"", "</a>").contains(">2<"),
        "menu: {today}"
    );
    let tile = between(&today, "<div class=\"letters\">", "</div>");
    assert!(tile.contains("<dd>2</dd>"), "tile: {tile}");
    let books = between(&today, "<i class=\"dot letters\"", "</tr>");
    assert!(books.contains(">2<"), "books: {books}");
    let waiting = between(&today, "<div class=\"waiting\">", "</div>");
    assert!(waiting.contains("<dd>2</dd>"), "waiting: {waiting}");
    let list = browser.page("/letters").await;
    assert!(list.contains("all 2 of this list"), "{list}");
    assert_eq!(place.dead_letters("").await.len(), 4);
    let status = place.run_on_state("status").await.expect_success();
    assert!(
        status
            .contains("\n         2 dead letters (of which unreadable messages: 1), 2 waiting, 0 "),
        "{status}"
    );
    assert!(
        status.contains("\ndead     2: 1 failed, 1 unreadable\nwaiting  2: 2 no_lead\n"),
        "{status}"
    );
    running.stop().await;
}
