//! Tests of the contents of webhook bodies (§2.5, §6.5–6.8).

use super::lead_events::{new_event_bodies, sandbox_with_lead_events};
use super::lead_fields::admin;
use super::webhook_recording::{
    body, emit_event, event_of_each_name, lead_created, rows, subscribed_sandbox,
};
use super::{NOW, call, call_with, now_plus, submit_accepted};
use crate::webhook::CrmEvent;
use crate::{Request, faults};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Returns the body of the delivery of an event.
fn event_body(event: CrmEvent) -> Value {
    event_body_in_shapes("", event)
}

/// Returns the body of the delivery of an event, with these `shape` rules.
fn event_body_in_shapes(shapes: &str, event: CrmEvent) -> Value {
    let mut core = subscribed_sandbox(&["LEAD", "CALL"]);
    core.settings.shapes = faults::parse(shapes).expect("shapes").1;
    emit_event(&mut core, NOW, event);
    body(&core, &rows(&core)[0])
}

fn names(value: &Value) -> Vec<&str> {
    value
        .as_object()
        .expect("an object")
        .keys()
        .map(String::as_str)
        .collect()
}

#[test]
fn each_event_has_the_envelope_and_only_its_own_blocks() {
    let mut core = sandbox_with_lead_events();
    let lead = json!({ "id": 5001, "name": "Ali" });
    admin(&mut core, "lead", &lead);
    let all = json!({ "id": 5001, "name": "Vali", "statusId": 1, "responsibleId": 501 });
    admin(&mut core, "lead/update", &all);
    let merge = json!({ "into": 5001, "from": [4002] });
    admin(&mut core, "lead/merge", &merge);
    admin(&mut core, "lead/delete", &json!({ "id": 5001 }));
    submit_accepted(&mut core, NOW, &call());
    core.tick(now_plus(1));
    let bodies = new_event_bodies(&core, &mut BTreeSet::new());
    let expected: [(&str, &[&str]); 7] = [
        ("LEAD_CREATED", &["lead"]),
        ("LEAD_ASSIGNED", &["assignment", "lead"]),
        ("LEAD_STAGE_CHANGED", &["lead", "stageChange"]),
        ("LEAD_PROPERTIES_UPDATED", &["lead", "propertyChanges"]),
        ("LEAD_MERGED", &["lead", "mergedLeadIds"]),
        ("LEAD_DELETED", &["lead"]),
        ("CALL_COMPLETED", &["call"]),
    ];
    assert_eq!(bodies.len(), expected.len());
    for (event, blocks) in expected {
        let body = bodies.iter().find(|body| body["eventType"] == event);
        let body = body.expect("the event");
        assert_eq!(body["companyId"], 1);
        assert!(body["occurredAt"].as_i64() >= Some(NOW.floor_seconds().get()));
        let id = body["eventId"].as_str().expect("text");
        assert!(uuid::Uuid::parse_str(id).is_ok());
        let envelope = ["eventId", "eventType", "occurredAt", "companyId"];
        let rest = names(body).into_iter();
        let rest: Vec<&str> = rest.filter(|name| !envelope.contains(name)).collect();
        assert_eq!(rest, blocks, "{event}");
    }
}

#[test]
fn lead_snapshot_has_all_fields_with_null_where_unknown() {
    let body = event_body(lead_created(4001));
    let expected = json!({
        "id": 4001, "name": "Ali", "statusId": null, "statusName": null, "pipeId": null,
        "pipeName": null, "responsibleId": null, "responsibleName": null, "balance": 0.0,
        "currency": null, "phone": null, "attributions": [], "uuid": null,
        "createdTimestamp": null, "updatedTimestamp": null,
    });
    assert_eq!(body["lead"], expected);
}

#[test]
fn call_event_has_the_values_of_the_journaled_call() {
    let mut core = subscribed_sandbox(&["CALL"]);
    submit_accepted(&mut core, NOW, &call());
    core.tick(now_plus(1));
    let body = body(&core, &rows(&core)[0]);
    assert_eq!(body["occurredAt"], now_plus(1).floor_seconds().get());
    let expected = json!({
        "callId": "oapi-u-1", "provider": "OPEN_API", "conversationKind": "CALL",
        "direction": "INBOUND", "answered": true, "startedAt": 1_795_151_317,
        "endedAt": 1_795_151_322, "durationSec": 5, "talkTimeSec": 4, "hangupCause": "ANSWER",
        "clientPhone": null, "operatorExtension": null, "employeeId": 501,
        "employeeName": "Employee 501",
        "contactId": null, "contactName": null, "leadIds": [4001],
    });
    assert_eq!(
        body["call"], expected,
        "without `record`: no audio was captured"
    );
}

fn answer_and_cause(call: &Value) -> (Value, Value) {
    (call["answered"].clone(), call["hangupCause"].clone())
}

