//! Tests that a branch whose calls the CRM rejects doesn't stop any other branch.

use super::stage::{Hub, message, messages};
use callbridge_sandbox::faults::parse;
use serde_json::json;

/// Returns messages for these calls from a PBX, with a lead that the CRM rejects.
fn wrong_messages(pbx: &str, numbers: std::ops::Range<u32>) -> String {
    let mut lines = String::new();
    for n in numbers {
        let mut message = message(pbx, n);
        message["leadId"] = json!(9999);
        lines.push_str(&format!("{message}\n"));
    }
    lines
}

#[tokio::test]
async fn branch_with_a_wrong_lead_is_paused_alone() {
    let mut hub = Hub::start().await;
    let west = hub.add_branch("west").await;
    let east = hub.add_branch("east").await;
    let rules = parse("call-history with \"leadId\":9999 status 422")
        .expect("faults")
        .0;
    hub.crm.admin(|core, _| core.set_faults(rules));
    hub.post(&west, wrong_messages("west", 0..5)).await;
    let status = hub
        .program
        .until("a paused branch", |status| {
            let hub = status.hub.as_ref();
            hub.is_some_and(|hub| hub.paused_branches.contains_key("west"))
        })
        .await;
    assert_eq!((status.books.dead, status.pause), (5, None));
    let text = hub.place.command(&["status"]).await.stdout;
    let text = String::from_utf8(text).expect("UTF-8");
    assert!(
        text.contains("calls of the branch west are paused: five calls"),
        "{text}"
    );
    hub.post(&west, wrong_messages("west", 5..9)).await;
    hub.post(&east, messages("east", 0..20)).await;
    let status = hub
        .program
        .until("the other branch's calls", |status| {
            status.books.journaled == 20
        })
        .await;
    assert_eq!((status.books.dead, status.books.ready), (5, 4));
    hub.post(&west, messages("west", 20..21)).await;
    let status = hub
        .program
        .until("the branch's own calls", |status| {
            status.books.journaled == 21 && status.books.dead == 9
        })
        .await;
    assert!(status.hub.expect("a hub").paused_branches.is_empty());
    assert_eq!(status.pause, None);
    for line in ["paused branch=west", "no longer paused branch=west"] {
        let log = hub.program.log().replace('"', "");
        assert!(log.contains(line), "{log}");
    }
}
