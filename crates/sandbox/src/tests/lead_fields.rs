//! Tests of §4.4: the lead field upsert, rule by rule.

use super::{NOW, TOKEN, has_fields, kinds, now_plus, poll, sandbox};
use crate::lead::act;
use crate::{Request, Sandbox, ViolationKind};
use serde_json::{Value, json};

/// Returns a sandbox whose connection has all grants for leads.
pub(super) fn sandbox_with_lead_grants() -> Sandbox {
    let mut core = sandbox();
    let mut grants = core.settings.company.grants.clone();
    for scope in ["SAVE", "READ"] {
        let text = format!("PERMISSION_OPEN_API_LEAD:{scope}");
        grants.extend(crate::token::Grant::parse(&text));
    }
    core.set_grants(NOW, grants);
    core
}

pub(super) fn post(path: &str, body: &Value) -> Request {
    Request::post(&format!("/v1/open-api/{path}"), body).with_token(TOKEN)
}

pub(super) fn get(path: &str) -> Request {
    Request::get(&format!("/v1/open-api/{path}")).with_token(TOKEN)
}

/// Sends `body` to the admin path `act`, and returns the body of the answer.
pub(super) fn admin(core: &mut Sandbox, act: &str, body: &Value) -> Value {
    let answer = core.handle(NOW, &Request::post(&format!("/sandbox/admin/{act}"), body));
    assert_eq!(answer.status, 200, "{act}: {}", answer.value());
    answer.value()
}

/// Posts a write to `path`, and returns the status of the write two seconds later. Panics if the
/// sandbox does not accept the write.
pub(super) fn run_write(core: &mut Sandbox, path: &str, body: &Value) -> String {
    let answer = core.handle(NOW, &post(path, body));
    let reply = answer.value();
    assert_eq!(
        (answer.status, &reply["data"]),
        (200, &Value::Null),
        "{reply}"
    );
    let id = reply["requestId"].as_str().expect("a requestId").to_owned();
    let status = core.handle(now_plus(2), &poll(&id)).value();
    status["data"]["status"]
        .as_str()
        .expect("a status")
        .to_owned()
}

/// Returns the values of a lead's fields, by field id.
fn fields(core: &Sandbox, lead: i64) -> Value {
    let lead = act::find_lead(core, 1, lead).expect("the lead");
    json!(lead.fields)
}

#[test]
fn field_write_changes_only_listed_fields_and_null_clears() {
    let mut core = sandbox_with_lead_grants();
    let first = json!([{ "id": 11, "value": "one" }, { "id": 12, "value": 2 }]);
    assert_eq!(
        run_write(&mut core, "lead/4001/field/list", &first),
        "SUCCESS"
    );
    let second = json!([{ "id": 12, "value": null }, { "id": 13, "value": true }]);
    assert_eq!(
        run_write(&mut core, "lead/4001/field/list", &second),
        "SUCCESS"
    );
    assert_eq!(fields(&core, 4001), json!({ "11": ["one"], "13": [true] }));
    assert_eq!(kinds(&core), []);
}

#[test]
fn field_list_replaces_values_and_stores_separate_entries() {
    let mut core = sandbox_with_lead_grants();
    let first = json!([{ "id": 14, "valueList": ["a", "b"] }]);
    run_write(&mut core, "lead/4001/field/list", &first);
    assert_eq!(fields(&core, 4001), json!({ "14": ["a", "b"] }));
    run_write(
        &mut core,
        "lead/4001/field/list",
        &json!([{ "id": 14, "valueList": ["c"] }]),
    );
    assert_eq!(fields(&core, 4001), json!({ "14": ["c"] }));
    run_write(
        &mut core,
        "lead/4001/field/list",
        &json!([{ "id": 14, "valueList": [] }]),
    );
    assert_eq!(fields(&core, 4001), json!({}));
}

#[test]
fn contact_and_unknown_fields_are_skipped_with_success() {
    let mut core = sandbox_with_lead_grants();
    let body = json!([
        { "id": 21, "value": "a contact's" }, { "id": 999, "value": "nobody's" },
        { "id": 25, "value": "of no type" }, { "id": 995, "valueList": ["x"] },
        { "id": 11, "value": "the lead's" },
    ]);
    assert_eq!(
        run_write(&mut core, "lead/4001/field/list", &body),
        "SUCCESS"
    );
    assert_eq!(fields(&core, 4001), json!({ "11": ["the lead's"] }));
    assert_eq!(kinds(&core), [ViolationKind::SkippedField]);
}

#[test]
fn field_list_item_without_id_refuses_whole_list() {
    let mut core = sandbox_with_lead_grants();
    let body = json!([{ "id": 11, "value": "x" }, { "value": "y" }, { "id": null, "value": 1 }]);
    let answer = core.handle(NOW, &post("lead/4001/field/list", &body));
    let expected = json!({ "error": null, "requestId": null, "errors": [
        { "field": "[1].id", "reason": "NOT_NULL" }, { "field": "[2].id", "reason": "NOT_NULL" },
    ] });
    assert_eq!(answer.status, 400);
    assert!(has_fields(&answer.value(), &expected), "{}", answer.value());
    core.tick(now_plus(5));
    assert_eq!(fields(&core, 4001), json!({}));
    assert_eq!(kinds(&core), [ViolationKind::Invalid]);
}

