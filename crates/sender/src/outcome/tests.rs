//! Tests each row of the design's response table, and each verdict's effects.

use super::*;
use crate::testing::info;
use serde_json::json;
use strum::VariantArray as _;

/// Returns a verdict for a URL where the CRM has accepted a call.
fn verdict(endpoint: Endpoint, answer: ApiResult) -> Verdict {
    judge(endpoint, answer, true)
}

fn message() -> String {
    "xato".to_owned()
}

fn reason_text() -> String {
    "403: xato".to_owned()
}

fn server_error(status: u16, own: bool) -> ApiResult {
    Err(ApiError::Server {
        status,
        own,
        message: String::new(),
    })
}

fn rejection(status: u16, errors: Value) -> ApiResult {
    Err(ApiError::Rejected {
        status,
        message: message(),
        errors,
    })
}

fn is_failed(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Failed(_))
}

#[test]
fn a_200_with_request_id_is_accepted() {
    let answer = Ok(ApiReply::Accepted("r1".to_owned()));
    let accepted = verdict(Endpoint::Submit, answer);
    assert_eq!(accepted, Verdict::Accepted("r1".to_owned()));
    assert_eq!((accepted.word(), accepted.message()), ("submitted", ""));
}

#[test]
fn a_200_without_request_id_or_accept_false_is_a_failure() {
    for answer in [
        Err(ApiError::Unreadable("no requestId".to_owned())),
        server_error(200, true),
        Err(ApiError::Unreadable("no JSON".to_owned())),
    ] {
        assert!(is_failed(&verdict(Endpoint::Submit, answer)));
    }
}

#[test]
fn submit_400_is_refused_with_crm_message_and_errors() {
    let errors = json!([{"field": "startedAt", "reason": "VALID_EPOCH_SEC"}]);
    let refused = verdict(Endpoint::Submit, rejection(400, errors.clone()));
    let message = "400: xato".to_owned();
    let expected = Verdict::Refused(Reason::Rejected, message, errors);
    assert_eq!(refused, expected);
    assert_eq!(
        (refused.word(), refused.message()),
        ("rejected", "400: xato")
    );
}

#[test]
fn submit_409_is_a_conflict_and_any_other_4xx_rejected() {
    let conflict = verdict(Endpoint::Submit, rejection(409, Value::Null));
    let message = "409: xato".to_owned();
    let expected = Verdict::Refused(Reason::Conflict, message, Value::Null);
    assert_eq!(conflict, expected);
    for status in [402, 407, 410, 412, 413, 418, 422, 423, 431, 451, 499] {
        let other = verdict(Endpoint::Submit, rejection(status, Value::Null));
        assert_eq!(other.word(), "rejected", "{status}");
    }
}

#[test]
fn a_401_or_406_refuses_the_token_on_every_endpoint() {
    for &endpoint in Endpoint::VARIANTS {
        let refused = verdict(endpoint, Err(ApiError::UNAUTHORIZED));
        assert_eq!(refused, Verdict::TokenRefused("401".to_owned()));
        let state = ApiError::TokenRefused {
            status: 406,
            message: message(),
        };
        let refused = verdict(endpoint, Err(state));
        assert_eq!(refused, Verdict::TokenRefused("406: xato".to_owned()));
    }
}

#[test]
fn a_403_means_a_missing_grant_except_on_token_info() {
    for endpoint in [Endpoint::Submit, Endpoint::Poll, Endpoint::Filter] {
        let refused = verdict(endpoint, Err(ApiError::Forbidden(message())));
        assert_eq!(refused, Verdict::NotGranted(reason_text()));
    }
    let record = verdict(Endpoint::TokenInfo, Err(ApiError::Forbidden(message())));
    assert!(is_failed(&record));
}

fn wrong_address_errors(own: bool) -> [ApiError; 4] {
    let not_found = ApiError::NotFound {
        own,
        message: String::new(),
    };
    let [found, not_allowed, media_type] =
        [302, 405, 415].map(|status| ApiError::WrongAddress { status, own });
    [not_found, found, not_allowed, media_type]
}

