//! Tests of §6.2, §6.6, and §6.7: the events of a lead's change, and the data of leads that a
//! restart keeps.

use super::lead_fields::{admin, post, run_write, sandbox_with_lead_grants};
use super::webhook_recording::{body, configure, rows};
use super::{has_fields, now_plus, restart_sandbox};
use crate::lead::act;
use crate::webhook::event::NAMES;
use crate::{Request, Sandbox};
use callbridge_call::EventTime;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Returns a sandbox whose application is subscribed to all events, with all grants for leads.
pub(super) fn sandbox_with_lead_events() -> Sandbox {
    let mut core = sandbox_with_lead_grants();
    configure(&mut core, 1, &NAMES);
    core
}

/// Returns the bodies of the events whose ids are not in `seen`, and adds the ids to `seen`.
pub(super) fn new_event_bodies(core: &Sandbox, seen: &mut BTreeSet<String>) -> Vec<Value> {
    let mut new = Vec::new();
    for row in rows(core) {
        let body = body(core, &row);
        if seen.insert(body["eventId"].to_string()) {
            new.push(body);
        }
    }
    new
}

/// Returns the names of the events, sorted.
fn names(events: &[Value]) -> Vec<&str> {
    let mut names: Vec<&str> = events
        .iter()
        .filter_map(|e| e["eventType"].as_str())
        .collect();
    names.sort_unstable();
    names
}

#[test]
fn created_lead_is_reported_once() {
    let (mut core, mut seen) = (sandbox_with_lead_events(), BTreeSet::new());
    admin(
        &mut core,
        "lead",
        &json!({ "id": 5001, "name": "Ali", "phone": "+998901112233" }),
    );
    let events = new_event_bodies(&core, &mut seen);
    assert_eq!(names(&events), ["LEAD_CREATED"]);
    let expected = json!({ "id": 5001, "name": "Ali", "phone": "+998901112233" });
    assert!(has_fields(&events[0]["lead"], &expected), "{}", events[0]);
    assert_eq!(new_event_bodies(&core, &mut seen), Vec::<Value>::new());
}

fn event_named<'a>(events: &'a [Value], name: &str) -> &'a Value {
    events
        .iter()
        .find(|event| event["eventType"] == json!(name))
        .expect("one")
}

#[test]
fn one_save_sends_several_events_each_with_its_own_block() {
    let (mut core, mut seen) = (sandbox_with_lead_events(), BTreeSet::new());
    let ali = json!({ "id": 5001, "name": "Ali", "phone": "+998901112233", "statusId": 1,
        "balance": 1500.5, "currency": "UZS", "fields": { "11": "a", "14": ["x", "y"] } });
    admin(&mut core, "lead", &ali);
    new_event_bodies(&core, &mut seen);
    let changed = json!({ "id": 5001, "name": "Vali", "phones": ["+998935556677", "+998901112233"],
        "statusId": 2, "responsibleId": 501, "balance": 2000,
        "fields": { "11": null, "12": "b", "14": ["y", "z"] } });
    admin(&mut core, "lead/update", &changed);
    let events = new_event_bodies(&core, &mut seen);
    let expected = [
        "LEAD_ASSIGNED",
        "LEAD_PROPERTIES_UPDATED",
        "LEAD_STAGE_CHANGED",
    ];
    assert_eq!(names(&events), expected);
    let staged = event_named(&events, "LEAD_STAGE_CHANGED");
    let stage = json!({ "fromStatusId": 1, "fromStatusName": "New", "toStatusId": 2,
        "toStatusName": "In work" });
    assert_eq!(staged["stageChange"], stage);
    assert_eq!(staged["lead"]["statusId"], json!(2));
    let assignment = &event_named(&events, "LEAD_ASSIGNED")["assignment"];
    assert_eq!(assignment["fromResponsibleId"], Value::Null);
    assert_eq!(assignment["toResponsibleName"], json!("Employee 501"));
    let changes = &event_named(&events, "LEAD_PROPERTIES_UPDATED")["propertyChanges"];
    let contact = &changes[2]["contactId"];
    let expected = json!([
        { "type": "NAME", "from": "Ali", "to": "Vali" },
        { "type": "BALANCE", "from": "1500.5 UZS", "to": "2000 UZS" },
        { "type": "CONTACT", "contactId": contact, "from": "Ali [+998901112233]",
            "to": "Vali [+998901112233, +998935556677]" },
        { "type": "CUSTOM_FIELD", "fieldId": 11, "from": "a" },
        { "type": "CUSTOM_FIELD", "fieldId": 12, "to": "b" },
        { "type": "CUSTOM_FIELD", "fieldId": 14, "from": "x, y", "to": "y, z" },
    ]);
    assert_eq!(changes, &expected);
    let ids: Vec<&Value> = events.iter().map(|event| &event["eventId"]).collect();
    assert!(ids[0] != ids[1] && ids[1] != ids[2]);
}

