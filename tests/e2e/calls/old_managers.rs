//! Tests managers that treat filters and classes the way old releases do.

use crate::support::crm::{self, RATE_FLAG};
use crate::support::live;
use crate::support::program::Place;
use crate::support::recordings::{self, Recording};
use callbridge_model::Status;
use callbridge_model::status::{OverallState, RightKind, SourceState};
use callbridge_testbed::agents;
use callbridge_testbed::pbx::{FakePbx, Release};
use futures_util::future::join_all;

const TRUNKS: [&str; 2] = [
    "--trunk=city=SIP/city,country=UZ,strip=9,lead=var:LEAD_ID",
    "--trunk=gsm=SIP/gsm,country=UZ,strip=8,lead=var:LEAD_ID",
];
/// Recordings whose calls are incomplete, because AMI 1.8 doesn't report conferences.
const INCOMPLETE: [(&str, &str); 1] = [("1.8", "conference")];

/// Returns a release's recordings. Each call has its own ID, and queue phones are reported as with
/// the settings shipped with the release.
fn recordings_with_queue_events(name: &str) -> Vec<Recording> {
    let mut recordings = recordings::for_release(name);
    assert_eq!(recordings.len(), 24, "the recordings of {name}");
    for recording in &mut recordings {
        recording.ami = agents::called(&recording.ami);
        let several = recording.calls.len() > 1;
        let ids = several.then(|| recording.ids_by_caller());
        for call in &mut recording.calls {
            if let Some(ids) = &ids {
                let caller = call["clientPhone"].as_str().expect("a number");
                call["linkedid"] = ids[caller].as_str().into();
            }
            // From Asterisk 12 on, a channel stays in its bridge while it dials a feature code,
            // which counts as talk time.
            let by_rule = call.get("talkTimeSecByBridgeRule").cloned();
            if name == "13"
                && let Some(by_rule) = by_rule
            {
                call["talkTimeSec"] = by_rule;
            }
            if INCOMPLETE.contains(&(name, &recording.name)) {
                call["reason"] = "incomplete".into();
            }
        }
    }
    recordings
}

/// Plays every recording from a release through that release's manager, and checks the journal.
async fn play_release(name: &str, release: Release) {
    let (place, crm, pbx) = (Place::new(), crm::start().await, FakePbx::ami().await);
    pbx.set_release(release);
    pbx.list_no_channels();
    let source = place.ami(&pbx);
    let flags = [source.as_str(), TRUNKS[0], TRUNKS[1], RATE_FLAG];
    let mut program = place.run(&crm.url(), &flags);
    pbx.logged_in(1).await;
    pbx.wait_for_action("Action: CoreShowChannels").await;
    let calls = live::moved_to_soon(&recordings_with_queue_events(name));
    live::send_events(&pbx, &calls).await;
    let expected = recordings::expected(&calls);
    let finished = u64::try_from(expected.len()).expect("few");
    program.settled(finished).await;
    program.terminate().await;
    crm::judge(&crm, &place.letters().await, &expected);
}

/// Returns how often callbridge sent this action. `action` is the start of the message.
fn count_actions(pbx: &FakePbx, action: &str) -> usize {
    let received = pbx.requests().into_iter();
    received.filter(|text| text.starts_with(action)).count()
}

#[tokio::test]
async fn old_ami_filter_rules_lose_no_recorded_call() {
    let releases = [
        ("1.8", Release::V1_8),
        ("11", Release::V11),
        ("13", Release::V13),
    ];
    join_all(releases.map(|(name, release)| play_release(name, release))).await;
}

fn lacks_filter(status: &Status) -> bool {
    let mut missing_rights = status.sources[0].missing_rights.iter();
    missing_rights.any(|right| right.kind == RightKind::Filter)
}

#[tokio::test]
async fn ami_filter_that_blocks_all_events_is_reported_and_dropped() {
    let (place, crm, pbx) = (Place::new(), crm::start().await, FakePbx::ami().await);
    pbx.set_release(Release::Mute);
    pbx.list_no_channels();
    let source = place.ami(&pbx);
    let flags = [source.as_str(), TRUNKS[0], TRUNKS[1], RATE_FLAG];
    let mut program = place.run(&crm.url(), &flags);
    pbx.logged_in(1).await;
    pbx.logged_in(2).await;
    // callbridge sends the first ping at login, and the third one 40 s later.
    assert!(
        count_actions(&pbx, "Action: Ping") <= 3,
        "{:?}",
        pbx.requests()
    );
    let filters = count_actions(&pbx, "Action: Filter");
    assert!(filters > 30, "the first login asked for filters");
    let status = program
        .until("the missing right to filter", lacks_filter)
        .await;
    assert_eq!(
        status.verdict,
        OverallState::Ok,
        "callbridge fixes the filter automatically"
    );
    // Without filters, the manager sends back callbridge's own event, even if there are no calls.
    program
        .until("a source that is up", |current| {
            current.sources[0].state == SourceState::Up && lacks_filter(current)
        })
        .await;
    assert_eq!(
        count_actions(&pbx, "Action: Filter"),
        filters,
        "the second login requests no filter"
    );
    assert!(place.logs().contains("logged in again without a filter"));

    let calls = live::moved_to_soon(&recordings_with_queue_events("11"));
    live::send_events(&pbx, &calls).await;
    let expected = recordings::expected(&calls);
    let finished = u64::try_from(expected.len()).expect("few");
    program.settled(finished).await;
    program.terminate().await;
    crm::judge(&crm, &place.letters().await, &expected);
}
