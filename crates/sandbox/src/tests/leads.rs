//! Tests of §2.5, §4.7, and §7.4: leads, and the admin paths for leads.

use super::lead_fields::{admin, get, post, run_write, sandbox_with_lead_grants};
use super::{NOW, TOKEN, call_with, has_fields, keys, kinds, now_plus, submit};
use crate::lead::act;
use crate::{Request, Sandbox, ViolationKind};
use serde_json::{Value, json};

const MISSING: [&str; 6] = ["accept", "data", "error", "errors", "message", "requestId"];

/// Returns the ids of the rows of a page.
fn ids(answer: &Value) -> Vec<i64> {
    let rows = answer["data"]["content"].as_array().expect("rows");
    rows.iter().filter_map(|row| row["id"].as_i64()).collect()
}

#[test]
fn lead_snapshot_shows_first_phone_of_main_contact() {
    let mut core = sandbox_with_lead_grants();
    let attribution = json!({ "channelId": 1, "source": "WEBSITE", "channelValue": "example.com",
        "attachedTimestamp": 1_795_151_000 });
    let made = admin(
        &mut core,
        "lead",
        &json!({ "id": 5001, "name": "Ali", "statusId": 2, "responsibleId": 501, "balance": 1500.5,
            "currency": "UZS", "fields": { "11": "x" }, "attributions": [attribution],
            "contacts": [
                { "name": "Ali", "phones": ["+998901112233", "+998900000000"] },
                { "name": "Vali", "phones": ["+998935556677"] },
            ] }),
    );
    let answer = core.handle(NOW, &get("lead/5001")).value();
    let second = NOW.floor_seconds();
    let expected = json!({ "accept": true, "data": {
        "id": 5001, "name": "Ali", "statusId": 2, "statusName": "In work", "pipeId": 1,
        "pipeName": "Sales", "responsibleId": 501, "responsibleName": "Employee 501",
        "balance": 1500.5, "currency": "UZS", "phone": "+998901112233",
        "createdTimestamp": second, "updatedTimestamp": second,
        "fields": [{ "id": 11, "value": "x" }],
    } });
    assert!(has_fields(&answer, &expected), "{answer}");
    assert_eq!(answer["data"], made);
    assert_eq!(answer["data"]["attributions"], json!([attribution]));
}

#[test]
fn lead_from_flags_exists_with_empty_values() {
    let mut core = sandbox_with_lead_grants();
    let answer = core.handle(NOW, &get("lead/4001")).value();
    let expected = json!({ "data": {
        "id": 4001, "statusId": null, "responsibleId": null, "balance": 0.0, "currency": null,
        "phone": null, "attributions": [], "uuid": null,
        "createdTimestamp": 1_700_000_000, "updatedTimestamp": null,
    } });
    assert!(has_fields(&answer, &expected), "{answer}");
}

#[test]
fn missing_deleted_merged_or_foreign_lead_gets_same_409() {
    let mut core = sandbox_with_lead_grants();
    admin(&mut core, "lead/delete", &json!({ "id": 4002 }));
    admin(
        &mut core,
        "lead/merge",
        &json!({ "into": 4001, "from": [4003] }),
    );
    core.issue(NOW, "svc_pat_other", crate::token::TokenKind::Pat, 2, None);
    admin(
        &mut core,
        "lead",
        &json!({ "id": 6001, "name": "theirs", "company": 2 }),
    );
    let mut bodies = Vec::new();
    for path in ["lead/777", "lead/4002", "lead/4003", "lead/6001"] {
        let answer = core.handle(NOW, &get(path));
        assert_eq!(answer.status, 409, "{path}");
        assert_eq!(keys(&answer), MISSING, "{path}");
        bodies.push(answer.value());
    }
    let message = json!({ "data": null, "error": null, "errors": [], "requestId": null });
    assert!(
        bodies
            .iter()
            .all(|body| has_fields(body, &message) && body["message"].is_string())
    );
    assert!(bodies.iter().all(|body| *body == bodies[0]));
    assert!(
        act::find_lead(&core, 2, 6001).is_some(),
        "it is there for its own company"
    );
    assert_eq!(kinds(&core), []);
}

