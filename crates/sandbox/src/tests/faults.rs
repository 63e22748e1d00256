//! Tests that fault rules have the described effect.

use super::{
    NOW, call, call_with, filter, info, kinds, now_plus, poll, sandbox, submit, submit_accepted,
};
use crate::faults::{Faults, parse};
use crate::token::{CALL_READ, CALL_SAVE, Grant};
use crate::{Action, Delivery, Endpoint, Request, Response, Rule, Sandbox, ViolationKind};
use serde_json::{Value, json};
use std::time::Duration;

/// Returns a sandbox with the fault rules in `text`.
fn sandbox_with_faults(text: &str) -> Sandbox {
    let mut core = sandbox();
    let request = Request::post_bytes("/sandbox/admin/faults", text);
    assert_eq!(core.handle(NOW, &request).status, 200, "{text}");
    core
}

/// Submits a call to a sandbox with the fault rules in `text`. Returns the answer, and whether the
/// record of the call was written.
fn answer_under_fault(text: &str) -> (Response, bool) {
    let mut core = sandbox_with_faults(text);
    let answer = core.handle(NOW, &submit(&call()));
    core.tick(now_plus(100));
    (answer, !core.records().is_empty())
}

#[test]
fn each_action_has_its_documented_answer_and_effect() {
    let seconds = Duration::from_secs;
    let table: [(&str, u16, Delivery, bool); 14] = [
        ("call-history status 503", 503, Delivery::Now, false),
        ("call-history status 409", 409, Delivery::Now, false),
        ("call-history status 401", 401, Delivery::Now, false),
        ("call-history status 429", 429, Delivery::Now, false),
        ("call-history gateway 502", 502, Delivery::Now, false),
        ("call-history status-after 500", 500, Delivery::Now, true),
        ("call-history lost", 200, Delivery::Lost, true),
        ("call-history cut", 500, Delivery::Lost, false),
        (
            "call-history delay 90s",
            200,
            Delivery::After(seconds(90)),
            true,
        ),
        (
            "call-history slow 5s",
            200,
            Delivery::Slow(seconds(5)),
            true,
        ),
        ("call-history redirect", 302, Delivery::Now, false),
        ("call-history accept-false", 200, Delivery::Now, false),
        ("any no-request-id", 200, Delivery::Now, true),
        ("call-history failed", 200, Delivery::Now, false),
    ];
    for (text, status, delivery, written) in table {
        let (answer, record) = answer_under_fault(text);
        assert_eq!(
            (answer.status, answer.delivery, record),
            (status, delivery, written),
            "{text}"
        );
    }
    assert_eq!(
        answer_under_fault("any no-request-id").0.value()["requestId"],
        Value::Null
    );
    assert_eq!(
        answer_under_fault("any accept-false").0.value()["accept"],
        json!(false)
    );
    assert_eq!(
        answer_under_fault("any gateway 502").0.content_type,
        "text/html"
    );
    assert_eq!(
        answer_under_fault("any redirect").0.location.as_deref(),
        Some("/v1/open-api/moved")
    );
    let (broken, written) = answer_under_fault("any broken");
    assert!(serde_json::from_slice::<Value>(&broken.body).is_err() && written);
}

/// Submits a call with this uuid, and returns the status of the answer.
fn submit_status(core: &mut Sandbox, uuid: u64) -> u16 {
    let body = call_with("uuid", json!(uuid.to_string()));
    core.handle(NOW, &submit(&body)).status
}

#[test]
fn fault_rule_obeys_its_after_and_times_limits() {
    let mut core = sandbox_with_faults("call-history after 1 times 2 status 500");
    for (uuid, status) in [(1, 200), (2, 500), (3, 500), (4, 200)] {
        assert_eq!(submit_status(&mut core, uuid), status, "{uuid}");
    }
    assert_eq!(core.handle(NOW, &info()).status, 200, "another endpoint");
    assert_eq!(core.faults.rules.len(), 1);
    assert_eq!(core.faults.rules[0].2, 2);
}

fn status_of_write(core: &mut Sandbox, second: u64, id: &str) -> Value {
    core.handle(now_plus(second), &poll(id)).value()["data"]["status"].clone()
}

#[test]
fn held_write_is_pending_while_others_pass_it() {
    let mut core = sandbox_with_faults("call-history times 1 hold 50s");
    let held = submit_accepted(&mut core, NOW, &call());
    let next = submit_accepted(&mut core, NOW, &call_with("uuid", json!("u-2")));
    assert_eq!(status_of_write(&mut core, 20, &held), json!("PENDING"));
    assert_eq!(status_of_write(&mut core, 20, &next), json!("SUCCESS"));
    assert_eq!(status_of_write(&mut core, 51, &held), json!("SUCCESS"));
}

