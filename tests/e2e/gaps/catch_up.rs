//! Tests that every call is journaled once and correctly if the connection to the PBX is dropped.

use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::{Place, Program};
use crate::support::recordings::{self, LEADS, Recording};
use callbridge_sandbox::Server;
use callbridge_testbed::pbx::{self, FakePbx};

/// Returns a recording that starts in two seconds. A call that starts before callbridge is
/// listening isn't in a gap.
fn upcoming_recording(name: &str) -> Recording {
    let now = callbridge_model::clock::now().wall.floor_seconds().get();
    recordings::one(name).moved_to(now + 2)
}

/// Returns the flag for a trunk whose leads come from a list, because CEL has no variables.
fn trunk(place: &Place) -> String {
    let leads = place.write("leads.csv", LEADS);
    format!("--trunk=city=PJSIP/city,country=UZ,strip=9,lead=csv:{leads}")
}

/// Returns the flag that makes the CEL file the catch-up file.
fn catch_up_flag(place: &Place) -> String {
    format!("--catch-up=file://{}?format=cel-csv", place.path("cel.csv"))
}

/// Returns the flags for a daemon whose source is this PBX. The catch-up file is an empty CEL file.
fn ami_flags(place: &Place, pbx: &FakePbx) -> [String; 4] {
    place.write("cel.csv", "");
    [
        place.ami(pbx),
        catch_up_flag(place),
        trunk(place),
        RATE_FLAG.to_owned(),
    ]
}

/// Waits until callbridge has read this many of the PBX's messages, and each source is up.
async fn wait_until_read(program: &mut Program, messages: u64) {
    program
        .until("the messages are read", |status| {
            // callbridge starts reading a file where it ends when it's opened, so earlier lines
            // would be skipped.
            let is_up = status.sources.iter().all(|source| source.state.is_up());
            is_up && status.sources[0].read + status.sources[0].skipped >= messages
        })
        .await;
}

/// Waits until the calls have been settled, stops the program, and compares the journal and the
/// dead letters with the calls.
async fn assert_journaled(place: &Place, crm: &Server, mut program: Program, calls: &[Recording]) {
    let expected = recordings::expected(calls);
    let finished = u64::try_from(expected.len()).expect("few");
    program.settled(finished).await;
    program.terminate().await;
    crm::judge(crm, &place.letters().await, &expected);
}

#[tokio::test]
async fn cel_catch_up_file_completes_calls_that_overlap_gap() {
    let (place, crm, pbx) = (Place::new(), crm::start().await, FakePbx::ami().await);
    let flags = ami_flags(&place, &pbx);
    let mut program = place.run(&crm.url(), &flags);
    pbx.logged_in(1).await;

    // The first call ends in the gap, the second one falls entirely into it, and the third one
    // starts in it.
    let first = upcoming_recording("inbound_answered");
    let second = upcoming_recording("outbound_answered");
    let third = upcoming_recording("ring_group");
    let events = first.channel_events();
    let first_part = events[..8].concat();
    recordings::wait_until_happened(&first_part).await;
    pbx.say(&first_part).await;
    wait_until_read(&mut program, 8).await;
    pbx.answers("Login", &[pbx::NOT_YET]);
    pbx.cut().await;
    for call in [&first, &second, &third] {
        recordings::wait_until_happened(&call.ami).await;
        place.append("cel.csv", &call.cel_lines());
    }
    pbx.answers("Login", &[pbx::COME_IN]);
    program
        .until("a gap", |status| status.sources[0].gaps == 1)
        .await;
    let events = third.channel_events();
    pbx.say(&events[events.len() / 2..].concat()).await;

    assert_journaled(&place, &crm, program, &[first, second, third]).await;
    assert!(
        place
            .logs()
            .contains("a gap: events of that time were not received")
    );
}

#[tokio::test]
async fn cdr_catch_up_file_completes_calls_ending_in_or_inside_gap() {
    let (place, crm, pbx) = (Place::new(), crm::start().await, FakePbx::ami().await);
    let file = place.write("Master.csv", "");
    let flags = [
        place.ami(&pbx),
        format!("--catch-up=file://{file}?format=cdr-csv"),
        trunk(&place),
        RATE_FLAG.to_owned(),
        "--cdr-wait=1s".to_owned(),
        "--pbx-timezone=UTC".to_owned(),
    ];
    let mut program = place.run(&crm.url(), &flags);
    pbx.logged_in(1).await;

    // The first call ends in the gap, and the second one falls entirely into it.
    let first = upcoming_recording("inbound_answered");
    let second = upcoming_recording("outbound_answered");
    let first_part = first.channel_events()[..8].concat();
    recordings::wait_until_happened(&first_part).await;
    pbx.say(&first_part).await;
    wait_until_read(&mut program, 8).await;
    pbx.list_no_channels();
    pbx.answers("Login", &[pbx::NOT_YET]);
    pbx.cut().await;
    for call in [&first, &second] {
        recordings::wait_until_happened(&call.ami).await;
        place.append("Master.csv", &call.rows());
    }
    pbx.answers("Login", &[pbx::COME_IN]);
    program
        .until("a gap", |status| status.sources[0].gaps == 1)
        .await;
    assert_journaled(&place, &crm, program, &[first, second]).await;
}

