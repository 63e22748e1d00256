//! Tests a connection by consent whose token endpoint fails when an access token expires. The
//! failures do not make the refresh token invalid, so calls wait, and no new consent is needed.

use crate::chaos::stage::{Scene, scale};
use crate::support::connecting::Connecting;
use crate::support::judge::fault::{Fault, TOKEN_TROUBLE};
use crate::support::judge::seen::{Purpose, Seen};
use callbridge_model::Status;
use callbridge_testbed::port::free_addr;
use callbridge_testbed::wait::{pass, until};
use std::time::{Duration, Instant};
use tokio::process::Command;

const CLIENT: &str = "svc_app_of_the_tests";
const SECRET: &str = "svc_sec_of_the_tests";

/// Sets up a scene with an application that the company connects.
async fn prepare_connected(name: &'static str) -> Scene {
    let folder = tempfile::tempdir().expect("a folder");
    let secret = folder.path().join("client.secret");
    std::fs::write(&secret, SECRET).expect("written");
    let own = [
        format!("--client-id={CLIENT}"),
        format!("--client-secret-file={}", secret.display()),
        format!("--redirect-uri=http://{}/back", free_addr()),
    ];
    let life = format!("--access-life={}s", scale().life);
    let crm: Vec<&str> = own.iter().map(String::as_str).chain([&*life]).collect();
    let mut scene = Scene::prepare(name, &crm).await;
    scene.by_consent = true;
    let mut connect = Command::new(env!("CARGO_BIN_EXE_callbridge"));
    let connect = connect.env_clear().arg("connect").args(&own).args([
        format!("--crm-url={}", scene.judge.url()),
        format!("--auth-url={}", scene.judge.url()),
        format!("--consent-url=http://{}/consent", scene.crm.addr()),
        format!("--state={}", scene.place.path("state")),
    ]);
    let connecting = Connecting::start(connect).await;
    connecting.answer("decision=approve").await;
    let output = connecting.end().await;
    assert_eq!(output.code, Some(0), "{output:?}");
    scene
}

fn count_token_pairs(scene: &Scene) -> usize {
    let seen = scene.judge.seen();
    let exchanges = seen
        .iter()
        .filter(|request| request.purpose() == Purpose::Exchange);
    exchanges
        .filter(|request| request.received_status() == Some(200))
        .count()
}

/// Returns `true` if the request exchanged a code or a refresh token and got a fault.
fn is_faulty_exchange(request: &Seen) -> bool {
    request.purpose() == Purpose::Exchange && request.fault.is_some()
}

/// Makes the token endpoint fail with the faults `kinds` for longer than the life of two tokens.
/// Kills callbridge `kills` times meanwhile.
async fn fail_token_endpoint(scene: &Scene, kinds: &[Fault], kills: usize) {
    let parts = kills + 3;
    scene.report_part(0, parts);
    let mut program = scene.run();
    until("a refreshed pair", async || count_token_pairs(scene) > 1).await;
    scene.judge.set_token_faults(kinds);
    // Refreshes come one after the other. After a refresh has failed, no refresh is under way that
    // reached the CRM. A kill would lose the pair of tokens of such a refresh.
    until("a refresh that fails", async || {
        scene.judge.has_seen(is_faulty_exchange)
    })
    .await;
    let begun = Instant::now();
    for part in 1..=kills {
        scene.report_part(part, parts);
        scene.kill(program).await;
        program = scene.run();
        pass(Duration::from_millis(scene.random_in(scene.scale.apart))).await;
    }
    scene.report_part(parts - 2, parts);
    scene
        .wait_for(&mut program, "the end of the token", is_unreachable)
        .await;
    let fix = scene.fix("unreachable");
    assert!(fix.contains("tries again automatically"), "{fix}");
    let lasts = Duration::from_secs(2 * scene.scale.life + 5);
    pass(lasts.saturating_sub(begun.elapsed())).await;
    let before = count_token_pairs(scene);
    scene.report_part(parts - 1, parts);
    scene.judge.set_token_faults(&[]);
    scene
        .wait_until_journaled(&mut program, scene.scale.calls)
        .await;
    program.terminate().await;
    assert!(
        count_token_pairs(scene) > before,
        "no pair after the trouble"
    );
    scene.check_result().await;
}

#[tokio::test]
async fn token_endpoint_503_past_token_expiry_needs_no_consent() {
    let scene = prepare_connected("token endpoint 503").await;
    fail_token_endpoint(&scene, &[Fault::Status(503)], 0).await;
}

#[tokio::test]
async fn failing_token_endpoint_and_kills_lose_no_consent_or_call() {
    let scene = prepare_connected("token endpoint and kills").await;
    fail_token_endpoint(&scene, &TOKEN_TROUBLE, scene.scale.kills).await;
}

fn is_unreachable(status: &Status) -> bool {
    let pause = status.pause.as_ref();
    pause.is_some_and(|pause| pause.reason == "unreachable")
}
