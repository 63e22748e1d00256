//! Tests that the same settings and requests give the same bytes, also across a restart.

use super::{
    NOW, SUBMIT, TOKEN, call_with, filter, info, now_plus, poll, restart_sandbox, sandbox, submit,
};
use crate::faults::Dice;
use crate::token::TokenKey;
use crate::{Action, Request, Rule, Sandbox};
use callbridge_call::EventTime;
use serde_json::json;
use std::time::Duration;

/// Returns random requests of a client, correct and incorrect, with the time of each request.
fn requests(seed: u64) -> Vec<(EventTime, Request)> {
    let mut dice = Dice::new(seed);
    let mut now = NOW;
    (0..600)
        .map(|_| {
            now = now.plus(Duration::from_millis(dice.below(3_000)));
            let uuid = json!(format!("u-{}", dice.below(80)));
            let request = match dice.below(8) {
                0 => info(),
                1 => filter(&json!({ "page": 1 + dice.below(3), "size": 30 })),
                2 => poll("none"),
                3 => submit(&call_with("leadId", json!(dice.below(9_000)))),
                4 => Request::post_bytes(SUBMIT, "{").with_token(TOKEN),
                _ => submit(&call_with("uuid", uuid)),
            };
            (now, request)
        })
        .collect()
}

/// Returns a sandbox with random delays of writes and random faults.
fn faulty_sandbox() -> Sandbox {
    let mut core = sandbox();
    core.settings.persist_jitter = Duration::from_secs(9);
    for action in [
        Action::Status(503),
        Action::Lost,
        Action::Hold(Duration::from_secs(40)),
    ] {
        let rule = Rule {
            endpoint: None,
            with: None,
            after: 3,
            times: None,
            chance_ppm: 50_000,
            action,
        };
        core.faults.rules.push((rule, 0, 0));
    }
    core
}

/// Returns the bodies of the answers to the requests, and then the journal and the violations.
fn answered_bytes() -> Vec<Vec<u8>> {
    let mut core = faulty_sandbox();
    let mut bytes: Vec<Vec<u8>> = requests(7)
        .iter()
        .map(|(now, request)| core.handle(*now, request).body)
        .collect();
    for name in ["journal", "breaches"] {
        let answer = core.handle(now_plus(9_999), &page(name));
        bytes.push(answer.body);
    }
    bytes
}

#[test]
fn answers_to_same_requests_are_byte_identical() {
    let (first, second) = (answered_bytes(), answered_bytes());
    assert!(first == second);
    assert!(first.iter().filter(|bytes| bytes.is_empty()).count() < first.len() / 2);
}

fn page(name: &str) -> Request {
    Request::get(&format!("/sandbox/{name}"))
}

#[test]
fn restart_keeps_journal_violations_and_windows() {
    let (mut core, mut last) = (faulty_sandbox(), NOW);
    for (now, request) in requests(11) {
        core.handle(now, &request);
        if now > NOW.plus(Duration::from_secs(300)) && !core.records().is_empty() {
            core.company(now, |company| company.leads.remove(4002));
        }
        last = now;
    }
    let mut again = restart_sandbox(&core);
    again.begin(last, TOKEN, None);
    let end = last.plus(Duration::from_secs(3_600));
    // The open window is still open, because a restart must not give a new budget.
    let token = TokenKey::from_value(TOKEN);
    assert_eq!(
        again.clone().client.windows.count(token, last),
        core.clone().client.windows.count(token, last)
    );
    core.tick(end);
    again.tick(end);
    assert!(
        core.records().len() > 20 && core.violations().all().len() > 20,
        "something happened"
    );
    assert_eq!(again.records(), core.records());
    assert_eq!(again.violations().all(), core.violations().all());
    assert_eq!(again.journal.writes, core.journal.writes);
    assert_eq!(again.fullest(), core.fullest());
}

#[test]
fn replaced_token_is_not_accepted_again_after_start() {
    let mut core = sandbox();
    assert!(core.token_works(NOW, TOKEN));
    core.issue_pat(NOW, "svc_pat_second", None);
    core.begin(NOW, TOKEN, None);
    assert!(
        !core.token_works(NOW, TOKEN),
        "a start does not revive a replaced token"
    );
    assert!(core.token_works(NOW, "svc_pat_second"));
}

fn record_uuids(core: &Sandbox) -> Vec<String> {
    let records = core.records().iter();
    records.map(|record| record.call.uuid.clone()).collect()
}

#[test]
fn deleted_record_can_be_written_again_with_same_uuid() {
    let mut core = sandbox();
    for (second, uuid) in [(0, "u-1"), (1, "u-2"), (2, "u-3")] {
        core.handle(now_plus(second), &submit(&call_with("uuid", json!(uuid))));
    }
    core.delete_record(now_plus(10), "u-2");
    core.delete_record(now_plus(10), "u-9");
    let mut other = core.records()[1].clone();
    other.call.duration_sec = 99;
    core.tick(now_plus(10));
    core.journal.records[1] = other;
    assert_eq!(record_uuids(&core), ["u-1", "u-3"]);
    assert_eq!(core.records()[1].call.duration_sec, 99);
    // A repeat of a call that has a record makes no second record. A repeat of a call whose record
    // was deleted makes a new record.
    core.handle(now_plus(12), &submit(&call_with("uuid", json!("u-2"))));
    core.tick(now_plus(20));
    assert_eq!(record_uuids(&core), ["u-1", "u-3", "u-2"]);
    assert_eq!(super::kinds(&core), []);
    assert_eq!(
        record_uuids(&restart_sandbox(&core)),
        record_uuids(&core),
        "over a restart, too"
    );
}
