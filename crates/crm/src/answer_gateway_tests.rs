//! Is an answer the service's own, or that of something in between?

use super::*;

#[test]
fn a_proxy_s_page_under_200_is_a_broken_body() {
    let heard = read(Endpoint::Submit, 200, b"<html>welcome</html>");
    assert!(matches!(heard.answer, Err(ApiError::Unreadable(..))));
    let heard = read(Endpoint::Submit, 502, b"<html>bad gateway</html>");
    assert_eq!(
        heard.answer,
        Err(ApiError::Server {
            status: 502,
            own: false,
            message: String::new()
        })
    );
}

#[test]
fn a_proxy_s_json_under_503_is_not_the_service_s_own() {
    for (body, own) in [
        (r#"{"message": "Service Unavailable"}"#, false),
        (r#"{"accept": "no"}"#, false),
        (
            r#"{"message": "x", "accept": false, "errors": null, "data": null}"#,
            true,
        ),
        ("", false),
    ] {
        let heard = read(Endpoint::Poll, 503, body.as_bytes());
        let is_own = matches!(heard.answer, Err(ApiError::Server { own: true, .. }));
        assert_eq!(is_own, own, "{body}");
    }
}

#[test]
fn a_4xx_without_an_envelope_is_something_s_in_between() {
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
        let heard = read(Endpoint::Submit, status, page.as_bytes()).answer;
        let Err(error @ ApiError::Server { own: false, .. }) = heard else {
            panic!("{status} {page}: {heard:?}");
        };
        let words = format!("{status} of something in between");
        assert!(error.to_string().starts_with(&words), "{error}");
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
