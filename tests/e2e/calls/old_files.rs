//! Tests CEL files from Asterisk 11, both as the only source and as the catch-up file for a dropped
//! AMI connection. An answered call must never be journaled as missed.

use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::Place;
use crate::support::recordings::{self, LEADS, Recording};
use callbridge_sandbox::Server;
use callbridge_testbed::expected::Expected;
use callbridge_testbed::pbx::{self, FakePbx, Release};
use futures_util::future::join_all;

/// Recordings with a `cel.conf` that doesn't enable any of the bridge events used before Asterisk
/// 12, so the CEL file doesn't show who talked.
const UNBRIDGED: Calls = (
    "11-shipped-cel-conf",
    ["blind_transfer_refer", "inbound_answered", "pickup"],
);
/// Recordings with the `cel.conf` from deploy/.
const BRIDGED: Calls = (
    "11",
    ["inbound_answered", "outbound_answered", "ring_group"],
);

/// A directory of recordings, along with three calls in it.
type Calls = (&'static str, [&'static str; 3]);

/// Returns these recordings, shifted so that they start in two seconds. A call that starts before
/// callbridge is listening isn't in a gap.
fn upcoming_recordings((release, names): Calls) -> [Recording; 3] {
    let now = callbridge_model::clock::now().wall.floor_seconds().get();
    let all = recordings::for_release(release);
    names.map(|name| {
        let recording = all.iter().find(|recording| recording.name == name);
        recording.expect("a recording").moved_to(now + 2)
    })
}

/// Returns the flag for a trunk whose leads come from a list, because CEL has no variables.
fn trunk(place: &Place) -> String {
    let leads = place.write("leads.csv", LEADS);
    format!("--trunk=city=SIP/city,country=UZ,strip=9,lead=csv:{leads}")
}

/// Returns the expected outcomes if CEL has no bridge events. Calls with a dead letter are
/// incomplete, whereas the others were completely reported by AMI and are journaled.
fn expected_without_bridges(calls: &[Recording], letters: &[serde_json::Value]) -> Vec<Expected> {
    let mut all = recordings::expected(calls);
    for call in &mut all {
        assert!(call.answered, "all of them were answered");
        let is_dead = letters
            .iter()
            .any(|letter| letter["linkedid"] == *call.linkedid);
        call.reason = is_dead.then(|| "incomplete".to_owned());
    }
    all
}

/// Drops the connection in the middle of the first call. The second call falls into the gap, and
/// the third one starts in it. The gap is filled by the PBX's CEL file.
async fn run_with_gap((release, names): Calls) -> (Place, Server, [Recording; 3]) {
    let (place, crm, pbx) = (Place::new(), crm::start().await, FakePbx::ami().await);
    pbx.set_release(Release::V11);
    let file = place.write("cel.csv", "");
    let flags = [
        place.ami(&pbx),
        format!("--catch-up=file://{file}?format=cel-csv"),
        trunk(&place),
        RATE_FLAG.to_owned(),
    ];
    let mut program = place.run(&crm.url(), &flags);
    pbx.wait_for_action("Action: CoreShowChannels").await;
    let calls = upcoming_recordings((release, names));
    let first = calls[0].channel_events();
    let first_half = first[..first.len() / 2].concat();
    recordings::wait_until_happened(&first_half).await;
    pbx.say(&first_half).await;
    // callbridge starts reading a file where it ends when it's opened, so earlier lines would be
    // skipped.
    program
        .until("the first call's beginning", |status| {
            status.sources[0].last_event_at.is_some() && status.sources[1].state.is_up()
        })
        .await;
    // Logins fail until the file has been read, so these calls are certain to be in the gap.
    pbx.answers("Login", &[pbx::NOT_YET]);
    pbx.list_no_channels();
    pbx.cut().await;
    for call in &calls {
        recordings::wait_until_happened(&call.ami).await;
    }
    let rows = calls.each_ref().map(|call| call.cel_of_release(release));
    let rows = rows.concat();
    place.append("cel.csv", &rows);
    let lines = rows.iter().filter(|byte| **byte == b'\n').count();
    program
        .until("the CEL file is read", |status| {
            let source = &status.sources[1];
            source.read + source.skipped >= u64::try_from(lines).expect("few")
        })
        .await;
    pbx.answers("Login", &[pbx::COME_IN]);
    program
        .until("a gap", |status| status.sources[0].gaps == 1)
        .await;
    let third = calls[2].channel_events();
    pbx.say(&third[third.len() / 2..].concat()).await;
    program.settled(3).await;
    program.terminate().await;
    (place, crm, calls)
}

/// Returns three permutations of the calls, with each call first in one of them, second in another,
/// and third in the last.
fn rotations((release, names): Calls) -> [Calls; 3] {
    let [a, b, c] = names;
    [[a, b, c], [b, c, a], [c, a, b]].map(|names| (release, names))
}

#[tokio::test]
async fn catch_up_cel_without_bridges_makes_no_answered_call_missed() {
    let each = rotations(UNBRIDGED).map(async |calls| {
        let (place, crm, calls) = run_with_gap(calls).await;
        let letters = place.letters().await;
        // AMI didn't report anything about the calls in the gap.
        assert!(!letters.is_empty(), "{letters:?}");
        crm::judge(&crm, &letters, &expected_without_bridges(&calls, &letters));
    });
    join_all(each).await;
}

#[tokio::test]
async fn catch_up_cel_with_bridges_fills_gap_of_asterisk_11() {
    let each = rotations(BRIDGED).map(async |calls| {
        let (place, crm, calls) = run_with_gap(calls).await;
        let letters = place.letters().await;
        crm::judge(&crm, &letters, &recordings::expected(&calls));
    });
    join_all(each).await;
}

#[tokio::test]
async fn cel_source_without_bridges_is_incomplete_and_names_fix() {
    let (place, crm, calls) = (
        Place::new(),
        crm::start().await,
        upcoming_recordings(UNBRIDGED),
    );
    for call in &calls {
        place.append("cel.csv", &call.cel_of_release(UNBRIDGED.0));
    }
    let flags = [
        place.file("cel.csv", "cel-csv"),
        trunk(&place),
        RATE_FLAG.to_owned(),
    ];
    let mut program = place.run(&crm.url(), &flags);
    program
        .until("dead letters", |status| status.books.dead == 3)
        .await;
    program.terminate().await;
    let letters = place.letters().await;
    for letter in &letters {
        let message = letter["message"].as_str().unwrap_or_default();
        assert!(message.contains("BRIDGE_START,BRIDGE_END"), "{letter}");
    }
    crm::judge(&crm, &letters, &expected_without_bridges(&calls, &letters));
    assert!(crm.journal().is_empty());
}
