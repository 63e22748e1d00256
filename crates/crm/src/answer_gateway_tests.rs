//! Tests that the CRM's responses are told apart from a proxy's.

use super::*;
use serde_json::json;

#[test]
fn proxy_page_with_status_200_is_unreadable() {
    let response = read(Endpoint::Submit, 200, b"<html>welcome</html>");
    assert!(matches!(response.answer, Err(ApiError::Unreadable(..))));
    let response = read(Endpoint::Submit, 502, b"<html>bad gateway</html>");
    assert_eq!(
        response.answer,
        Err(ApiError::Server {
            status: 502,
            own: false,
            message: String::new()
        })
    );
}

#[test]
fn proxy_json_with_status_503_is_not_a_crm_answer() {
    for (body, own) in [
        (r#"{"message": "Service Unavailable"}"#, false),
        (r#"{"accept": "no"}"#, false),
        (
            r#"{"message": "x", "accept": false, "errors": null, "data": null}"#,
            true,
        ),
        ("", false),
    ] {
        let response = read(Endpoint::Poll, 503, body.as_bytes());
        let is_own = matches!(response.answer, Err(ApiError::Server { own: true, .. }));
        assert_eq!(is_own, own, "{body}");
    }
}

#[test]
fn status_4xx_without_an_envelope_is_from_a_proxy() {
    let pages = [
        "<html>no</html>",
        r#"{"message": "no"}"#,
        "",
        r#"{"accept": 0}"#,
    ];
    for (status, page) in [400, 401, 403, 406, 409, 413, 422, 451]
        .into_iter()
        .flat_map(|status| pages.map(|page| (status, page)))
    {
        let response = read(Endpoint::Submit, status, page.as_bytes()).answer;
        let Err(error @ ApiError::Server { own: false, .. }) = response else {
            panic!("{status} {page}: {response:?}");
        };
        let message_start = format!("{status} from a proxy or gateway in between");
        assert!(error.to_string().starts_with(&message_start), "{error}");
    }
    let many = read(Endpoint::Submit, 429, b"<html>slow down</html>").answer;
    assert_eq!(many, Err(ApiError::TooMany(false)));
    let reduced = r#"{"message": "x", "accept": false, "errors": null, "data": null}"#;
    let own = read(Endpoint::Submit, 401, reduced.as_bytes()).answer;
    assert_eq!(
        own,
        Err(ApiError::UNAUTHORIZED),
        "the reduced envelope, too"
    );
}

#[test]
fn echoed_token_is_redacted_from_every_answer() {
    const TOKEN: &str = "svc_pat_1234567890";
    let redactor = Redactor::new([TOKEN]);
    let long = "x".repeat(1_000 - 6);
    for echoed in [TOKEN, "svc%5Fpat%5f1234567890", "c3ZjX3BhdF8xMjM0NTY3ODkw"] {
        for own in [json!(true), json!("proxy")] {
            let body = json!({
                "accept": own, "message": format!("{long}{echoed}"),
                "error": {"messageCode": echoed, "args": [echoed]},
                "errors": [{"field": echoed, "reason": format!("no {echoed}"), echoed: 1}],
                "data": {
                    "status": "FAILED", "message": echoed, "company": {"id": 1, "name": echoed},
                },
            });
            for status in [200, 400, 401, 403, 404, 406, 409, 422, 429, 500, 503] {
                for endpoint in [Endpoint::Submit, Endpoint::Poll, Endpoint::TokenInfo] {
                    let body = body.to_string();
                    let answer = read_redacted(endpoint, status, body.as_bytes(), &redactor);
                    let shown = format!("{answer:?}");
                    assert!(!shown.contains(echoed), "{status}: {shown}");
                    assert!(!shown.contains("xxsvc"), "{status}: {shown}");
                }
            }
        }
    }
}
