//! Tests that all views work in three languages, with hostile names, and for a role that cannot
//! change anything.

use crate::client::{Manner, Served};
use crate::fake::Fake;
use crate::morning::morning;
use callbridge_admin::PageRole;
use callbridge_model::clock;
use callbridge_model::status::Employees;

/// All paths that show something.
pub const PATHS: [&str; 16] = [
    "/",
    "/calls",
    "/calls?text=998&day=2026-11-20&trunk=city&state=dead",
    "/calls/0190b7c4-0000-7000-8000-000000000003",
    "/letters",
    "/letters?reason=failed&before=40",
    "/letters/3",
    "/numbers",
    "/missed",
    "/employees",
    "/employees?span=week",
    "/branches",
    "/pbx",
    "/check",
    "/jobs/1",
    "/nowhere",
];

fn now() -> i64 {
    clock::now().wall.micros() / 1_000_000
}

#[tokio::test]
async fn views_are_available_in_three_languages() {
    let fake = Fake::new(morning("Savdo LLC", now()));
    let served = Served::new(fake, Manner::default()).await;
    let mut anna = served.visitor(PageRole::Admin).await;
    for language in ["en", "ru", "uz"] {
        anna.language = language;
        for path in PATHS {
            let page = anna.get(path).await;
            let there = !["/jobs/1", "/nowhere"].contains(&path);
            assert_eq!(page.status, if there { 200 } else { 404 }, "{path}");
            let html_tag = format!("<html lang=\"{language}\">");
            assert!(page.body.contains(&html_tag), "{path} {language}");
        }
    }
    served.stop().await;
}

/// Returns a hostile text that a PBX or the CRM could send.
fn hostile() -> String {
    let evil =
        "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u{202e}txt\u{1b}[2J\u{200f}";
    format!("{evil}{}", "я".repeat(1 << 19))
}

#[tokio::test]
async fn hostile_names_are_escaped_and_cut_in_every_view() {
    let fake = Fake::new(morning(&hostile(), now()));
    let served = Served::new(fake, Manner::default()).await;
    let mut anna = served.visitor(PageRole::Admin).await;
    anna.act("/check", "/check", &[]).await;
    for path in PATHS {
        let page = anna.get(path).await;
        let lower = page.body.to_ascii_lowercase();
        assert!(!lower.contains("<script>"), "{path}");
        assert!(!lower.contains("<img src=x"), "{path}");
        // Hidden fields return what they contained, and browsers do not display them.
        let mut pieces = page.body.split(" value=\"");
        let mut shown = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces {
            if let Some((_, after)) = piece.split_once('"') {
                shown.push_str(after);
            }
        }
        for c in ['\u{202e}', '\u{1b}', '\u{200f}'] {
            assert!(!shown.contains(c), "{path}: {c:?}");
        }
        // Only the page of a dead letter shows the whole text.
        let whole = path == "/letters/3";
        let bytes = shown.len();
        assert!(whole || bytes < 400_000, "{path}: {bytes} bytes");
    }
    let letter = anna.get("/letters/3").await;
    assert!(
        letter.body.contains(&"я".repeat(1 << 19)),
        "the whole is in the letter"
    );
    served.stop().await;
}

#[tokio::test]
async fn viewer_sees_full_numbers_except_in_the_call_list() {
    let fake = Fake::new(morning("Savdo", now()));
    let served = Served::new(fake, Manner::default()).await;
    let anna = served.visitor(PageRole::View).await;
    for (path, whole) in [
        ("/missed", "+998971234567"),
        ("/numbers", "+998935550101"),
        ("/letters", "+998902220060"),
        ("/letters/3", "+998902220003"),
    ] {
        assert!(anna.get(path).await.body.contains(whole), "{path}");
    }
    let calls = anna.get("/calls").await.body;
    assert!(calls.contains("+998•••••••06"), "{calls}");
    assert!(!calls.contains("+998901110006"), "{calls}");
    served.stop().await;
}

#[tokio::test]
async fn trunk_without_a_match_for_a_day_is_shown_as_an_alert() {
    let fake = Fake::new(morning("typo", now()));
    let served = Served::new(fake, Manner::default()).await;
    let anna = served.visitor(PageRole::View).await;
    let page = anna.get("/pbx").await.body;
    let alert = page.split("role=\"alert\"").nth(1).expect("an alert");
    let alert = alert.split("</section>").next().expect("its end");
    for said in [
        "1 trunk has matched no call for a day",
        "typo",
        "PJSIP/citty",
    ] {
        assert!(alert.contains(said), "{said}: {alert}");
    }
    assert!(!alert.contains("<b><bdi>city"), "{alert}");
    served.stop().await;
}

/// Returns a comparison of this many calls in which every call has a listed extension.
fn matched_employees(calls: u64) -> Employees {
    Employees {
        calls,
        matched: calls,
        ..Employees::default()
    }
}

#[tokio::test]
async fn full_employee_match_is_shown_only_after_calls() {
    let fake = Fake::new(morning("Savdo", now()));
    let served = Served::new(std::sync::Arc::clone(&fake), Manner::default()).await;
    let anna = served.visitor(PageRole::View).await;
    for (employees, claims) in [
        (None, false),
        (Some(matched_employees(0)), false),
        (Some(matched_employees(3)), true),
    ] {
        fake.known().status.employees = employees;
        let page = anna.get("/pbx").await.body;
        assert_eq!(page.contains("Every extension has its employee"), claims);
        assert_ne!(page.contains("No call of an extension"), claims);
    }
    served.stop().await;
}

