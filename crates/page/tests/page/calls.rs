//! Tests of the list of calls, and of the page of one call.

use crate::client::{Manner, Served};
use crate::fake::Fake;
use crate::morning::morning;
use callbridge_admin::PageRole;
use callbridge_page::backend::RequestView;
use serde_json::json;
use std::sync::Arc;

const NOW: i64 = 1_795_158_000;
/// The pages of a journaled call, and of a call that waits for a lead.
const JOURNALED: &str = "/calls/0190b7c4-0000-7000-8000-000000000002";
const WAITING: &str = "/calls/0190b7c4-0000-7000-8000-000000000005";

/// Returns the text from the first `from` to the next `to`.
fn text_between<'a>(page: &'a str, from: &str, to: &str) -> &'a str {
    let (_, after) = page.split_once(from).expect("its beginning");
    after.split(to).next().expect("its end")
}

#[tokio::test]
async fn call_page_shows_sent_request_and_crm_answer() {
    let fake = Fake::new(morning("Savdo", NOW));
    let served = Served::new(Arc::clone(&fake), Manner::default()).await;
    let anna = served.visitor(PageRole::Admin).await;
    fake.known().request = RequestView {
        body: Some(json!({"leadId": 4001, "talkTimeSec": 38})),
        sent_at: Some(NOW - 60),
        id: Some("8a3f0c".to_owned()),
        accepted_at: Some(NOW - 59),
    };
    let page = anna.get(JOURNALED).await.body;
    let request = text_between(&page, "<h2 id=\"request\">", "</section>");
    for said in [
        "<code><bdi>8a3f0c</bdi></code>",
        "Accepted by the CRM",
        "The request as it was sent",
        "&quot;leadId&quot;: 4001",
    ] {
        assert!(request.contains(said), "{said}: {request}");
    }
    assert!(!page.contains("Nothing was sent"), "{page}");
    // The trace is on the page, but folded.
    let trace = text_between(&page, "<details>", "</details>");
    assert!(trace.contains("answered  yes  101 answers"), "{trace}");
    served.stop().await;
}

#[tokio::test]
async fn unsent_call_shows_no_request_as_sent() {
    let mut known = morning("Savdo", NOW);
    known.attempts.clear();
    let fake = Fake::new(known);
    let served = Served::new(Arc::clone(&fake), Manner::default()).await;
    let anna = served.visitor(PageRole::Admin).await;
    let page = anna.get(WAITING).await.body;
    let request = text_between(&page, "<h2 id=\"request\">", "</section>");
    for said in ["Nothing was sent.", "it has no lead"] {
        assert!(request.contains(said), "{said}: {request}");
    }
    assert!(!request.contains("as it was sent"), "{request}");
    fake.known().request.body = Some(json!({"leadId": 4001}));
    let page = anna.get(WAITING).await.body;
    assert!(page.contains("The request as it would be sent"), "{page}");
    served.stop().await;
}

fn call_summary(page: &str) -> &str {
    text_between(page, "<p class=\"told\">", "</p>")
}

#[tokio::test]
async fn call_summary_shows_course_and_outcome_in_two_lines() {
    let fake = Fake::new(morning("Savdo", NOW));
    let served = Served::new(fake, Manner::default()).await;
    let mut anna = served.visitor(PageRole::Admin).await;
    let journaled = anna.get(JOURNALED).await.body;
    assert_eq!(
        call_summary(&journaled),
        "Customer +998901110002 called on trunk city. Extension 103 talked with the customer for \
         38 s.<br>The CRM has it in its journal: 20 Nov 12:00."
    );
    let waiting = anna.get(WAITING).await.body;
    assert!(call_summary(&waiting).ends_with("Reason: No lead."));
    anna.language = "ru";
    let russian = anna.get(JOURNALED).await.body;
    assert!(call_summary(&russian).starts_with("Клиент +998901110002 позвонил"));
    served.stop().await;
}

#[tokio::test]
async fn call_list_groups_by_day_and_masks_numbers_for_viewers() {
    let fake = Fake::new(morning("Savdo", NOW));
    let served = Served::new(fake, Manner::default()).await;
    let (anna, boss) = (
        served.visitor(PageRole::Admin).await,
        served.visitor(PageRole::View).await,
    );
    let page = anna.get("/calls").await.body;
    assert!(page.contains("+998901110006"), "{page}");
    assert!(page.contains("<b>120 calls</b>"), "{page}");
    assert!(
        page.contains("<span class=\"number\">4001</span>"),
        "{page}"
    );
    // The first page covers 10 hours (fifty calls, twelve minutes apart), which are on one day.
    assert_eq!(page.matches("<tr class=\"day\">").count(), 1, "{page}");
    assert!(
        page.contains("scope=\"rowgroup\">Fri, 20 Nov</th>"),
        "{page}"
    );
    let second = anna.get("/calls?before=50").await.body;
    assert!(second.contains(">Thu, 19 Nov</th>"), "{second}");
    assert!(!second.contains("120 calls"), "it is counted once");
    let masked = boss.get("/calls").await.body;
    assert!(!masked.contains("+998901110006"), "{masked}");
    served.stop().await;
}

#[tokio::test]
async fn calls_csv_has_all_matches_and_masks_numbers_for_viewers() {
    let fake = Fake::new(morning("=cmd", NOW));
    let served = Served::new(Arc::clone(&fake), Manner::default()).await;
    let (anna, boss) = (
        served.visitor(PageRole::Admin).await,
        served.visitor(PageRole::View).await,
    );
    let page = anna.get("/calls?trunk=city").await.body;
    assert!(page.contains("href=\"/calls.csv?trunk=city\""), "{page}");
    let file = anna.get("/calls.csv?trunk=city").await;
    assert_eq!(file.body.lines().count(), 121, "a head, and three pages");
    assert_eq!(file.body.matches('\u{feff}').count(), 1);
    assert_eq!(file.body.matches("startedAt,").count(), 1);
    let row = "INBOUND,+998901110002,4001,,103,city,true,2000,38,journaled,,0190b7c4";
    assert!(file.body.contains(row), "{}", file.body);
    assert!(file.body.contains(",'=cmd,"), "nothing is calculated");
    let known = fake.known().queries.last().cloned().expect("a query");
    assert_eq!(known.trunk.as_deref(), Some("city"), "on each page");
    let masked = boss.get("/calls.csv").await.body;
    assert!(!masked.contains("+998901110002"), "{masked}");
    assert!(masked.contains(",'+998•••••••02,"), "{masked}");
    assert_eq!(anna.get("/calls.csv?day=tomorrow").await.status, 422);
    served.stop().await;
}
