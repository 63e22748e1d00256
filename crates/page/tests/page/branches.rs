//! The status of a hub with a branch that reports, a branch with a problem, and a silent branch.

use crate::client::{Manner, Served};
use crate::fake::Fake;
use crate::morning::morning;
use callbridge_admin::PageRole;
use callbridge_model::status::ForwardStatus;
use callbridge_model::status::{BranchReport, BranchState, BranchStatus, HubStatus, OverallState};
use std::collections::BTreeMap;
use std::sync::Arc;

const NOW: i64 = 1_795_158_000;

/// Returns the status of a hub. `name` is part of every text that another machine chose.
pub fn hub(name: &str, now: i64) -> HubStatus {
    let report = BranchReport {
        version: name.to_owned(),
        at: now - 20,
        backlog: 7,
        oldest_call_at: Some(now - 600),
        waiting: 2,
        dead: 1,
        ..BranchReport::default()
    };
    let troubled = BranchReport {
        verdict: OverallState::Attention,
        problems: vec![format!("no source is up: {name}")],
        ..report.clone()
    };
    HubStatus {
        certificate_expires_at: None,
        address: "0.0.0.0:8443".to_owned(),
        tls: true,
        incarnation: "first".to_owned(),
        seq: 12,
        began_at: now - 60,
        silent_until: Some(now + 40),
        lost_commits_shown_by: Some(name.to_owned()),
        paused_branches: BTreeMap::from([("bukhara".to_owned(), format!("refused: {name}"))]),
        branches: vec![
            branch(name, BranchState::Reports, Some(report.clone()), now),
            branch("bukhara", BranchState::Reports, Some(troubled), now),
            branch("samarkand", BranchState::Silent, Some(report), now),
            branch("new", BranchState::Never, None, now),
        ],
    }
}

fn branch(name: &str, state: BranchState, report: Option<BranchReport>, now: i64) -> BranchStatus {
    BranchStatus {
        branch: name.to_owned(),
        pbxs: vec![name.to_owned()],
        state,
        reported_at: report.as_ref().map(|_| now - 20),
        taken: 90,
        refused: 31,
        refused_at: Some(now - 50),
        refusal: Some(format!("17: {name} is not a PBX of this branch")),
        added_at: now - 9_000,
        report,
        senders: Vec::new(),
    }
}

#[tokio::test]
async fn branches_are_listed_only_on_a_hub() {
    let fake = Fake::new(morning("Savdo LLC", NOW));
    let served = Served::new(Arc::clone(&fake), Manner::default()).await;
    let anna = served.visitor(PageRole::View).await;
    let page = anna.get("/branches").await.body;
    for text in [
        "samarkand",
        "silent",
        "no report yet",
        "no source is up",
        "Commits were lost.",
        "is not a PBX of this branch",
        "refused: Savdo LLC",
        "Savdo LLC",
        "refused: Savdo LLC",
        "Refused lines: 31",
        "is not a PBX of this branch",
    ] {
        assert!(page.contains(text), "{text}");
    }
    let silent = page.find("samarkand").expect("a branch");
    let well = page.find("<th scope=\"row\" class=\"said\"><bdi>Savdo LLC");
    assert!(
        well.is_some_and(|well| silent < well),
        "problems come first"
    );
    assert!(anna.get("/pbx").await.body.contains("href=\"/branches\""));
    fake.known().status.hub = None;
    assert!(!anna.get("/pbx").await.body.contains("href=\"/branches\""));
    let page = anna.get("/branches").await;
    assert_eq!(page.status, 200);
    assert!(page.body.contains("This is not a hub"));
    served.stop().await;
}

#[tokio::test]
async fn collector_shows_why_calls_are_not_forwarded() {
    let fake = Fake::new(morning("Savdo LLC", NOW));
    let served = Served::new(Arc::clone(&fake), Manner::default()).await;
    let anna = served.visitor(PageRole::View).await;
    assert!(!anna.get("/").await.body.contains("Not forwarded yet"));
    fake.known().status.forward = Some(ForwardStatus {
        hub: "https://hub.example".to_owned(),
        forwarded: 480,
        ready: 12,
        reason: Some("hub.example:443: connection refused".to_owned()),
        answered_at: Some(NOW - 90),
        ..ForwardStatus::default()
    });
    let page = anna.get("/").await.body;
    for text in [
        "https://hub.example",
        "480",
        "Not forwarded yet",
        "connection refused",
    ] {
        assert!(page.contains(text), "{text}");
    }
    served.stop().await;
}
