//! Tests of §7.7 and Limits: the behavior of a client after a refusal, and the number of requests.

use super::rules::{Row, row, scene};
use super::rules_of_errors::invalid_token_body;
use super::{INFO, NOW, TOKEN, call, info, now_plus, submit};
use crate::{Request, Sandbox, ViolationKind};
use callbridge_call::EventTime;
use serde_json::{Value, json};

pub(super) fn rows() -> Vec<Row> {
    let mut rows = conduct();
    rows.extend(windows());
    rows.push(leak());
    rows
}

fn leak() -> Row {
    scene(
        "§5.1.1",
        "a token in the address",
        move |_: &mut Sandbox| {
            let mut leak = Request::get(INFO).with_token(TOKEN);
            leak.query = format!("token={TOKEN}");
            (NOW, leak)
        },
        200,
        json!({}),
    )
    .violation(ViolationKind::WrongHeader)
}

/// Returns the expected body of a 429.
fn rate_limit_body() -> Value {
    json!({
        "message": "Rate limit exceeded. Max 60 requests per minute.",
        "accept": false, "errors": null, "data": null,
    })
}

/// Returns a row in which a client sends `first` to a sandbox that `prepare` has changed, and
/// `second` half a minute later. `status` is the expected status of the second answer.
fn row_half_a_minute_later(
    rule: &'static str,
    first: Request,
    prepare: fn(&mut Sandbox),
    second: Request,
    status: u16,
) -> Row {
    scene(
        "§7.7",
        rule,
        move |core: &mut Sandbox| {
            prepare(core);
            core.handle(NOW, &first);
            (now_plus(30), second.clone())
        },
        status,
        json!({}),
    )
}

fn conduct() -> Vec<Row> {
    let bad = submit(&json!({}));
    let moved = Request::get("/v1/open-api/moved").with_token(TOKEN);
    vec![
        row_half_a_minute_later(
            "the same body after 400",
            bad.clone(),
            |_| (),
            bad.clone(),
            400,
        )
        .violation(ViolationKind::RepeatAfter400)
        .violation(ViolationKind::Invalid),
        row_half_a_minute_later("another body after 400", bad, |_| (), submit(&call()), 200),
        row_half_a_minute_later(
            "too soon after 401",
            info(),
            |core| core.revoke(TOKEN),
            info(),
            401,
        )
        .violation(ViolationKind::RepeatAfter401),
        row_half_a_minute_later(
            "too soon after 403",
            submit(&call()),
            |core| core.set_grants(NOW, Vec::new()),
            submit(&call()),
            403,
        )
        .violation(ViolationKind::RepeatAfter403),
        scene(
            "§7.7",
            "a minute after 401",
            |core| {
                core.revoke(TOKEN);
                core.handle(NOW, &info());
                (now_plus(60), info())
            },
            401,
            invalid_token_body(),
        ),
        row(
            "§4",
            "a redirect followed",
            moved,
            404,
            json!({ "data": null }),
        )
        .violation(ViolationKind::RedirectFollowed),
    ]
}

/// Returns a row in which a client sends `filler` `count` times at [`NOW`], and `token/info` this
/// many milliseconds later. `status` is the expected status of the last answer.
fn filled_window_row(
    rule: &'static str,
    count: u32,
    filler: &Request,
    later_ms: u64,
    status: u16,
) -> Row {
    let filler = filler.clone();
    let body = if status == 429 {
        rate_limit_body()
    } else {
        json!({ "accept": true })
    };
    scene(
        "Limits",
        rule,
        move |core: &mut Sandbox| {
            for _ in 0..count {
                core.handle(NOW, &filler);
            }
            let later: EventTime = NOW.plus(std::time::Duration::from_millis(later_ms));
            (later, info())
        },
        status,
        body,
    )
}

/// Adds the violation of a client that sends more requests than a window permits.
fn with_window_violation(row: Row) -> Row {
    row.violation(ViolationKind::WindowExceeded)
}

