//! Tests of §2.6 and §4.5: which submissions are valid, and the outcomes of submissions.

use super::rules::{Row, refused_submission, row, scene};
use super::{NOW, call, call_with, call_without, now_plus, poll, submit, submit_accepted};
use crate::{Request, ViolationKind};
use serde_json::{Value, json};

/// Returns the expected body of a 400 with one entry in `errors[]`, and nothing in `error` or
/// `data`.
fn field(field: &str, reason: &str) -> Value {
    json!({ "error": null, "data": null, "requestId": null,
            "errors": [{ "field": field, "reason": reason }] })
}

/// Returns the expected body of a 400 of the parser: code 3705 and empty `errors`.
fn parser_refusal() -> Value {
    json!({ "error": { "messageCode": 3705 }, "errors": [], "requestId": null })
}

/// Returns the expected body of a 400 of the business validation, which has only a message.
fn business_refusal() -> Value {
    json!({ "error": null, "errors": [], "data": null, "requestId": null })
}

fn accepted_write() -> Value {
    json!({ "accept": true, "data": null, "error": null, "errors": [], "message": "Success" })
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = required();
    rows.extend(values());
    rows.extend(types());
    rows.extend(tolerated());
    rows.extend(outcomes());
    rows
}

fn required() -> Vec<Row> {
    let missing = |name: &'static str| {
        [
            refused_submission(
                "required, absent",
                &call_without(name),
                field(name, "NOT_NULL"),
            ),
            refused_submission(
                "required, null",
                &call_with(name, Value::Null),
                field(name, "NOT_NULL"),
            ),
        ]
    };
    let names = [
        "leadId",
        "uuid",
        "startedAt",
        "durationSec",
        "answered",
        "direction",
    ];
    let mut rows: Vec<Row> = names.into_iter().flat_map(missing).collect();
    let all: Vec<Value> = names
        .iter()
        .map(|name| json!({ "field": name, "reason": "NOT_NULL" }))
        .collect();
    rows.push(refused_submission(
        "all that is wrong is reported at once",
        &json!({}),
        json!({ "errors": all }),
    ));
    rows
}

fn values() -> Vec<Row> {
    let epoch = |rule, value: i64| {
        refused_submission(
            rule,
            &call_with("startedAt", json!(value)),
            field("startedAt", "VALID_EPOCH_SEC"),
        )
    };
    let phone = |rule, value: &str| {
        refused_submission(
            rule,
            &call_with("clientPhone", json!(value)),
            field("clientPhone", "VALID_PHONE"),
        )
    };
    let now = NOW.floor_seconds().get();
    vec![
        refused_submission(
            "uuid of 129",
            &call_with("uuid", json!("u".repeat(129))),
            field("uuid", "LENGTH"),
        ),
        refused_submission(
            "uuid empty",
            &call_with("uuid", json!("")),
            field("uuid", "NOT_BLANK"),
        ),
        refused_submission(
            "uuid blank",
            &call_with("uuid", json!("  ")),
            field("uuid", "NOT_BLANK"),
        ),
        refused_submission(
            "uuid counted in UTF-16 units",
            &call_with("uuid", json!("𝄞".repeat(65))),
            field("uuid", "LENGTH"),
        ),
        epoch("milliseconds", 1_795_151_317_833),
        epoch("microseconds", 1_795_151_317_833_600),
        epoch("zero", 0),
        epoch("negative", -5),
        epoch("before 2000", 946_684_799),
        epoch("in the future", now + 301),
        refused_submission(
            "duration 0",
            &call_with("durationSec", json!(0)),
            business_refusal(),
        ),
        refused_submission(
            "duration negative",
            &call_with("durationSec", json!(-1)),
            business_refusal(),
        ),
        refused_submission(
            "talk above duration",
            &call_with("talkTimeSec", json!(6)),
            business_refusal(),
        ),
        refused_submission(
            "talk negative",
            &call_with("talkTimeSec", json!(-1)),
            field("talkTimeSec", "MIN"),
        ),
        phone("phone without plus", "998901110001"),
        phone("phone too short", "+99890"),
        phone("phone with letters", "+99890CALLNOW"),
        phone("phone empty", ""),
    ]
}