#[test]
fn deleted_lead_is_not_found_and_its_calls_fail() {
    let mut core = sandbox_with_lead_grants();
    admin(&mut core, "lead/delete", &json!({ "id": 4001 }));
    assert_eq!(core.handle(NOW, &get("lead/4001")).status, 409);
    let answer = core
        .handle(NOW, &submit(&call_with("leadId", json!(4001))))
        .value();
    let id = answer["requestId"].as_str().expect("accepted").to_owned();
    let status = core.handle(now_plus(2), &super::poll(&id)).value();
    assert_eq!(status["data"]["status"], json!("FAILED"));
}

#[test]
fn lead_merge_fails_pending_call_and_moves_written_call() {
    let mut core = sandbox_with_lead_grants();
    assert_eq!(
        run_write(&mut core, "call-history", &call_with("leadId", json!(4002))),
        "SUCCESS"
    );
    let mut late = call_with("leadId", json!(4002));
    late["uuid"] = json!("u-2");
    let answer = core.handle(now_plus(2), &submit(&late)).value();
    let merge = json!({ "into": 4001, "from": [4002] });
    core.handle(
        now_plus(2),
        &Request::post("/sandbox/admin/lead/merge", &merge),
    );
    let id = answer["requestId"].as_str().expect("accepted").to_owned();
    let status = core.handle(now_plus(4), &super::poll(&id)).value();
    assert_eq!(status["data"]["status"], json!("FAILED"));
    let leads: Vec<i64> = core
        .records()
        .iter()
        .map(|record| record.call.lead_id)
        .collect();
    assert_eq!(leads, [4001]);
}

#[test]
fn lead_merge_adds_contacts_and_only_missing_fields() {
    let mut core = sandbox_with_lead_grants();
    let ali =
        json!({ "id": 5001, "name": "Ali", "phone": "+998901112233", "fields": { "11": "a" } });
    let vali = json!({ "id": 5002, "name": "Vali", "phone": "+998935556677",
        "fields": { "11": "b", "12": "c" } });
    admin(&mut core, "lead", &ali);
    admin(&mut core, "lead", &vali);
    let merged = admin(
        &mut core,
        "lead/merge",
        &json!({ "into": 5001, "from": [5002] }),
    );
    let expected = json!({ "id": 5001, "name": "Ali", "phone": "+998901112233",
        "fields": [{ "id": 11, "value": "a" }, { "id": 12, "value": "c" }] });
    assert!(has_fields(&merged, &expected), "{merged}");
    assert_eq!(merged["contacts"].as_array().map(Vec::len), Some(2));
    assert_eq!(core.handle(NOW, &get("lead/5002")).status, 409);
}

#[test]
fn page_of_leads_holds_fifty_at_most() {
    for (page, size, reason) in [(1, 50, ""), (1, 51, "MAX"), (0, 50, "MIN")] {
        let mut core = sandbox_with_lead_grants();
        let body = json!({ "page": page, "size": size });
        let answer = core.handle(NOW, &post("lead/filter", &body));
        let reply = answer.value();
        if reason.is_empty() {
            assert_eq!(answer.status, 200, "{reply}");
            assert_eq!(reply["data"]["currentPage"], json!(1));
            assert!(reply["data"]["totalPages"].is_u64());
            assert!(reply["data"].get("last").is_none());
        } else {
            let refused = (answer.status, &reply["errors"][0]["reason"]);
            assert_eq!(refused, (400, &json!(reason)));
            assert_eq!(kinds(&core), [ViolationKind::Invalid]);
        }
    }
}

#[test]
fn invalid_lead_is_refused_with_an_error_message() {
    for body in [
        json!({ "name": " " }),
        json!({ "name": "x", "statusId": 99 }),
        json!({ "name": "x", "responsibleId": 9 }),
        json!({ "name": "x", "phone": "901112233" }),
        json!({ "name": "x", "contacts": [{ "phones": ["901112233"] }] }),
        json!({ "name": "x", "phones": "+998901112233" }),
        json!({ "name": "x", "fields": { "eleven": 1 } }),
        json!({ "name": 5 }),
        json!({ "id": 0, "name": "x" }),
        json!({ "company": 9, "name": "x" }),
    ] {
        let mut core = sandbox_with_lead_grants();
        let answer = core.handle(NOW, &Request::post("/sandbox/admin/lead", &body));
        assert_eq!(answer.status, 400, "{body}: {}", answer.value());
        assert!(answer.value()["error"].is_string(), "{body}");
    }
}

