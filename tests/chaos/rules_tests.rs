//! Tests that the judge finds each violation. Each violation has a handmade example.

use crate::support::judge::left::{SpoolContents, Stored};
use crate::support::judge::rules::{Law, Times, breaches};
use crate::support::judge::seen::{Answered, Seen};
use crate::support::judge::truth;
use callbridge_testbed::expected::Expected;
use serde_json::{Value, json};
use std::time::Duration;

const HOST: &str = "127.0.0.1:8480";
const UUID: &str = "6a5c2b64-0000-5000-8000-000000000001";

fn law() -> Law {
    Law {
        requests: 60,
        window: Duration::from_secs(60),
        host: HOST.to_owned(),
        refused_pages: 1,
        again: false,
    }
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Returns a request with the token `t` at this time, answered 10 ms later.
fn request(at: u64, method: &str, path: &str, status: u16, answer: &Value) -> Seen {
    Seen {
        at: ms(at),
        method: method.to_owned(),
        path: format!("/v1/open-api/{path}"),
        headers: vec![
            header("x-open-api-token", "t"),
            header("host", HOST),
            header("content-type", "application/json"),
        ],
        answer: Some(Answered {
            status,
            body: answer.to_string().into_bytes(),
            whole: true,
        }),
        told: Some(ms(at + 9)),
        ended: Some(ms(at + 10)),
        ..Seen::default()
    }
}

fn header(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

fn acceptance(id: &str) -> Value {
    json!({"accept": true, "requestId": id})
}

fn submission(at: u64, status: u16, answer: &Value) -> Seen {
    Seen {
        body: json!({"uuid": UUID, "leadId": 4001})
            .to_string()
            .into_bytes(),
        ..request(at, "POST", "call-history", status, answer)
    }
}

fn poll(at: u64, id: &str) -> Seen {
    let answer = json!({"data": "PENDING"});
    request(at, "GET", &format!("request/{id}"), 200, &answer)
}

fn info(at: u64, status: u16) -> Seen {
    request(at, "GET", "token/info", status, &Value::Null)
}

/// Checks that there is exactly one violation, whose text contains `words`.
fn assert_breach(words: &str, seen: &[Seen], times: &Times) {
    let all = breaches(seen, times, &law());
    assert!(all.len() == 1 && all[0].contains(words), "{words}: {all:?}");
}

fn assert_no_breach(seen: &[Seen], times: &Times) {
    assert_eq!(breaches(seen, times, &law()), [""; 0]);
}

#[test]
fn submitted_and_polled_call_is_no_breach() {
    let seen = [
        info(0, 200),
        submission(100, 200, &acceptance("a")),
        poll(2_100, "a"),
        poll(5_100, "a"),
    ];
    assert_no_breach(&seen, &Times::default());
}

#[test]
fn over_60_requests_in_window_and_429_are_breaches() {
    let many: Vec<Seen> = (0..61).map(|n| info(30_000 + n * 900, 200)).collect();
    assert_breach("61 requests", &many, &Times::default());
    let mut apart = many;
    apart[60].at = ms(90_000);
    assert_no_breach(&apart, &Times::default());
    let limited = [info(0, 429)];
    assert_breach("429", &limited, &Times::default());
}

/// Returns the spool after a kill, with the call in this state.
fn spool_with_call(state: &str, request_id: Option<&str>) -> SpoolContents {
    let call = Stored {
        state: state.to_owned(),
        request_id: request_id.map(str::to_owned),
    };
    SpoolContents {
        calls: [(UUID.to_owned(), call)].into(),
        refused: None,
    }
}

/// Returns the events of a test with one kill, which left this spool.
fn times_with_kill(left: SpoolContents) -> Times {
    Times {
        kills: vec![left],
        ..Times::default()
    }
}

fn seen_in_life(life: usize, seen: Seen) -> Seen {
    Seen { life, ..seen }
}

#[test]
fn repeat_after_lost_200_is_allowed_only_without_journal() {
    let seen = [
        submission(0, 200, &acceptance("a")),
        submission(5_000, 200, &acceptance("b")),
    ];
    assert_breach("sent again after a 200", &seen, &Times::default());
    let seen = [seen[0].clone(), seen_in_life(1, seen[1].clone())];
    let blind = Law {
        again: true,
        ..law()
    };
    // The time since the answer does not matter: the spool shows whether it was stored.
    let lost = times_with_kill(spool_with_call("sending", None));
    assert_breach("sent again after a 200", &seen, &lost);
    assert_eq!(breaches(&seen, &lost, &blind), [""; 0]);
    for kept in [
        spool_with_call("submitted", Some("a")),
        spool_with_call("journaled", None),
    ] {
        assert_eq!(breaches(&seen, &times_with_kill(kept), &blind).len(), 1);
    }
}

/// Returns a submission of the n-th call, answered with the request id `id-n`.
fn numbered_submission(n: u64) -> Seen {
    let uuid = format!("6a5c2b64-0000-5000-8000-{n:012}");
    let body = json!({"uuid": uuid, "leadId": 4001}).to_string();
    let answer = acceptance(&format!("id-{n}"));
    Seen {
        body: body.into_bytes(),
        ..submission(n * 1_000, 200, &answer)
    }
}

/// Returns the events of a test with one kill, after which the spool has the answers of the
/// submissions from `from` to 8.
fn times_with_answers(from: u64) -> Times {
    let calls = (from..9).map(|n| {
        let call = Stored {
            state: "submitted".to_owned(),
            request_id: Some(format!("id-{n}")),
        };
        (format!("6a5c2b64-0000-5000-8000-{n:012}"), call)
    });
    times_with_kill(SpoolContents {
        calls: calls.collect(),
        refused: None,
    })
}

#[test]
fn lost_answer_before_eight_stored_answers_is_breach() {
    let seen: Vec<Seen> = (0..9).map(numbered_submission).collect();
    assert_no_breach(&seen, &times_with_answers(0));
    assert_no_breach(&seen, &times_with_answers(2));
    assert_breach("was not written down", &seen, &times_with_answers(1));
}

#[test]
fn poll_after_outcome_is_allowed_if_kill_lost_outcome() {
    let mut done = poll(2_000, "a");
    done.answer.as_mut().expect("answered").body = b"{\"data\":\"SUCCESS\"}".to_vec();
    let given = submission(0, 200, &acceptance("a"));
    let seen = [given, done, seen_in_life(1, poll(60_000, "a"))];
    assert_no_breach(
        &seen,
        &times_with_kill(spool_with_call("submitted", Some("a"))),
    );
    let kept = times_with_kill(spool_with_call("journaled", Some("a")));
    assert_breach("after its outcome", &seen, &kept);
}

#[test]
fn token_check_repeated_after_kill_is_breach() {
    let seen = [
        submission(0, 401, &Value::Null),
        seen_in_life(1, info(20_000, 401)),
        seen_in_life(1, info(40_000, 401)),
    ];
    let print = uuid::Uuid::new_v5(&uuid::Uuid::nil(), b"t")
        .simple()
        .to_string();
    let known = SpoolContents {
        refused: Some(print[16..].to_owned()),
        ..SpoolContents::default()
    };
    for (left, message) in [
        (
            SpoolContents::default(),
            "the second question of the second life",
        ),
        (known, "one of them may have been under way"),
    ] {
        let all = breaches(&seen, &times_with_kill(left), &law());
        assert_eq!(all.len(), 1, "{message}");
    }
    let mut seen = seen.to_vec();
    seen.insert(1, seen_in_life(1, info(15_000, 401)));
    assert_breach(
        "asked about again after 5",
        &seen[..3],
        &times_with_kill(SpoolContents::default()),
    );
}

#[test]
fn uuid_resent_after_a_damaged_answer_is_allowed() {
    let mut seen = [
        submission(0, 200, &acceptance("a")),
        submission(5_000, 200, &acceptance("b")),
    ];
    seen[0].answer.as_mut().expect("answered").whole = false;
    assert_no_breach(&seen, &Times::default());
}

#[test]
fn uuid_resent_changed_or_refused_or_concurrent_is_breach() {
    let mut changed = [
        submission(0, 500, &Value::Null),
        submission(5_000, 200, &acceptance("b")),
    ];
    assert_no_breach(&changed, &Times::default());
    changed[1].body = json!({"uuid": UUID, "leadId": 4002})
        .to_string()
        .into_bytes();
    assert_breach("changed when sent again", &changed, &Times::default());
    let refused = [
        submission(0, 400, &Value::Null),
        submission(5_000, 200, &acceptance("b")),
    ];
    assert_breach("after its refusal", &refused, &Times::default());
    let twice = [
        submission(0, 500, &Value::Null),
        submission(5, 200, &acceptance("b")),
    ];
    assert_breach("at the same time", &twice, &Times::default());
}

#[test]
fn refused_token_is_checked_once_a_minute_and_not_used() {
    assert_no_breach(
        &[info(0, 401), info(60_000, 401), info(120_000, 200)],
        &Times::default(),
    );
    assert_breach(
        "asked about again",
        &[info(0, 401), info(20_000, 401)],
        &Times::default(),
    );
    let mut used = [
        info(0, 401),
        request(40_000, "POST", "call-history/filter", 401, &Value::Null),
        submission(41_000, 401, &Value::Null),
    ];
    used[1].body = json!({"page": 1, "size": 1}).to_string().into_bytes();
    let all = breaches(&used, &Times::default(), &law());
    assert_eq!(
        all.iter()
            .filter(|breach| breach.contains("refused token"))
            .count(),
        2,
        "{all:?}"
    );
}

fn denied_submission(at: u64) -> Seen {
    submission(at, 403, &Value::Null)
}

#[test]
fn missing_grant_is_not_tried_again_within_a_minute() {
    assert_breach(
        "after its 403",
        &[denied_submission(0), denied_submission(40_000)],
        &Times::default(),
    );
    assert_no_breach(
        &[
            denied_submission(0),
            info(10_000, 200),
            denied_submission(40_000),
        ],
        &Times::default(),
    );
    // Only the requests that were under way during the refusal can arrive after it.
    let late = [
        denied_submission(0),
        denied_submission(20),
        denied_submission(900),
        denied_submission(5_000),
    ];
    assert_no_breach(&late, &Times::default());
    let more = [&late[..], &[denied_submission(9_000)]].concat();
    assert_breach("after its 403", &more, &Times::default());
}

#[test]
fn unknown_foreign_rapid_or_late_poll_is_breach() {
    assert_breach("never given", &[poll(0, "a")], &Times::default());
    let given = submission(0, 200, &acceptance("a"));
    let mut foreign = poll(2_000, "a");
    foreign.headers[0].1 = "u".to_owned();
    assert_breach(
        "another token",
        &[given.clone(), foreign],
        &Times::default(),
    );
    let hurried = [given.clone(), poll(2_000, "a"), poll(2_100, "a")];
    assert_breach("busy loop", &hurried, &Times::default());
    let mut done = poll(2_000, "a");
    done.answer.as_mut().expect("answered").body = b"{\"data\":\"SUCCESS\"}".to_vec();
    let over = [given, done, poll(9_000, "a")];
    assert_breach("after its outcome", &over, &Times::default());
}

#[test]
fn wrong_headers_paths_hosts_and_fields_are_found() {
    let mut two = info(0, 200);
    two.headers.push(two.headers[0].clone());
    assert_breach("not one token", &[two], &Times::default());
    let mut bearer = info(0, 200);
    bearer
        .headers
        .push(("authorization".to_owned(), "Bearer t".to_owned()));
    assert_breach("Authorization", &[bearer], &Times::default());
    let mut foreign = info(0, 200);
    foreign.headers[1].1 = "elsewhere".to_owned();
    assert_breach("another host", &[foreign], &Times::default());
    let unknown = request(0, "GET", "moved", 404, &Value::Null);
    assert_breach("no such endpoint", &[unknown], &Times::default());
    let mut page = request(0, "POST", "call-history/filter", 200, &Value::Null);
    page.body = json!({"page": 1, "size": 100, "uuids": []})
        .to_string()
        .into_bytes();
    assert_breach("not published", &[page.clone()], &Times::default());
    page.body = json!({"page": 1, "size": 101}).to_string().into_bytes();
    assert_breach("no such size", &[page], &Times::default());
    let mut bare = submission(0, 400, &Value::Null);
    bare.headers.pop();
    assert_breach("no JSON type", &[bare], &Times::default());
    let elsewhere = Times {
        elsewhere: 1,
        ..Times::default()
    };
    assert_breach("redirect", &[], &elsewhere);
}

fn call() -> (Expected, Value) {
    let expected = Expected {
        linkedid: "1795151317.146".to_owned(),
        uuid: UUID.to_owned(),
        lead: Some(4001),
        reason: None,
        employee: Some(501),
        direction: "INBOUND".to_owned(),
        answered: true,
        started_at: 1_795_151_317,
        duration: 5.2,
        talk: 4.1,
    };
    let row = json!({
        "sentUuid": UUID, "uuid": format!("oapi-{UUID}"), "leadId": 4001, "employeeId": 501,
        "direction": "INBOUND", "answered": true, "startedAt": 1_795_151_317_i64,
        "durationSec": 5, "talkTimeSec": 4, "endedAt": 1_795_151_322_i64,
        "hangupCause": "ANSWER", "provider": "OPEN_API", "companyId": 1,
        "clientPhone": null, "others": {},
    });
    (expected, row)
}

#[test]
fn journal_record_is_correct_only_if_every_field_matches() {
    let (expected, row) = call();
    let expected = [expected];
    assert_eq!(truth::journal(&json!([row]), &expected), [""; 0]);
    for (name, value) in [
        ("leadId", json!(4002)),
        ("employeeId", json!(null)),
        ("direction", json!("OUTBOUND")),
        ("answered", json!(false)),
        ("startedAt", json!(1_795_151_318_i64)),
        ("durationSec", json!(7)),
        ("talkTimeSec", json!(6)),
        ("endedAt", json!(0)),
        ("hangupCause", json!("BUSY")),
        ("companyId", json!(2)),
        ("clientPhone", json!("+998901110001")),
        ("others", json!({"a": 1})),
        ("uuid", json!(UUID)),
    ] {
        let mut changed = row.clone();
        changed[name] = value;
        let wrong = truth::journal(&json!([changed]), &expected);
        assert!(!wrong.is_empty(), "{name} is not looked at");
    }
}

#[test]
fn missing_duplicate_or_invented_record_is_reported() {
    let (expected, row) = call();
    let expected = [expected];
    assert!(truth::journal(&json!([]), &expected)[0].starts_with("missing"));
    let twice = truth::journal(&json!([row, row]), &expected);
    assert!(twice[0].starts_with("doubled"), "{twice:?}");
    let invented = truth::journal(&json!([row]), &[]);
    assert!(invented[0].starts_with("invented"), "{invented:?}");
}