fn types() -> Vec<Row> {
    let wrong = |rule, name: &str, value: Value| {
        refused_submission(rule, &call_with(name, value), parser_refusal())
    };
    let raw = |rule, body: &str| {
        let request = Request::post_bytes("/v1/open-api/call-history", body)
            .with_header("content-type", "application/json")
            .with_token(super::TOKEN);
        row("§7.5", rule, request, 400, parser_refusal()).violation(ViolationKind::Invalid)
    };
    vec![
        wrong("leadId as text", "leadId", json!("4001")),
        wrong("leadId with a fraction", "leadId", json!(4001.5)),
        wrong("leadId above 64 bits", "leadId", json!(1e19)),
        wrong("employeeId as text", "employeeId", json!("501")),
        wrong("uuid as number", "uuid", json!(7)),
        wrong("startedAt as text", "startedAt", json!("1795151317")),
        wrong(
            "startedAt with a fraction",
            "startedAt",
            json!(1_795_151_317.8),
        ),
        wrong("durationSec as text", "durationSec", json!("5")),
        wrong(
            "durationSec above 32 bits",
            "durationSec",
            json!(3_000_000_000_i64),
        ),
        wrong("answered as text", "answered", json!("true")),
        wrong("answered as number", "answered", json!(1)),
        wrong("direction in lower case", "direction", json!("inbound")),
        wrong("direction internal", "direction", json!("INTERNAL")),
        wrong("direction empty", "direction", json!("")),
        wrong("talk with a fraction", "talkTimeSec", json!(3.5)),
        wrong("phone as number", "clientPhone", json!(998_901_110_001_i64)),
        raw("malformed JSON", "{\"leadId\": 4001,"),
        raw("empty body", ""),
        raw("an array", "[]"),
        raw("a string", "\"leadId\""),
        raw("two values", "{} {}"),
        raw("a byte order mark", "\u{feff}{}"),
    ]
}

fn tolerated() -> Vec<Row> {
    let fine = |rule, body: &Value| row("§2.6", rule, submit(body), 200, accepted_write());
    let derived = |rule, name: &str, value: Value| {
        fine(rule, &call_with(name, value)).violation(ViolationKind::DerivedField)
    };
    let now = NOW.floor_seconds().get();
    vec![
        fine("a whole call", &call()),
        fine("no employee", &call_without("employeeId")),
        fine("employee null", &call_with("employeeId", Value::Null)),
        fine("no talk time", &call_without("talkTimeSec")),
        fine(
            "talk equal to duration",
            &call_with("talkTimeSec", json!(5)),
        ),
        fine("uuid of 128", &call_with("uuid", json!("u".repeat(128)))),
        fine("starts now", &call_with("startedAt", json!(now))),
        fine("outbound", &call_with("direction", json!("OUTBOUND"))),
        fine("a phone", &call_with("clientPhone", json!("+998901110001"))),
        fine(
            "a field that nobody knows",
            &call_with("color", json!("red")),
        ),
        derived("endedAt sent", "endedAt", json!(1_795_151_322)),
        derived("end_timestamp sent", "end_timestamp", json!(1_795_151_322)),
        derived("hangupCause sent", "hangupCause", json!("ANSWER")),
        derived("provider sent", "provider", json!("OPEN_API")),
        derived("uuid with its prefix", "uuid", json!("oapi-u-1")),
    ]
}

fn outcomes() -> Vec<Row> {
    let ends = |section, rule, body: Value, word: &'static str| {
        let scene_of = move |core: &mut crate::Sandbox| {
            let id = submit_accepted(core, NOW, &body);
            (now_plus(1), poll(&id))
        };
        scene(
            section,
            rule,
            scene_of,
            200,
            json!({ "data": { "status": word } }),
        )
    };
    let again = |rule, first: Value, second: Value, wait: u64| {
        let scene_of = move |core: &mut crate::Sandbox| {
            submit_accepted(core, NOW, &first);
            (now_plus(wait), submit(&second))
        };
        scene("§4.5.4", rule, scene_of, 200, accepted_write())
    };
    let unknown = call_with("leadId", json!(9));
    vec![
        ends("§4.5.2", "written after its time", call(), "SUCCESS"),
        ends(
            "§4.5.3",
            "unknown leadId: 200 first, then FAILED",
            unknown.clone(),
            "FAILED",
        ),
        ends(
            "§4.5.3",
            "unknown employeeId",
            call_with("employeeId", json!(9)),
            "FAILED",
        ),
        ends(
            "§7.4",
            "negative leadId",
            call_with("leadId", json!(-1)),
            "FAILED",
        ),
        scene(
            "§4.5.2",
            "not yet written",
            |core| {
                let id = submit_accepted(core, NOW, &call());
                (NOW, poll(&id))
            },
            200,
            json!({ "data": { "status": "PENDING" } }),
        ),
        again("again after 200, pending", call(), call(), 0)
            .violation(ViolationKind::RepeatAfter200),
        again("again after 200, written", call(), call(), 9)
            .violation(ViolationKind::RepeatAfter200),
        again("again after FAILED, mended", unknown, call(), 9),
        again(
            "the uuid of another call",
            call(),
            call_with("durationSec", json!(9)),
            9,
        )
        .violation(ViolationKind::UuidReused),
    ]
}
