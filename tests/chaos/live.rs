//! Tests calls that end while older ones wait.

use crate::chaos::stage::Scene;
use crate::support::judge::seen::Seen;
use crate::support::recordings::{self, Recording};
use callbridge_testbed::pbx::{self, FakePbx};
use std::cell::Cell;

/// Returns a customer's call that has just taken place.
fn just_now() -> Recording {
    let now = callbridge_model::clock::now().wall.floor_seconds().get();
    recordings::one("inbound_answered").moved_to(now - 3)
}

#[tokio::test]
async fn live_ami_call_is_sent_before_a_draining_backlog() {
    let pbx = FakePbx::ami().await;
    let mut scene = Scene::prepare("live and backlog", &["--rate=12/2s"]).await;
    let secret = scene.place.write("secret", pbx::SECRET);
    scene.add_flag(&format!(
        "--source=ami://bridge@{}?secret-file={secret}&pbx=pbx1",
        pbx.addr()
    ));
    scene.limit_rate(12);
    scene.report_all();
    let mut program = scene.run();
    pbx.logged_in(1).await;
    scene.judge.wait_for_requests(10).await;
    let call = just_now();
    let before = scene.judge.count();
    pbx.say(&call.events().collect::<Vec<_>>().concat()).await;
    let calls = scene.scale.calls as u64 + 1;
    let ready = Cell::new(0);
    scene
        .wait_for(&mut program, "the live call's end", |status| {
            ready.set(status.books.ready);
            status.books.finished == calls
        })
        .await;
    scene.add_call(call.clone());
    scene
        .wait_until_journaled(&mut program, scene.scale.calls + 1)
        .await;
    program.terminate().await;
    scene.check_result().await;

    let uuid = recordings::expected(&[call])[0].uuid.clone();
    let order: Vec<String> = scene.judge.seen().iter().filter_map(Seen::uuid).collect();
    let place = order
        .iter()
        .position(|sent| *sent == uuid)
        .expect("submitted");
    let after = order.len() - 1 - place;
    let waiting = usize::try_from(ready.get()).expect("few");
    // The live call can be one of the waiting calls. The other seven are more than the calls that
    // can be under way when it ends. On a slow machine, too few calls might still wait to show
    // their order. The simulation tests the order in virtual time.
    assert!(
        after >= waiting.saturating_sub(8),
        "{after} of {waiting} after it ({before})"
    );
}
