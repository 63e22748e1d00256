//! Tests of §2.2, §4.3, §4.6, §4.7, and §5.5: statuses of requests, `token/info`, and pages of the
//! journal.

use super::rules::{Row, row, scene};
use super::{INFO, NOW, TOKEN, call, call_with, filter, info, now_plus, poll, submit_accepted};
use crate::{Request, Sandbox, ViolationKind};
use callbridge_call::{EpochSeconds, EventTime};
use serde_json::{Value, json};

pub(super) fn rows() -> Vec<Row> {
    let mut rows = statuses();
    rows.extend(token_info());
    rows.extend(warnings());
    rows.extend(pages());
    rows.extend(page_faults());
    rows
}

/// Returns a scene that submits a call, and polls the call this many seconds later.
fn polled_after(seconds: u64) -> impl Fn(&mut Sandbox) -> (EventTime, Request) {
    move |core: &mut Sandbox| {
        let id = submit_accepted(core, NOW, &call());
        (now_plus(seconds), poll(&id))
    }
}

fn statuses() -> Vec<Row> {
    let day = 24 * 3600;
    let nothing = json!({ "data": null, "error": null, "errors": [], "requestId": null });
    vec![
        row(
            "§4.6",
            "a requestId never given",
            poll("no-such-id"),
            404,
            nothing.clone(),
        )
        .violation(ViolationKind::UnknownPoll),
        scene(
            "§4.6",
            "the last second of 24 hours",
            polled_after(day - 1),
            200,
            json!({ "data": { "status": "SUCCESS" } }),
        ),
        scene(
            "§4.6",
            "after 24 hours",
            polled_after(day),
            404,
            nothing.clone(),
        ),
        scene(
            "§3.2",
            "only the creating token",
            |core| {
                let id = submit_accepted(core, NOW, &call());
                core.issue_pat(now_plus(1), "svc_pat_second", None);
                let request = Request::get(&format!("/v1/open-api/request/{id}"));
                (now_plus(2), request.with_token("svc_pat_second"))
            },
            404,
            nothing,
        )
        .violation(ViolationKind::ForeignPoll),
    ]
}

fn token_info() -> Vec<Row> {
    let record = json!({ "data": {
        "application": { "id": 1, "name": "callbridge", "type": "PRIVATE" },
        "company": { "id": 1, "name": "Sandbox company" },
        "kind": "PAT", "expiresAt": null, "expiresInDays": 0,
        "permissions": [
            { "permission": "PERMISSION_OPEN_API_CALL", "scope": "SAVE" },
            { "permission": "PERMISSION_OPEN_API_CALL", "scope": "READ" },
        ],
    }, "requestId": null });
    vec![
        row("§2.2", "the record", info(), 200, record),
        scene(
            "§4.3",
            "needs no grant",
            |core| {
                core.set_grants(NOW, Vec::new());
                (NOW, info())
            },
            200,
            json!({ "data": { "permissions": [] } }),
        ),
        row(
            "§4.3",
            "has no body",
            Request {
                body: b"{}".to_vec(),
                ..info()
            },
            200,
            json!({ "accept": true }),
        )
        .violation(ViolationKind::WrongMethod),
        row(
            "§4.3",
            "is a GET",
            Request::post(INFO, &json!({})).with_token(TOKEN),
            405,
            json!({}),
        )
        .violation(ViolationKind::WrongMethod),
    ]
}

/// Seconds in a day.
const DAY: i64 = 86_400;

/// Returns the test case of a `token/info` request whose token expires in this many seconds. The
/// answer must contain `message`.
fn expiring_token(rule: &'static str, seconds: i64, message: &str) -> Row {
    let at = NOW.floor_seconds().get() + seconds;
    let days = seconds.div_euclid(DAY);
    scene(
        "§5.5",
        rule,
        move |core: &mut Sandbox| {
            core.expire(TOKEN, Some(EpochSeconds::new(at)));
            (NOW, info())
        },
        200,
        json!({ "message": message, "data": { "expiresAt": at, "expiresInDays": days } }),
    )
}

fn renew_message(when: &str) -> String {
    format!("Token will expire in {when}. Please renew it.")
}

fn warnings() -> Vec<Row> {
    vec![
        expiring_token("eight days", 8 * DAY, "Success"),
        expiring_token("a second above seven days", 7 * DAY + 1, "Success"),
        expiring_token("seven days", 7 * DAY, &renew_message("7 days")),
        expiring_token("two days", 2 * DAY, &renew_message("2 days")),
        expiring_token("one day, singular", DAY + 5, &renew_message("1 day")),
        expiring_token(
            "the last day",
            DAY - 1,
            "Token expires today. Please renew it.",
        ),
        scene(
            "§5.5",
            "on an accepted write too",
            |core| {
                let at = NOW.floor_seconds().get() + 3 * DAY;
                core.expire(TOKEN, Some(EpochSeconds::new(at)));
                (NOW, super::submit(&call()))
            },
            200,
            json!({ "message": renew_message("3 days"), "accept": true, "data": null }),
        ),
        scene(
            "§5.5",
            "never on an error",
            |core| {
                let at = NOW.floor_seconds().get() + 3 * DAY;
                core.expire(TOKEN, Some(EpochSeconds::new(at)));
                (NOW, poll("none"))
            },
            404,
            json!({ "message": "So‘rov topilmadi" }),
        )
        .violation(ViolationKind::UnknownPoll),
    ]
}

