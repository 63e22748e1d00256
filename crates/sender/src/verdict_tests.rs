//! One test for each row of the design's table of answers.

use super::*;
use serde_json::json;
use strum::VariantArray;

const NEEDED: [Endpoint; 2] = [Endpoint::Submit, Endpoint::TokenInfo];

fn first(endpoint: Endpoint, answer: ApiResult) -> Verdict {
    judge(endpoint, answer, Context::default())
}

fn is_fault(verdict: &Verdict) -> bool {
    matches!(
        verdict,
        Verdict::Fault(fault, _) if *fault != Fault::Unreached
    )
}

fn stopped(verdict: &Verdict) -> Option<StopReason> {
    match verdict {
        Verdict::Stop(stop, _) => Some(*stop),
        Verdict::Submitted { .. }
        | Verdict::Journaled
        | Verdict::NotYet
        | Verdict::Known(_)
        | Verdict::PageShown(_)
        | Verdict::PageRefused { .. }
        | Verdict::Dead { .. }
        | Verdict::Unpolled { .. }
        | Verdict::Lost { .. }
        | Verdict::Fault { .. }
        | Verdict::TooMany { .. } => None,
    }
}

fn message() -> String {
    "xato".to_owned()
}

#[test]
fn a_200_with_request_id_is_submitted() {
    let request_id = "r1".to_owned();
    let answer = Ok(ApiReply::Accepted(request_id.clone()));
    assert_eq!(
        first(Endpoint::Submit, answer),
        Verdict::Submitted(request_id)
    );
}

#[test]
fn a_200_without_one_or_accept_false_or_a_broken_body_is_as_5xx() {
    for answer in [
        Err(ApiError::Unreadable(
            "accepted, but without a requestId".to_owned(),
        )),
        Err(ApiError::Server {
            status: 200,
            own: true,
            message: message(),
        }),
        Err(ApiError::Unreadable("no JSON".to_owned())),
    ] {
        assert!(is_fault(&first(Endpoint::Submit, answer)));
    }
}

#[test]
fn submit_400_is_dead_letter_with_crm_message_and_errors() {
    let errors = json!([{"field": "startedAt", "reason": "VALID_EPOCH_SEC"}]);
    let answer = Err(ApiError::Rejected {
        status: 400,
        message: message(),
        errors: errors.clone(),
    });
    let message = "400: xato".to_owned();
    let dead = Verdict::Dead(Reason::Rejected, message, errors);
    assert_eq!(first(Endpoint::Submit, answer), dead);
}

#[test]
fn a_401_or_406_halts_for_the_token() {
    for &endpoint in Endpoint::VARIANTS {
        let dead = first(endpoint, Err(ApiError::UNAUTHORIZED));
        assert_eq!(stopped(&dead), Some(StopReason::TokenRefused));
        let state = first(
            endpoint,
            Err(ApiError::TokenRefused {
                status: 406,
                message: message(),
            }),
        );
        assert_eq!(stopped(&state), Some(StopReason::TokenRefused));
    }
}

#[test]
fn a_403_halts_for_the_grant_of_its_endpoint() {
    for endpoint in NEEDED {
        let verdict = first(endpoint, Err(ApiError::Forbidden(message())));
        assert_eq!(stopped(&verdict), Some(StopReason::NoGrant(endpoint)));
    }
    let poll = first(Endpoint::Poll, Err(ApiError::Forbidden(message())));
    let why = "403: xato".to_owned();
    assert_eq!(poll, Verdict::Unpolled(why));
    let filter = first(Endpoint::Filter, Err(ApiError::Forbidden(message())));
    assert_eq!(
        filter,
        Verdict::PageRefused(Bar::Barred, "403: xato".to_owned())
    );
}

#[test]
fn a_404_405_415_or_3xx_on_submit_halts_for_the_address() {
    for own in [true, false] {
        let message = message();
        let missing = first(Endpoint::Submit, Err(ApiError::NotFound { own, message }));
        assert_eq!(stopped(&missing), Some(StopReason::WrongAddress), "{own}");
    }
    for status in [302, 405, 415] {
        for endpoint in [Endpoint::Submit, Endpoint::Poll, Endpoint::TokenInfo] {
            let verdict = first(endpoint, Err(ApiError::WrongAddress(status)));
            assert_eq!(stopped(&verdict), Some(StopReason::WrongAddress));
        }
    }
}

