//! Tests of refresh tokens: rotation, expiry, and revocation (§3.1, §5.6.6, §5.6.7).

use super::super::{NOW, keys, kinds, now_plus};
use super::{
    CLIENT, ID, REVOKE_PATH, Refused, SECRET, application, approve, codes, connect, exchange, form,
    is_refusal, pair, refresh, refresh_with, revoke, sandbox_with_application, token_info_status,
};
use crate::faults::parse;
use crate::oauth::connection;
use crate::token::TokenKey;
use crate::{Action, Delivery, Endpoint, Rule, Sandbox, ViolationKind};

const DAY: u64 = 86_400;

/// Uses a refresh token at this second, and returns the new access token and refresh token.
fn refresh_pair(core: &mut Sandbox, second: u64, token: &str) -> (String, String) {
    pair(&core.handle(now_plus(second), &refresh(token)))
}

#[test]
fn refresh_returns_a_new_pair_without_signing_keys() {
    let mut core = sandbox_with_application();
    let (_, token) = connect(&mut core, NOW);
    let answer = core.handle(now_plus(1), &refresh(&token));
    assert_eq!(
        keys(&answer),
        [
            "access_token",
            "expires_in",
            "refresh_token",
            "scope",
            "token_type"
        ]
    );
    let (access, next) = pair(&answer);
    assert_ne!(next, token);
    assert_eq!(token_info_status(&mut core, now_plus(1), &access), 200);
    assert_eq!(kinds(&core), []);
}

#[test]
fn used_refresh_token_is_refused_and_access_token_still_valid() {
    let mut core = sandbox_with_application();
    let (access, first) = connect(&mut core, NOW);
    let (newer, second) = refresh_pair(&mut core, 10, &first);
    let again = core.handle(now_plus(11), &refresh(&first));
    assert!(is_refusal(&again, 400));
    assert_eq!(
        (codes(&core), kinds(&core)),
        (vec![6906], vec![ViolationKind::RefreshReused])
    );
    assert_eq!(
        token_info_status(&mut core, now_plus(3_599), &access),
        200,
        "until it expires"
    );
    assert_eq!(token_info_status(&mut core, now_plus(3_600), &access), 401);
    assert_eq!(token_info_status(&mut core, now_plus(3_600), &newer), 200);
    refresh_pair(&mut core, 3_601, &second);
}

#[test]
fn access_token_lives_as_long_as_configured() {
    let mut core = sandbox_with_application();
    core.settings.access_life = std::time::Duration::from_secs(20);
    let code = approve(&mut core, NOW);
    let answer = core.handle(NOW, &exchange(&code));
    assert_eq!(answer.value()["expires_in"], 20);
    let (access, _) = pair(&answer);
    assert_eq!(token_info_status(&mut core, now_plus(19), &access), 200);
    assert_eq!(token_info_status(&mut core, now_plus(20), &access), 401);
}

#[test]
fn refresh_token_lives_thirty_days() {
    let mut core = sandbox_with_application();
    let (_, token) = connect(&mut core, NOW);
    let end = 30 * DAY;
    refresh_pair(&mut core.clone(), end - 1, &token);
    let late = core.handle(now_plus(end), &refresh(&token));
    assert!(is_refusal(&late, 400));
    assert_eq!(codes(&core), [6906]);
}

#[test]
fn refresh_token_works_only_for_its_application() {
    let mut core = sandbox_with_application();
    let mut other = application();
    other.id = 3;
    other.client_id = "svc_app_other".to_owned();
    other.secret = TokenKey::from_value("svc_sec_other");
    connection::register(&mut core, other);
    let (access, token) = connect(&mut core, NOW);
    let foreign = [
        ("client_id", "svc_app_other"),
        ("client_secret", "svc_sec_other"),
    ];
    assert!(is_refusal(
        &core.handle(NOW, &refresh_with(&token, &foreign)),
        400
    ));
    for value in [&access, &token] {
        let fields = [("token", value.as_str()), foreign[0], foreign[1]];
        assert_eq!(core.handle(NOW, &form(REVOKE_PATH, &fields)).status, 200);
    }
    assert_eq!(
        token_info_status(&mut core, NOW, &access),
        200,
        "a foreign token is left alone"
    );
    refresh_pair(&mut core, 1, &token);
}

