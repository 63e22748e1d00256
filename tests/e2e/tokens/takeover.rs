//! Tests that a token refresh in progress survives both a takeover by another hub and the end of
//! the process while the database is unavailable.

use super::consent::{Stage, stored_in};
use super::refreshed::{pairs, pairs_of};
use crate::support::program::Place;
use callbridge_model::Status;
use callbridge_model::status::Role;
use callbridge_sandbox::{Action, Endpoint, Rule};
use callbridge_testbed::postgres::Postgres;
use callbridge_testbed::proxy::Proxy;
use callbridge_testbed::wait::until;
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

/// How long an access token is valid. callbridge refreshes it a few seconds before it expires.
const LIFE: Duration = Duration::from_secs(20);
/// The delay of the response to a refresh during which the database becomes unavailable.
const SHORT_DELAY: Duration = Duration::from_secs(3);
/// The delay of the response to a refresh. By the time it arrives, the other hub is already
/// leading.
const ANSWER_DELAY: Duration = Duration::from_secs(14);

fn has_role(status: &Status, role: Role) -> bool {
    let leadership = status.leadership.as_ref();
    leadership.is_some_and(|leadership| leadership.role == role)
}

/// Promise: A takeover during a refresh of the token needs no new consent.
#[tokio::test]
async fn takeover_during_refresh_needs_no_consent() {
    let url = Postgres::shared().url(&Postgres::new_schema());
    let stage = Stage::in_place(Place::in_database(&url), LIFE).await;
    stage.approve_connection().await;
    let mut first = stage.place.start(&stage.flags(&["--instance=hub1"]), &[]);
    first
        .until("the first hub leads", |status| {
            has_role(status, Role::Leader)
        })
        .await;
    let second_place = Place::in_database(&url);
    let mut second = second_place.start(&stage.flags(&["--instance=hub2"]), &[]);
    second
        .until("the second hub waits", |status| {
            has_role(status, Role::Standby)
        })
        .await;
    let delay = Rule::next(Endpoint::OauthToken, 1, Action::Delay(ANSWER_DELAY));
    // Only count token pairs issued after the fault was set, because the token may have been
    // refreshed before.
    let before = stage.crm.admin(|core, _| {
        core.set_faults(vec![delay]);
        pairs_of(core)
    });
    until("a pair that is not received yet", async || {
        pairs(&stage.crm) == before + 1
    })
    .await;
    let stored = stage.stored().expect("stored");
    assert!(
        !stored["refreshBeganAt"].is_null(),
        "a refresh is under way"
    );

    first.freeze().await;
    second
        .until("the second hub leads", |status| {
            has_role(status, Role::Leader)
        })
        .await;
    first.signal(Signal::CONT);
    // The first hub no longer leads, but stores the pair that it receives.
    until("the new pair", async || {
        let stored = stage.stored().expect("stored");
        stored["refreshBeganAt"].is_null()
    })
    .await;
    first
        .until("the first hub waits", |status| {
            has_role(status, Role::Standby)
        })
        .await;
    // The second hub refreshes with the new pair, because the CRM rejects the old one.
    until("a refresh by the second hub", async || {
        pairs(&stage.crm) >= before + 2
    })
    .await;
    let status = second.status().await.expect("a status");
    assert_ne!(status.token.state, "reconnect");
    assert!(
        second_place
            .logs()
            .contains("waiting for the tokens of a refresh")
    );
    stage.judge();
}

#[tokio::test(flavor = "multi_thread")]
async fn pair_received_without_database_survives_kill() {
    let server = Postgres::shared();
    let schema = Postgres::new_schema();
    let proxy = Proxy::start(server.port()).await;
    let through = server.url_at(proxy.port(), &schema);
    let stage = Stage::in_place(Place::in_database(&through), LIFE).await;
    stage.approve_connection().await;
    let hub = stage.place.start(&stage.flags(&["--instance=hub1"]), &[]);
    let delay = Rule::next(Endpoint::OauthToken, 1, Action::Delay(SHORT_DELAY));
    let before = stage.crm.admin(|core, _| {
        core.set_faults(vec![delay]);
        pairs_of(core)
    });
    until("a pair that is not received yet", async || {
        pairs(&stage.crm) == before + 1
    })
    .await;
    proxy.cut();
    let file = stage.place.socket_folder().join("new-tokens.json");
    until("the file with the pair", async || file.exists()).await;
    let mode = file.metadata().expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // As long as the process can't store the pair, it's a standby.
    until("a standby", async || {
        let status = stage.place.status().await;
        status.is_some_and(|status| has_role(&status, Role::Standby))
    })
    .await;
    assert!(file.exists());
    hub.kill().await;
    let direct = Place::in_database(&server.url(&schema));
    assert!(
        !stored_in(&direct.connections()).expect("connected")["refreshBeganAt"].is_null(),
        "not stored yet"
    );
    proxy.join();
    let hub = stage.place.start(&stage.flags(&["--instance=hub1"]), &[]);
    until("the stored pair", async || {
        stored_in(&direct.connections()).expect("connected")["refreshBeganAt"].is_null()
    })
    .await;
    // The CRM only accepts the next refresh with the pair from the file.
    until("the next refresh", async || pairs(&stage.crm) >= before + 2).await;
    until("no file", async || !file.exists()).await;
    let status = hub.status().await.expect("a status");
    assert_ne!(status.token.state, "reconnect");
    stage.judge();
}
