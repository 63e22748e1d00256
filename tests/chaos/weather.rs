//! Tests faults and kills: the CRM and the connection to it fail at any time, and callbridge is
//! killed at any time.

use crate::chaos::stage::Scene;

/// Promise: Cut connections and wrong answers lose no call and double none.
#[tokio::test]
async fn calls_through_faults_and_kills_are_journaled_once() {
    let scene = Scene::set("faults and kills", &[]).await;
    scene.bad_weather();
    scene.work(scene.scale.kills).await;
    scene.judged().await;
}

#[tokio::test]
async fn calls_through_faults_only_are_journaled_once() {
    let scene = Scene::set("faults", &[]).await;
    scene.bad_weather();
    scene.work(0).await;
    scene.judged().await;
}

#[tokio::test]
async fn calls_through_kills_only_are_journaled_once() {
    let scene = Scene::set("kills", &[]).await;
    scene.work(scene.scale.kills).await;
    scene.judged().await;
}
