//! Tests faults and kills: the CRM and the connection to it fail at any time, and callbridge is
//! killed at any time.

use crate::chaos::stage::Scene;

/// Promise: Cut connections and wrong answers lose no call and double none.
#[tokio::test]
async fn calls_through_faults_and_kills_are_journaled_once() {
    let scene = Scene::prepare("faults and kills", &[]).await;
    scene.begin_faults();
    scene.work(scene.scale.kills).await;
    scene.check_result().await;
}

#[tokio::test]
async fn calls_through_faults_only_are_journaled_once() {
    let scene = Scene::prepare("faults", &[]).await;
    scene.begin_faults();
    scene.work(0).await;
    scene.check_result().await;
}

#[tokio::test]
async fn calls_through_kills_only_are_journaled_once() {
    let scene = Scene::prepare("kills", &[]).await;
    scene.work(scene.scale.kills).await;
    scene.check_result().await;
}