#[test]
fn chance_of_a_rule_matches_its_observed_frequency() {
    let rule = Rule {
        endpoint: None,
        with: None,
        after: 0,
        times: None,
        chance_ppm: 250_000,
        action: Action::Lost,
    };
    let mut faults = Faults::new(vec![rule], 3);
    let strikes = (0..4_000)
        .filter(|_| faults.pick(Endpoint::Filter, &info()).is_some())
        .count();
    assert!((900..1_100).contains(&strikes), "{strikes}");
}

#[test]
fn invalid_fault_rules_are_all_reported() {
    let text = "any lost # fine\nany explode\ncalls lost; filter chance 7 lost\nany status 200";
    let wrong = parse(text).expect_err("four lines, one fine");
    let words: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    let words = words
        .join("\n")
        .replace(&Endpoint::words(), "[the endpoints]");
    insta::assert_snapshot!(words, @r"
    fault `any explode`: `explode` is not an action
    fault `calls lost`: `calls` is none of any, [the endpoints]
    fault `filter chance 7 lost`: `7` is not a percentage such as 5%
    fault `any status 200`: `200` is not a status from 300 to 599
    ");
}

fn page_of_size(size: i64) -> Request {
    filter(&json!({ "page": 1, "size": size }))
}

#[test]
fn undocumented_answer_shapes_can_be_configured() {
    let text = "shape status bare; shape rows strings; shape rows-key items; shape page inside";
    let mut core = sandbox_with_faults(text);
    let id = submit_accepted(&mut core, NOW, &call());
    assert_eq!(
        core.handle(now_plus(2), &poll(&id)).value()["data"],
        json!("SUCCESS")
    );
    let page = filter(&json!({ "page": 1, "size": 10 }));
    let data = core.handle(now_plus(2), &page).value()["data"].clone();
    assert_eq!(
        data,
        json!({ "items": ["oapi-u-1"], "currentPage": 1, "totalPages": 1 })
    );

    let mut core =
        sandbox_with_faults("shape page beside; shape range refused; shape pending QUEUED");
    let id = submit_accepted(&mut core, NOW, &call());
    assert_eq!(
        core.handle(NOW, &poll(&id)).value()["data"]["status"],
        json!("QUEUED")
    );
    let answer = core.handle(now_plus(2), &page).value();
    assert_eq!(
        (&answer["currentPage"], &answer["totalPages"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(answer["data"][0]["uuid"], json!("oapi-u-1"));
    let ranged =
        filter(&json!({ "page": 1, "size": 10, "registeredTimestampFrom": 1_795_000_000 }));
    assert_eq!(core.handle(now_plus(2), &ranged).status, 400);

    let mut core = sandbox_with_faults("shape size-max 30");
    assert_eq!(
        core.handle(NOW, &page_of_size(31)).value()["errors"][0]["reason"],
        json!("MAX")
    );
    assert_eq!(core.handle(NOW, &page_of_size(30)).status, 200);
}

#[test]
fn required_grant_is_configurable_for_pages_and_polls() {
    let lead_read = "PERMISSION_OPEN_API_LEAD:READ";
    let all = [CALL_SAVE, CALL_READ, lead_read].map(|grant| Grant::parse(grant).expect("a grant"));
    let page = filter(&json!({ "page": 1, "size": 10 }));
    let mut core = sandbox_with_faults(&format!("shape request-grant {lead_read}"));
    let id = submit_accepted(&mut core, NOW, &call());
    let denied = core.handle(now_plus(2), &poll(&id));
    let code = denied.value()["error"]["messageCode"].clone();
    assert_eq!((denied.status, code), (403, json!(3701)));
    assert_eq!(core.handle(now_plus(2), &page).status, 200, "another right");
    core.set_grants(now_plus(3), all.to_vec());
    assert_eq!(core.handle(now_plus(4), &poll(&id)).status, 200);
    core.set_grants(now_plus(5), all[..1].to_vec());
    assert_eq!(core.handle(now_plus(6), &poll(&id)).status, 403);
    assert_eq!(core.handle(now_plus(6), &page).status, 403);
    core.handle(now_plus(8), &poll(&id));
    assert_eq!(
        kinds(&core),
        [ViolationKind::RepeatAfter403],
        "asked on without it"
    );
    let mut core = sandbox_with_faults("shape filter-grant none");
    core.set_grants(NOW, all[..1].to_vec());
    assert_eq!(core.handle(NOW, &page).status, 200);
    let id = submit_accepted(&mut core, NOW, &call());
    assert_eq!(
        core.handle(now_plus(2), &poll(&id)).status,
        200,
        "none is needed by itself"
    );
    assert!(parse("shape request-grant CALL:READ").is_err());
}
