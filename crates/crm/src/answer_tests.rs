//! Tests with responses that are shown in the CRM's document, ones that it leaves open, and invalid
//! ones.

use super::*;
use crate::ShownCall;
use callbridge_call::EpochSeconds;
use callbridge_model::{CallUuid, Grant};
use proptest::prelude::*;
use serde_json::json;
use strum::VariantArray;

fn read_response(endpoint: Endpoint, status: u16, body: Value) -> ApiResponse {
    read(endpoint, status, body.to_string().as_bytes())
}

fn answer(endpoint: Endpoint, status: u16, body: Value) -> ApiResult {
    read_response(endpoint, status, body).answer
}

fn page(body: Value) -> Page {
    match answer(Endpoint::Filter, 200, body) {
        Ok(ApiReply::Page(page)) => page,
        other => panic!("no page: {other:?}"),
    }
}

#[test]
fn status_200_with_a_request_id_anywhere_is_accepted() {
    let accepted = Ok(ApiReply::Accepted("r1".to_owned()));
    for body in [
        json!({"data": null, "message": "Success", "accept": true, "requestId": "r1"}),
        json!({"data": {"requestId": "r1"}, "accept": true, "requestId": null}),
    ] {
        assert_eq!(answer(Endpoint::Submit, 200, body), accepted);
    }
    for id in [
        json!(null),
        json!(""),
        json!("x".repeat(257)),
        json!(["r1"]),
    ] {
        let body = json!({"data": null, "accept": true, "requestId": id});
        assert_eq!(
            answer(Endpoint::Submit, 200, body),
            Err(ApiError::Unreadable(
                "accepted, but without a requestId".to_owned()
            ))
        );
    }
}

#[test]
fn accept_false_with_status_200_is_a_server_error() {
    let body = json!({"accept": false, "message": "yo‘q", "requestId": "r1"});
    let refused = Err(ApiError::Server {
        status: 200,
        own: true,
        message: "yo‘q".to_owned(),
    });
    assert_eq!(answer(Endpoint::Submit, 200, body), refused);
}

#[test]
fn status_is_read_from_a_bare_word_or_an_object() {
    for data in [
        json!("SUCCESS"),
        json!("success"),
        json!({"status": "SUCCESS"}),
        json!({"requestStatus": "SUCCESS", "id": 7}),
        json!({"request": {"state": "SUCCESS"}}),
    ] {
        let body = json!({"data": data, "accept": true, "message": "Success"});
        assert_eq!(
            answer(Endpoint::Poll, 200, body),
            Ok(ApiReply::Status(WriteStatus::Success))
        );
    }
    let failed = json!({"data": {"status": "FAILED", "message": "lead not found"}});
    let expected = Ok(ApiReply::Status(WriteStatus::Failed(
        FailureWord::Failed,
        "lead not found".to_owned(),
        Value::Null,
    )));
    assert_eq!(answer(Endpoint::Poll, 200, failed), expected);
    assert_eq!(
        answer(Endpoint::Poll, 200, json!({"data": "QUEUED_SOMEWHERE"})),
        Ok(ApiReply::Status(WriteStatus::Pending(
            "QUEUED_SOMEWHERE".to_owned()
        )))
    );
    let empty = answer(Endpoint::Poll, 200, json!({"data": null, "accept": true}));
    assert!(matches!(empty, Err(ApiError::Unreadable(..))));
}

#[test]
fn errors_of_a_failed_status_are_found_at_any_depth() {
    let errors = json!([{"field": "employeeId", "reason": "NOT_FOUND"}]);
    for body in [
        json!({"data": "FAILED", "errors": errors}),
        json!({"data": {"status": "FAILED", "errors": errors}, "errors": []}),
        json!({"data": {"request": {"status": "FAILED", "errors": errors}}, "errors": null}),
        json!({"data": [{"status": "FAILED", "errors": errors}]}),
    ] {
        let failed = Ok(ApiReply::Status(WriteStatus::Failed(
            FailureWord::Failed,
            String::new(),
            errors.clone(),
        )));
        assert_eq!(answer(Endpoint::Poll, 200, body.clone()), failed, "{body}");
    }
}

