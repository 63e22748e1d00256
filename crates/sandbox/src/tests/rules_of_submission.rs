//! Tests of §2.6 and §4.5: which submissions are valid, and the outcomes of submissions.

use super::rules::{Row, refused_submission, row, scene};
use super::{NOW, call, call_with, call_without, now_plus, poll, submit, submit_accepted};
use crate::{Request, Sandbox, ViolationKind};
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
    let names = [
        "leadId",
        "uuid",
        "startedAt",
        "durationSec",
        "answered",
        "direction",
    ];
    let mut rows = Vec::new();
    for name in names {
        rows.push(refused_submission(
            "required, absent",
            &call_without(name),
            field(name, "NOT_NULL"),
        ));
        rows.push(refused_submission(
            "required, null",
            &call_with(name, Value::Null),
            field(name, "NOT_NULL"),
        ));
    }
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

fn refused_start(rule: &'static str, started_at: i64) -> Row {
    refused_submission(
        rule,
        &call_with("startedAt", json!(started_at)),
        field("startedAt", "VALID_EPOCH_SEC"),
    )
}

fn refused_phone(rule: &'static str, phone: &str) -> Row {
    refused_submission(
        rule,
        &call_with("clientPhone", json!(phone)),
        field("clientPhone", "VALID_PHONE"),
    )
}

fn values() -> Vec<Row> {
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
        refused_start("milliseconds", 1_795_151_317_833),
        refused_start("microseconds", 1_795_151_317_833_600),
        refused_start("zero", 0),
        refused_start("negative", -5),
        refused_start("before 2000", 946_684_799),
        refused_start("in the future", now + 301),
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
        refused_phone("phone without plus", "998901110001"),
        refused_phone("phone too short", "+99890"),
        refused_phone("phone with letters", "+99890CALLNOW"),
        refused_phone("phone empty", ""),
    ]
}

/// Returns the test case of a submission in which the field `name` has a value of a wrong type.
fn wrong_type(rule: &'static str, name: &str, value: Value) -> Row {
    refused_submission(rule, &call_with(name, value), parser_refusal())
}

/// Returns the test case of a submission whose body is not a JSON object.
fn unparsable_body(rule: &'static str, body: &str) -> Row {
    let request = Request::post_bytes("/v1/open-api/call-history", body)
        .with_header("content-type", "application/json")
        .with_token(super::TOKEN);
    row("§7.5", rule, request, 400, parser_refusal()).violation(ViolationKind::Invalid)
}

fn types() -> Vec<Row> {
    vec![
        wrong_type("leadId as text", "leadId", json!("4001")),
        wrong_type("leadId with a fraction", "leadId", json!(4001.5)),
        wrong_type("leadId above 64 bits", "leadId", json!(1e19)),
        wrong_type("employeeId as text", "employeeId", json!("501")),
        wrong_type("uuid as number", "uuid", json!(7)),
        wrong_type("startedAt as text", "startedAt", json!("1795151317")),
        wrong_type(
            "startedAt with a fraction",
            "startedAt",
            json!(1_795_151_317.8),
        ),
        wrong_type("durationSec as text", "durationSec", json!("5")),
        wrong_type(
            "durationSec above 32 bits",
            "durationSec",
            json!(3_000_000_000_i64),
        ),
        wrong_type("answered as text", "answered", json!("true")),
        wrong_type("answered as number", "answered", json!(1)),
        wrong_type("direction in lower case", "direction", json!("inbound")),
        wrong_type("direction internal", "direction", json!("INTERNAL")),
        wrong_type("direction empty", "direction", json!("")),
        wrong_type("talk with a fraction", "talkTimeSec", json!(3.5)),
        wrong_type("phone as number", "clientPhone", json!(998_901_110_001_i64)),
        unparsable_body("malformed JSON", "{\"leadId\": 4001,"),
        unparsable_body("empty body", ""),
        unparsable_body("an array", "[]"),
        unparsable_body("a string", "\"leadId\""),
        unparsable_body("two values", "{} {}"),
        unparsable_body("a byte order mark", "\u{feff}{}"),
    ]
}

fn accepted_submission(rule: &'static str, body: &Value) -> Row {
    row("§2.6", rule, submit(body), 200, accepted_write())
}

/// Returns the test case of a submission with a field that the CRM derives. The CRM
/// accepts the call, and the sandbox records a violation.
fn derived_field(rule: &'static str, name: &str, value: Value) -> Row {
    accepted_submission(rule, &call_with(name, value)).violation(ViolationKind::DerivedField)
}

fn tolerated() -> Vec<Row> {
    let now = NOW.floor_seconds().get();
    vec![
        accepted_submission("a whole call", &call()),
        accepted_submission("no employee", &call_without("employeeId")),
        accepted_submission("employee null", &call_with("employeeId", Value::Null)),
        accepted_submission("no talk time", &call_without("talkTimeSec")),
        accepted_submission(
            "talk equal to duration",
            &call_with("talkTimeSec", json!(5)),
        ),
        accepted_submission("uuid of 128", &call_with("uuid", json!("u".repeat(128)))),
        accepted_submission("starts now", &call_with("startedAt", json!(now))),
        accepted_submission("outbound", &call_with("direction", json!("OUTBOUND"))),
        accepted_submission("a phone", &call_with("clientPhone", json!("+998901110001"))),
        accepted_submission(
            "a field that nobody knows",
            &call_with("color", json!("red")),
        ),
        derived_field("endedAt sent", "endedAt", json!(1_795_151_322)),
        derived_field("end_timestamp sent", "end_timestamp", json!(1_795_151_322)),
        derived_field("hangupCause sent", "hangupCause", json!("ANSWER")),
        derived_field("provider sent", "provider", json!("OPEN_API")),
        derived_field("uuid with its prefix", "uuid", json!("oapi-u-1")),
    ]
}

/// Returns the test case of a submission that has this status a second later.
fn final_status(
    section: &'static str,
    rule: &'static str,
    body: Value,
    status: &'static str,
) -> Row {
    scene(
        section,
        rule,
        move |core: &mut Sandbox| {
            let id = submit_accepted(core, NOW, &body);
            (now_plus(1), poll(&id))
        },
        200,
        json!({ "data": { "status": status } }),
    )
}

/// Returns the test case of an accepted submission `second`, sent `wait` seconds after `first`.
fn repeated_submission(rule: &'static str, first: Value, second: Value, wait: u64) -> Row {
    scene(
        "§4.5.4",
        rule,
        move |core: &mut Sandbox| {
            submit_accepted(core, NOW, &first);
            (now_plus(wait), submit(&second))
        },
        200,
        accepted_write(),
    )
}

fn outcomes() -> Vec<Row> {
    let unknown = call_with("leadId", json!(9));
    vec![
        final_status("§4.5.2", "written after its time", call(), "SUCCESS"),
        final_status(
            "§4.5.3",
            "unknown leadId: 200 first, then FAILED",
            unknown.clone(),
            "FAILED",
        ),
        final_status(
            "§4.5.3",
            "unknown employeeId",
            call_with("employeeId", json!(9)),
            "FAILED",
        ),
        final_status(
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
        repeated_submission("again after 200, pending", call(), call(), 0)
            .violation(ViolationKind::RepeatAfter200),
        repeated_submission("again after 200, written", call(), call(), 9)
            .violation(ViolationKind::RepeatAfter200),
        repeated_submission("again after FAILED, mended", unknown, call(), 9),
        repeated_submission(
            "the uuid of another call",
            call(),
            call_with("durationSec", json!(9)),
            9,
        )
        .violation(ViolationKind::UuidReused),
    ]
}