#[test]
fn lost_refresh_uses_token_and_first_retry_is_no_violation() {
    for action in [Action::Lost, Action::StatusAfter(500), Action::Broken] {
        let mut core = sandbox_with_application();
        let (_, token) = connect(&mut core, NOW);
        core.faults
            .rules
            .push((Rule::next(Endpoint::OauthToken, 1, action), 0, 0));
        core.handle(now_plus(1), &refresh(&token));
        assert!(is_refusal(&core.handle(now_plus(3), &refresh(&token)), 400));
        assert_eq!(kinds(&core), [], "{action:?}");
        core.handle(now_plus(5), &refresh(&token));
        assert_eq!(
            kinds(&core),
            [ViolationKind::RepeatAfter400],
            "a third time"
        );
    }
}

#[test]
fn server_error_before_rotation_keeps_refresh_token_valid() {
    let mut core = sandbox_with_application();
    let (_, token) = connect(&mut core, NOW);
    let fault = Rule::next(Endpoint::OauthToken, 2, Action::Status(500));
    core.faults.rules.push((fault, 0, 0));
    for second in 1..3 {
        assert_eq!(core.handle(now_plus(second), &refresh(&token)).status, 500);
    }
    refresh_pair(&mut core, 3, &token);
    assert_eq!(kinds(&core), []);
}

#[test]
fn refresh_token_revocation_ends_issued_access_tokens() {
    let mut core = sandbox_with_application();
    let (first, one) = connect(&mut core, NOW);
    let (second, two) = refresh_pair(&mut core, 1, &one);
    let answer = core.handle(now_plus(2), &revoke(&two));
    assert_eq!((answer.status, keys(&answer).len()), (200, 6));
    assert!(answer.value()["data"].is_null() && answer.value()["accept"] == true);
    assert_eq!(token_info_status(&mut core, now_plus(3), &second), 401);
    assert_eq!(
        token_info_status(&mut core, now_plus(3), &first),
        200,
        "issued from another one"
    );
    assert!(is_refusal(&core.handle(now_plus(3), &refresh(&two)), 400));
    assert_eq!((codes(&core), kinds(&core)), (vec![6906], vec![]));
}

#[test]
fn revoking_a_used_refresh_token_ends_its_whole_chain() {
    let mut core = sandbox_with_application();
    let (first, one) = connect(&mut core, NOW);
    let (second, two) = refresh_pair(&mut core, 1, &one);
    core.handle(now_plus(2), &revoke(&one));
    for token in [&first, &second] {
        assert_eq!(token_info_status(&mut core, now_plus(3), token), 401);
    }
    assert!(is_refusal(&core.handle(now_plus(3), &refresh(&two)), 400));
}

#[test]
fn access_token_revocation_ends_only_that_token() {
    let mut core = sandbox_with_application();
    let (first, one) = connect(&mut core, NOW);
    let (second, two) = refresh_pair(&mut core, 1, &one);
    assert_eq!(core.handle(now_plus(2), &revoke(&second)).status, 200);
    assert_eq!(token_info_status(&mut core, now_plus(3), &second), 401);
    assert_eq!(token_info_status(&mut core, now_plus(3), &first), 200);
    refresh_pair(&mut core, 4, &two);
}