#[test]
fn a_404_on_a_poll_makes_the_call_an_orphan() {
    let missing = |own| {
        Err(ApiError::NotFound {
            own,
            message: String::new(),
        })
    };
    let why = || "404".to_owned();
    let lost = first(Endpoint::Poll, missing(true));
    assert_eq!(lost, Verdict::Lost(why()));
    let between = first(Endpoint::Poll, missing(false));
    let fault = Fault::Gateway;
    assert_eq!(between, Verdict::Fault(fault, why()));
}

#[test]
fn a_refused_sweep_stops_nothing_and_says_what_to_do_about_it() {
    let bar = |answer| match first(Endpoint::Filter, answer) {
        Verdict::PageRefused(bar, _) => bar,
        other => panic!("{other:?}"),
    };
    let rejected = |errors| {
        Err(ApiError::Rejected {
            status: 400,
            message: message(),
            errors,
        })
    };
    let max = json!([{"field": "size", "reason": "MAX"}]);
    assert_eq!(bar(rejected(max)), Bar::TooLarge);
    assert_eq!(bar(rejected(json!([{"reason": "max"}]))), Bar::TooLarge);
    let page = json!([{"field": "registeredTimestampFrom", "reason": "MAX"}]);
    for errors in [
        page,
        json!([{"field": "size", "reason": "MIN"}]),
        Value::Null,
    ] {
        assert_eq!(bar(rejected(errors)), Bar::Refused);
    }
    let missing = Err(ApiError::NotFound {
        own: true,
        message: message(),
    });
    let forbidden = Err(ApiError::Forbidden(message()));
    for answer in [missing, forbidden, Err(ApiError::WrongAddress(405))] {
        assert_eq!(bar(answer), Bar::Barred);
    }
}

#[test]
fn a_409_is_a_dead_letter_conflict_and_any_other_4xx_rejected() {
    let conflict = Err(ApiError::Rejected {
        status: 409,
        message: message(),
        errors: Value::Null,
    });
    let message = "409: xato".to_owned();
    let dead = Verdict::Dead(Reason::Conflict, message, Value::Null);
    assert_eq!(first(Endpoint::Submit, conflict), dead);
    for status in [402, 407, 410, 412, 413, 418, 422, 423, 431, 451, 499] {
        let other = Err(ApiError::Rejected {
            status,
            message: String::new(),
            errors: Value::Null,
        });
        let dead = Verdict::Dead(Reason::Rejected, status.to_string(), Value::Null);
        assert_eq!(first(Endpoint::Submit, other), dead);
    }
}

#[test]
fn unknown_status_or_body_is_retried_on_every_endpoint() {
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
            let verdict = first(endpoint, answer);
            assert!(is_fault(&verdict), "{status} {body}: {verdict:?}");
        }
    }
}

/// Promise: Each answer of the CRM has one consequence.
#[test]
fn each_http_status_gives_verdict_of_table() {
    let body = json!({"message": "xato", "accept": false, "data": null}).to_string();
    for (statuses, submit, token_info) in [
        (
            &[301, 302, 304, 307, 308][..],
            "wrong_address",
            "wrong_address",
        ),
        (&[404, 405, 415], "wrong_address", "wrong_address"),
        (&[400, 422], "rejected", "fault"),
        (&[401, 406], "token_refused", "token_refused"),
        (&[403], "no_grant", "no_grant"),
        (&[409], "conflict", "fault"),
        (&[429], "too_many", "too_many"),
        (&[500, 502, 503, 504, 599, 600], "fault", "fault"),
    ] {
        for status in statuses {
            for (endpoint, word) in [
                (Endpoint::Submit, submit),
                (Endpoint::TokenInfo, token_info),
            ] {
                let answer = callbridge_crm::read(endpoint, *status, body.as_bytes()).answer;
                assert_eq!(
                    first(endpoint, answer).word(),
                    word,
                    "{status} of {endpoint}"
                );
            }
        }
    }
}

#[test]
fn a_4xx_on_a_poll_is_no_word_on_the_call_itself() {
    let answer = Err(ApiError::Rejected {
        status: 400,
        message: message(),
        errors: Value::Null,
    });
    assert_eq!(
        first(Endpoint::Poll, answer),
        Verdict::Lost("400: xato".to_owned())
    );
}

#[test]
fn a_429_is_too_many_everywhere() {
    for &endpoint in Endpoint::VARIANTS {
        for own in [true, false] {
            let many = first(endpoint, Err(ApiError::TooMany(own)));
            assert_eq!(many, Verdict::TooMany { own });
        }
    }
}