/// Returns `true` if a spreadsheet takes the cell as a formula. `+998901110001` and `-5` are
/// numbers.
fn is_formula(cell: &str) -> bool {
    let signed = cell.strip_prefix(['+', '-']);
    cell.starts_with(['=', '@', '\t', '\r'])
        || signed.is_some_and(|rest| !rest.bytes().all(|byte| byte.is_ascii_digit()))
}

#[tokio::test]
async fn csv_files_contain_no_formulas() {
    let fake = Fake::new(morning("=cmd|'/c calc'!A1", now()));
    let served = Served::new(fake, Manner::default()).await;
    let anna = served.visitor(PageRole::View).await;
    for path in [
        "/missed.csv",
        "/numbers.csv",
        "/employees.csv",
        "/employees.csv?span=week",
    ] {
        let file = anna.get(path).await;
        assert_eq!(file.status, 200, "{path}");
        assert!(file.body.contains("'=cmd"), "{path}: {}", file.body);
        for line in file.body.split("\r\n") {
            for cell in line.split(',') {
                let cell = cell.trim_matches('"');
                assert!(!is_formula(cell), "{path}: {line}");
            }
        }
    }
    assert!(
        anna.get("/missed.csv")
            .await
            .body
            .contains("\r\n+998971234567,4001,city,")
    );
    served.stop().await;
}

#[tokio::test]
async fn call_search_passes_typed_values_and_pages_by_key() {
    let fake = Fake::new(morning("Savdo", now()));
    let served = Served::new(std::sync::Arc::clone(&fake), Manner::default()).await;
    let anna = served.visitor(PageRole::View).await;
    let page = anna
        .get("/calls?text=+%2B998+90&day=2026-11-20&state=dead&trunk=city")
        .await;
    let query = fake.known().queries.last().cloned().expect("a query");
    assert_eq!(query.text.as_deref(), Some("+998 90"));
    assert_eq!(query.day.as_deref(), Some("2026-11-20"));
    assert_eq!(query.state.as_deref(), Some("dead"));
    assert_eq!(query.trunk.as_deref(), Some("city"));
    let next = page
        .body
        .split("rel=\"next\" href=\"")
        .nth(1)
        .expect("more");
    let next = next
        .split('"')
        .next()
        .expect("a link")
        .replace("&#38;", "&");
    assert!(
        next.contains("before=50") && next.contains("state=dead"),
        "{next}"
    );
    assert_eq!(anna.get(&next).await.status, 200);
    assert_eq!(
        fake.known()
            .queries
            .last()
            .expect("a query")
            .before
            .as_deref(),
        Some("50")
    );
    let wrong = anna.get("/calls?day=tomorrow&text=101").await;
    assert_eq!(wrong.status, 422);
    assert!(wrong.body.contains("tomorrow is not a day") && wrong.body.contains("value=\"101\""));
    served.stop().await;
}

#[tokio::test]
async fn language_choice_is_kept_and_redirects_only_to_own_paths() {
    let fake = Fake::new(morning("Savdo", now()));
    let served = Served::new(fake, Manner::default()).await;
    let anna = served.visitor(PageRole::View).await;
    let switched = anna.get("/language/uz?back=%2Fmissed").await;
    assert_eq!(switched.header("location"), Some("/missed"));
    let cookie = switched.header("set-cookie").expect("a cookie");
    let mut uzbek = anna.clone();
    uzbek.cookie = format!(
        "{}; {}",
        anna.cookie,
        cookie.split(';').next().expect("one")
    );
    assert!(
        uzbek
            .get("/missed")
            .await
            .body
            .contains("<html lang=\"uz\">")
    );
    let away = anna.get("/language/uz?back=%2F%2Fevil.example").await;
    assert_eq!(away.header("location"), Some("/"));
    served.stop().await;
}

#[tokio::test]
async fn lead_shows_name_stage_employee_and_crm_link() {
    const HOSTILE: &str = "=cmd|'/c'!<b>\u{202e}";
    let manner = Manner {
        lead_url: Some("https://crm.example.com/lead/{id}?tab=1&x=2"),
        ..Manner::default()
    };
    let served = Served::new(Fake::new(morning(HOSTILE, now())), manner).await;
    let boss = served.visitor(PageRole::View).await;
    let link = "href=\"https://crm.example.com/lead/4001?tab=1&amp;x=2\">4001</a>";
    let name = "=cmd|&#39;/c&#39;!&lt;b&gt;\\u{202e}";
    let call = boss.get("/calls").await.body;
    let call = call
        .split("href=\"/calls/")
        .nth(1)
        .and_then(|rest| rest.split('"').next());
    let call = format!("/calls/{}", call.expect("a call"));
    for path in ["/missed", "/numbers", &call] {
        let page = boss.get(path).await.body;
        assert!(page.contains(link), "{path}: {page}");
        assert!(page.contains(&format!("{name}: offer")), "{path}: {page}");
        assert!(page.contains("Responsible employee"), "{path}");
        assert!(!page.contains("<b>\u{202e}"), "{path}");
    }
    let csv = boss.get("/missed.csv").await.body;
    assert!(csv.contains(",leadName,responsible\r\n"), "{csv}");
    assert!(csv.contains(",'=cmd|"), "nothing is calculated: {csv}");
    served.stop().await;

    let served = Served::new(Fake::new(morning("Savdo", now())), Manner::default()).await;
    let page = served.visitor(PageRole::View).await.get("/missed").await;
    assert!(page.body.contains("<span class=\"number\">4001</span>"));
    served.stop().await;
}
