//! §2.5, §4.7, §7.4: leads, and what lies beside them.

use super::lead_fields::{admin, done, get, post, with_leads};
use super::{NOW, TOKEN, after, call_with, holds, keys, kinds, submit};
use crate::lead::act;
use crate::{Request, Sandbox, ViolationKind};
use serde_json::{Value, json};

const MISSING: [&str; 6] = ["accept", "data", "error", "errors", "message", "requestId"];

fn delete(path: &str) -> Request {
    let mut request = get(path);
    request.method = "DELETE".to_owned();
    request
}

/// The ids of a page's rows.
fn ids(answer: &Value) -> Vec<i64> {
    let rows = answer["data"]["content"].as_array().expect("rows");
    rows.iter().filter_map(|row| row["id"].as_i64()).collect()
}

#[test]
fn a_lead_is_its_snapshot_with_the_first_phone_of_its_main_contact() {
    let mut core = with_leads();
    let made = admin(
        &mut core,
        "lead",
        &json!({ "id": 5001, "name": "Ali", "statusId": 2, "responsibleId": 501, "balance": 1500.5,
            "currency": "UZS", "source": "WEBSITE", "fields": { "11": "x" }, "contacts": [
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
    assert!(holds(&answer, &expected), "{answer}");
    assert_eq!(answer["data"], made);
    let attributions = &answer["data"]["attributions"];
    assert_eq!(attributions[0]["source"], json!("WEBSITE"));
    assert_eq!(attributions[0]["attachedTimestamp"], json!(second));
}

#[test]
fn a_lead_of_the_flags_exists_and_nothing_is_known_of_it() {
    let mut core = with_leads();
    let answer = core.handle(NOW, &get("lead/4001")).value();
    let expected = json!({ "data": {
        "id": 4001, "statusId": null, "responsibleId": null, "balance": 0.0, "currency": null,
        "phone": null, "attributions": [], "uuid": null, "createdTimestamp": null,
        "updatedTimestamp": null,
    } });
    assert!(holds(&answer, &expected), "{answer}");
}

#[test]
fn a_missing_deleted_merged_or_foreign_lead_is_the_same_409_with_a_message_only() {
    let mut core = with_leads();
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
    for (method, path) in [
        ("GET", "lead/777"),
        ("GET", "lead/4002"),
        ("GET", "lead/4003"),
        ("GET", "lead/6001"),
        ("DELETE", "lead/777"),
        ("GET", "lead-note/777/list"),
        ("GET", "lead-history/777"),
        ("GET", "lead-task/777"),
        ("GET", "lead-note/4001/777"),
        ("GET", "lead-history/4001/777"),
    ] {
        let mut request = get(path);
        request.method = method.to_owned();
        let answer = core.handle(NOW, &request);
        assert_eq!(answer.status, 409, "{method} {path}");
        assert_eq!(keys(&answer), MISSING, "{method} {path}");
        bodies.push(answer.value());
    }
    let message = json!({ "data": null, "error": null, "errors": [], "requestId": null });
    assert!(
        bodies
            .iter()
            .all(|body| holds(body, &message) && body["message"].is_string())
    );
    assert!(bodies[..4].iter().all(|body| *body == bodies[0]));
    assert!(
        act::find_lead(&core, 2, 6001).is_some(),
        "it is there for its own company"
    );
    assert_eq!(kinds(&core), []);
}

#[test]
fn a_deleted_lead_is_gone_for_calls_too() {
    let mut core = with_leads();
    assert_eq!(core.handle(NOW, &delete("lead/4001")).status, 200);
    assert_eq!(core.handle(NOW, &delete("lead/4001")).status, 409);
    let answer = core
        .handle(NOW, &submit(&call_with("leadId", json!(4001))))
        .value();
    let id = answer["requestId"].as_str().expect("accepted").to_owned();
    let status = core.handle(after(2), &super::poll(&id)).value();
    assert_eq!(status["data"]["status"], json!("FAILED"));
}

#[test]
fn a_call_accepted_before_its_lead_was_merged_fails_and_those_written_are_the_survivors() {
    let mut core = with_leads();
    assert_eq!(
        done(&mut core, "call-history", &call_with("leadId", json!(4002))),
        "SUCCESS"
    );
    let mut late = call_with("leadId", json!(4002));
    late["uuid"] = json!("u-2");
    let answer = core.handle(after(2), &submit(&late)).value();
    let merge = json!({ "into": 4001, "from": [4002] });
    core.handle(
        after(2),
        &Request::post("/sandbox/admin/lead/merge", &merge),
    );
    let id = answer["requestId"].as_str().expect("accepted").to_owned();
    let status = core.handle(after(4), &super::poll(&id)).value();
    assert_eq!(status["data"]["status"], json!("FAILED"));
    let leads: Vec<i64> = core
        .records()
        .iter()
        .map(|record| record.call.lead_id)
        .collect();
    assert_eq!(leads, [4001]);
}

#[test]
fn a_merge_keeps_the_survivors_own_and_adds_contacts_notes_and_missing_fields() {
    let mut core = with_leads();
    let ali =
        json!({ "id": 5001, "name": "Ali", "phone": "+998901112233", "fields": { "11": "a" } });
    let vali = json!({ "id": 5002, "name": "Vali", "phone": "+998935556677",
        "fields": { "11": "b", "12": "c" } });
    admin(&mut core, "lead", &ali);
    admin(&mut core, "lead", &vali);
    assert_eq!(
        done(
            &mut core,
            "lead-note/5002/list",
            &json!([{ "text": "hello" }])
        ),
        "SUCCESS"
    );
    let merged = admin(
        &mut core,
        "lead/merge",
        &json!({ "into": 5001, "from": [5002] }),
    );
    let expected = json!({ "id": 5001, "name": "Ali", "phone": "+998901112233",
        "fields": [{ "id": 11, "value": "a" }, { "id": 12, "value": "c" }] });
    assert!(holds(&merged, &expected), "{merged}");
    assert_eq!(merged["contacts"].as_array().map(Vec::len), Some(2));
    let notes = core.handle(NOW, &get("lead-note/5001/list")).value();
    assert_eq!(notes["data"][0]["text"], json!("hello"));
    assert_eq!(core.handle(NOW, &get("lead/5002")).status, 409);
}

#[test]
fn post_lead_makes_a_lead_when_it_is_due_and_its_fields_are_the_complete_set() {
    let mut core = with_leads();
    let body = json!({ "name": "Ali", "contacts": [{ "name": "Ali", "phones": ["+998901112233"],
        "fields": [{ "id": 21, "value": "y" }] }],
        "fields": [{ "id": 11, "value": "a" }, { "id": 12, "value": "b" }] });
    assert_eq!(done(&mut core, "lead", &body), "SUCCESS");
    let page = json!({ "page": 1, "size": 50, "orders": { "id": "DESC" } });
    let answer = core.handle(after(2), &post("lead/filter", &page)).value();
    let lead = &answer["data"]["content"][0];
    assert_eq!(lead["phone"], json!("+998901112233"));
    assert_eq!(lead["attributions"][0]["source"], json!("OPEN_API"));
    assert_eq!(lead["contacts"][0]["fields"][0]["id"], json!(21));
    let id = lead["id"].as_i64().expect("an id");
    let body = json!({ "id": id, "fields": [{ "id": 12, "value": "c" }] });
    assert_eq!(done(&mut core, "lead", &body), "SUCCESS");
    let lead = act::find_lead(&core, 1, id).expect("the lead");
    assert_eq!(
        json!(lead.fields),
        json!({ "12": ["c"] }),
        "unlisted values are deleted"
    );
    assert_eq!(
        lead.phone(),
        Some("+998901112233"),
        "what was not sent stays"
    );
    assert_eq!(done(&mut core, "lead", &json!({ "id": 777 })), "FAILED");
    assert_eq!(
        done(&mut core, "lead", &json!({ "id": id, "responsibleId": 9 })),
        "FAILED"
    );
}

#[test]
fn what_post_lead_refuses_is_named_by_field_and_reason() {
    for (body, field, reason) in [
        (json!({}), "name", "NOT_NULL"),
        (json!({ "name": " " }), "name", "NOT_BLANK"),
        (
            json!({ "name": "x", "statusId": 99 }),
            "statusId",
            "NOT_FOUND",
        ),
        (
            json!({ "name": "x", "fields": [{ "value": 1 }] }),
            "fields[0].id",
            "NOT_NULL",
        ),
        (
            json!({ "name": "x", "fields": [{ "id": 21, "value": 1 }] }),
            "fields[0].id",
            "NOT_FOUND",
        ),
        (
            json!({ "name": "x", "contacts": [{ "phones": ["901112233"] }] }),
            "contacts[0].phones[0]",
            "VALID_PHONE",
        ),
    ] {
        let mut core = with_leads();
        let answer = core.handle(NOW, &post("lead", &body));
        let expected = json!({ "errors": [{ "field": field, "reason": reason }], "error": null });
        assert_eq!(answer.status, 400, "{body}");
        assert!(
            holds(&answer.value(), &expected),
            "{body}: {}",
            answer.value()
        );
    }
    let mut core = with_leads();
    let body = json!({ "name": "x", "uuid": "one" });
    done(&mut core, "lead", &body);
    let twin = json!({ "name": "y", "uuid": "one" });
    let answer = core.handle(after(3), &post("lead", &twin));
    assert_eq!(
        answer.status, 409,
        "a duplicate value is a genuine conflict"
    );
}

#[test]
fn a_page_of_leads_holds_fifty_at_most_and_one_of_tasks_thirty() {
    for (path, most) in [
        ("lead/filter", 50),
        ("employee/filter", 50),
        ("lead-task/filter", 30),
    ] {
        for (page, size, reason) in [(1, most, ""), (1, most + 1, "MAX"), (0, most, "MIN")] {
            let mut core = with_leads();
            let body = json!({ "page": page, "size": size });
            let answer = core.handle(NOW, &post(path, &body));
            let told = answer.value();
            if reason.is_empty() {
                assert_eq!(answer.status, 200, "{path}: {told}");
                assert_eq!(told["data"]["currentPage"], json!(1));
                assert!(told["data"]["totalPages"].is_u64());
                assert!(told["data"].get("last").is_none());
            } else {
                assert_eq!(
                    (answer.status, &told["errors"][0]["reason"]),
                    (400, &json!(reason))
                );
                assert_eq!(kinds(&core), [ViolationKind::Invalid]);
            }
        }
    }
}

/// Leads 5001 to 5003, created a second apart, and none of the flags.
fn three() -> Sandbox {
    let mut core = with_leads();
    core.company(NOW, |company| {
        company.leads = crate::token::IdSet::default()
    });
    for (second, id) in [(1, 5001), (2, 5002), (3, 5003)] {
        let body = json!({ "id": id, "name": format!("Lead {}", 9 - second) });
        core.handle(after(second), &Request::post("/sandbox/admin/lead", &body));
    }
    let update = json!({ "id": 5001, "phone": "+998901112233" });
    core.handle(
        after(9),
        &Request::post("/sandbox/admin/lead/update", &update),
    );
    core
}

#[test]
fn leads_come_in_the_order_asked_for_and_within_the_range() {
    let now = NOW.floor_seconds().get();
    let page = |more: Value| {
        let mut body = json!({ "page": 1, "size": 2 });
        body.as_object_mut()
            .expect("an object")
            .extend(more.as_object().cloned().expect("one"));
        body
    };
    for (body, expected) in [
        (page(json!({})), vec![5001, 5002]),
        (page(json!({ "page": 2 })), vec![5003]),
        (
            page(json!({ "orders": { "updatedTimestamp": "ASC" } })),
            vec![5002, 5003],
        ),
        (
            page(json!({ "orders": { "updatedTimestamp": "DESC" } })),
            vec![5001, 5003],
        ),
        (
            page(json!({ "orders": { "name": "ASC" } })),
            vec![5003, 5002],
        ),
        (
            page(json!({ "updatedTimestampFrom": now + 3 })),
            vec![5001, 5003],
        ),
        (page(json!({ "updatedTimestampTo": now + 2 })), vec![5002]),
        (
            page(json!({ "registeredTimestampFrom": now + 2, "size": 9 })),
            vec![5002, 5003],
        ),
        (page(json!({ "createdTimestampTo": now + 1 })), vec![5001]),
    ] {
        let mut core = three();
        let answer = core.handle(after(60), &post("lead/filter", &body)).value();
        assert_eq!(ids(&answer), expected, "{body}");
    }
}

#[test]
fn an_order_can_be_passed_over_or_refused_and_a_wrong_one_is_refused_all_the_same() {
    let page = json!({ "page": 1, "size": 3, "orders": { "updatedTimestamp": "ASC" } });
    let wrong = json!({ "page": 1, "size": 3, "orders": { "updatedTimestamp": "UP" } });
    let none = json!({ "page": 1, "size": 3, "orders": {} });
    for (shape, expected, statuses) in [
        ("kept", vec![5002, 5003, 5001], [200, 400, 200]),
        ("ignored", vec![5001, 5002, 5003], [200, 400, 200]),
        ("refused", vec![], [400, 400, 200]),
    ] {
        let mut core = three();
        let shapes = &mut core.settings_mut().shapes;
        shapes.set("orders", shape).expect("a shape");
        let bodies = [&page, &wrong, &none];
        let answers = bodies.map(|body| core.handle(after(60), &post("lead/filter", body)));
        assert_eq!(answers.each_ref().map(|it| it.status), statuses, "{shape}");
        if answers[0].status == 200 {
            assert_eq!(ids(&answers[0].value()), expected, "{shape}");
        } else {
            let code = &answers[0].value()["error"]["messageCode"];
            assert_eq!(code, &json!(3705), "{shape}");
        }
    }
}

#[test]
fn leads_without_a_known_moment_lie_in_no_range_and_come_last() {
    let mut core = three();
    core.company(after(10), |company| company.leads.add(4001));
    let body = json!({ "page": 1, "size": 9, "orders": { "updatedTimestamp": "ASC" } });
    let answer = core.handle(after(60), &post("lead/filter", &body)).value();
    assert_eq!(ids(&answer), [5002, 5003, 5001, 4001]);
    let from = json!({ "page": 1, "size": 9, "updatedTimestampFrom": 946_684_800 });
    let answer = core.handle(after(60), &post("lead/filter", &from)).value();
    assert_eq!(ids(&answer), [5001, 5002, 5003]);
}

#[test]
fn one_to_ten_notes_are_written_at_once_and_tasks_are_the_leads() {
    let mut core = with_leads();
    let notes = |count: usize| Value::Array(vec![json!({ "text": "x" }); count]);
    for (count, status) in [(0, 400), (1, 200), (10, 200), (11, 400)] {
        let answer = core.handle(NOW, &post("lead-note/4001/list", &notes(count)));
        assert_eq!(answer.status, status, "{count} notes");
        if status == 400 {
            assert_eq!(answer.value()["errors"][0]["reason"], json!("SIZE"));
        }
    }
    let answer = core.handle(NOW, &post("lead-note/777/list", &notes(1)));
    assert_eq!(answer.status, 409);
    core.tick(after(2));
    let written = core.handle(after(2), &get("lead-note/4001/list")).value();
    assert_eq!(written["data"].as_array().map(Vec::len), Some(11));
    let id = &written["data"][0]["id"];
    assert_eq!(
        core.handle(after(2), &get(&format!("lead-note/4001/{id}")))
            .status,
        200
    );
    assert_eq!(
        done(
            &mut core,
            "lead-task",
            &json!({ "leadId": 4001, "text": "y" })
        ),
        "SUCCESS"
    );
    assert_eq!(
        done(
            &mut core,
            "lead-task",
            &json!({ "leadId": 777, "text": "y" })
        ),
        "FAILED"
    );
    let page = json!({ "page": 1, "size": 30 });
    let tasks = core
        .handle(after(2), &post("lead-task/filter", &page))
        .value();
    let row = &tasks["data"]["content"][0];
    assert_eq!((&row["leadId"], &row["text"]), (&json!(4001), &json!("y")));
}

#[test]
fn a_missing_contract_or_payment_is_a_500_with_3704_and_a_missing_flat_a_409() {
    for (path, there) in [
        ("contract/7001", true),
        ("contract/7001/payment", true),
        ("contract/7001/schedule", true),
        ("payment/8001", true),
        ("flat/9001", true),
        ("contract/1", false),
        ("contract/1/payment", false),
        ("contract/1/schedule", false),
        ("payment/1", false),
        ("flat/1", false),
    ] {
        let mut core = with_leads();
        let answer = core.handle(NOW, &get(path));
        let told = answer.value();
        let expected = match (there, path.starts_with("flat")) {
            (true, _) => (200, Value::Null),
            (false, true) => (409, Value::Null),
            (false, false) => (500, json!({ "messageCode": 3704, "args": [] })),
        };
        assert_eq!((answer.status, told["error"].clone()), expected, "{path}");
        assert_eq!(told["accept"], json!(there), "{path}");
    }
}

#[test]
fn the_misspelt_contract_field_is_the_same_as_the_canonical_one() {
    let mut core = with_leads();
    let canonical = core.handle(NOW, &get("contract-field"));
    let alias = core.handle(NOW, &get("contrac-field"));
    assert_eq!((canonical.status, &canonical), (200, &alias));
    assert_eq!(core.handle(NOW, &get("contra-field")).status, 404);
}

#[test]
fn each_endpoint_needs_the_grant_of_its_domain() {
    let page = json!({ "page": 1, "size": 9 });
    for (request, grant) in [
        (get("lead/4001"), "LEAD:READ"),
        (delete("lead/4001"), "LEAD:DELETE"),
        (post("lead", &json!({ "name": "x" })), "LEAD:SAVE"),
        (post("lead/filter", &page), "LEAD:READ"),
        (get("crm-field"), "LEAD:READ"),
        (get("lead-history/4001"), "LEAD:READ"),
        (post("lead-note/4001/list", &json!([{}])), "LEAD_NOTE:SAVE"),
        (get("lead-note/4001/list"), "LEAD_NOTE:READ"),
        (
            post("lead-task", &json!({ "leadId": 4001 })),
            "LEAD_TASK:SAVE",
        ),
        (post("lead-task/filter", &page), "LEAD_TASK:READ"),
        (get("contract/7001"), "CONTRACT:READ"),
        (get("flat/9001"), "CONTRACT:READ"),
        (get("contract-field"), "CONTRACT:READ"),
        (get("payment/8001"), "CONTRACT_PAYMENT:READ"),
    ] {
        let mut core = with_leads();
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

#[test]
fn a_missing_record_asked_for_again_at_once_is_a_breach_and_a_minute_later_none() {
    let mut core = with_leads();
    for (second, breaches) in [(0, 0), (3, 1), (120, 1)] {
        let answer = core.handle(after(second), &get("lead/777").with("x", "y"));
        assert_eq!(answer.status, 409);
        assert_eq!(
            core.violations().count(ViolationKind::RepeatAfter400),
            breaches,
            "second {second}"
        );
    }
    let upsert = |lead: u32| post(&format!("lead/{lead}/field/list"), &json!([{ "value": 1 }]));
    core.handle(after(121), &upsert(4001));
    core.handle(after(121), &upsert(4002));
    assert_eq!(
        core.violations().count(ViolationKind::RepeatAfter400),
        1,
        "another lead is another request"
    );
    core.handle(after(121), &upsert(4001));
    assert_eq!(core.violations().count(ViolationKind::RepeatAfter400), 2);
}

#[test]
fn the_clock_moves_ahead_and_never_back() {
    let mut core = with_leads();
    let body = json!([{ "id": 11, "value": "x" }]);
    let answer = core
        .handle(NOW, &post("lead/4001/field/list", &body))
        .value();
    let id = answer["requestId"].as_str().expect("accepted").to_owned();
    let clock = |ahead: i64| Request::post("/sandbox/admin/clock", &json!({ "aheadSec": ahead }));
    let answer = core.handle(NOW, &clock(90_000));
    assert_eq!(answer.status, 200, "{}", answer.value());
    assert_eq!(core.moment(NOW), after(90_000));
    let now = core.moment(after(1));
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
    assert_eq!(core.handle(now, &clock(10)).status, 400);
    assert!(core.token_works(core.moment(NOW), TOKEN));
}
