//! Tests a CRM that is unreachable, does not answer, or redirects.

use crate::chaos::stage::Scene;
use crate::support::judge::Port;
use crate::support::judge::fault::Fault;

/// Kills the CRM, and starts it at another address behind the judge.
async fn restart_crm(scene: &Scene, kills: usize) {
    let story = async {
        scene.wait_until_under_way().await;
        scene.judge.set_port(Port::Closed);
        scene.crm.kill().await;
        scene.wait_until_problem_shown(kills, "unreachable").await;
        scene.crm.restart().await;
        scene.judge.set_crm(scene.crm.addr());
        scene.judge.set_port(Port::Open);
    };
    tokio::join!(scene.work(kills), story);
}

#[tokio::test]
async fn closed_crm_port_causes_no_dead_letters() {
    let scene = Scene::prepare("CRM gone", &[]).await;
    scene.begin_faults();
    restart_crm(&scene, scene.scale.kills).await;
    scene.check_result().await;
}

#[tokio::test]
async fn outage_is_reported_with_its_fix_and_ends_automatically() {
    let scene = Scene::prepare("CRM gone, no kill", &[]).await;
    restart_crm(&scene, 0).await;
    let fix = scene.fix("unreachable");
    assert!(fix.contains("CRM unreachable since"), "{fix}");
    scene.check_result().await;
}

#[tokio::test]
async fn silent_crm_port_loses_and_duplicates_no_call() {
    let scene = Scene::prepare("CRM silent", &[]).await;
    scene.begin_faults();
    let story = async {
        scene.wait_until_under_way().await;
        scene.judge.set_port(Port::Silent);
        scene.wait_out_problem().await;
        scene.judge.set_port(Port::Open);
    };
    tokio::join!(scene.work(scene.scale.kills), story);
    scene.check_result().await;
}

#[tokio::test]
async fn redirect_after_accepted_calls_is_a_failure() {
    let scene = Scene::prepare("redirected", &[]).await;
    let story = async {
        scene.wait_until_under_way().await;
        scene.judge.set_faults(100, &[Fault::Redirect]);
        scene.wait_until_problem_shown(0, "failing").await;
        scene.judge.set_faults(0, &[]);
    };
    tokio::join!(scene.work(0), story);
    let fix = scene.fix("failing");
    assert!(fix.contains("(302)"), "{fix}");
    scene.check_result().await;
}