#[test]
fn submit_404_405_415_3xx_in_envelope_is_a_wrong_address() {
    for endpoint in [Endpoint::Submit, Endpoint::TokenInfo] {
        for error in wrong_address_errors(true) {
            let status = error.to_string();
            let wrong = verdict(endpoint, Err(error));
            assert_eq!(wrong, Verdict::WrongAddress(status));
        }
    }
}

#[test]
fn proxy_404_is_a_failure_once_a_call_was_accepted() {
    for endpoint in [Endpoint::Submit, Endpoint::TokenInfo] {
        for error in wrong_address_errors(false) {
            let before = judge(endpoint, Err(error.clone()), false);
            assert!(matches!(before, Verdict::WrongAddress(_)), "{before:?}");
            assert!(is_failed(&judge(endpoint, Err(error), true)));
        }
    }
}

#[test]
fn poll_404_in_envelope_loses_the_request_id() {
    let [found, others @ ..] = wrong_address_errors(true);
    assert_eq!(
        verdict(Endpoint::Poll, Err(found)),
        Verdict::Lost("404".to_owned())
    );
    for error in others.into_iter().chain(wrong_address_errors(false)) {
        assert!(is_failed(&verdict(Endpoint::Poll, Err(error))));
    }
    let lost = verdict(Endpoint::Poll, rejection(400, Value::Null));
    assert_eq!(lost, Verdict::Lost("400: xato".to_owned()));
}

#[test]
fn page_400_max_means_too_large_and_other_4xx_refused() {
    for errors in [
        json!([{"field": "size", "reason": "MAX"}]),
        json!([{"reason": "max"}]),
    ] {
        let refused = verdict(Endpoint::Filter, rejection(400, errors));
        assert_eq!(refused.kind(), VerdictKind::PageTooLarge);
    }
    for errors in [
        json!([{"field": "registeredTimestampFrom", "reason": "MAX"}]),
        json!([{"field": "size", "reason": "MIN"}]),
        Value::Null,
    ] {
        let refused = verdict(Endpoint::Filter, rejection(400, errors));
        assert_eq!(refused.kind(), VerdictKind::PageRefused);
    }
    for error in wrong_address_errors(true) {
        let refused = verdict(Endpoint::Filter, Err(error));
        assert_eq!(refused.kind(), VerdictKind::PageRefused);
    }
    for error in wrong_address_errors(false) {
        assert!(is_failed(&verdict(Endpoint::Filter, Err(error))));
    }
}

#[test]
fn token_info_4xx_is_a_failure() {
    for status in [400, 409, 422] {
        let answer = rejection(status, Value::Null);
        assert!(is_failed(&verdict(Endpoint::TokenInfo, answer)));
    }
}

#[test]
fn a_429_limits_the_rate_everywhere() {
    for &endpoint in Endpoint::VARIANTS {
        for own in [true, false] {
            let limited = verdict(endpoint, Err(ApiError::TooMany(own)));
            assert_eq!(limited, Verdict::RateLimited);
        }
    }
}

#[test]
fn a_5xx_timeout_reset_or_proxy_4xx_is_a_failure() {
    for answer in [
        server_error(400, false),
        server_error(401, false),
        server_error(403, false),
        server_error(409, false),
        server_error(500, true),
        server_error(502, false),
        Err(ApiError::TimedOut),
        Err(ApiError::Lost("reset".to_owned())),
    ] {
        for &endpoint in Endpoint::VARIANTS {
            assert!(is_failed(&verdict(endpoint, answer.clone())));
        }
    }
}

#[test]
fn no_connection_or_refused_tls_means_unreachable() {
    for answer in [
        Err(ApiError::NotConnected("refused".to_owned())),
        Err(ApiError::TlsRefused("expired".to_owned())),
    ] {
        for &endpoint in Endpoint::VARIANTS {
            let unreachable = verdict(endpoint, answer.clone());
            assert_eq!(unreachable.kind(), VerdictKind::Unreachable);
        }
    }
}

