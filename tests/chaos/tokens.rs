//! Tests a token that is replaced, belongs to another company for a while, or loses rights.

use crate::chaos::stage::Scene;
use crate::support::judge::seen::{Purpose, Seen};
use crate::support::program::TOKEN;
use callbridge_testbed::wait::until;

/// The second token.
const OTHER: &str = "svc_pat_after_it";

/// Replaces the token in the CRM, and a while later in the file.
async fn replace_token(scene: &Scene, kills: usize) {
    let story = async {
        scene.wait_until_under_way().await;
        scene.crm.issue(OTHER, 1).await;
        scene.wait_until_problem_shown(kills, "token_refused").await;
        scene.place.write("token", OTHER);
    };
    tokio::join!(scene.work(kills), story);
}

#[tokio::test]
async fn pat_replaced_during_faults_and_kills_loses_no_call() {
    let scene = Scene::prepare("token replaced", &[]).await;
    scene.begin_faults();
    replace_token(&scene, scene.scale.kills).await;
    scene.check_result().await;
}

#[tokio::test]
async fn pat_replaced_in_its_file_is_read_without_restart() {
    let scene = Scene::prepare("token replaced, no kill", &[]).await;
    replace_token(&scene, 0).await;
    let fix = scene.fix("token_refused");
    assert!(
        fix.contains("token, it is read again automatically"),
        "{fix}"
    );
    scene.check_result().await;
}

/// Removes the token's right to submit calls for a while.
async fn revoke_save_grant(scene: &Scene, kills: usize) {
    let story = async {
        scene.wait_until_under_way().await;
        scene.crm.grant(&["READ"]).await;
        scene.wait_until_problem_shown(kills, "no_grant").await;
        scene.crm.grant(&["SAVE", "READ"]).await;
    };
    tokio::join!(scene.work(kills), story);
}

#[tokio::test]
async fn temporary_grant_loss_keeps_every_call() {
    let scene = Scene::prepare("grant taken", &[]).await;
    revoke_save_grant(&scene, 0).await;
    let fix = scene.fix("no_grant");
    assert!(fix.contains("PERMISSION_OPEN_API_CALL:SAVE"), "{fix}");
    scene.check_result().await;
}

#[tokio::test]
async fn temporary_grant_loss_under_faults_and_kills_keeps_calls() {
    let scene = Scene::prepare("grant taken, kills", &[]).await;
    scene.begin_faults();
    revoke_save_grant(&scene, scene.scale.kills).await;
    scene.check_result().await;
}

/// Puts another company's token into the file for a while. callbridge must use that token only to
/// ask for the token's company.
async fn use_other_company_token(scene: &Scene, kills: usize) {
    scene.crm.issue(OTHER, 2).await;
    let story = async {
        scene.wait_until_under_way().await;
        scene.place.write("token", OTHER);
        until("the question whose token it is", async || {
            scene.judge.has_seen(|request| request.token() == OTHER)
        })
        .await;
        scene.wait_until_problem_shown(kills, "wrong_company").await;
        scene.place.write("token", TOKEN);
    };
    tokio::join!(scene.work(kills), story);
    assert_untouched(&scene.judge.seen());
}

fn assert_untouched(seen: &[Seen]) {
    let requests = seen.iter().filter(|request| request.token() == OTHER);
    let purposes: Vec<Purpose> = requests.map(Seen::purpose).collect();
    assert!(purposes.contains(&Purpose::TokenInfo), "it was never asked");
    for purpose in &purposes {
        assert_eq!(*purpose, Purpose::TokenInfo, "{purposes:?}");
    }
}

#[tokio::test]
async fn other_company_token_is_checked_and_never_used() {
    let scene = Scene::prepare("another company", &[]).await;
    use_other_company_token(&scene, 0).await;
    let fix = scene.fix("wrong_company");
    assert!(fix.contains("--rebind"), "{fix}");
    scene.check_result().await;
}

#[tokio::test]
async fn other_company_token_under_faults_and_kills_is_never_used() {
    let scene = Scene::prepare("another company, kills", &[]).await;
    scene.begin_faults();
    use_other_company_token(&scene, scene.scale.kills).await;
    scene.check_result().await;
}

#[tokio::test]
async fn calls_without_journal_read_grant_are_all_confirmed() {
    let grants = "--grants=PERMISSION_OPEN_API_CALL:SAVE";
    let mut scene = Scene::prepare("filter not granted", &[grants]).await;
    // If the journal cannot be read, callbridge can only learn the outcome by sending the call
    // again.
    scene.law.again = true;
    scene.allowed = &["repeat_after200"];
    scene.begin_faults();
    scene.work(scene.scale.kills).await;
    scene.check_result().await;
}
