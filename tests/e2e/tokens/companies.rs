//! Tests that the operator confirms the first connection's company, that callbridge revokes all
//! tokens of a connection that ends, and that a connection is kept while the company is blocked.

use crate::e2e::tokens::consent::Stage;
use crate::support::connecting::CommandOutput;
use crate::support::recordings;
use callbridge_sandbox::token::TokenKey;
use callbridge_sandbox::{Action, Endpoint, Rule};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// Returns the stored connection's tokens.
fn stored_tokens(stage: &Stage) -> Vec<String> {
    let stored = stage.stored().expect("stored");
    let names = ["accessToken", "refreshToken", "previousToken"];
    names
        .into_iter()
        .filter_map(|name| stored[name].as_str().map(str::to_owned))
        .collect()
}

/// Returns those of these tokens that the CRM still accepts.
fn accepted_tokens(stage: &Stage, tokens: &[String]) -> Vec<String> {
    let accepted = tokens.iter().filter(|token| is_accepted(stage, token));
    accepted.cloned().collect()
}

/// Returns `true` if the CRM accepts this access token or refresh token.
fn is_accepted(stage: &Stage, token: &str) -> bool {
    stage.crm.admin(|core, now| {
        let refresh = core.oauth.refreshes.get(&TokenKey::from_value(token));
        let refresh = refresh.is_some_and(|entry| entry.used.is_none() && !entry.revoked);
        refresh || core.token_works(now, token)
    })
}

#[tokio::test]
async fn second_connect_and_disconnect_revoke_earlier_tokens() {
    let stage = Stage::new(HOUR).await;
    stage.approve_connection().await;
    let first = stored_tokens(&stage);
    assert_eq!(
        accepted_tokens(&stage, &first),
        first,
        "the CRM accepts the tokens in use"
    );
    let connecting = stage.connect(&[]).await;
    connecting.answer("decision=approve").await;
    let output = connecting.end().await;
    assert_eq!(output.code, Some(0), "{output:?}");
    let revoked = "the tokens of the previous connection are revoked";
    assert!(output.err.contains(revoked), "{output:?}");
    assert_eq!(accepted_tokens(&stage, &first), [""; 0]);
    let second = stored_tokens(&stage);
    assert_eq!(accepted_tokens(&stage, &second).len(), 2, "{second:?}");
    let disconnect = stage.place.command(&["disconnect"]).await;
    assert!(disconnect.status.success(), "{disconnect:?}");
    assert_eq!(accepted_tokens(&stage, &second), [""; 0]);
    stage.judge();
}

#[tokio::test]
async fn tokens_that_cannot_be_revoked_are_named_with_a_fix() {
    let stage = Stage::new(HOUR).await;
    stage.approve_connection().await;
    let rule = Rule::always(Endpoint::OauthRevoke, Action::Gateway(404));
    stage.crm.admin(|core, _| core.set_faults(vec![rule]));
    let connecting = stage.connect(&[]).await;
    connecting.answer("decision=approve").await;
    let output = connecting.end().await;
    assert_eq!(output.code, Some(0), "{output:?}");
    let message =
        "of the previous connection, the refresh token, access token cannot be revoked (404";
    assert!(output.err.contains(message), "{output:?}");
    assert!(output.err.contains("Connected apps"), "{output:?}");
    let failed = stage.place.command(&["disconnect"]).await;
    let errors = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert_eq!(failed.status.code(), Some(78), "{errors}");
    assert!(errors.contains("the connection stays"), "{errors}");
    assert!(stage.stored().is_some());
    stage.crm.admin(|core, _| core.set_faults(Vec::new()));
    let disconnect = stage.place.command(&["disconnect"]).await;
    assert!(disconnect.status.success(), "{disconnect:?}");
}

#[tokio::test]
async fn first_company_must_be_confirmed_and_refusal_stores_nothing() {
    let stage = Stage::new(HOUR).await;
    for (answer, code) in [("n", 77), ("y", 0)] {
        let mut connecting = stage.connect_in_terminal(&[]).await;
        connecting.answer("decision=approve").await;
        connecting
            .wait_for_output("bind this state to company ")
            .await;
        let new = stored_tokens(&stage);
        assert_eq!(accepted_tokens(&stage, &new).len(), 2);
        connecting.paste(answer).await;
        let output = connecting.end().await;
        assert_eq!(output.code, Some(code), "{output:?}");
        if code != 0 {
            assert!(output.out.contains("was not confirmed"), "{output:?}");
            assert!(stage.stored().is_none());
            assert_eq!(accepted_tokens(&stage, &new), [""; 0]);
        }
    }
    // The state is bound now, so `connect` doesn't ask again.
    let connecting = stage.connect_in_terminal(&[]).await;
    connecting.answer("decision=approve").await;
    let output = connecting.end().await;
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(!output.out.contains("bind this state"), "{output:?}");
    stage.judge();
}

#[tokio::test]
async fn connect_checks_the_given_company_or_reports_the_actual_one() {
    let stage = Stage::new(HOUR).await;
    let output = connect_and_approve(&stage, &["--company=999"]).await;
    assert_eq!(output.code, Some(77), "{output:?}");
    assert!(output.err.contains("--company is 999"), "{output:?}");
    assert!(stage.stored().is_none());
    let output = connect_and_approve(&stage, &[]).await;
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.err.contains("no question was asked"), "{output:?}");
    let company = crate::support::crm::settings().settings.company.id;
    let output = connect_and_approve(&stage, &[&format!("--company={company}")]).await;
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(!output.err.contains("no question was asked"), "{output:?}");
    stage.judge();
}

/// Runs `connect` with the flags in `more`, and approves the connection on the consent page.
async fn connect_and_approve(stage: &Stage, more: &[&str]) -> CommandOutput {
    let connecting = stage.connect(more).await;
    connecting.answer("decision=approve").await;
    connecting.end().await
}

#[tokio::test]
async fn blocked_company_is_named_and_sending_resumes_when_unblocked() {
    let stage = Stage::new(HOUR).await;
    stage.approve_connection().await;
    set_blocked(&stage, true);
    stage
        .place
        .append("recorded", &recordings::one("inbound_answered").ami);
    let mut program = stage.place.start(&stage.flags(&[]), &[]);
    program
        .until("the blocked company is named", |status| {
            let pause = status.pause.as_ref();
            pause.is_some_and(|pause| {
                pause.reason == "client_refused" && pause.fix.contains("is blocked")
            })
        })
        .await;
    set_blocked(&stage, false);
    let status = program.settled(1).await;
    assert_eq!((status.books.journaled, status.pause), (1, None));
    assert_eq!(status.token.state, "ok");
    program.terminate().await;
}

/// Blocks or unblocks the company. While it's blocked, the token endpoint responds with 401.
fn set_blocked(stage: &Stage, blocked: bool) {
    let mut faults = Vec::new();
    if blocked {
        faults.push(Rule::always(Endpoint::OauthToken, Action::Status(401)));
    }
    stage.crm.admin(|core, now| {
        core.company(now, |company| company.blocked = blocked);
        core.set_faults(faults);
    });
}