#[test]
fn missed_call_event_shows_answered_only_with_talk_time() {
    let mut core = subscribed_sandbox(&["CALL"]);
    let mut missed = call_with("answered", json!(false));
    missed["talkTimeSec"] = json!(0);
    submit_accepted(&mut core, NOW, &missed);
    missed["uuid"] = json!("u-2");
    missed["talkTimeSec"] = json!(3);
    submit_accepted(&mut core, now_plus(1), &missed);
    core.tick(now_plus(9));
    let mut calls: Vec<Value> = rows(&core)
        .iter()
        .map(|row| body(&core, row)["call"].clone())
        .collect();
    calls.sort_by_key(|call| call["callId"].to_string());
    assert_eq!(
        answer_and_cause(&calls[0]),
        (json!(false), json!("NO_ANSWER"))
    );
    assert_eq!(
        answer_and_cause(&calls[1]),
        (json!(true), json!("NO_ANSWER"))
    );
}

#[test]
fn calls_of_other_providers_emit_events() {
    let mut core = subscribed_sandbox(&["CALL"]);
    let answer = core.handle(NOW, &Request::post("/sandbox/admin/records", &json!({})));
    assert_eq!(answer.status, 200);
    let block = body(&core, &rows(&core)[0])["call"].clone();
    assert_eq!(block["provider"], "ONLINE_PBX");
    assert_eq!(block["conversationKind"], "CALL");
}

/// Returns the id of the call in the delivery of a call event, with these `shape` rules.
fn call_id(shapes: &str) -> Value {
    event_body_in_shapes(shapes, event_of_each_name()[6].clone())["call"]["callId"].clone()
}

#[test]
fn webhook_call_id_shape_adds_or_omits_the_prefix() {
    assert_eq!(call_id("shape webhook-call-id prefixed"), "oapi-u-9");
    assert_eq!(call_id("shape webhook-call-id plain"), "u-9");
}

#[test]
fn unknown_fields_are_added_to_every_body_and_values_to_leads() {
    for event in event_of_each_name() {
        let is_call = event.call_id().is_some();
        let event = event.with_block("propertyChanges", json!([]));
        let plain = event_body(event.clone());
        let strange = event_body_in_shapes("shape webhook-extra yes", event);
        assert!(super::has_fields(&strange["eventId"], &plain["eventId"]));
        assert!(names(&strange).len() > names(&plain).len());
        assert_eq!(strange["propertyChanges"][0]["type"], "MOOD", "{strange}");
        if is_call {
            assert_ne!(strange["call"]["sentiment"], Value::Null, "{strange}");
        } else {
            let source = &strange["lead"]["attributions"][0]["source"];
            assert_eq!(source, "HOLOGRAM", "{strange}");
        }
    }
}

fn lead_named(name: &str) -> Value {
    json!({ "id": 5001, "name": name })
}

/// Returns the name of the lead in the body of this event.
fn lead_name(bodies: &[Value], event: &str) -> Value {
    let body = bodies.iter().find(|body| body["eventType"] == event);
    body.expect("the event")["lead"]["name"].clone()
}

#[test]
fn event_body_keeps_lead_as_it_was_at_the_event() {
    let mut core = sandbox_with_lead_events();
    admin(&mut core, "lead", &lead_named("before"));
    admin(&mut core, "lead/update", &lead_named("after"));
    admin(&mut core, "lead/delete", &json!({ "id": 5001 }));
    let bodies = new_event_bodies(&core, &mut BTreeSet::new());
    assert_eq!(lead_name(&bodies, "LEAD_CREATED"), "before");
    assert_eq!(
        lead_name(&bodies, "LEAD_DELETED"),
        "after",
        "the snapshot at deletion"
    );
}

/// Returns the block `call` of each delivery after a submitted call, with these `shape` rules.
fn call_blocks(shapes: &str) -> Vec<Value> {
    let mut core = subscribed_sandbox(&["CALL"]);
    core.settings.shapes = faults::parse(shapes).expect("shapes").1;
    let mut call = call_with("operatorExtension", json!("101"));
    call["phoneNumber"] = json!("+998901110001");
    submit_accepted(&mut core, NOW, &call);
    core.tick(now_plus(1));
    let deliveries = rows(&core);
    let bodies = deliveries.iter().map(|row| body(&core, row));
    bodies.map(|body| body["call"].clone()).collect()
}

fn provider_and_start(call: &Value) -> (Value, Value) {
    (call["provider"].clone(), call["startedAt"].clone())
}

#[test]
fn misnamed_or_unjournaled_call_field_is_null_in_event() {
    let call = call_blocks("").remove(0);
    assert_eq!(call["operatorExtension"], "101");
    assert_eq!(
        (&call["clientPhone"], &call["talkTimeSec"]),
        (&Value::Null, &json!(4))
    );
    let call = call_blocks("shape journal-without talkTimeSec,durationSec").remove(0);
    assert_eq!(
        (&call["talkTimeSec"], &call["durationSec"]),
        (&Value::Null, &Value::Null)
    );
    let mut both = call_blocks("shape journal-foreign ONLINE_PBX");
    both.sort_by_key(|call| call["provider"].to_string());
    assert_eq!(
        provider_and_start(&both[0]),
        (json!("ONLINE_PBX"), json!(1_795_151_315))
    );
    assert_eq!(
        provider_and_start(&both[1]),
        (json!("OPEN_API"), json!(1_795_151_317))
    );
}