#[test]
fn lead_update_clears_employee_and_keeps_contact_id() {
    let mut core = sandbox_with_lead_grants();
    let made = json!({ "id": 5001, "name": "Ali", "phone": "+998901112233", "statusId": 11,
        "responsibleId": 501 });
    let contact = admin(&mut core, "lead", &made)["contacts"][0]["id"].clone();
    let changed = json!({ "id": 5001, "phones": ["+998935556677"], "responsibleId": null });
    let lead = admin(&mut core, "lead/update", &changed);
    let expected = json!({ "name": "Ali", "responsibleId": null, "pipeId": 2,
        "contacts": [{ "id": contact, "name": "Ali", "phones": ["+998935556677"], "fields": [] }],
    });
    assert!(has_fields(&lead, &expected), "{lead}");
}

/// Returns a sandbox with the leads 5001 to 5003, which are created one second apart, and without
/// the leads of the flags.
fn sandbox_with_three_leads() -> Sandbox {
    let mut core = sandbox_with_lead_grants();
    core.company(NOW, |company| {
        company.leads = crate::token::IdSet::default()
    });
    for (second, id) in [(1, 5001), (2, 5002), (3, 5003)] {
        let body = json!({ "id": id, "name": format!("Lead {}", 9 - second) });
        core.handle(
            now_plus(second),
            &Request::post("/sandbox/admin/lead", &body),
        );
    }
    let update = json!({ "id": 5001, "phone": "+998901112233" });
    core.handle(
        now_plus(9),
        &Request::post("/sandbox/admin/lead/update", &update),
    );
    core
}

/// Returns the body of a request for the first page of two leads, with the fields of `more`.
fn page_with(more: &Value) -> Value {
    let mut body = json!({ "page": 1, "size": 2 });
    body.as_object_mut()
        .expect("an object")
        .extend(more.as_object().cloned().expect("one"));
    body
}

#[test]
fn lead_pages_follow_the_requested_order_and_range() {
    let now = NOW.floor_seconds().get();
    for (body, expected) in [
        (page_with(&json!({})), vec![5001, 5002]),
        (page_with(&json!({ "page": 2 })), vec![5003]),
        (
            page_with(&json!({ "orders": { "updatedTimestamp": "ASC" } })),
            vec![5002, 5003],
        ),
        (
            page_with(&json!({ "orders": { "updatedTimestamp": "DESC" } })),
            vec![5001, 5003],
        ),
        (
            page_with(&json!({ "orders": { "name": "ASC" } })),
            vec![5003, 5002],
        ),
        (
            page_with(&json!({ "updatedTimestampFrom": now + 3 })),
            vec![5001, 5003],
        ),
        (
            page_with(&json!({ "updatedTimestampTo": now + 2 })),
            vec![5002],
        ),
        (
            page_with(&json!({ "registeredTimestampFrom": now + 2, "size": 9 })),
            vec![5002, 5003],
        ),
        (
            page_with(&json!({ "createdTimestampTo": now + 1 })),
            vec![5001],
        ),
    ] {
        let mut core = sandbox_with_three_leads();
        let answer = core
            .handle(now_plus(60), &post("lead/filter", &body))
            .value();
        assert_eq!(ids(&answer), expected, "{body}");
    }
}

#[test]
fn order_follows_shape_and_invalid_order_is_refused() {
    let page = json!({ "page": 1, "size": 3, "orders": { "updatedTimestamp": "ASC" } });
    let wrong = json!({ "page": 1, "size": 3, "orders": { "updatedTimestamp": "UP" } });
    let none = json!({ "page": 1, "size": 3, "orders": {} });
    for (shape, expected, statuses) in [
        ("kept", vec![5002, 5003, 5001], [200, 400, 200]),
        ("ignored", vec![5001, 5002, 5003], [200, 400, 200]),
        ("refused", vec![], [400, 400, 200]),
    ] {
        let mut core = sandbox_with_three_leads();
        let shapes = &mut core.settings.shapes;
        shapes.set("orders", shape).expect("a shape");
        let bodies = [&page, &wrong, &none];
        let answers = bodies.map(|body| core.handle(now_plus(60), &post("lead/filter", body)));
        assert_eq!(
            answers.each_ref().map(|answer| answer.status),
            statuses,
            "{shape}"
        );
        if answers[0].status == 200 {
            assert_eq!(ids(&answers[0].value()), expected, "{shape}");
        } else {
            let code = &answers[0].value()["error"]["messageCode"];
            assert_eq!(code, &json!(3705), "{shape}");
        }
    }
}