#[test]
fn late_request_is_returned_without_a_failure() {
    for &endpoint in Endpoint::VARIANTS {
        let too_late = verdict(endpoint, Err(ApiError::TooLate));
        assert_eq!(too_late.kind(), VerdictKind::TooLate);
        let effects = effects(endpoint, too_late);
        assert!(matches!(&effects[..], [Effect::GiveBack(_)]), "{effects:?}");
    }
}

#[test]
fn unknown_status_or_body_is_a_failure_on_every_endpoint() {
    for (status, body) in [
        (101, "{}"),
        (200, ""),
        (200, "<html>welcome</html>"),
        (200, "[]"),
        (200, "{\"accept\":true"),
        (204, ""),
        (600, "{}"),
        (999, "{}"),
        (503, "<html>bad gateway</html>"),
    ] {
        for &endpoint in Endpoint::VARIANTS {
            let answer = callbridge_crm::read(endpoint, status, body.as_bytes()).answer;
            let failed = verdict(endpoint, answer);
            assert!(is_failed(&failed), "{status} {body}: {failed:?}");
        }
    }
}

#[test]
fn failed_status_is_refused_with_its_message_or_known_causes() {
    for (text, message) in [("lead not found", "lead not found"), ("", FAILED)] {
        let errors = json!([{"field": "employeeId", "reason": "NOT_FOUND"}]);
        let status = WriteStatus::Failed(FailureWord::Failed, text.to_owned(), errors.clone());
        let failed = verdict(Endpoint::Poll, Ok(ApiReply::Status(status)));
        let expected = Verdict::Refused(Reason::Failed, message.to_owned(), errors);
        assert_eq!(failed, expected);
        assert_eq!(failed.word(), "failed");
    }
}

#[test]
fn success_is_journaled_and_an_unknown_status_is_pending() {
    let unknown = WriteStatus::Pending("WHATEVER".to_owned());
    for (status, expected) in [
        (WriteStatus::Success, Verdict::Journaled),
        (unknown, Verdict::Pending),
    ] {
        let polled = verdict(Endpoint::Poll, Ok(ApiReply::Status(status)));
        assert_eq!(polled, expected);
    }
}

#[test]
fn token_info_and_page_are_read_and_other_data_fails() {
    let record = verdict(Endpoint::TokenInfo, Ok(ApiReply::TokenInfo(info())));
    assert_eq!(record, Verdict::Record(info()));
    let page = verdict(Endpoint::Filter, Ok(ApiReply::Page(Page::default())));
    assert_eq!(page, Verdict::Page(Page::default()));
    assert!(is_failed(&verdict(
        Endpoint::Submit,
        Ok(ApiReply::Data(json!({})))
    )));
}

/// Promise: Each answer of the CRM has one consequence.
#[test]
fn each_http_status_has_the_verdict_of_the_table() {
    let body = json!({"message": "xato", "accept": false, "data": null}).to_string();
    for (statuses, submit, token_info) in [
        (
            &[301, 302, 304, 307, 308][..],
            "wrong_address",
            "wrong_address",
        ),
        (&[404, 405, 415], "wrong_address", "wrong_address"),
        (&[400, 422], "rejected", "failure"),
        (&[401, 406], "token_refused", "token_refused"),
        (&[403], "no_grant", "failure"),
        (&[409], "conflict", "failure"),
        (&[429], "rate_limited", "rate_limited"),
        (&[500, 502, 503, 504, 599, 600], "failure", "failure"),
    ] {
        for status in statuses {
            for (endpoint, word) in [
                (Endpoint::Submit, submit),
                (Endpoint::TokenInfo, token_info),
            ] {
                let answer = callbridge_crm::read(endpoint, *status, body.as_bytes()).answer;
                let judged = verdict(endpoint, answer);
                assert_eq!(judged.word(), word, "{status} of {endpoint}");
            }
        }
    }
}

