//! Tests that every request, however malformed, gets an answer in an envelope, and that nothing
//! panics.

use super::lead_fields::sandbox_with_lead_grants;
use super::{FILTER, INFO, NOW, SUBMIT, TOKEN, call, keys};
use crate::Request;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::time::Duration;

/// Paths of the writes that the sandbox accepts with a requestId.
const WRITES: [&str; 2] = ["call-history", "lead/4001/field/list"];

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(|value| json!(value)),
        any::<i64>().prop_map(|value| json!(value)),
        (1_795_000_000..1_796_000_000_i64).prop_map(|value| json!(value)),
        any::<f64>().prop_map(|value| json!(value)),
        ".{0,140}".prop_map(|value| json!(value)),
        Just(json!([])),
        (0..40_i64).prop_map(|id| json!([{ "id": id, "value": null, "phones": ["+99890111"] }])),
        Just(json!({ "id": "ASC" })),
    ]
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    let names = prop::sample::select(vec![
        "leadId",
        "employeeId",
        "uuid",
        "startedAt",
        "durationSec",
        "answered",
        "direction",
        "talkTimeSec",
        "clientPhone",
        "page",
        "size",
        "orders",
        "registeredTimestampFrom",
        "id",
        "name",
        "fields",
        "contacts",
        "balance",
        "responsibleId",
        "other",
    ]);
    let fields = prop::collection::vec((names, value()), 0..6);
    let changed = fields.prop_map(|fields| {
        let mut body = call();
        for (name, value) in fields {
            body[name] = value;
        }
        body.to_string().into_bytes()
    });
    prop_oneof![4 => changed, 1 => prop::collection::vec(any::<u8>(), 0..60)]
}

fn request() -> impl Strategy<Value = Request> {
    let paths = vec![
        SUBMIT,
        FILTER,
        INFO,
        "/v1/open-api/request/x",
        "/",
        "/v1/open-api/moved",
        "/v1/open-api/lead",
        "/v1/open-api/lead/filter",
        "/v1/open-api/lead/4001",
        "/v1/open-api/lead/4001/field/list",
        "/v1/open-api/crm-field",
    ];
    let path = prop_oneof![
        prop::sample::select(paths).prop_map(str::to_owned),
        "/.{0,30}"
    ];
    let method = prop::sample::select(vec!["GET", "POST", "POST", "POST", "HEAD", "DELETE"]);
    let header = prop::sample::select(vec![
        ("x-open-api-token", TOKEN),
        ("content-type", "application/json"),
        ("content-type", "text/plain"),
        ("authorization", "Bearer x"),
    ]);
    let headers = prop::collection::vec(header, 0..3);
    (path, method, headers, body(), any::<bool>()).prop_map(
        |(path, method, headers, body, right)| {
            let mut request = Request::post_bytes(&path, body);
            request.method = method.to_owned();
            for (name, value) in headers {
                request = request.with_header(name, value);
            }
            if right {
                request.headers.clear();
                request = request
                    .with_token(TOKEN)
                    .with_header("content-type", "application/json");
            }
            request
        },
    )
}

proptest! {
    #[test]
    fn every_request_is_answered_in_an_envelope(
        requests in prop::collection::vec(request(), 1..40),
    ) {
        let mut core = sandbox_with_lead_grants();
        for (second, request) in requests.iter().enumerate() {
            if request.path.starts_with("/sandbox/") {
                continue;
            }
            let now = NOW.plus(Duration::from_secs(second as u64 * 2));
            let answer = core.handle(now, request);
            let reply = answer.value();
            let fields = keys(&answer).len();
            match answer.status {
                200 => {
                    prop_assert_eq!((fields, &reply["accept"]), (6, &json!(true)));
                    let given = reply["requestId"].is_string();
                    let path = request.path.strip_prefix("/v1/open-api/").unwrap_or_default();
                    let write = request.method == "POST" && WRITES.contains(&path);
                    prop_assert_eq!(given, write, "a requestId for a write only: {:?}", request);
                }
                400 | 403 | 404 | 405 | 409 | 413 | 415 => {
                    prop_assert_eq!((fields, &reply["accept"]), (6, &json!(false)));
                }
                401 | 429 => prop_assert_eq!((fields, &reply["accept"]), (4, &json!(false))),
                other => prop_assert!(false, "{} to {:?}", other, request),
            }
        }
        core.tick(NOW.plus(Duration::from_secs(999)));
        prop_assert_eq!(core.journal.pending.len(), 0);
    }
}