#[test]
fn leads_without_a_timestamp_match_no_range_and_come_last() {
    let mut core = sandbox_with_three_leads();
    core.company(now_plus(10), |company| company.leads.add(4001));
    let body = json!({ "page": 1, "size": 9, "orders": { "updatedTimestamp": "ASC" } });
    let answer = core
        .handle(now_plus(60), &post("lead/filter", &body))
        .value();
    assert_eq!(ids(&answer), [5002, 5003, 5001, 4001]);
    let from = json!({ "page": 1, "size": 9, "updatedTimestampFrom": 946_684_800 });
    let answer = core
        .handle(now_plus(60), &post("lead/filter", &from))
        .value();
    assert_eq!(ids(&answer), [5001, 5002, 5003]);
}

#[test]
fn each_endpoint_needs_the_grant_of_its_domain() {
    let page = json!({ "page": 1, "size": 9 });
    for (request, grant) in [
        (get("lead/4001"), "LEAD:READ"),
        (
            post("lead/4001/field/list", &json!([{ "id": 11, "value": 1 }])),
            "LEAD:SAVE",
        ),
        (post("lead/filter", &page), "LEAD:READ"),
        (get("crm-field"), "LEAD:READ"),
    ] {
        let mut core = sandbox_with_lead_grants();
        let needed = format!("PERMISSION_OPEN_API_{grant}");
        core.company(NOW, |company| {
            company.grants.retain(|one| one.as_str() != needed)
        });
        let answer = core.handle(NOW, &request);
        assert_eq!(answer.status, 403, "{request:?} without {grant}");
        let only = crate::token::Grant::parse(&needed).expect("a grant");
        core.set_grants(NOW, vec![only]);
        assert_eq!(
            core.handle(NOW, &request).status,
            200,
            "{request:?} with {grant} alone"
        );
    }
}

fn upsert(lead: u32) -> Request {
    post(&format!("lead/{lead}/field/list"), &json!([{ "value": 1 }]))
}

#[test]
fn missing_record_repeat_is_violation_only_if_immediate() {
    let mut core = sandbox_with_lead_grants();
    for (second, breaches) in [(0, 0), (3, 1), (120, 1)] {
        let answer = core.handle(now_plus(second), &get("lead/777").with_header("x", "y"));
        assert_eq!(answer.status, 409);
        assert_eq!(
            core.violations().count(ViolationKind::RepeatAfter400),
            breaches,
            "second {second}"
        );
    }
    core.handle(now_plus(121), &upsert(4001));
    core.handle(now_plus(121), &upsert(4002));
    assert_eq!(
        core.violations().count(ViolationKind::RepeatAfter400),
        1,
        "another lead is another request"
    );
    core.handle(now_plus(121), &upsert(4001));
    assert_eq!(core.violations().count(ViolationKind::RepeatAfter400), 2);
}

fn move_clock(ahead_sec: i64) -> Request {
    Request::post("/sandbox/admin/clock", &json!({ "aheadSec": ahead_sec }))
}

#[test]
fn clock_moves_ahead_and_never_back() {
    let mut core = sandbox_with_lead_grants();
    let body = json!([{ "id": 11, "value": "x" }]);
    let answer = core
        .handle(NOW, &post("lead/4001/field/list", &body))
        .value();
    let id = answer["requestId"].as_str().expect("accepted").to_owned();
    let answer = core.handle(NOW, &move_clock(90_000));
    assert_eq!(answer.status, 200, "{}", answer.value());
    assert_eq!(core.moment(NOW), now_plus(90_000));
    let now = core.moment(now_plus(1));
    assert_eq!(
        core.handle(now, &super::poll(&id)).status,
        404,
        "older than 24 hours"
    );
    assert!(
        act::find_lead(&core, 1, 4001)
            .expect("the lead")
            .fields
            .contains_key(&11),
        "what was due is done"
    );
    assert_eq!(core.handle(now, &move_clock(10)).status, 400);
    assert!(core.token_works(core.moment(NOW), TOKEN));
}