#[test]
fn journal_rows_are_read_under_any_key_with_page_numbers() {
    let id = "5f0c2f54-6f2e-5a8b-9d7e-0c4b6f5c1a11";
    let uuid = CallUuid(uuid::Uuid::try_parse(id).expect("a uuid"));
    let prefixed = format!("oapi-{id}");
    let expected = Page {
        rows: 2,
        uuids: vec![uuid],
        shown: vec![ShownCall::read(uuid, &serde_json::Map::new())],
        current: Some(1),
        total: Some(3),
    };
    let rows = json!([{"uuid": prefixed, "lead": 1}, {"uuid": "1795151317.146"}]);
    for body in [
        json!({"data": {"content": rows, "currentPage": 1, "totalPages": 3}}),
        json!({"data": {"labels": ["a"], "calls": rows}, "currentPage": 1, "totalPages": 3}),
        json!({"data": [prefixed, "another's"], "currentPage": 1, "totalPages": 3}),
    ] {
        assert_eq!(page(body), expected);
    }
    let empty = page(json!({"data": {"list": []}}));
    assert_eq!(empty, Page::default(),);
}

#[test]
fn token_info_is_read_with_its_grants() {
    let body = json!({"data": {
        "application": {"id": 7, "name": "callbridge", "type": "PRIVATE"},
        "company": {"id": 12, "name": "Uy"}, "kind": "PAT", "expiresAt": 1_800_000_000,
        "expiresInDays": 40, "new": {},
        "permissions": [{"permission": "PERMISSION_OPEN_API_CALL", "scope": "SAVE"}]}});
    let Ok(ApiReply::TokenInfo(info)) = answer(Endpoint::TokenInfo, 200, body) else {
        panic!("no token info");
    };
    assert_eq!((info.company, info.application), (12, Some(7)));
    assert_eq!(info.expires_at, Some(EpochSeconds::new(1_800_000_000)));
    assert!(info.may(Grant::CallSave));
    assert!(!info.may(Grant::CallRead));
    let nobody = answer(Endpoint::TokenInfo, 200, json!({"data": {"kind": "PAT"}}));
    assert!(matches!(nobody, Err(ApiError::Unreadable(..))));
}