#[tokio::test]
async fn call_cut_by_kill_is_completed_by_cel_catch_up_file() {
    let (place, crm, pbx) = (Place::new(), crm::start().await, FakePbx::ami().await);
    let flags = ami_flags(&place, &pbx);
    let program = place.run(&crm.url(), &flags);
    pbx.logged_in(1).await;
    let call = upcoming_recording("attended_transfer");
    let events = call.channel_events();
    let mut program = program;
    pbx.say(&events[..events.len() / 2].concat()).await;
    wait_until_read(&mut program, u64::try_from(events.len() / 2).expect("few")).await;
    program.kill().await;

    place.append("cel.csv", &call.cel_lines());
    let program = place.run(&crm.url(), &flags);
    pbx.logged_in(2).await;
    assert_journaled(&place, &crm, program, &[call]).await;
}

#[tokio::test]
async fn call_gone_after_gap_without_file_is_incomplete_and_retryable() {
    let (place, crm, pbx) = (Place::new(), crm::start().await, FakePbx::ami().await);
    let flags = [place.ami(&pbx), trunk(&place), RATE_FLAG.to_owned()];
    let mut program = place.run(&crm.url(), &flags);
    pbx.logged_in(1).await;
    let call = upcoming_recording("inbound_answered");
    let events = call.channel_events();
    // Only send the first half of the events, so that the hangups are missed.
    pbx.say(&events[..events.len() / 2].concat()).await;
    wait_until_read(&mut program, u64::try_from(events.len() / 2).expect("few")).await;
    pbx.list_no_channels();
    pbx.cut().await;
    pbx.logged_in(2).await;
    let status = program
        .until("a dead letter", |status| status.books.dead == 1)
        .await;
    let gap = status.sources[0].last_gap.expect("a gap");
    assert!(
        gap.from <= gap.until && status.sources[0].gaps == 1,
        "{status:?}"
    );
    let letters = place.letters().await;
    assert_eq!(letters[0]["reason"], "incomplete");
    assert_eq!(letters[0]["call"]["leadId"], 4001);

    let output = place.command(&["dead", "retry", "--all"]).await;
    assert!(output.status.success(), "{output:?}");
    program.settled(1).await;
    program.terminate().await;
    assert_eq!(crm.journal().len(), 1);
    let actions = pbx.requests().join("\n");
    assert!(actions.contains("Action: CoreShowChannels"), "{actions}");
}

/// The lead is in a channel variable, which CDRs don't have.
#[tokio::test]
async fn dead_letter_completed_by_cdrs_keeps_lead_from_events() {
    let (place, crm, pbx) = (Place::new(), crm::start().await, FakePbx::ami().await);
    let flags_without_file = [
        place.ami(&pbx),
        recordings::TRUNKS[0].to_owned(),
        RATE_FLAG.to_owned(),
        "--cdr-wait=1s".to_owned(),
        "--pbx-timezone=UTC".to_owned(),
    ];
    let mut program = place.run(&crm.url(), &flags_without_file);
    pbx.logged_in(1).await;
    let call = upcoming_recording("inbound_answered");
    let events = call.channel_events();
    let half = events.len() / 2;
    pbx.say(&events[..half].concat()).await;
    wait_until_read(&mut program, u64::try_from(half).expect("few")).await;
    pbx.list_no_channels();
    pbx.cut().await;
    pbx.logged_in(2).await;
    program
        .until("a dead letter", |status| status.books.dead == 1)
        .await;
    program.terminate().await;
    assert_eq!(place.letters().await[0]["call"]["leadId"], 4001);

    let rows = String::from_utf8(call.rows()).expect("UTF-8");
    let file = place.write("Master.csv", rows.replace("lead=4001", ""));
    let mut flags = flags_without_file.to_vec();
    flags.push(format!("--catch-up=file://{file}?format=cdr-csv"));
    let mut program = place.run(&crm.url(), &flags);
    program
        .until("the corrected call", |status| status.books.journaled == 1)
        .await;
    program.terminate().await;
    assert!(place.letters().await.is_empty(), "one record, no letter");
    assert_eq!(crm.journal().len(), 1);
    assert_eq!(crm.journal()[0].call.lead_id, 4001);
}

#[tokio::test]
async fn websocket_gap_is_filled_from_file_without_sending_actions() {
    let (place, crm, pbx) = (Place::new(), crm::start().await, FakePbx::websocket().await);
    place.write("cel.csv", "");
    let source = format!("--source=ws://{}/", pbx.addr());
    let flags = [
        source,
        catch_up_flag(&place),
        trunk(&place),
        RATE_FLAG.to_owned(),
    ];
    let mut program = place.run(&crm.url(), &flags);
    pbx.logged_in(1).await;
    let call = upcoming_recording("blind_transfer");
    let frames: Vec<&[u8]> = call.frames().collect();
    recordings::wait_until_happened(&frames[..frames.len() / 3].concat()).await;
    for frame in &frames[..frames.len() / 3] {
        pbx.say(frame).await;
    }
    wait_until_read(&mut program, u64::try_from(frames.len() / 3).expect("few")).await;
    // No further events arrive until the end of the call.
    recordings::wait_until_happened(&call.ami).await;
    pbx.cut().await;
    place.append("cel.csv", &call.cel_lines());
    pbx.logged_in(2).await;
    assert_journaled(&place, &crm, program, &[call]).await;
    assert_eq!(
        pbx.requests(),
        [""; 0],
        "the PBX would execute whatever callbridge sends"
    );
}
