//! Tests a CRM that is unreachable, does not answer, or redirects.

use crate::chaos::stage::Scene;
use crate::support::judge::Port;
use crate::support::judge::fault::Fault;

/// The CRM ends, and returns at another address behind the judge.
async fn gone(scene: &Scene, kills: usize) {
    let story = async {
        scene.under_way().await;
        scene.judge.port(Port::Closed);
        scene.crm.kill().await;
        scene.trouble_shown(kills, "unreachable").await;
        scene.crm.again().await;
        scene.judge.behind(scene.crm.addr());
        scene.judge.port(Port::Open);
    };
    tokio::join!(scene.work(kills), story);
}

#[tokio::test]
async fn outage_with_the_port_closed_dead_letters_nothing() {
    let scene = Scene::set("CRM gone", &[]).await;
    scene.bad_weather();
    gone(&scene, scene.scale.kills).await;
    scene.judged().await;
}

#[tokio::test]
async fn outage_is_reported_with_its_fix_and_ends_automatically() {
    let scene = Scene::set("CRM gone, no kill", &[]).await;
    gone(&scene, 0).await;
    let fix = scene.fix("unreachable");
    assert!(fix.contains("CRM unreachable since"), "{fix}");
    scene.judged().await;
}

#[tokio::test]
async fn silent_open_port_loses_and_doubles_no_call() {
    let scene = Scene::set("CRM silent", &[]).await;
    scene.bad_weather();
    let story = async {
        scene.under_way().await;
        scene.judge.port(Port::Silent);
        scene.trouble().await;
        scene.judge.port(Port::Open);
    };
    tokio::join!(scene.work(scene.scale.kills), story);
    scene.judged().await;
}

#[tokio::test]
async fn redirect_after_accepted_calls_is_a_failure() {
    let scene = Scene::set("redirected", &[]).await;
    let story = async {
        scene.under_way().await;
        scene.judge.weather(100, &[Fault::Redirect]);
        scene.trouble_shown(0, "failing").await;
        scene.judge.weather(0, &[]);
    };
    tokio::join!(scene.work(0), story);
    let fix = scene.fix("failing");
    assert!(fix.contains("(302)"), "{fix}");
    scene.judged().await;
}