#[test]
fn a_5xx_time_out_reset_or_a_gateway_s_4xx_is_tried_again() {
    let gateway = |status| {
        Err(ApiError::Server {
            status,
            own: false,
            message: String::new(),
        })
    };
    for answer in [
        gateway(400),
        gateway(401),
        gateway(403),
        gateway(409),
        Err(ApiError::Server {
            status: 500,
            own: true,
            message: String::new(),
        }),
        Err(ApiError::TimedOut),
        Err(ApiError::Lost("reset".to_owned())),
    ] {
        for &endpoint in Endpoint::VARIANTS {
            assert!(is_fault(&first(endpoint, answer.clone())));
        }
    }
}

#[test]
fn no_connection_or_refused_tls_is_nobody_s_own_failure() {
    let context = Context {
        failures: 1000,
        ..Context::default()
    };
    for answer in [
        Err(ApiError::NotConnected("refused".to_owned())),
        Err(ApiError::TlsRefused("expired".to_owned())),
    ] {
        let verdict = judge(Endpoint::Submit, answer, context);
        assert!(matches!(verdict, Verdict::Fault(Fault::Unreached, _)));
    }
}

#[test]
fn fifth_failure_while_others_pass_is_server_error() {
    let answer = Err(ApiError::Server {
        status: 500,
        own: true,
        message: String::new(),
    });
    let at = |failures| {
        let context = Context {
            failures,
            share: 0.05,
            trouble: false,
        };
        judge(Endpoint::Submit, answer.clone(), context)
    };
    assert!(is_fault(&at(3)));
    let Verdict::Dead(Reason::ServerError, message, _) = at(4) else {
        panic!("not given up");
    };
    let words = "the service failed 5 times on this call while others passed; the last time: 500";
    assert_eq!(message, words);
    let context = Context {
        failures: 9,
        ..Context::default()
    };
    assert!(
        is_fault(&judge(Endpoint::Poll, answer, context)),
        "a poll never fails its call"
    );
}

#[test]
fn call_failing_by_chance_or_outage_is_not_given_up() {
    let given_up = |failures, share, trouble| {
        let answer = Err(ApiError::TimedOut);
        let context = Context {
            failures,
            share,
            trouble,
        };
        !is_fault(&judge(Endpoint::Submit, answer, context))
    };
    // 0.3¹¹ is 1.8 in a million, 0.3¹² half of one
    assert!(!given_up(10, 0.3, false) && given_up(11, 0.3, false));
    assert!(!given_up(1000, 1.0, false));
    assert!(!given_up(1000, 0.01, true));
}

#[test]
fn a_gateway_s_page_is_told_from_the_service_s_own_refusal() {
    let fault = |status, own| {
        let answer = Err(ApiError::Server {
            status,
            own,
            message: String::new(),
        });
        match first(Endpoint::Submit, answer) {
            Verdict::Fault(fault, _) => fault,
            other => panic!("{other:?}"),
        }
    };
    for status in [502, 503, 504] {
        assert_eq!(fault(status, false), Fault::Gateway);
        assert_eq!(fault(status, true), Fault::Request);
    }
    assert_eq!(fault(500, false), Fault::Request);
}

#[test]
fn failed_is_a_dead_letter_failed_with_words() {
    for (words, message) in [
        ("lead not found", "lead not found"),
        ("", "FAILED: the CRM does not know its lead or its employee"),
    ] {
        let errors = json!([{"field": "employeeId", "reason": "NOT_FOUND"}]);
        let answer = Ok(ApiReply::Status(WriteStatus::Failed(
            FailureWord::Failed,
            words.to_owned(),
            errors.clone(),
        )));
        let (reason, message) = (Reason::Failed, message.to_owned());
        let dead = Verdict::Dead(reason, message, errors);
        assert_eq!(first(Endpoint::Poll, answer), dead);
    }
}

#[test]
fn success_is_journaled_and_an_unknown_status_is_not_yet() {
    assert_eq!(
        first(Endpoint::Poll, Ok(ApiReply::Status(WriteStatus::Success))),
        Verdict::Journaled
    );
    let pending = Ok(ApiReply::Status(WriteStatus::Pending(
        "WHATEVER".to_owned(),
    )));
    assert_eq!(first(Endpoint::Poll, pending), Verdict::NotYet);
}
