//! Tests that the view Today shows the verdict and its figures.

use crate::client::{Browser, Manner, Served};
use crate::fake::Fake;
use crate::morning::morning;
use callbridge_admin::PageRole;
use callbridge_model::status::OverallState;
use callbridge_page::backend::Outcomes;
use std::sync::Arc;

const NOW: i64 = 1_795_158_000;

/// Serves the page on a morning without problems, and opens it in a browser.
async fn serve_quiet_morning() -> (Arc<Fake>, Served, Browser) {
    let mut known = morning("Savdo", NOW);
    known.status.problems = Vec::new();
    known.status.verdict = OverallState::Ok;
    known.missed = Vec::new();
    known.figures.today = Outcomes {
        journaled: 212,
        ..Outcomes::default()
    };
    let fake = Fake::new(known);
    let served = Served::new(Arc::clone(&fake), Manner::default()).await;
    let anna = served.visitor(PageRole::Admin).await;
    (fake, served, anna)
}

#[tokio::test]
async fn today_begins_with_the_overall_state() {
    let (fake, served, mut anna) = serve_quiet_morning().await;
    let sentence = "No problem found: 212 calls today, all in the journal";
    assert!(anna.get("/").await.body.contains(sentence));
    anna.language = "ru";
    let sentence = "Проблем не обнаружено: 212 звонков сегодня, все в журнале";
    assert!(anna.get("/").await.body.contains(sentence));
    anna.language = "en";
    fake.known().status = morning("Savdo", NOW).status;
    let page = anna.get("/").await.body;
    assert!(
        page.contains("<p class=\"sentence\">A source is down</p>"),
        "{page}"
    );
    assert!(page.contains("max=\"60\" value=\"23\""), "{page}");
    served.stop().await;
}

#[tokio::test]
async fn waiting_customer_is_reported_on_today_and_in_the_menu() {
    let (fake, served, anna) = serve_quiet_morning().await;
    fake.known().missed = morning("Savdo", NOW).missed.split_off(3);
    let page = anna.get("/").await.body;
    assert!(!page.contains("No problem found"), "{page}");
    let sentence = "<p class=\"sentence\">1 customer waits for a callback</p>";
    assert!(page.contains(sentence), "{page}");
    assert!(page.contains("class=\"button\" href=\"/missed\""), "{page}");
    // The menu of every page shows the number of waiting customers, folded or not.
    let calls = anna.get("/calls").await.body;
    let entry = calls.split("href=\"/missed\"").nth(1).expect("an entry");
    let entry = entry.split("</a>").next().expect("its end");
    assert!(entry.contains("<b class=\"badge\">1</b>"), "{entry}");
    let folded = calls.split("for=\"fold\"").nth(1).expect("a menu");
    let folded = folded.split("</label>").next().expect("its end");
    assert!(folded.contains("<b class=\"badge\">1</b>"), "{folded}");
    served.stop().await;
}

#[tokio::test]
async fn today_shows_the_last_calls_and_no_empty_rows() {
    let (fake, served, anna) = serve_quiet_morning().await;
    let page = anna.get("/").await.body;
    assert_eq!(page.matches("<a href=\"/calls/0190b7c4").count(), 8);
    assert!(page.contains("310 internal, 25 left out"), "{page}");
    for nothing in [
        "0 unreadable",
        "being sent",
        "<td class=\"right\">0</td></tr>",
    ] {
        let books = page.split("class=\"sums\"").nth(1).expect("the books");
        let books = books.split("</section>").next().expect("their end");
        assert!(!books.contains(nothing), "{nothing}: {books}");
    }
    fake.known().calls.clear();
    assert!(!anna.get("/").await.body.contains("id=\"newest\""));
    served.stop().await;
}

#[tokio::test]
async fn header_shows_the_pbx_and_no_folder() {
    let (_, served, anna) = serve_quiet_morning().await;
    let page = anna.get("/").await.body;
    assert!(page.contains("<small><bdi>office</bdi></small>"), "{page}");
    assert!(!page.contains("tashkent 1"), "{page}");
    served.stop().await;
}

#[tokio::test]
async fn unanswered_callback_is_shown_under_missed() {
    let (_, served, anna) = serve_quiet_morning().await;
    let fake = Fake::new(morning("Savdo", NOW));
    let known = Served::new(fake, Manner::default()).await;
    let boss = known.visitor(PageRole::View).await;
    let page = boss.get("/missed").await.body;
    assert_eq!(page.matches("Called back, no answer:").count(), 1);
    let mut rows = page.split("</tr>");
    let row = rows.find(|row| row.contains("+998901110123"));
    let row = row.expect("who was called");
    assert!(row.contains("Called back, no answer:"), "{row}");
    let csv = boss.get("/missed.csv").await.body;
    assert!(csv.contains(",triedBack,triedBackAt"), "{csv}");
    assert!(!anna.get("/missed").await.body.contains("Called back"));
    known.stop().await;
    served.stop().await;
}
