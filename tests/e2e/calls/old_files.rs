//! CEL of Asterisk 11, alone and where the line to its manager was cut: is a call that was answered
//! ever journaled as missed?

use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::Place;
use crate::support::recordings::{self, LEADS, Recording};
use callbridge_model::Status;
use callbridge_sandbox::Server;
use callbridge_testbed::expected::Expected;
use callbridge_testbed::pbx::{self, FakePbx, Release};
use futures_util::future::join_all;

/// CEL as a `cel.conf` that names no bridge before Asterisk 12 writes it: nobody knows who talked.
const UNBRIDGED: Calls = (
    "11-shipped-cel-conf",
    ["blind_transfer_refer", "inbound_answered", "pickup"],
);
/// As ours has it written.
const BRIDGED: Calls = (
    "11",
    ["inbound_answered", "outbound_answered", "ring_group"],
);

/// What CEL is written by, and three calls.
type Calls = (&'static str, [&'static str; 3]);

/// These recordings, taking place in a moment: what began before anybody listened is no gap.
fn soon((release, names): Calls) -> [Recording; 3] {
    let now = callbridge_model::clock::now().wall.floor_seconds().get();
    let all = recordings::of_release(release);
    names.map(|name| {
        let one = all.iter().find(|it| it.name == name);
        one.expect("a recording").moved_to(now + 2)
    })
}

/// CEL has no variables: leads come from a list.
fn trunk(place: &Place) -> String {
    let leads = place.write("leads.csv", LEADS);
    format!("--trunk=city=SIP/city,country=UZ,strip=9,lead=csv:{leads}")
}

/// What has to become of these calls where CEL tells of no bridge: the journal has what AMI heard
/// whole, and the others are letters.
fn whole_or_incomplete(calls: &[Recording], letters: &[serde_json::Value]) -> Vec<Expected> {
    let mut all = recordings::expected(calls);
    for call in &mut all {
        assert!(call.answered, "all of them were answered");
        let letter = letters.iter().any(|it| it["linkedid"] == *call.linkedid);
        call.reason = letter.then(|| "incomplete".to_owned());
    }
    all
}

/// The line is cut in the middle of the first call, the second lies in the gap, the third begins
/// in it; the PBX's file of CEL fills the gap.
async fn cut((release, names): Calls) -> (Place, Server, [Recording; 3]) {
    let (place, crm, pbx) = (Place::new(), crm::start().await, FakePbx::ami().await);
    pbx.is_of(Release::V11);
    let file = place.write("cel.csv", "");
    let flags = [
        place.ami(&pbx),
        format!("--catch-up=file://{file}?format=cel-csv"),
        trunk(&place),
        RATE_FLAG.to_owned(),
    ];
    let mut program = place.run(&crm.url(), &flags);
    pbx.is_asked("Action: CoreShowChannels").await;
    let calls = soon((release, names));
    let ends = calls[0].channel_events();
    let first_half = ends[..ends.len() / 2].concat();
    recordings::have_happened(&first_half).await;
    pbx.say(&first_half).await;
    // What is written to the file before it is open lies before its end, where reading begins.
    let heard = |it: &Status| it.sources[0].last_event_at.is_some() && it.sources[1].state.is_up();
    program.until("the first call's beginning", heard).await;
    // Nobody is let in again before the file is read: what lies in the gap lies in it for sure.
    pbx.answers("Login", &[pbx::NOT_YET]);
    pbx.lists_no_channels();
    pbx.cut().await;
    for call in &calls {
        recordings::have_happened(&call.ami).await;
    }
    let rows = calls.each_ref().map(|call| call.cel_of_release(release));
    let rows = rows.concat();
    place.append("cel.csv", &rows);
    let lines = rows.iter().filter(|byte| **byte == b'\n').count();
    let read = |it: &Status| {
        let of = &it.sources[1];
        of.read + of.skipped >= u64::try_from(lines).expect("few")
    };
    program.until("the file of CEL read", read).await;
    pbx.answers("Login", &[pbx::COME_IN]);
    program.until("a gap", |it| it.sources[0].gaps == 1).await;
    let begins = calls[2].channel_events();
    pbx.say(&begins[begins.len() / 2..].concat()).await;
    program.settled(3).await;
    program.terminate().await;
    (place, crm, calls)
}

/// Each of the calls in each place.
fn rotated((release, names): Calls) -> [Calls; 3] {
    let [a, b, c] = names;
    [[a, b, c], [b, c, a], [c, a, b]].map(|names| (release, names))
}

#[tokio::test]
async fn catch_up_cel_without_bridges_makes_no_answered_call_missed() {
    let each = rotated(UNBRIDGED).map(async |calls| {
        let (place, crm, calls) = cut(calls).await;
        let letters = place.letters().await;
        // Of what lies in the gap AMI heard nothing.
        assert!(!letters.is_empty(), "{letters:?}");
        crm::judge(&crm, &letters, &whole_or_incomplete(&calls, &letters));
    });
    join_all(each).await;
}

#[tokio::test]
async fn catch_up_cel_with_bridges_fills_gap_of_asterisk_11() {
    let each = rotated(BRIDGED).map(async |calls| {
        let (place, crm, calls) = cut(calls).await;
        let letters = place.letters().await;
        crm::judge(&crm, &letters, &recordings::expected(&calls));
    });
    join_all(each).await;
}

#[tokio::test]
async fn cel_source_without_bridges_is_incomplete_and_names_fix() {
    let (place, crm, calls) = (Place::new(), crm::start().await, soon(UNBRIDGED));
    for call in &calls {
        place.append("cel.csv", &call.cel_of_release(UNBRIDGED.0));
    }
    let flags = [
        place.file("cel.csv", "cel-csv"),
        trunk(&place),
        RATE_FLAG.to_owned(),
    ];
    let mut program = place.run(&crm.url(), &flags);
    program.until("letters", |it| it.books.dead == 3).await;
    program.terminate().await;
    let letters = place.letters().await;
    for letter in &letters {
        let words = letter["message"].as_str().unwrap_or_default();
        assert!(words.contains("BRIDGE_START,BRIDGE_END"), "{letter}");
    }
    crm::judge(&crm, &letters, &whole_or_incomplete(&calls, &letters));
    assert!(crm.journal().is_empty());
}