#[test]
fn field_write_for_unknown_lead_is_accepted_then_fails() {
    let mut core = sandbox_with_lead_grants();
    let body = json!([{ "id": 11, "value": "x" }]);
    assert_eq!(run_write(&mut core, "lead/777/field/list", &body), "FAILED");
    assert_eq!(kinds(&core), []);
}

#[test]
fn upsert_needs_the_grant_lead_save_and_no_other() {
    let body = json!([{ "id": 11, "value": "x" }]);
    for (grants, status) in [
        ("LEAD:READ", 403),
        ("LEAD:SAVE", 200),
        ("LEAD_NOTE:SAVE", 403),
    ] {
        let mut core = sandbox();
        let grant = format!("PERMISSION_OPEN_API_{grants}");
        let grant = crate::token::Grant::parse(&grant).expect("a grant");
        core.set_grants(NOW, vec![grant]);
        let answer = core.handle(NOW, &post("lead/4001/field/list", &body));
        assert_eq!(answer.status, status, "{grants}");
        let code = answer.value()["error"]["messageCode"].clone();
        assert_eq!(code == json!(3701), status == 403);
    }
}

#[test]
fn body_is_accepted_bare_or_wrapped() {
    let items = json!([{ "id": 11, "value": "x" }]);
    for (body, expected) in [
        (items.clone(), 200),
        (json!({ "list": items }), 200),
        (json!({ "other": items }), 400),
        (json!([]), 400),
        (json!("x"), 400),
    ] {
        let mut core = sandbox_with_lead_grants();
        "list".clone_into(&mut core.settings.names.list);
        let answer = core.handle(NOW, &post("lead/4001/field/list", &body));
        assert_eq!(answer.status, expected, "{body}");
    }
}

#[test]
fn field_values_of_a_wrong_type_are_refused_with_3705() {
    for item in [
        json!({ "id": "11", "value": "x" }),
        json!({ "id": 11, "value": {} }),
        json!({ "id": 11, "value": [] }),
        json!({ "id": 14, "valueList": "a" }),
        json!({ "id": 14, "valueList": ["a", 1] }),
        json!({ "id": 14, "value": "a" }),
        json!({ "id": 11, "valueList": ["a"] }),
        json!({ "id": 14, "value": null, "valueList": ["a"] }),
        json!({ "id": 15, "value": "5" }),
        json!({ "id": 16, "value": "true" }),
        json!({ "id": 16, "value": 1 }),
        json!({ "id": 17, "value": "2026-11-20T17:58:31+05:00" }),
        json!({ "id": 17, "value": "20-11-2026" }),
        json!({ "id": 17, "value": 1_795_151_317 }),
        json!("x"),
    ] {
        let mut core = sandbox_with_lead_grants();
        let answer = core.handle(NOW, &post("lead/4001/field/list", &json!([item])));
        let code = &answer.value()["error"]["messageCode"];
        assert_eq!((answer.status, code), (400, &json!(3705)), "{item}");
    }
}

#[test]
fn field_values_of_the_right_type_are_stored_unchanged() {
    let mut core = sandbox_with_lead_grants();
    let body = json!([
        { "id": 11, "value": "x" }, { "id": 12, "value": 2 }, { "id": 13, "value": true },
        { "id": 14, "valueList": ["a"] }, { "id": 15, "value": 5.5 }, { "id": 16, "value": false },
        { "id": 17, "value": "2026-11-20" },
    ]);
    assert_eq!(
        run_write(&mut core, "lead/4001/field/list", &body),
        "SUCCESS"
    );
    let expected = json!({
        "11": ["x"], "12": [2], "13": [true], "14": ["a"], "15": [5.5], "16": [false],
        "17": ["2026-11-20"],
    });
    assert_eq!(fields(&core, 4001), expected);
    let clear: Vec<Value> = (11..=17)
        .map(|id| json!({ "id": id, "value": null }))
        .collect();
    assert_eq!(
        run_write(&mut core, "lead/4001/field/list", &json!(clear)),
        "SUCCESS"
    );
    assert_eq!(fields(&core, 4001), json!({}));
    assert_eq!(kinds(&core), []);
}

/// Returns the `infoType` of the field `id` in a catalog of fields.
fn field_kind(catalog: &Value, id: i64) -> Option<Value> {
    let rows = catalog["data"].as_array().expect("a list");
    let row = rows.iter().find(|row| row["id"] == json!(id));
    row.map(|row| row["infoType"].clone())
}

#[test]
fn catalog_distinguishes_led_fields_from_contact_fields() {
    let mut core = sandbox_with_lead_grants();
    let answer = core.handle(NOW, &get("crm-field")).value();
    assert_eq!(field_kind(&answer, 11), Some(json!("LED")));
    assert_eq!(field_kind(&answer, 21), Some(json!("CONTACT")));
    assert_eq!(field_kind(&answer, 31), None);
}
