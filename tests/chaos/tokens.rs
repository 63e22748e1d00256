//! Tests a token that is replaced, belongs to another company for a while, or loses rights.

use crate::chaos::stage::Scene;
use crate::support::judge::seen::{Purpose, Seen};
use crate::support::program::TOKEN;
use callbridge_testbed::wait::until;

/// The second token.
const OTHER: &str = "svc_pat_after_it";

/// Replaces the token in the CRM, and a while later in the file.
async fn replaced(scene: &Scene, kills: usize) {
    let story = async {
        scene.under_way().await;
        scene.crm.issue(OTHER, 1).await;
        scene.trouble_shown(kills, "token_refused").await;
        scene.place.write("token", OTHER);
    };
    tokio::join!(scene.work(kills), story);
}

#[tokio::test]
async fn pat_replaced_during_faults_and_kills_loses_no_call() {
    let scene = Scene::set("token replaced", &[]).await;
    scene.bad_weather();
    replaced(&scene, scene.scale.kills).await;
    scene.judged().await;
}

#[tokio::test]
async fn pat_replaced_while_it_runs_is_taken_up_from_its_file() {
    let scene = Scene::set("token replaced, no kill", &[]).await;
    replaced(&scene, 0).await;
    let fix = scene.fix("token_refused");
    assert!(
        fix.contains("token, it is read again automatically"),
        "{fix}"
    );
    scene.judged().await;
}

/// The token cannot submit for a while.
async fn forbidden(scene: &Scene, kills: usize) {
    let story = async {
        scene.under_way().await;
        scene.crm.grant(&["READ"]).await;
        scene.trouble_shown(kills, "no_grant").await;
        scene.crm.grant(&["SAVE", "READ"]).await;
    };
    tokio::join!(scene.work(kills), story);
}

#[tokio::test]
async fn grant_taken_for_a_while_keeps_every_call() {
    let scene = Scene::set("grant taken", &[]).await;
    forbidden(&scene, 0).await;
    let fix = scene.fix("no_grant");
    assert!(fix.contains("PERMISSION_OPEN_API_CALL:SAVE"), "{fix}");
    scene.judged().await;
}

#[tokio::test]
async fn temporary_grant_loss_under_faults_and_kills_keeps_calls() {
    let scene = Scene::set("grant taken, kills", &[]).await;
    scene.bad_weather();
    forbidden(&scene, scene.scale.kills).await;
    scene.judged().await;
}

/// The file contains another company's token for a while. callbridge uses it only to ask for its
/// company.
async fn of_another_company(scene: &Scene, kills: usize) {
    scene.crm.issue(OTHER, 2).await;
    let story = async {
        scene.under_way().await;
        scene.place.write("token", OTHER);
        let asked = async || scene.judge.has_seen(|it| it.token() == OTHER);
        until("the question whose token it is", asked).await;
        scene.trouble_shown(kills, "wrong_company").await;
        scene.place.write("token", TOKEN);
    };
    tokio::join!(scene.work(kills), story);
    assert_untouched(&scene.judge.seen());
}

fn assert_untouched(seen: &[Seen]) {
    let with_it = seen.iter().filter(|it| it.token() == OTHER);
    let purposes: Vec<Purpose> = with_it.map(Seen::purpose).collect();
    assert!(purposes.contains(&Purpose::TokenInfo), "it was never asked");
    let asked = |it: &Purpose| *it == Purpose::TokenInfo;
    assert!(purposes.iter().all(asked), "{purposes:?}");
}

#[tokio::test]
async fn other_company_token_is_checked_and_never_used() {
    let scene = Scene::set("another company", &[]).await;
    of_another_company(&scene, 0).await;
    let fix = scene.fix("wrong_company");
    assert!(fix.contains("--rebind"), "{fix}");
    scene.judged().await;
}

#[tokio::test]
async fn other_company_token_under_faults_and_kills_is_never_used() {
    let scene = Scene::set("another company, kills", &[]).await;
    scene.bad_weather();
    of_another_company(&scene, scene.scale.kills).await;
    scene.judged().await;
}

#[tokio::test]
async fn calls_without_journal_read_grant_are_all_confirmed() {
    let grants = "--grants=PERMISSION_OPEN_API_CALL:SAVE";
    let mut scene = Scene::set("filter not granted", &[grants]).await;
    // If the journal cannot be read, callbridge can only learn the outcome by sending the call
    // again.
    scene.law.again = true;
    scene.allowed = &["repeat_after200"];
    scene.bad_weather();
    scene.work(scene.scale.kills).await;
    scene.judged().await;
}