/// Returns one verdict of each kind.
fn verdicts() -> Vec<Verdict> {
    vec![
        Verdict::Accepted("r1".to_owned()),
        Verdict::Journaled,
        Verdict::Pending,
        Verdict::Record(info()),
        Verdict::Page(Page::default()),
        Verdict::PageTooLarge(reason_text()),
        Verdict::PageRefused(reason_text()),
        Verdict::Lost(reason_text()),
        Verdict::Refused(Reason::Conflict, reason_text(), Value::Null),
        Verdict::NotGranted(reason_text()),
        Verdict::TokenRefused(reason_text()),
        Verdict::WrongAddress(reason_text()),
        Verdict::Failed(reason_text()),
        Verdict::Unreachable(reason_text()),
        Verdict::TooLate(reason_text()),
        Verdict::RateLimited,
    ]
}

#[test]
fn each_verdict_has_its_word_message_and_retry() {
    let mut table = Vec::new();
    for verdict in verdicts() {
        let kind = verdict.kind();
        let again = if kind.is_again() { "again" } else { "done" };
        let message = if verdict.message().is_empty() {
            "-"
        } else {
            "message"
        };
        table.push(format!("{kind:?} {} {again} {message}", verdict.word()));
    }
    insta::assert_snapshot!(table.join("\n"), @r"
    Accepted submitted done -
    Journaled journaled done -
    Pending pending done -
    Record token_valid done -
    Page page_read done -
    PageTooLarge page_refused again message
    PageRefused page_refused again message
    Lost lost again message
    Refused conflict done message
    NotGranted no_grant again message
    TokenRefused token_refused again message
    WrongAddress wrong_address again message
    Failed failure again message
    Unreachable failure again message
    TooLate too_late again message
    RateLimited rate_limited again -
    ");
    let kinds: Vec<VerdictKind> = verdicts().iter().map(Verdict::kind).collect();
    assert_eq!(kinds, VerdictKind::VARIANTS);
}

fn pause_effects(pause: Pause) -> Vec<Effect> {
    vec![
        Effect::EndpointWorks,
        Effect::Pause(pause),
        Effect::GiveBack(reason_text()),
    ]
}

#[test]
fn each_verdict_has_the_effects_of_the_table() {
    let works = Effect::EndpointWorks;
    let back = Effect::GiveBack(reason_text());
    let expected = [
        vec![works.clone(), Effect::CallAccepted("r1".to_owned())],
        vec![works.clone(), Effect::CallJournaled],
        vec![works.clone(), Effect::GiveBack(String::new())],
        vec![works.clone(), Effect::ReadRecord(info())],
        vec![works.clone(), Effect::ReadPage(Page::default())],
        vec![works.clone(), Effect::ShrinkPages],
        vec![works.clone(), Effect::RestPages],
        vec![works.clone(), Effect::RequestIdLost(reason_text())],
        vec![
            works.clone(),
            Effect::CallRefused(Reason::Conflict, reason_text(), Value::Null),
        ],
        pause_effects(Pause::NoGrant(reason_text())),
        pause_effects(Pause::TokenRefused(reason_text())),
        pause_effects(Pause::WrongAddress(reason_text())),
        vec![
            Effect::EndpointFails(reason_text()),
            Effect::CallFailed(reason_text()),
        ],
        vec![Effect::CrmUnreachable(reason_text()), back.clone()],
        vec![back.clone()],
        vec![Effect::GiveBack("429".to_owned())],
    ];
    assert_eq!(verdicts().len(), expected.len());
    for (verdict, expected) in verdicts().into_iter().zip(expected) {
        assert_eq!(effects(Endpoint::Submit, verdict), expected);
    }
    let refused = effects(Endpoint::Poll, Verdict::NotGranted(reason_text()));
    assert_eq!(
        refused,
        [works, Effect::RestEndpoint(reason_text()), back.clone()]
    );
    let failed = effects(Endpoint::Filter, Verdict::Failed(reason_text()));
    assert_eq!(failed, [Effect::EndpointFails(reason_text()), back]);
}
