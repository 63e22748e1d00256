//! Tests unusual answers that the document allows.

use crate::chaos::stage::Scene;

/// More than a page of records of other phone systems in the journal.
const OTHERS: &str = "{\"count\": 130}";

async fn prepare(name: &'static str, shape: &str, refused_pages: usize) -> Scene {
    let flag = format!("--faults={shape}");
    let mut scene = Scene::prepare(name, &[&flag]).await;
    scene.law.refused_pages = refused_pages;
    if refused_pages > 0 {
        scene.allowed = &["invalid"];
    }
    scene
}

async fn play(scene: Scene) {
    scene.crm.admin("records", OTHERS).await;
    scene.begin_faults();
    let story = async {
        scene.wait_until_under_way().await;
        scene.crm.admin("records", OTHERS).await;
    };
    tokio::join!(scene.work(scene.scale.kills), story);
    scene.check_result().await;
}

async fn run_with_shape(name: &'static str, shape: &str, refused_pages: usize) {
    play(prepare(name, shape, refused_pages).await).await;
}

#[tokio::test]
async fn bare_statuses_string_rows_and_flat_pages_are_read() {
    let shape = "shape status bare; shape rows strings; shape page beside";
    run_with_shape("other shapes", shape, 0).await;
}

#[tokio::test]
async fn rows_under_other_key_and_unknown_pending_status_are_read() {
    let shape = "shape rows-key items; shape pending QUEUED";
    run_with_shape("other words", shape, 0).await;
}

#[tokio::test]
async fn calls_are_polled_if_the_journal_refuses_the_range() {
    let mut scene = prepare("range refused", "shape range refused", 2).await;
    // No page is read for an hour then, so a call whose requestId was lost in a kill is sent again.
    scene.law.again = true;
    play(scene).await;
}

#[tokio::test]
async fn journal_that_ignores_the_range_is_still_read() {
    run_with_shape("range ignored", "shape range ignored", 0).await;
}

#[tokio::test]
async fn journal_with_range_by_call_start_is_read() {
    let mut scene = prepare("range of beginnings", "shape registered started", 0).await;
    // Such a page does not show calls that began long before they were sent. A call whose requestId
    // was lost in a kill is sent again.
    scene.law.again = true;
    play(scene).await;
}

#[tokio::test]
async fn journal_with_pages_of_thirty_is_still_read() {
    run_with_shape("pages of thirty", "shape size-max 30", 3).await;
}

#[tokio::test]
async fn calls_written_late_by_crm_are_journaled_once() {
    let persist = if crate::chaos::stage::scale().calls > 100 {
        "--persist-after=30s"
    } else {
        "--persist-after=6s"
    };
    let scene = Scene::prepare("late writing", &[persist]).await;
    scene.begin_faults();
    scene.work(scene.scale.kills).await;
    scene.check_result().await;
}