/// Writes five calls, u-1 to u-5, one second apart.
fn write_five_calls(core: &mut Sandbox) {
    for number in 1..=5_u64 {
        let body = call_with("uuid", json!(format!("u-{number}")));
        submit_accepted(core, now_plus(number), &body);
    }
    core.tick(now_plus(60));
}

/// Returns a row about a page of five calls. `body` is the request. The expected page has the calls
/// with these numbers, the number `current`, and the number of pages `total`.
fn page(rule: &'static str, body: Value, uuids: &[u64], current: u64, total: u64) -> Row {
    let rows: Vec<String> = uuids
        .iter()
        .map(|number| format!("oapi-u-{number}"))
        .collect();
    let expected = json!({ "data": {
        "content": rows, "currentPage": current, "totalPages": total,
    } });
    scene(
        "§4.7",
        rule,
        move |core: &mut Sandbox| {
            write_five_calls(core);
            // Each row is only a uuid, which identifies the row.
            core.settings
                .shapes
                .set("rows", "strings")
                .expect("a shape");
            (now_plus(60), filter(&body))
        },
        200,
        expected,
    )
}

fn ordered_page(order: &str) -> Value {
    json!({ "page": 1, "size": 2, "orders": { "registeredTimestamp": order } })
}

fn pages() -> Vec<Row> {
    let from = NOW.floor_seconds().get() + 4;
    vec![
        page(
            "uuids with their prefix",
            json!({ "page": 1, "size": 100 }),
            &[1, 2, 3, 4, 5],
            1,
            1,
        ),
        page(
            "the second page",
            json!({ "page": 2, "size": 2 }),
            &[3, 4],
            2,
            3,
        ),
        page("the last page", json!({ "page": 3, "size": 2 }), &[5], 3, 3),
        page(
            "behind the last page",
            json!({ "page": 4, "size": 2 }),
            &[],
            4,
            3,
        ),
        page("descending", ordered_page("DESC"), &[5, 4], 1, 3),
        page("ascending", ordered_page("ASC"), &[1, 2], 1, 3),
        page(
            "from a moment on",
            json!({ "page": 1, "size": 9, "registeredTimestampFrom": from }),
            &[3, 4, 5],
            1,
            1,
        ),
        page(
            "up to a moment",
            json!({ "page": 1, "size": 9, "registeredTimestampTo": from }),
            &[1, 2, 3],
            1,
            1,
        ),
        row(
            "§2.1",
            "an empty journal has no page",
            filter(&json!({ "page": 1, "size": 9 })),
            200,
            json!({ "data": { "content": [], "currentPage": 1, "totalPages": 0 } }),
        ),
    ]
}

fn invalid_page(rule: &'static str, body: &Value, field: &str, reason: &str) -> Row {
    let expected = json!({ "error": null, "errors": [{ "field": field, "reason": reason }] });
    row("§4.7", rule, filter(body), 400, expected).violation(ViolationKind::Invalid)
}

fn unparsable_page(rule: &'static str, body: &Value) -> Row {
    let expected = json!({ "error": { "messageCode": 3705 }, "errors": [] });
    row("§7.5", rule, filter(body), 400, expected).violation(ViolationKind::Invalid)
}

fn page_faults() -> Vec<Row> {
    vec![
        invalid_page("page 0", &json!({ "page": 0, "size": 9 }), "page", "MIN"),
        invalid_page("no page", &json!({ "size": 9 }), "page", "NOT_NULL"),
        invalid_page(
            "size 101",
            &json!({ "page": 1, "size": 101 }),
            "size",
            "MAX",
        ),
        invalid_page("size 0", &json!({ "page": 1, "size": 0 }), "size", "MIN"),
        invalid_page("no size", &json!({ "page": 1 }), "size", "NOT_NULL"),
        invalid_page(
            "milliseconds",
            &json!({ "page": 1, "size": 9, "registeredTimestampFrom": 1_795_151_317_000_i64 }),
            "registeredTimestampFrom",
            "VALID_EPOCH_SEC",
        ),
        unparsable_page("page as text", &json!({ "page": "1", "size": 9 })),
        unparsable_page(
            "orders as a list",
            &json!({ "page": 1, "size": 9, "orders": [] }),
        ),
        unparsable_page(
            "order in lower case",
            &json!({ "page": 1, "size": 9, "orders": { "id": "asc" } }),
        ),
    ]
}
