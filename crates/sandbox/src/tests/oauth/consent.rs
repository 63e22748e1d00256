//! Tests of the authorization page (§4.2, §5.6.1, §5.6.3).

use super::super::{NOW, kinds, now_plus};
use super::{
    BACK, CLIENT, READ, SAVE, approve, codes, connect, consent_parameters, decision_request,
    exchange, grant, page, redirect_parameters, sandbox_with_application,
};
use crate::oauth::connection;
use crate::{Request, Response, Sandbox, ViolationKind};
use proptest::prelude::*;

fn text(answer: &Response) -> String {
    String::from_utf8_lossy(&answer.body).into_owned()
}

/// Returns the parameters of a consent with this value of the parameter `name`. With `None`, the
/// parameter is missing.
fn consent_parameters_with<'a>(name: &str, value: Option<&'a str>) -> Vec<(&'a str, &'a str)> {
    let all = consent_parameters().into_iter();
    all.filter_map(|(own, old)| match value {
        _ if own != name => Some((own, old)),
        Some(value) => Some((own, value)),
        None => None,
    })
    .collect()
}

/// Checks that the answer to the request is a page with 400 and no redirect, and that the last line
/// of the log has this code.
fn assert_refused(core: &mut Sandbox, request: &Request, code: u16) {
    let answer = core.handle(NOW, request);
    assert_eq!(
        (answer.status, answer.location.as_ref()),
        (400, None),
        "{}",
        text(&answer)
    );
    assert!(answer.content_type.starts_with("text/html"));
    assert_eq!(codes(core).last(), Some(&code), "{}", text(&answer));
    assert_eq!(kinds(core).last(), Some(&ViolationKind::Invalid));
}

#[test]
fn consent_page_shows_each_grant_and_the_company() {
    let mut core = sandbox_with_application();
    let answer = core.handle(NOW, &page(&consent_parameters()));
    let page = text(&answer);
    assert_eq!(answer.status, 200);
    for part in [
        CLIENT,
        SAVE,
        READ,
        BACK,
        "Sandbox company",
        "value=\"approve\"",
        "decline",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert_eq!(kinds(&core), []);
}

#[test]
fn approval_redirects_with_code_and_unchanged_state() {
    let mut core = sandbox_with_application();
    let answer = core.handle(
        NOW,
        &decision_request(&consent_parameters(), &[("decision", "approve")]),
    );
    let back = redirect_parameters(&answer);
    assert!(
        answer
            .location
            .as_deref()
            .expect("a redirect")
            .starts_with(BACK)
    );
    let names: Vec<&str> = back.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["code", "state"]);
    assert_eq!(back[1].1, "s 1&2");
    let answer = core.handle(NOW, &exchange(&back[0].1));
    assert_eq!(answer.status, 200);
}

#[test]
fn redirect_without_state_has_code_and_keeps_query() {
    let mut core = sandbox_with_application();
    let to = "https://app.example/back?a=1";
    let mut parameters = consent_parameters_with("redirect_uri", Some(to));
    parameters.retain(|(name, _)| *name != "state");
    let back = redirect_parameters(&core.handle(
        NOW,
        &decision_request(&parameters, &[("decision", "approve")]),
    ));
    assert_eq!(back[0], ("a".to_owned(), "1".to_owned()));
    assert!(back[1].0 == "code" && back.len() == 2);
}