fn rejection_message(body: Value) -> String {
    match answer(Endpoint::Submit, 400, body) {
        Err(ApiError::Rejected {
            status: 400,
            message,
            ..
        }) => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn rejection_message_includes_data_and_message_code() {
    let parser = "Unexpected character ('}' (code 125)) at line 1";
    let code = json!({"messageCode": 3705, "args": []});
    let whole = json!({"message": "xato", "data": parser, "error": code, "accept": false});
    assert_eq!(
        rejection_message(whole),
        format!("xato: {parser} (messageCode 3705)")
    );
    let bare = json!({"message": null, "data": null, "error": code, "accept": false});
    assert_eq!(rejection_message(bare), "messageCode 3705");
    let named = json!({"message": "xato", "data": "xato",
        "error": {"messageCode": 3705, "args": ["uuid"]}, "accept": false});
    assert_eq!(
        rejection_message(named),
        r#"xato (messageCode 3705 ["uuid"])"#
    );
    let data = json!({"data": {"field": "uuid"}, "error": null, "accept": false});
    assert_eq!(rejection_message(data), r#"{"field":"uuid"}"#);
}

fn answer_404(body: &str) -> ApiResult {
    read(Endpoint::Lead, 404, body.as_bytes()).answer
}

fn not_found(own: bool, message: &str) -> ApiError {
    ApiError::NotFound {
        own,
        message: message.to_owned(),
    }
}

#[test]
fn crm_404_requires_envelope_and_408_is_a_timeout() {
    let own = r#"{"message": "yo'q", "accept": false, "data": null}"#;
    assert_eq!(answer_404(own), Err(not_found(true, "yo'q")));
    let kong = r#"{"message": "no Route matched with those values"}"#;
    assert_eq!(
        answer_404(kong),
        Err(not_found(false, "no Route matched with those values"))
    );
    assert_eq!(answer_404("<html>404</html>"), Err(not_found(false, "")));
    for &endpoint in Endpoint::VARIANTS {
        assert_eq!(
            answer(endpoint, 408, json!({"accept": false})),
            Err(ApiError::TimedOut)
        );
    }
}

fn submit_answer(status: u16, body: &Value) -> ApiResult {
    answer(Endpoint::Submit, status, body.clone())
}

#[test]
fn each_refusal_status_is_read_as_its_own_error() {
    let errors = json!([{"field": "startedAt", "reason": "VALID_EPOCH_SEC"}]);
    let body = json!({"message": "xato", "accept": false, "errors": errors, "data": null});
    let message = "xato".to_owned();
    assert_eq!(
        submit_answer(400, &body),
        Err(ApiError::Rejected {
            status: 400,
            message: message.clone(),
            errors: errors.clone()
        })
    );
    assert_eq!(submit_answer(401, &body), Err(ApiError::UNAUTHORIZED));
    assert_eq!(
        submit_answer(403, &body),
        Err(ApiError::Forbidden(message.clone()))
    );
    assert_eq!(
        submit_answer(404, &body),
        Err(ApiError::NotFound {
            own: true,
            message: message.clone()
        })
    );
    assert_eq!(
        submit_answer(406, &body),
        Err(ApiError::TokenRefused {
            status: 406,
            message: message.clone()
        })
    );
    assert_eq!(
        submit_answer(409, &body),
        Err(ApiError::Rejected {
            status: 409,
            message: message.clone(),
            errors: errors.clone()
        })
    );
    assert_eq!(submit_answer(429, &body), Err(ApiError::TooMany(true)));
    assert_eq!(
        submit_answer(503, &body),
        Err(ApiError::Server {
            status: 503,
            own: true,
            message: message.clone()
        })
    );
    for status in [301, 302, 304, 308, 405, 415] {
        let own = true;
        assert_eq!(
            submit_answer(status, &body),
            Err(ApiError::WrongAddress { status, own })
        );
    }
    for status in [402, 422, 451] {
        let other = Err(ApiError::Rejected {
            status,
            message: message.clone(),
            errors: errors.clone(),
        });
        assert_eq!(submit_answer(status, &body), other);
    }
}

#[test]
fn token_expiry_warning_is_read_from_an_accepted_answer() {
    for (message, days) in [
        ("Token will expire in 6 days. Please renew it.", Some(6)),
        ("Token will expire in 1 day. Please renew it.", Some(1)),
        ("Token expires today. Please renew it.", Some(0)),
        ("Success", None),
        ("Token will expire in some days.", None),
    ] {
        let body = json!({"data": null, "message": message, "accept": true, "requestId": "r"});
        let response = read_response(Endpoint::Submit, 200, body);
        assert_eq!(response.answer, Ok(ApiReply::Accepted("r".to_owned())));
        assert_eq!(response.token_days_left, days);
    }
}

#[test]
fn status_is_read_under_other_keys_nested_or_lower_case() {
    for data in [
        json!({"request": {"requestStatus": "success"}}),
        json!({"requestId": "r1", "request": {"result": {"outcome": " Success "}}}),
        json!({"status": {"name": "SUCCESS", "title": "Bajarildi"}}),
        json!({"status": {"code": "success"}}),
        json!([{"requestId": "r1", "status": "SUCCESS"}]),
        json!(["SUCCESS"]),
        json!({"requestId": "r1", "persisting": "SUCCESS"}),
        json!({"entry": {"phase": "success", "message": "FAILED"}}),
        json!({"status": "SUCCESS", "lead": {"status": "ARCHIVED"}}),
    ] {
        let body = json!({"data": data, "accept": true, "message": "Success"});
        assert_eq!(
            answer(Endpoint::Poll, 200, body.clone()),
            Ok(ApiReply::Status(WriteStatus::Success)),
            "{body}"
        );
        let failed = body.to_string().replace("SUCCESS", "FAILED");
        let failed = failed
            .replace("success", "failed")
            .replace(" Success ", "Failed");
        let failed = read(Endpoint::Poll, 200, failed.as_bytes()).answer;
        assert!(
            matches!(failed, Ok(ApiReply::Status(WriteStatus::Failed(..)))),
            "{failed:?} of {body}"
        );
    }
    let status_beside_data = json!({"data": null, "status": "success", "accept": true});
    assert_eq!(
        answer(Endpoint::Poll, 200, status_beside_data),
        Ok(ApiReply::Status(WriteStatus::Success))
    );
}

#[test]
fn free_text_or_contradictory_words_are_not_a_status() {
    for data in [
        json!({"message": "Success"}),
        json!({"description": "FAILED", "id": 7}),
        json!({"note": "SUCCESS", "sync": "FAILED"}),
        json!({"a": {"status": "SUCCESS"}, "b": {"status": "FAILED"}}),
        json!([{"status": "SUCCESS"}, {"status": "FAILED"}]),
        json!(true),
        json!(1),
        json!({"status": 3}),
        json!({"status": ""}),
        json!({"status": "x".repeat(65)}),
        json!({}),
    ] {
        let body = json!({"data": data, "accept": true, "message": "Success"});
        let answer = answer(Endpoint::Poll, 200, body.clone());
        assert!(
            matches!(answer, Err(ApiError::Unreadable(..))),
            "{answer:?} of {body}"
        );
    }
    let waiting = json!({"data": {"status": "IN_PROGRESS", "message": "Success"}});
    let pending = Ok(ApiReply::Status(WriteStatus::Pending(
        "IN_PROGRESS".to_owned(),
    )));
    assert_eq!(answer(Endpoint::Poll, 200, waiting), pending);
}

#[test]
fn uuid_of_a_journal_row_is_read_under_any_key() {
    let id = "5f0c2f54-6f2e-5a8b-9d7e-0c4b6f5c1a11";
    let uuid = CallUuid(uuid::Uuid::try_parse(id).expect("a uuid"));
    for row in [
        json!(id),
        json!(format!("oapi-{id}")),
        json!(format!("OAPI-{}", id.to_uppercase())),
        json!({"callId": format!("oapi-{id}")}),
        json!({"id": 71, "uuid": null, "externalId": id}),
        json!({"id": 71, "call": {"uuid": format!("oapi-{id}"), "kind": "CALL"}}),
        json!({"uuid": format!("oapi-{id}"), "callId": id}),
        json!({"uuid": "5f0c2f54-0000-5a8b-9d7e-0c4b6f5c1a11", "sent": id}),
    ] {
        let page = page(json!({"data": {"rows": [row.clone(), 17, null, "x"]}}));
        assert!(page.uuids.contains(&uuid), "{row}");
        assert_eq!(page.rows, 4);
    }
    let numbers = page(json!({"data": [1, 2, 3], "totalPages": 1}));
    assert_eq!((numbers.rows, numbers.uuids), (3, vec![]));
}

#[test]
fn page_rows_are_read_at_any_depth_and_without_page_numbers() {
    let row = json!({"uuid": "oapi-5f0c2f54-6f2e-5a8b-9d7e-0c4b6f5c1a11"});
    for (body, numbers) in [
        (
            json!({"data": {"calls": {"content": [row]}, "currentPage": 2, "totalPages": 9}}),
            true,
        ),
        (
            json!({"data": {"page": {"list": [row], "currentPage": "2", "totalPages": 9.0}}}),
            true,
        ),
        (
            json!({"data": {"list": [row], "paging": {"currentPage": 2, "totalPages": 9}}}),
            true,
        ),
        (
            json!({"data": [row], "currentPage": 2, "totalPages": 9}),
            true,
        ),
        (json!({"data": [row], "paging": {"page": 2}}), false),
        (
            json!({"data": {"list": [row], "currentPage": null, "totalPages": -1}}),
            false,
        ),
        (
            json!({"data": {"list": [row], "currentPage": 2.5, "totalPages": 1e300}}),
            false,
        ),
    ] {
        let page = page(body.clone());
        assert_eq!((page.rows, page.uuids.len()), (1, 1), "{body}");
        let expected = if numbers {
            (Some(2), Some(9))
        } else {
            (None, None)
        };
        assert_eq!((page.current, page.total), expected, "{body}");
    }
    for body in [
        json!({"data": null}),
        json!({"data": "rows"}),
        json!({"data": {"list": {"a": 1}}}),
        json!({}),
    ] {
        let answer = answer(Endpoint::Filter, 200, body.clone());
        assert!(
            matches!(answer, Err(ApiError::Unreadable(..))),
            "{answer:?} of {body}"
        );
    }
}

#[test]
fn unusual_http_status_is_read_by_class_or_is_unreadable() {
    let body = json!({"data": null, "accept": true, "requestId": "r1", "message": "Success"});
    for status in [0, 100, 101, 199, 600, 700, 999, u16::MAX] {
        let answer = answer(Endpoint::Submit, status, body.clone());
        assert!(
            matches!(answer, Err(ApiError::Unreadable(..))),
            "{status}: {answer:?}"
        );
    }
    for status in [200, 201, 202, 203, 226, 299] {
        let answer = answer(Endpoint::Submit, status, body.clone());
        assert!(
            matches!(answer, Ok(ApiReply::Accepted(..))),
            "{status}: {answer:?}"
        );
    }
    for status in [204, 205] {
        let response = read(Endpoint::Submit, status, b"");
        let why = format!("status {status}, the body is empty");
        assert_eq!(response.answer, Err(ApiError::Unreadable(why)));
    }
    for status in [507, 520, 524, 599] {
        let answer = answer(Endpoint::Submit, status, body.clone());
        assert!(
            matches!(answer, Err(ApiError::Server { .. })),
            "{status}: {answer:?}"
        );
    }
}

#[test]
fn error_status_is_never_accepted_whatever_the_body() {
    let lie = json!({"data": "SUCCESS", "accept": true, "requestId": "r1", "message": "Success"});
    for status in 300..600 {
        for &endpoint in Endpoint::VARIANTS {
            let response = read_response(endpoint, status, lie.clone());
            let passes = matches!(
                response.answer,
                Ok(ApiReply::Accepted(..))
                    | Ok(ApiReply::Status(WriteStatus::Success))
                    | Ok(ApiReply::Status(WriteStatus::Failed(..)))
                    | Ok(ApiReply::Status(WriteStatus::Pending(..)))
                    | Ok(ApiReply::TokenInfo(_))
                    | Ok(ApiReply::Page(_))
            );
            assert!(!passes, "{status}: {:?}", response.answer);
            assert_eq!(response.token_days_left, None);
        }
    }
}

#[test]
fn rejection_message_and_errors_of_any_type_are_bounded() {
    let errors: Vec<Value> = (0..1000).map(|n| json!({"field": n})).collect();
    let body = json!({"message": "ў".repeat(200_000), "errors": errors, "accept": false});
    let Err(ApiError::Rejected {
        status: 400,
        message,
        errors,
    }) = answer(Endpoint::Submit, 400, body)
    else {
        panic!("not rejected");
    };
    assert_eq!(message.chars().count(), 1000);
    assert_eq!(errors.as_array().map(Vec::len), Some(100));
    for (message, text) in [
        (json!(null), ""),
        (json!({"uz": "xato"}), r#"{"uz":"xato"}"#),
        (json!(["a", 1]), r#"["a",1]"#),
        (json!(7), "7"),
    ] {
        let body = json!({"message": message, "errors": "none", "accept": false});
        let rejected = Err(ApiError::Rejected {
            status: 400,
            message: text.to_owned(),
            errors: Value::Null,
        });
        assert_eq!(answer(Endpoint::Submit, 400, body), rejected);
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[A-Z]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let key = prop_oneof![
            Just("data"),
            Just("status"),
            Just("requestId"),
            Just("message"),
            Just("errors"),
            Just("company"),
            Just("id"),
            Just("permissions"),
            Just("uuid"),
            Just("accept"),
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key, inner, 0..4).prop_map(|map| {
                Value::Object(map.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
            }),
        ]
    })
}

proptest! {
    #[test]
    fn any_status_and_any_bytes_are_read_without_a_panic(
        status: u16, bytes in prop::collection::vec(any::<u8>(), 0..64), value in any_json(),
    ) {
        for &endpoint in Endpoint::VARIANTS {
            let _ = read(endpoint, status, &bytes);
            let answer = read(endpoint, status, value.to_string().as_bytes()).answer;
            let passes = matches!(
                answer,
                Ok(ApiReply::Accepted(..)
                    | ApiReply::Status(WriteStatus::Success)
                    | ApiReply::TokenInfo(_))
            );
            prop_assert!(!passes || (200..300).contains(&status));
        }
    }
}
