//! What a body says (§2.5, §6.5–6.8).

use super::webhook_recording::{admin, body, happen, lead, one_of_each, rows, subscribed};
use super::{NOW, accepted, after, call, call_with, keys};
use crate::webhook::{
    CrmEvent, LeadSnapshot, Property, PropertyChange, balance_text, contact_text,
};
use crate::{Request, Response, Sandbox, faults};
use serde_json::{Value, json};

/// The body of one event.
fn told(event: CrmEvent) -> Value {
    told_in("", event)
}

/// The same in these shapes.
fn told_in(shapes: &str, event: CrmEvent) -> Value {
    let mut core = subscribed(&["LEAD", "CALL"]);
    core.settings_mut().shapes = faults::parse(shapes).expect("shapes").1;
    happen(&mut core, NOW, event);
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
fn each_event_has_the_envelope_and_only_the_blocks_of_its_own() {
    let blocks: Vec<Vec<String>> = one_of_each()
        .into_iter()
        .map(|event| {
            let name = event.name();
            let body = told(event);
            assert_eq!(body["eventType"], name);
            assert_eq!(body["occurredAt"], NOW.floor_seconds().get());
            assert_eq!(body["companyId"], 1);
            let id = body["eventId"].as_str().expect("text");
            assert!(uuid::Uuid::parse_str(id).is_ok());
            let envelope = ["eventId", "eventType", "occurredAt", "companyId"];
            let rest = names(&body)
                .into_iter()
                .filter(|name| !envelope.contains(name));
            rest.map(str::to_owned).collect()
        })
        .collect();
    let expected: [&[&str]; 7] = [
        &["lead"],
        &["assignment", "lead"],
        &["lead", "stageChange"],
        &["lead", "propertyChanges"],
        &["lead", "mergedLeadIds"],
        &["lead"],
        &["call"],
    ];
    assert_eq!(blocks, expected);
}

#[test]
fn a_snapshot_has_every_field_of_the_document_and_shows_null_for_what_it_lacks() {
    let body = told(CrmEvent::LeadCreated { lead: lead(4001) });
    let expected = json!({
        "id": 4001, "name": "Ali", "statusId": null, "statusName": null, "pipeId": null,
        "pipeName": null, "responsibleId": null, "responsibleName": null, "balance": 0.0,
        "currency": null, "phone": null, "attributions": [], "uuid": null,
        "createdTimestamp": null, "updatedTimestamp": null,
    });
    assert_eq!(body["lead"], expected);
}

#[test]
fn an_assignment_says_from_whom_to_whom_and_null_for_nobody() {
    let body = told(one_of_each()[1].clone());
    let expected = json!({
        "fromResponsibleId": null, "fromResponsibleName": null,
        "toResponsibleId": 501, "toResponsibleName": "Vali",
    });
    assert_eq!(body["assignment"], expected);
}

#[test]
fn a_stage_change_says_from_which_to_which() {
    let body = told(one_of_each()[2].clone());
    let expected = json!({
        "fromStatusId": 21, "fromStatusName": "New", "toStatusId": 22, "toStatusName": "Called",
    });
    assert_eq!(body["stageChange"], expected);
}

#[test]
fn the_surviving_lead_is_never_among_the_merged() {
    let merged = vec![4002, 4001, 4003];
    let body = told(CrmEvent::LeadMerged {
        lead: lead(4001),
        merged,
    });
    assert_eq!(body["mergedLeadIds"], json!([4002, 4003]));
}

#[test]
fn property_changes_carry_their_ids_and_leave_out_what_was_not_or_is_not_there() {
    let change = |kind, from: Option<&str>, to: Option<&str>| PropertyChange {
        kind,
        from: from.map(str::to_owned),
        to: to.map(str::to_owned),
    };
    let phones = ["+998935556677".to_owned(), "+998901112233".to_owned()];
    let contact = contact_text("Ali", &phones);
    let changes = vec![
        change(Property::Name, Some("Al"), Some("Ali")),
        change(
            Property::Balance,
            Some("0 USD"),
            Some(&balance_text(1_500.50, Some("USD"))),
        ),
        change(Property::Contact(31), None, Some(&contact)),
        change(Property::CustomField(14), Some("a, b"), None),
    ];
    let body = told(CrmEvent::LeadPropertiesUpdated {
        lead: lead(1),
        changes,
    });
    let expected = json!([
        { "type": "NAME", "from": "Al", "to": "Ali" },
        { "type": "BALANCE", "from": "0 USD", "to": "1500.5 USD" },
        { "type": "CONTACT", "contactId": 31, "to": "Ali [+998901112233, +998935556677]" },
        { "type": "CUSTOM_FIELD", "fieldId": 14, "from": "a, b" },
    ]);
    assert_eq!(body["propertyChanges"], expected);
    assert_eq!(balance_text(12.0, Some("UZS")), "12 UZS");
    assert_eq!(contact_text("Ali", &[]), "Ali []");
}

#[test]
fn a_journaled_call_is_told_as_the_journal_has_it() {
    let mut core = subscribed(&["CALL"]);
    accepted(&mut core, NOW, &call());
    core.tick(after(1));
    let body = body(&core, &rows(&core)[0]);
    assert_eq!(body["occurredAt"], after(1).floor_seconds().get());
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

#[test]
fn a_missed_call_is_told_with_false_and_talk_without_it_is_an_answer() {
    let mut core = subscribed(&["CALL"]);
    let mut missed = call_with("answered", json!(false));
    missed["talkTimeSec"] = json!(0);
    accepted(&mut core, NOW, &missed);
    missed["uuid"] = json!("u-2");
    missed["talkTimeSec"] = json!(3);
    accepted(&mut core, after(1), &missed);
    core.tick(after(9));
    let mut told: Vec<Value> = rows(&core)
        .iter()
        .map(|row| body(&core, row)["call"].clone())
        .collect();
    told.sort_by_key(|call| call["callId"].to_string());
    let of = |call: &Value| (call["answered"].clone(), call["hangupCause"].clone());
    assert_eq!(of(&told[0]), (json!(false), json!("NO_ANSWER")));
    assert_eq!(of(&told[1]), (json!(true), json!("NO_ANSWER")));
}

#[test]
fn meetings_and_calls_of_other_telephony_are_told_too() {
    let mut core = subscribed(&["CALL"]);
    let answer = core.handle(NOW, &Request::post("/sandbox/admin/records", &json!({})));
    assert_eq!(answer.status, 200);
    let meeting = json!({
        "call": { "conversationKind": "OFFLINE_MEET", "direction": "OUTBOUND",
            "clientPhone": null, "operatorExtension": null },
    });
    let answer = core.handle(
        NOW,
        &Request::post("/sandbox/admin/webhook/happen", &meeting),
    );
    assert_eq!(
        (answer.status, keys(&answer)),
        (200, vec!["deliveries".to_owned()])
    );
    let mut kinds: Vec<(String, String)> = (rows(&core).iter())
        .map(|row| body(&core, row)["call"].clone())
        .map(|call| {
            (
                call["conversationKind"].to_string(),
                call["direction"].to_string(),
            )
        })
        .collect();
    kinds.sort();
    let expected = [
        ("\"CALL\"", "\"INBOUND\""),
        ("\"OFFLINE_MEET\"", "\"INBOUND\""),
    ];
    assert_eq!(
        kinds,
        expected.map(|(kind, way)| (kind.to_owned(), way.to_owned()))
    );
}

/// The record of the newest event, of a call that was ordered with this one.
fn recorded(core: &mut Sandbox, record: &Value) -> Value {
    let ordered = json!({ "call": { "callId": record.to_string(), "record": record } });
    admin(core, "webhook/happen", &ordered);
    let rows = rows(core);
    body(core, rows.last().expect("a row"))["call"]["record"].clone()
}

/// What a link is answered at this second.
fn fetched(core: &Sandbox, url: &str, second: u64) -> Response {
    let url = url::Url::parse(url).expect("an address");
    let mut request = Request::get(url.path());
    request.query = url.query().unwrap_or_default().to_owned();
    // On a copy: its moments may go back.
    core.clone().handle(after(second), &request)
}

#[test]
fn a_recording_has_a_link_that_expires() {
    let (mut core, now) = (subscribed(&["CALL"]), NOW.floor_seconds().get());
    let days: u32 = 5 * 86_400;
    for (ordered, life, length) in [
        (json!({}), days, Value::Null),
        (
            json!({ "durationSec": 7, "expiresInSec": 60 }),
            60,
            json!(7),
        ),
    ] {
        let record = recorded(&mut core, &ordered);
        assert_eq!(record["expiresAt"], now + i64::from(life));
        assert_eq!(
            (&record["fileId"], &record["durationSec"]),
            (&json!(9), &length)
        );
        let url = record["url"].as_str().expect("a link").to_owned();
        let audio = fetched(&core, &url, u64::from(life) - 1);
        assert_eq!((audio.status, audio.content_type), (200, "audio/wav"));
        assert!(audio.body.starts_with(b"RIFF"));
        assert_eq!(
            fetched(&core, &url, life.into()).status,
            403,
            "it has ended"
        );
        let later = format!("expires={}", now + 2 * i64::from(days));
        let end = format!("expires={}", record["expiresAt"]);
        for changed in [
            url.replace(&end, &later),
            url.replace("/9?", "/8?"),
            url.replace('&', "#"),
        ] {
            assert_eq!(fetched(&core, &changed, 0).status, 403, "{changed}");
        }
    }
    for long in [
        json!({ "expiresInSec": days + 1 }),
        json!({ "expiresAt": now + i64::from(days) + 1 }),
    ] {
        let ordered = json!({ "call": { "record": long } });
        let request = Request::post("/sandbox/admin/webhook/happen", &ordered);
        let answer = core.handle(NOW, &request);
        assert_eq!(answer.status, 400, "no link lives longer than five days");
    }
    let record = recorded(
        &mut core,
        &json!({ "url": "https://files.example.com/9", "expiresAt": now }),
    );
    assert_eq!(record["url"], "https://files.example.com/9");
    assert_eq!(
        told(one_of_each()[6].clone())["call"].get("record"),
        None,
        "no audio"
    );
}

#[test]
fn a_call_id_stands_with_the_prefix_or_without_it() {
    let told = |shapes| told_in(shapes, one_of_each()[6].clone())["call"]["callId"].clone();
    assert_eq!(told("shape webhook-call-id prefixed"), "oapi-u-9");
    assert_eq!(told("shape webhook-call-id plain"), "u-9");
}

#[test]
fn unknown_fields_and_values_can_be_added_to_every_body() {
    for event in one_of_each() {
        let plain = told(event.clone());
        let strange = told_in("shape webhook-extra yes", event);
        assert!(super::holds(&strange["eventId"], &plain["eventId"]));
        assert!(names(&strange).len() > names(&plain).len());
        let text = strange.to_string();
        assert!(
            text.contains("HOLOGRAM") || text.contains("sentiment"),
            "{text}"
        );
    }
}

#[test]
fn the_payload_is_the_lead_as_it_was_when_it_happened() {
    let mut core = subscribed(&["LEAD"]);
    let mut living = LeadSnapshot {
        id: 1,
        name: "before".to_owned(),
        ..LeadSnapshot::default()
    };
    happen(
        &mut core,
        NOW,
        CrmEvent::LeadCreated {
            lead: Box::new(living.clone()),
        },
    );
    living.name = "after".to_owned();
    happen(
        &mut core,
        after(1),
        CrmEvent::LeadDeleted {
            lead: Box::new(living),
        },
    );
    let mut told: Vec<String> = rows(&core)
        .iter()
        .map(|row| body(&core, row)["lead"]["name"].to_string())
        .collect();
    told.sort();
    assert_eq!(
        told,
        ["\"after\"", "\"before\""],
        "the snapshot at deletion, and the one before"
    );
}
