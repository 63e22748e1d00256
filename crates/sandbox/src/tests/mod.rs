//! Tests of the sandbox's core against the document.

mod any;
mod faults;
mod golden;
mod lead_events;
mod lead_fields;
mod leads;
mod oauth;
mod options;
mod repeats;
mod replay;
mod rules;
mod rules_of_clients;
mod rules_of_errors;
mod rules_of_reading;
mod rules_of_submission;
mod rules_without_a_row;
mod webhook_bodies;
mod webhook_config;
mod webhook_dispatch;
mod webhook_post;
mod webhook_recording;
mod webhook_replay;
mod window;

use super::{Request, Response, Sandbox, Settings, ViolationKind};
use callbridge_call::EventTime;
use serde_json::{Map, Value, json};
use std::time::Duration;

pub(super) const TOKEN: &str = "svc_pat_first";
pub(super) const SUBMIT: &str = "/v1/open-api/call-history";
pub(super) const FILTER: &str = "/v1/open-api/call-history/filter";
pub(super) const INFO: &str = "/v1/open-api/token/info";
/// A time on 2026-11-20, at which the tests submit calls.
pub(super) const NOW: EventTime = EventTime::from_seconds(1_795_151_400);

/// Returns a sandbox with the token [`TOKEN`], whose writes take exactly a second.
pub(super) fn sandbox() -> Sandbox {
    let settings = Settings {
        persist_after: Duration::from_secs(1),
        persist_jitter: Duration::ZERO,
        ..Settings::default()
    };
    let mut core = Sandbox::new(settings);
    core.begin(NOW, TOKEN, None);
    core
}

/// Returns the body of a submission that violates no rule.
pub(super) fn call() -> Value {
    json!({
        "leadId": 4001, "employeeId": 501, "uuid": "u-1", "startedAt": 1_795_151_317,
        "durationSec": 5, "answered": true, "direction": "INBOUND", "talkTimeSec": 4,
    })
}

/// Returns [`call`] with this value of one field. The sandbox treats a null as an absent field.
pub(super) fn call_with(field: &str, value: Value) -> Value {
    let mut call = call();
    if let Value::Object(fields) = &mut call {
        fields.insert(field.to_owned(), value);
    }
    call
}

pub(super) fn call_without(field: &str) -> Value {
    let mut call = call();
    if let Value::Object(fields) = &mut call {
        fields.remove(field);
    }
    call
}

pub(super) fn submit(body: &Value) -> Request {
    Request::post(SUBMIT, body).with_token(TOKEN)
}

pub(super) fn filter(body: &Value) -> Request {
    Request::post(FILTER, body).with_token(TOKEN)
}

pub(super) fn info() -> Request {
    Request::get(INFO).with_token(TOKEN)
}

pub(super) fn poll(id: &str) -> Request {
    Request::get(&format!("/v1/open-api/request/{id}")).with_token(TOKEN)
}

/// Submits a call, and returns the requestId. Panics if the sandbox does not accept the call.
pub(super) fn submit_accepted(core: &mut Sandbox, now: EventTime, body: &Value) -> String {
    let answer = core.handle(now, &submit(body));
    assert_eq!(answer.status, 200, "{}", answer.value());
    answer.value()["requestId"]
        .as_str()
        .expect("a requestId")
        .to_owned()
}

/// Returns the sandbox after a restart, which reads the state file of `core`.
pub(super) fn restart_sandbox(core: &Sandbox) -> Sandbox {
    let kept = serde_json::to_vec(core).expect("JSON");
    Sandbox::restore(&kept, core.settings.clone()).expect("a state")
}

/// Returns the time this many seconds after [`NOW`].
pub(super) fn now_plus(seconds: u64) -> EventTime {
    NOW.plus(Duration::from_secs(seconds))
}

/// Returns `true` if `actual` contains everything in `expected`. Objects in `actual` can have more
/// keys. All other values are compared exactly.
pub(super) fn has_fields(actual: &Value, expected: &Value) -> bool {
    match (actual, expected) {
        (Value::Object(actual), Value::Object(expected)) => expected.iter().all(|(key, value)| {
            actual
                .get(key)
                .is_some_and(|actual| has_fields(actual, value))
        }),
        (actual, expected) => actual == expected,
    }
}

/// Returns the keys of an answer's body, in order.
pub(super) fn keys(answer: &Response) -> Vec<String> {
    let fields: Map<String, Value> =
        serde_json::from_slice(&answer.body).expect("an object in the body");
    fields.keys().cloned().collect()
}

/// Returns the kinds of the violations so far, in order.
pub(super) fn kinds(core: &Sandbox) -> Vec<ViolationKind> {
    core.violations()
        .all()
        .iter()
        .map(|breach| breach.kind)
        .collect()
}
