//! Tests which company a connection belongs to, and that no token outlives it: asked before the
//! first binding, revoked with every token, and kept while the company is blocked.

use crate::e2e::tokens::consent::Stage;
use crate::support::recordings;
use callbridge_model::Status;
use callbridge_sandbox::token::TokenKey;
use callbridge_sandbox::{Action, Endpoint, Rule};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

fn tokens(stage: &Stage) -> Vec<String> {
    let stored = stage.stored().expect("stored");
    let names = ["accessToken", "refreshToken", "previousToken"];
    let text = |name: &str| stored[name].as_str().map(str::to_owned);
    names.into_iter().filter_map(text).collect()
}

/// Returns the tokens in this list that the CRM still accepts.
fn living(stage: &Stage, tokens: &[String]) -> Vec<String> {
    let works = |token: &&String| {
        stage.crm.admin(|core, now| {
            let refresh = core.oauth.refreshes.get(&TokenKey::from_value(token));
            let refresh = refresh.is_some_and(|it| it.used.is_none() && !it.revoked);
            refresh || core.token_works(now, token)
        })
    };
    tokens.iter().filter(works).cloned().collect()
}

#[tokio::test]
async fn second_connect_and_disconnect_revoke_earlier_tokens() {
    let stage = Stage::new(HOUR).await;
    stage.connected().await;
    let first = tokens(&stage);
    assert_eq!(living(&stage, &first), first, "while they are in use");
    let connecting = stage.connect(&[]).await;
    connecting.answer("decision=approve").await;
    let said = connecting.end().await;
    assert_eq!(said.code, Some(0), "{said:?}");
    let revoked = "the tokens of the previous connection are revoked";
    assert!(said.err.contains(revoked), "{said:?}");
    assert_eq!(living(&stage, &first), [""; 0]);
    let second = tokens(&stage);
    assert_eq!(living(&stage, &second).len(), 2, "{second:?}");
    let gone = stage.place.command(&["disconnect"]).await;
    assert!(gone.status.success(), "{gone:?}");
    assert_eq!(living(&stage, &second), [""; 0]);
    stage.judge();
}

#[tokio::test]
async fn tokens_that_cannot_be_revoked_are_named_with_a_fix() {
    let stage = Stage::new(HOUR).await;
    stage.connected().await;
    let refuse = |status| {
        let rule = Rule::always(Endpoint::OauthRevoke, Action::Gateway(status));
        stage.crm.admin(|core, _| core.set_faults(vec![rule]));
    };
    refuse(404);
    let connecting = stage.connect(&[]).await;
    connecting.answer("decision=approve").await;
    let said = connecting.end().await;
    assert_eq!(said.code, Some(0), "{said:?}");
    let words =
        "of the previous connection, the refresh token, access token cannot be revoked (404";
    assert!(said.err.contains(words), "{said:?}");
    assert!(said.err.contains("Connected apps"), "{said:?}");
    let stays = stage.place.command(&["disconnect"]).await;
    let told = String::from_utf8_lossy(&stays.stderr).into_owned();
    assert_eq!(stays.status.code(), Some(78), "{told}");
    assert!(told.contains("the connection stays"), "{told}");
    assert!(stage.stored().is_some());
    stage.crm.admin(|core, _| core.set_faults(Vec::new()));
    let gone = stage.place.command(&["disconnect"]).await;
    assert!(gone.status.success(), "{gone:?}");
}

#[tokio::test]
async fn first_company_must_be_confirmed_and_refusal_stores_nothing() {
    let stage = Stage::new(HOUR).await;
    for (answer, code) in [("n", 77), ("y", 0)] {
        let mut connecting = stage.connect_in_terminal(&[]).await;
        connecting.answer("decision=approve").await;
        connecting.asks("bind this state to company ").await;
        let new = tokens(&stage);
        assert_eq!(living(&stage, &new).len(), 2);
        connecting.paste(answer).await;
        let said = connecting.end().await;
        assert_eq!(said.code, Some(code), "{said:?}");
        if code != 0 {
            assert!(said.out.contains("was not confirmed"), "{said:?}");
            assert!(stage.stored().is_none());
            assert_eq!(living(&stage, &new), [""; 0]);
        }
    }
    // The state is bound now, so `connect` does not ask again.
    let connecting = stage.connect_in_terminal(&[]).await;
    connecting.answer("decision=approve").await;
    let said = connecting.end().await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(!said.out.contains("bind this state"), "{said:?}");
    stage.judge();
}

#[tokio::test]
async fn connect_checks_the_given_company_or_reports_the_actual_one() {
    let stage = Stage::new(HOUR).await;
    let connect = async |more: &[&str]| {
        let connecting = stage.connect(more).await;
        connecting.answer("decision=approve").await;
        connecting.end().await
    };
    let said = connect(&["--company=999"]).await;
    assert_eq!(said.code, Some(77), "{said:?}");
    assert!(said.err.contains("--company is 999"), "{said:?}");
    assert!(stage.stored().is_none());
    let said = connect(&[]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.err.contains("no question was asked"), "{said:?}");
    let company = crate::support::crm::settings().settings.company.id;
    let said = connect(&[&format!("--company={company}")]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(!said.err.contains("no question was asked"), "{said:?}");
    stage.judge();
}

#[tokio::test]
async fn blocked_company_is_named_and_sending_resumes_when_unblocked() {
    let stage = Stage::new(HOUR).await;
    stage.connected().await;
    let block = |blocked: bool| {
        let refused = Rule::always(Endpoint::OauthToken, Action::Status(401));
        stage.crm.admin(|core, now| {
            core.company(now, |company| company.blocked = blocked);
            core.set_faults(blocked.then_some(refused).into_iter().collect());
        });
    };
    block(true);
    stage
        .place
        .append("recorded", &recordings::one("inbound_answered").ami);
    let mut program = stage.place.start(&stage.flags(&[]), &[]);
    let blocked = |it: &Status| {
        let pause = it.pause.as_ref();
        pause.is_some_and(|it| it.reason == "client_refused" && it.fix.contains("is blocked"))
    };
    program.until("it is named", blocked).await;
    block(false);
    let status = program.settled(1).await;
    assert_eq!((status.books.journaled, status.pause), (1, None));
    assert_eq!(status.token.state, "ok");
    program.terminate().await;
}
