//! Tests that PBX IDs keep different PBXs' calls apart, that a state keeps its PBX ID, and that two
//! daemons reading the same source are reported.

use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::{Place, Program};
use crate::support::recordings::{self, Recording, TRUNKS};
use callbridge_model::status::other_reader::Effect;
use callbridge_sandbox::Server;
use callbridge_testbed::pbx::FakePbx;
use std::collections::BTreeSet;

/// Starts a daemon with this PBX ID. `state` is the name of its state directory and log.
fn start(place: &Place, crm: &Server, state: &str, pbx_id: &str, flags: &[&str]) -> Program {
    let mut arguments = place.arguments(&crm.url(), flags);
    arguments.retain(|flag| !flag.starts_with("--pbx-id") && !flag.starts_with("--state"));
    arguments.push(format!("--pbx-id={pbx_id}"));
    arguments.push(format!("--state={}", place.path(state)));
    place.start_at(state, &arguments, &[])
}

fn uuids(crm: &Server) -> BTreeSet<String> {
    let journal = crm.journal();
    journal
        .iter()
        .map(|record| record.call.uuid.clone())
        .collect()
}

/// Returns a call that took place five minutes ago.
fn recent_call() -> Recording {
    let now = callbridge_model::clock::now().wall.floor_seconds().get();
    recordings::one("inbound_answered").moved_to(now - 300)
}

async fn send_events(pbx: &FakePbx, call: &Recording) {
    pbx.say(&call.events().collect::<Vec<_>>().concat()).await;
}

#[tokio::test]
async fn call_has_the_same_uuid_in_two_states_with_one_pbx_id() {
    let (place, pbx) = (Place::new(), FakePbx::ami().await);
    let source = place.ami(&pbx);
    let (call, mut uuids_by_state) = (recent_call(), Vec::new());
    for (n, state) in [(1, "by-hand"), (2, "service")] {
        let crm = crm::start().await;
        let flags = [&*source, TRUNKS[0], RATE_FLAG];
        let mut program = start(&place, &crm, state, "office", &flags);
        pbx.logged_in(n).await;
        send_events(&pbx, &call).await;
        program.settled(1).await;
        program.terminate().await;
        uuids_by_state.push(uuids(&crm));
    }
    assert_eq!(uuids_by_state[0].len(), 1, "{uuids_by_state:?}");
    assert_eq!(uuids_by_state[0], uuids_by_state[1]);
}

/// Promise: Two PBXs never share a uuid.
#[tokio::test]
async fn two_pbx_ids_never_share_a_uuid() {
    let (place, crm) = (Place::new(), crm::start().await);
    let call = recent_call();
    for pbx_id in ["east", "west"] {
        let pbx = FakePbx::ami().await;
        let flags = [&*place.ami(&pbx), TRUNKS[0], RATE_FLAG];
        let mut program = start(&place, &crm, pbx_id, pbx_id, &flags);
        pbx.logged_in(1).await;
        send_events(&pbx, &call).await;
        program.settled(1).await;
        program.terminate().await;
    }
    assert_eq!(uuids(&crm).len(), 2, "{:?}", crm.journal());
}

#[tokio::test]
async fn catch_up_file_belongs_to_the_pbx_of_its_source() {
    let (place, crm, pbx) = (Place::new(), crm::start().await, FakePbx::ami().await);
    place.write("cel.csv", "");
    let source = format!("{}&pbx=office", place.ami(&pbx));
    let file = format!("--catch-up=file://{}?format=cel-csv", place.path("cel.csv"));
    let mut arguments = place.arguments(&crm.url(), &[&*source, &file, TRUNKS[0], RATE_FLAG]);
    arguments.retain(|flag| !flag.starts_with("--pbx-id"));
    let mut program = place.start(&arguments, &[]);
    pbx.logged_in(1).await;
    let status = program.until("a status", |_| true).await;
    let pbx_ids: Vec<&str> = status
        .sources
        .iter()
        .map(|source| source.pbx.as_str())
        .collect();
    assert_eq!(pbx_ids, ["office", "office"]);
    program.terminate().await;
}

#[tokio::test]
async fn changed_pbx_id_is_refused_by_the_state() {
    let (place, crm, pbx) = (Place::new(), crm::start().await, FakePbx::ami().await);
    let source = place.ami(&pbx);
    let flags = [&*source, TRUNKS[0], RATE_FLAG];
    let mut program = start(&place, &crm, "state", "office", &flags);
    pbx.logged_in(1).await;
    let status = program.until("a status", |_| true).await;
    assert_eq!(status.sources[0].pbx, "office");
    program.terminate().await;

    let refused = start(&place, &crm, "state", "hq", &flags);
    assert_eq!(refused.ended().await.code(), Some(78));
    let log = place.logs();
    assert!(log.contains("Use --pbx-id office"), "{log}");
}

fn process_id(program: &Program) -> i32 {
    i32::try_from(program.id()).expect("an id")
}

#[tokio::test]
async fn daemons_on_the_same_source_report_each_other_until_one_ends() {
    let (place, crm, pbx) = (Place::new(), crm::start().await, FakePbx::ami().await);
    let source = place.ami(&pbx);
    let mut first = start(
        &place,
        &crm,
        "first",
        "pbx1",
        &[&source, TRUNKS[0], RATE_FLAG],
    );
    pbx.logged_in(1).await;
    let second_flags = [&*source, TRUNKS[0], RATE_FLAG];
    let mut second = start(&place, &crm, "second", "pbx1", &second_flags);

    let pid = Some(process_id(&second));
    let status = first.until("the second daemon", |status| {
        !status.sources[0].others.is_empty()
    });
    let status = status.await;
    let [other] = &status.sources[0].others[..] else {
        panic!("{status:?}")
    };
    assert_eq!((other.pid, other.effect), (pid, Effect::Unknown));
    let text = place
        .command(&["status", "--state", &place.path("first")])
        .await;
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    let message = format!("process {} reads it, too", second.id());
    assert!(text.contains(&message), "{text}");
    let status = second.until("the first daemon", |status| {
        !status.sources[0].others.is_empty()
    });
    assert_eq!(
        status.await.sources[0].others[0].pid,
        Some(process_id(&first))
    );
    for log in [first.log(), second.log()] {
        assert!(log.contains("another daemon reads this source"), "{log}");
    }

    // The second daemon takes over the first one's name, so the third one finds the second.
    first.terminate().await;
    second
        .until("the first's end", |status| {
            status.sources[0].others.is_empty()
        })
        .await;
    let third_flags = [&*source, TRUNKS[1], RATE_FLAG];
    let mut third = start(&place, &crm, "third", "pbx1", &third_flags);
    let status = third.until("the second daemon", |status| {
        !status.sources[0].others.is_empty()
    });
    assert_eq!(
        status.await.sources[0].others[0].pid,
        Some(process_id(&second))
    );
    third.terminate().await;
    second
        .until("the third's end", |status| {
            status.sources[0].others.is_empty()
        })
        .await;
    second.terminate().await;
}
