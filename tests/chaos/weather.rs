//! Bad weather and kills: the service and the way to it fail at any moment, and callbridge ends at
//! any moment.

use crate::stage::Scene;

#[tokio::test]
async fn calls_through_faults_and_kills_are_each_journaled_once_and_no_rule_is_broken() {
    let scene = Scene::set("faults and kills", &[]).await;
    scene.bad_weather();
    scene.work(scene.scale.kills).await;
    scene.judged().await;
}

#[tokio::test]
async fn calls_through_faults_alone_are_each_journaled_once_and_no_rule_is_broken() {
    let scene = Scene::set("faults", &[]).await;
    scene.bad_weather();
    scene.work(0).await;
    scene.judged().await;
}

#[tokio::test]
async fn calls_through_kills_alone_are_each_journaled_once_and_no_rule_is_broken() {
    let scene = Scene::set("kills", &[]).await;
    scene.work(scene.scale.kills).await;
    scene.judged().await;
}
