//! Tests of rules of the document that one request cannot show, and that have no separate file.

use super::lead_events::{new_event_bodies, sandbox_with_lead_events};
use super::lead_fields::{admin, get, post, run_write, sandbox_with_lead_grants};
use super::{
    INFO, NOW, TOKEN, call, call_with, has_fields, now_plus, sandbox, submit, submit_accepted,
};
use crate::faults::parse;
use crate::token::Grant;
use crate::{Endpoint, Request};
use serde_json::{Value, json};
use std::collections::BTreeSet;

#[test]
fn answers_never_contain_the_token() {
    let mut core = sandbox_with_lead_grants();
    for (request, status) in [
        (get("token/info"), 200),
        (get("lead/4001"), 200),
        (get("request/x"), 404),
        (submit(&json!({ "uuid": TOKEN })), 400),
        (Request::get("/sandbox/requests"), 200),
        (Request::get("/sandbox/oauth"), 200),
    ] {
        let answer = core.handle(NOW, &request);
        assert_eq!(answer.status, status, "{request:?}");
        let text = String::from_utf8_lossy(&answer.body);
        assert!(!text.contains(TOKEN), "{request:?}: {text}");
    }
}

#[test]
fn grant_needs_a_known_permission_and_scope() {
    for permission in [
        "LEAD",
        "LEAD_NOTE",
        "LEAD_TASK",
        "CONTRACT",
        "CONTRACT_PAYMENT",
        "CALL",
    ] {
        for scope in ["READ", "SAVE", "DELETE"] {
            let text = format!("PERMISSION_OPEN_API_{permission}:{scope}");
            let grant = Grant::parse(&text).expect("a grant of §2.3");
            assert_eq!(grant.as_str(), text);
        }
    }
    for text in [
        "PERMISSION_OPEN_API_CALL",
        "PERMISSION_OPEN_API_CALL:WRITE",
        "PERMISSION_OPEN_API_CALL:save",
        "PERMISSION_OPEN_API_MEETING:READ",
        "CALL:SAVE",
    ] {
        assert_eq!(Grant::parse(text), None, "{text}");
    }
}

#[test]
fn call_phone_neither_finds_nor_creates_a_lead() {
    let mut core = sandbox_with_lead_grants();
    let lead = json!({ "id": 5001, "name": "Ali", "phone": "+998901112233" });
    admin(&mut core, "lead", &lead);
    let before = core.handle(NOW, &Request::get("/sandbox/leads")).value();
    let mut body = call_with("leadId", json!(777));
    body["clientPhone"] = json!("+998901112233");
    assert_eq!(run_write(&mut core, "call-history", &body), "FAILED");
    assert_eq!(core.records().len(), 0);
    let after = core
        .handle(now_plus(3), &Request::get("/sandbox/leads"))
        .value();
    assert_eq!(after, before);
}

#[test]
fn derived_call_fields_follow_from_the_submission() {
    for (answered, cause) in [(true, "ANSWER"), (false, "NO_ANSWER")] {
        for direction in ["INBOUND", "OUTBOUND"] {
            let mut core = sandbox();
            let mut body = call_with("answered", json!(answered));
            body["direction"] = json!(direction);
            body["talkTimeSec"] = json!(0);
            submit_accepted(&mut core, NOW, &body);
            core.tick(now_plus(5));
            let [record] = core.records() else {
                panic!("one record");
            };
            assert_eq!(
                record.ended_at,
                record.call.started_at + record.call.duration_sec
            );
            assert_eq!(
                (record.hangup_cause.as_str(), record.provider.as_str()),
                (cause, "OPEN_API")
            );
            assert_eq!(record.call.direction, direction);
        }
    }
}

#[test]
fn issued_pat_has_its_prefix_and_works() {
    let mut core = sandbox();
    let issued = admin(&mut core, "token", &json!({}));
    let token = issued["token"].as_str().expect("shown once");
    assert!(token.starts_with("svc_pat_") && token.len() > 30, "{token}");
    assert!(core.token_works(NOW, token));
}

#[test]
fn pat_is_shown_when_it_is_issued_and_nowhere_else() {
    let mut core = sandbox();
    let issued = admin(&mut core, "token", &json!({}));
    let token = issued["token"].as_str().expect("shown once").to_owned();
    core.handle(NOW, &Request::get(INFO).with_token(&token));
    for path in [
        "journal", "breaches", "requests", "writes", "oauth", "webhooks", "leads",
    ] {
        let answer = core.handle(NOW, &Request::get(&format!("/sandbox/{path}")));
        assert_eq!(answer.status, 200, "{path}");
        assert!(
            !String::from_utf8_lossy(&answer.body).contains(&token),
            "{path}"
        );
    }
    let kept = serde_json::to_string(&core).expect("JSON");
    assert!(!kept.contains(&token) && kept.contains("PAT"));
    assert!(!format!("{core:?}").contains(&token));
}

fn lead_with_contact_field(value: &str) -> Value {
    json!({ "id": 5001, "contacts": [{ "id": 1, "name": "Ali", "phones": ["+998901112233"],
        "fields": { "21": [value] } }] })
}