/// Returns the test cases about the rate: which requests count, and when a window ends.
fn windows() -> Vec<Row> {
    let unknown = Request::get(INFO).with_token("svc_pat_other");
    let missing = Request::get("/v1/open-api/none").with_token(TOKEN);
    vec![
        filled_window_row("the 60th", 59, &info(), 0, 200),
        with_window_violation(filled_window_row("the 61st", 60, &info(), 0, 429)),
        with_window_violation(filled_window_row(
            "the 61st at the last moment",
            60,
            &info(),
            59_999,
            429,
        )),
        filled_window_row("the window is over", 60, &info(), 60_000, 200),
        with_window_violation(filled_window_row(
            "a 400 counts",
            60,
            &submit(&json!({})),
            0,
            429,
        )),
        with_window_violation(filled_window_row("a 404 counts", 60, &missing, 0, 429)),
        with_window_violation(filled_window_row(
            "a 429 counts and does not move the window",
            90,
            &info(),
            59_999,
            429,
        )),
        filled_window_row("the window ends though 429s came", 90, &info(), 60_000, 200),
        filled_window_row("a 401 does not count", 90, &unknown, 0, 200),
        with_window_violation(scene(
            "Limits",
            "a 403 counts",
            |core| {
                core.set_grants(NOW, Vec::new());
                for _ in 0..60 {
                    core.handle(NOW, &submit(&call()));
                }
                (NOW, info())
            },
            429,
            rate_limit_body(),
        )),
        scene(
            "Limits",
            "a new token value has a fresh counter",
            |core| {
                for _ in 0..60 {
                    core.handle(NOW, &info());
                }
                core.issue_pat(NOW, "svc_pat_second", None);
                (NOW, Request::get(INFO).with_token("svc_pat_second"))
            },
            200,
            json!({ "accept": true }),
        )
        .violation(ViolationKind::FreshBudget),
        scene(
            "Limits",
            "the window opens with its first request, not on the minute",
            |core| {
                core.handle(now_plus(50), &info());
                for _ in 0..59 {
                    core.handle(now_plus(100), &info());
                }
                (now_plus(110), info())
            },
            200,
            json!({ "accept": true }),
        ),
    ]
}

/// Sends `token/info` this many times, and checks that each answer is a 200.
fn send_info(core: &mut Sandbox, second: u64, token: &str, times: usize) {
    for _ in 0..times {
        let request = Request::get(INFO).with_token(token);
        assert_eq!(core.handle(now_plus(second), &request).status, 200);
    }
}

#[test]
fn requests_of_old_and_new_token_share_one_budget() {
    let mut core = super::sandbox();
    send_info(&mut core, 0, TOKEN, 40);
    core.issue_pat(now_plus(20), "svc_pat_second", None);
    send_info(&mut core, 30, "svc_pat_second", 20);
    assert_eq!(
        core.violations().count(ViolationKind::FreshBudget),
        0,
        "60 in 60 s"
    );
    send_info(&mut core, 59, "svc_pat_second", 1);
    assert_eq!(
        core.violations().count(ViolationKind::FreshBudget),
        1,
        "61 by two tokens"
    );
    send_info(&mut core, 60, "svc_pat_second", 39);
    assert_eq!(
        core.violations().count(ViolationKind::FreshBudget),
        1,
        "the first 40 are over"
    );
}

#[test]
fn token_lifetime_is_limited_by_its_kind() {
    use crate::token::TokenKind;
    use callbridge_call::EpochSeconds;
    let late = Some(EpochSeconds::new(
        NOW.floor_seconds().get() + 1_000 * 86_400,
    ));
    let mut core = super::sandbox();
    core.issue_pat(NOW, "pat", late);
    core.issue(NOW, "access", TokenKind::Access, 1, None);
    let year = 365 * 86_400;
    assert!(core.token_works(now_plus(year - 1), "pat"));
    assert!(!core.token_works(now_plus(year), "pat"));
    assert!(core.token_works(now_plus(3_599), "access"));
    assert!(!core.token_works(now_plus(3_600), "access"));
}