#[test]
fn revocation_accepts_unknown_token_but_not_wrong_client() {
    let mut core = sandbox_with_application();
    let unknown = core.handle(NOW, &revoke("svcrt_none"));
    assert_eq!(
        (unknown.status, unknown.value()["accept"].clone()),
        (200, true.into())
    );
    let table: [Refused; 4] = [
        (&[("token", "x"), ("client_id", CLIENT)], 401, 6905),
        (
            &[
                ("token", "x"),
                ("client_id", CLIENT),
                ("client_secret", "no"),
            ],
            401,
            6905,
        ),
        (&[("token", "x"), ("client_secret", SECRET)], 400, 6907),
        (
            &[("client_id", CLIENT), ("client_secret", SECRET)],
            400,
            6907,
        ),
    ];
    for (fields, status, code) in table {
        let answer = core.handle(NOW, &form(REVOKE_PATH, fields));
        assert!(is_refusal(&answer, status), "{fields:?}");
        assert_eq!(codes(&core).last(), Some(&code), "{fields:?}");
    }
}

#[test]
fn disconnect_permanently_ends_only_tokens_of_connection() {
    let mut core = sandbox_with_application();
    let (access, token) = connect(&mut core, NOW);
    let (other, _) = connection::issue_pair(&mut core, NOW, ID, 2, None).expect("another company");
    assert!(connection::disconnect(&mut core, ID, 1));
    assert_eq!(token_info_status(&mut core, now_plus(2), &access), 401);
    assert!(is_refusal(&core.handle(now_plus(2), &refresh(&token)), 400));
    assert_eq!(token_info_status(&mut core, now_plus(2), &other), 200);
    assert_eq!(
        token_info_status(&mut core, now_plus(2), super::super::TOKEN),
        200,
        "the PAT is not its"
    );
    let (fresh, _) = connect(&mut core, now_plus(4));
    assert_eq!(token_info_status(&mut core, now_plus(5), &fresh), 200);
    assert_eq!(
        token_info_status(&mut core, now_plus(99), &access),
        401,
        "connecting again revives nothing"
    );
    assert!(is_refusal(
        &core.handle(now_plus(99), &refresh(&token)),
        400
    ));
}

#[test]
fn suspended_application_cannot_refresh_or_exchange_code() {
    let mut core = sandbox_with_application();
    let (access, token) = connect(&mut core, NOW);
    let code = approve(&mut core, NOW);
    let mut suspended = application();
    suspended.suspended = true;
    connection::register(&mut core, suspended);
    assert!(is_refusal(&core.handle(now_plus(2), &refresh(&token)), 400));
    assert!(is_refusal(&core.handle(now_plus(2), &exchange(&code)), 400));
    assert_eq!(codes(&core), [6906, 6906]);
    assert_eq!(
        token_info_status(&mut core, now_plus(3), &access),
        200,
        "until it expires"
    );
    connection::register(&mut core, application());
    refresh_pair(&mut core, 5, &token);
    assert_eq!(kinds(&core), [], "asking again after a change is no repeat");
}

#[test]
fn fault_rules_apply_to_token_and_revoke_endpoints() {
    let text =
        "oauth-revoke times 1 status 500; oauth-revoke times 1 lost; oauth-token times 1 lost";
    let rules = parse(text).expect("three rules").0;
    let mut core = sandbox_with_application();
    let (access, token) = connect(&mut core, NOW);
    core.set_faults(rules);
    assert_eq!(core.handle(now_plus(1), &revoke(&access)).status, 500);
    assert_eq!(
        token_info_status(&mut core, now_plus(1), &access),
        200,
        "nothing done"
    );
    let lost = core.handle(now_plus(2), &revoke(&access));
    assert_eq!(lost.delivery, Delivery::Lost);
    assert_eq!(
        token_info_status(&mut core, now_plus(2), &access),
        401,
        "done all the same"
    );
    let lost = core.handle(now_plus(3), &refresh(&token));
    assert_eq!(lost.delivery, Delivery::Lost);
    assert!(is_refusal(&core.handle(now_plus(4), &refresh(&token)), 400));
    assert_eq!(kinds(&core), []);
}