#[test]
fn contact_field_change_is_reported_as_contact_change() {
    let (mut core, mut seen) = (sandbox_with_lead_events(), BTreeSet::new());
    let mut lead = lead_with_contact_field("one");
    lead["name"] = json!("Ali");
    admin(&mut core, "lead", &lead);
    new_event_bodies(&core, &mut seen);
    admin(&mut core, "lead/update", &lead_with_contact_field("two"));
    let events = new_event_bodies(&core, &mut seen);
    let changes = events[0]["propertyChanges"].as_array().expect("changes");
    let kinds: Vec<&Value> = changes.iter().map(|change| &change["type"]).collect();
    assert_eq!((events.len(), kinds), (1, vec![&json!("CONTACT")]));
}

#[test]
fn call_event_names_lead_contact_with_its_phone() {
    let (mut core, mut seen) = (sandbox_with_lead_events(), BTreeSet::new());
    let lead = json!({ "id": 5001, "name": "Ali", "contacts": [
        { "name": "Ali", "phones": ["+998901112233"] },
        { "name": "Vali", "phones": ["+998935556677"] },
    ] });
    let contact = admin(&mut core, "lead", &lead)["contacts"][1]["id"].clone();
    new_event_bodies(&core, &mut seen);
    for (number, phone, id, name) in [
        (1, "+998935556677", contact, json!("Vali")),
        (2, "+998900000000", Value::Null, Value::Null),
    ] {
        let mut body = call_with("leadId", json!(5001));
        body["uuid"] = json!(format!("u-{number}"));
        body["clientPhone"] = json!(phone);
        assert_eq!(run_write(&mut core, "call-history", &body), "SUCCESS");
        let events = new_event_bodies(&core, &mut seen);
        let expected = json!({ "clientPhone": phone, "contactId": id, "contactName": name });
        assert!(has_fields(&events[0]["call"], &expected), "{}", events[0]);
    }
}

#[test]
fn invalid_json_body_is_answered_with_the_parser_message() {
    let mut core = sandbox();
    let request = Request::post_bytes("/v1/open-api/call-history", "{")
        .with_header("content-type", "application/json");
    let answer = core.handle(NOW, &request.with_token(TOKEN)).value();
    assert!(
        answer["data"]
            .as_str()
            .is_some_and(|words| words.contains("JSON")),
        "{answer}"
    );
    assert_eq!(answer["error"]["messageCode"], json!(3705));
    assert_eq!(answer["errors"], json!([]));
}

#[test]
fn status_rule_makes_every_endpoint_answer_406() {
    let paths = [
        ("token-info", "token/info"),
        ("call-history", "call-history"),
        ("filter", "call-history/filter"),
        ("request", "request/x"),
        ("lead-filter", "lead/filter"),
        ("lead", "lead/4001"),
        ("lead-fields", "lead/4001/field/list"),
        ("crm-field", "crm-field"),
        ("oauth-token", "oauth/token"),
        ("oauth-revoke", "oauth/revoke"),
    ];
    assert_eq!(paths.map(|(word, _)| word).join(", "), Endpoint::words());
    for (word, path) in paths {
        let mut core = sandbox_with_lead_grants();
        let endpoint = Endpoint::from_word(word).expect("an endpoint");
        let request = if endpoint.method() == Some("GET") {
            get(path)
        } else {
            post(path, &call())
        };
        let (rules, _) = parse(&format!("{word} status 406")).expect("a fault");
        core.set_faults(rules);
        let answer = core.handle(NOW, &request);
        assert_eq!(
            (answer.status, answer.value()["accept"].clone()),
            (406, json!(false)),
            "{word}"
        );
        assert_eq!(core.counts().get(&(endpoint, 406)), Some(&1));
        assert_eq!(core.records().len(), 0);
    }
}

#[test]
fn message_code_comes_only_from_generic_handlers() {
    let mut core = sandbox_with_lead_grants();
    let no_lead_notes: Vec<Grant> = Vec::new();
    for (request, code) in [
        (get("lead/777"), None),
        (get("request/x"), None),
        (submit(&call_with("talkTimeSec", json!(60))), None),
        (submit(&call_with("uuid", json!(""))), None),
        (submit(&json!([])), Some(3705)),
    ] {
        let reply = core.handle(NOW, &request).value();
        let expected = code.map_or(
            Value::Null,
            |code| json!({ "messageCode": code, "args": [] }),
        );
        assert_eq!(reply["error"], expected, "{request:?}");
    }
    core.set_grants(NOW, no_lead_notes);
    let reply = core.handle(NOW, &get("lead/777")).value();
    assert_eq!(reply["error"]["messageCode"], json!(3701));
}

#[test]
fn empty_or_missing_field_list_is_refused_with_its_reason() {
    let mut core = sandbox_with_lead_grants();
    for (body, reason) in [
        (json!([]), "NOT_EMPTY"),
        (json!({ "fields": [] }), "NOT_EMPTY"),
        (json!({ "fields": null }), "NOT_NULL_COLLECTION"),
        (json!({}), "NOT_NULL_COLLECTION"),
    ] {
        let reply = core.handle(NOW, &post("lead/4001/field/list", &body));
        let expected = json!({ "errors": [{ "field": "fields", "reason": reason }] });
        assert!(
            reply.status == 400 && has_fields(&reply.value(), &expected),
            "{}",
            reply.value()
        );
    }
}