#[test]
fn save_without_changes_sends_no_event() {
    let (mut core, mut seen) = (sandbox_with_lead_events(), BTreeSet::new());
    admin(
        &mut core,
        "lead",
        &json!({ "id": 5001, "name": "Ali", "statusId": 1 }),
    );
    new_event_bodies(&core, &mut seen);
    admin(
        &mut core,
        "lead/update",
        &json!({ "id": 5001, "name": "Ali", "statusId": 1 }),
    );
    run_write(
        &mut core,
        "lead/5001/field/list",
        &json!([{ "id": 21, "value": "skipped" }]),
    );
    assert_eq!(new_event_bodies(&core, &mut seen), Vec::<Value>::new());
    run_write(
        &mut core,
        "lead/5001/field/list",
        &json!([{ "id": 11, "value": "written" }]),
    );
    assert_eq!(
        names(&new_event_bodies(&core, &mut seen)),
        ["LEAD_PROPERTIES_UPDATED"]
    );
}

#[test]
fn merge_event_lists_merged_ids_and_delete_event_shows_lead() {
    let (mut core, mut seen) = (sandbox_with_lead_events(), BTreeSet::new());
    admin(
        &mut core,
        "lead",
        &json!({ "id": 5001, "name": "Ali", "phone": "+998901112233" }),
    );
    new_event_bodies(&core, &mut seen);
    admin(
        &mut core,
        "lead/merge",
        &json!({ "into": 5001, "from": [4001, 4002] }),
    );
    let events = new_event_bodies(&core, &mut seen);
    assert_eq!(names(&events), ["LEAD_MERGED"]);
    assert_eq!(events[0]["mergedLeadIds"], json!([4001, 4002]));
    assert_eq!(events[0]["lead"]["id"], json!(5001));
    admin(&mut core, "lead/delete", &json!({ "id": 5001 }));
    let events = new_event_bodies(&core, &mut seen);
    assert_eq!(names(&events), ["LEAD_DELETED"]);
    assert_eq!(events[0]["lead"]["phone"], json!("+998901112233"));
    admin(
        &mut core,
        "leads",
        &json!({ "remove": [4003], "add": [4001] }),
    );
    assert_eq!(names(&new_event_bodies(&core, &mut seen)), ["LEAD_DELETED"]);
    assert!(
        act::find_lead(&core, 1, 4001).is_some(),
        "an id of the flags that was added again"
    );
}

#[test]
fn failed_upsert_sends_no_event() {
    let (mut core, mut seen) = (sandbox_with_lead_events(), BTreeSet::new());
    assert_eq!(
        run_write(
            &mut core,
            "lead/777/field/list",
            &json!([{ "id": 11, "value": 1 }])
        ),
        "FAILED"
    );
    assert_eq!(new_event_bodies(&core, &mut seen), Vec::<Value>::new());
}

/// Returns the leads that have a record, as the path `/sandbox/leads` shows them.
fn leads_with_record(core: &mut Sandbox, now: EventTime) -> Value {
    let mut rows = core.handle(now, &Request::get("/sandbox/leads")).value();
    rows.as_array_mut()
        .expect("rows")
        .retain(|row| row["uuid"].is_string());
    rows
}

fn admin_request(act: &str, body: &Value) -> Request {
    Request::post(&format!("/sandbox/admin/{act}"), body)
}

#[test]
fn restart_keeps_leads_events_and_clock() {
    let mut core = sandbox_with_lead_events();
    let lead = json!({ "id": 5001, "name": "Ali", "phone": "+998901112233" });
    let vali = json!({ "name": "Vali" });
    let field = json!([{ "id": 11, "value": "x" }]);
    let ahead = json!({ "aheadSec": 500 });
    let merge = json!({ "into": 5001, "from": [4001] });
    let deleted = json!({ "id": 4002 });
    let late_field = json!([{ "id": 12, "value": "late" }]);
    for (second, request) in [
        (1, admin_request("lead", &lead)),
        (2, admin_request("lead", &vali)),
        (2, post("lead/5001/field/list", &field)),
        (4, admin_request("clock", &ahead)),
        (5, admin_request("lead/merge", &merge)),
        (6, admin_request("lead/delete", &deleted)),
        (7, post("lead/5001/field/list", &late_field)),
    ] {
        let now = core.moment(now_plus(second));
        assert_eq!(core.handle(now, &request).status, 200, "{request:?}");
    }
    let mut again = restart_sandbox(&core);
    let end = core.moment(now_plus(60));
    assert_eq!(again.moment(now_plus(60)), end);
    core.tick(end);
    again.tick(end);
    let leads = leads_with_record(&mut core, end);
    assert_eq!(leads.as_array().map(Vec::len), Some(2), "{leads}");
    let fields = json!([{ "id": 11, "value": "x" }, { "id": 12, "value": "late" }]);
    assert_eq!(leads[0]["fields"], fields);
    assert_eq!(leads_with_record(&mut again, end), leads);
    assert_eq!(
        new_event_bodies(&again, &mut BTreeSet::new()),
        new_event_bodies(&core, &mut BTreeSet::new())
    );
    assert!(act::find_lead(&again, 1, 4001).is_none() && act::find_lead(&again, 1, 4002).is_none());
    assert_eq!(again.journal.writes, core.journal.writes);
}