#[test]
fn decline_redirects_with_access_denied_and_is_no_violation() {
    let mut core = sandbox_with_application();
    let answer = core.handle(
        NOW,
        &decision_request(&consent_parameters(), &[("decision", "decline")]),
    );
    let back = redirect_parameters(&answer);
    let expected = [("error", "access_denied"), ("state", "s 1&2")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(back, expected);
    assert_eq!((codes(&core), kinds(&core)), (vec![], vec![]));
}

fn consent_parameters_with_scope(scope: &str) -> Vec<(&str, &str)> {
    consent_parameters_with("scope", Some(scope))
}

#[test]
fn invalid_parameters_show_an_error_page_and_never_redirect() {
    let mut core = sandbox_with_application();
    let lead = "PERMISSION_OPEN_API_LEAD:READ";
    let table = [
        (
            consent_parameters_with("response_type", Some("token")),
            6907,
        ),
        (consent_parameters_with("response_type", None), 6907),
        (consent_parameters_with("client_id", Some("")), 6907),
        (consent_parameters_with("redirect_uri", None), 6907),
        (
            consent_parameters_with("client_id", Some("svc_app_none")),
            6900,
        ),
        (
            consent_parameters_with("redirect_uri", Some("http://127.0.0.1:9/back/")),
            6902,
        ),
        (
            consent_parameters_with("redirect_uri", Some("https://evil.example/")),
            6902,
        ),
        (consent_parameters_with("scope", None), 6904),
        (consent_parameters_with_scope(""), 6904),
        (
            consent_parameters_with_scope("PERMISSION_OPEN_API_CALL"),
            6904,
        ),
        (
            consent_parameters_with_scope(
                "PERMISSION_OPEN_API_CALL:SAVE,PERMISSION_OPEN_API_CALL:READ",
            ),
            6904,
        ),
        (
            consent_parameters_with_scope(
                "PERMISSION_OPEN_API_CALL:SAVE  PERMISSION_OPEN_API_CALL:READ",
            ),
            6904,
        ),
        (
            consent_parameters_with_scope("permission_open_api_call:save"),
            6904,
        ),
        (consent_parameters_with_scope(lead), 6904),
    ];
    for (parameters, code) in table {
        assert_refused(&mut core, &page(&parameters), code);
        assert_refused(
            &mut core,
            &decision_request(&parameters, &[("decision", "approve")]),
            code,
        );
    }
    let mut twice = consent_parameters();
    twice.push(("client_id", CLIENT));
    assert_refused(&mut core, &page(&twice), 6907);
}

#[test]
fn only_a_published_application_can_be_connected() {
    let mut core = sandbox_with_application();
    let mut hidden = super::application();
    hidden.published = false;
    connection::register(&mut core, hidden);
    assert_refused(&mut core, &page(&consent_parameters()), 6900);
    let mut suspended = super::application();
    suspended.suspended = true;
    connection::register(&mut core, suspended);
    assert_refused(&mut core, &page(&consent_parameters()), 6906);
}

#[test]
fn unticked_grants_narrow_the_scope() {
    let mut core = sandbox_with_application();
    let form = [("decision", "approve"), ("picked", "yes"), ("grant", READ)];
    let back =
        redirect_parameters(&core.handle(NOW, &decision_request(&consent_parameters(), &form)));
    let reply = core.handle(NOW, &exchange(&back[0].1)).value();
    assert_eq!(reply["scope"], READ);
    let none = [("decision", "approve"), ("picked", "yes")];
    assert_refused(
        &mut core,
        &decision_request(&consent_parameters(), &none),
        6904,
    );
    let more = [none[0], none[1], ("grant", "PERMISSION_OPEN_API_LEAD:READ")];
    assert_refused(
        &mut core,
        &decision_request(&consent_parameters(), &more),
        6904,
    );
}

#[test]
fn grant_withdrawn_from_the_application_is_not_issued() {
    let mut core = sandbox_with_application();
    let code = approve(&mut core, NOW);
    let mut less = super::application();
    less.allowed = vec![grant(READ)];
    connection::register(&mut core, less);
    assert_eq!(core.handle(NOW, &exchange(&code)).value()["scope"], READ);
}

#[test]
fn other_company_can_consent_but_blocked_company_cannot() {
    let mut core = sandbox_with_application();
    core.ensure_company(2);
    let form = [("decision", "approve"), ("company", "2")];
    let back =
        redirect_parameters(&core.handle(NOW, &decision_request(&consent_parameters(), &form)));
    let (access, _) = super::pair(&core.handle(NOW, &exchange(&back[0].1)));
    let info = Request::get(super::INFO).with_token(&access);
    assert_eq!(core.handle(NOW, &info).value()["data"]["company"]["id"], 2);
    assert_refused(
        &mut core,
        &decision_request(&consent_parameters(), &[form[0], ("company", "3")]),
        6907,
    );
    core.company(NOW, |own| own.blocked = true);
    let own = decision_request(&consent_parameters(), &[form[0], ("company", "1")]);
    assert_eq!(core.handle(NOW, &own).status, 401);
    assert_eq!(codes(&core).last(), Some(&2715));
}

#[test]
fn internal_consent_address_is_an_unknown_path() {
    let mut core = sandbox_with_application();
    let (access, _) = connect(&mut core, NOW);
    let request = Request::get("/v1/open-api/oauth/authorize").with_token(&access);
    assert_eq!(core.handle(now_plus(1), &request).status, 404);
    assert_eq!(kinds(&core), [ViolationKind::UnknownPath]);
}

#[test]
fn secret_sent_to_consent_page_is_a_violation() {
    let mut core = sandbox_with_application();
    let mut parameters = consent_parameters();
    parameters.push(("client_secret", super::SECRET));
    assert_eq!(core.handle(NOW, &page(&parameters)).status, 200);
    assert_eq!(kinds(&core), [ViolationKind::SecretMisplaced]);
}

proptest! {
    #[test]
    fn external_text_adds_no_element_to_the_consent_page(
        texts in prop::collection::vec("[<>\"'&a-z/=]{0,40}", 6),
        bytes in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let mut core = sandbox_with_application();
        let mut named = super::application();
        named.name = texts[0].clone();
        named.redirect_uris.push(texts[5].clone());
        connection::register(&mut core, named);
        let mut request = page(&[
            ("response_type", "code"), ("client_id", CLIENT), ("redirect_uri", &texts[5]),
            ("scope", SAVE), ("state", &texts[1]), (&texts[2], &texts[3]),
        ]);
        for (post, query) in [(false, false), (true, false), (true, true)] {
            if post {
                request.method = "POST".to_owned();
                request.body = bytes.clone();
            }
            if query {
                request.query = String::from_utf8_lossy(&bytes).into_owned();
            }
            let answer = core.handle(NOW, &request);
            let page = text(&answer);
            let own = ["html", "head", "meta", "title", "style", "body", "h1", "p", "code", "form",
                "fieldset", "legend", "label", "input", "button", "small", "!doctype"];
            for tag in page.split('<').skip(1) {
                let name = tag.trim_start_matches('/');
                let name = name.split(|c: char| !c.is_ascii_alphanumeric() && c != '!').next();
                prop_assert!(own.contains(&name.unwrap_or("")), "{tag} in {page}");
            }
            let quotes = page.matches('"').count();
            prop_assert!(quotes.is_multiple_of(2) && !page.contains("onerror=\""));
            prop_assert!(matches!(answer.status, 200 | 302 | 400));
        }
    }
}
