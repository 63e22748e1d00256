//! Tests that every call is journaled once and correctly if the connection to the PBX is cut.

use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::{Place, Program};
use crate::support::recordings::{self, LEADS, Recording};
use callbridge_model::Status;
use callbridge_sandbox::Server;
use callbridge_testbed::pbx::{self, FakePbx};

/// Returns a recording that begins in two seconds. A call that begins before callbridge listens is
/// not a gap.
fn soon(name: &str) -> Recording {
    let now = callbridge_model::clock::now().wall.floor_seconds().get();
    recordings::one(name).moved_to(now + 2)
}

/// Returns a trunk whose leads come from a list, because CEL has no variables.
fn trunk(place: &Place) -> String {
    let leads = place.write("leads.csv", LEADS);
    format!("--trunk=city=PJSIP/city,country=UZ,strip=9,lead=csv:{leads}")
}

fn catch_up(place: &Place) -> String {
    format!("--catch-up=file://{}?format=cel-csv", place.path("cel.csv"))
}

/// Returns the flags for a manager as the source, with an empty CEL file to catch up from.
fn flags(place: &Place, pbx: &FakePbx) -> [String; 4] {
    place.write("cel.csv", "");
    [
        place.ami(pbx),
        catch_up(place),
        trunk(place),
        RATE_FLAG.to_owned(),
    ]
}

async fn heard(program: &mut Program, messages: u64) {
    let all = |it: &Status| {
        // A file is read from its end when it is opened, so earlier lines would be skipped.
        let open = it.sources.iter().all(|of| of.state.is_up());
        open && it.sources[0].read + it.sources[0].skipped >= messages
    };
    program.until("what was said", all).await;
}

async fn ends_right(place: &Place, crm: &Server, mut program: Program, calls: &[Recording]) {
    let expected = recordings::expected(calls);
    let finished = u64::try_from(expected.len()).expect("few");
    program.settled(finished).await;
    program.terminate().await;
    crm::judge(crm, &place.letters().await, &expected);
}

#[tokio::test]
async fn cel_catch_up_file_completes_calls_that_overlap_gap() {
    let (place, crm, pbx) = (Place::new(), crm::start().await, FakePbx::ami().await);
    let flags = flags(&place, &pbx);
    let mut program = place.run(&crm.url(), &flags);
    pbx.logged_in(1).await;

    let (ends, lies, begins) = ("inbound_answered", "outbound_answered", "ring_group");
    let (ends, lies, begins) = (soon(ends), soon(lies), soon(begins));
    let events = ends.channel_events();
    let before = events[..8].concat();
    recordings::have_happened(&before).await;
    pbx.say(&before).await;
    heard(&mut program, 8).await;
    pbx.answers("Login", &[pbx::NOT_YET]);
    pbx.cut().await;
    for call in [&ends, &lies, &begins] {
        recordings::have_happened(&call.ami).await;
        place.append("cel.csv", &call.cel_lines());
    }
    pbx.answers("Login", &[pbx::COME_IN]);
    program
        .until("a gap", |status| status.sources[0].gaps == 1)
        .await;
    let events = begins.channel_events();
    pbx.say(&events[events.len() / 2..].concat()).await;

    ends_right(&place, &crm, program, &[ends, lies, begins]).await;
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

    let (ends, lies) = (soon("inbound_answered"), soon("outbound_answered"));
    let before = ends.channel_events()[..8].concat();
    recordings::have_happened(&before).await;
    pbx.say(&before).await;
    heard(&mut program, 8).await;
    pbx.lists_no_channels();
    pbx.answers("Login", &[pbx::NOT_YET]);
    pbx.cut().await;
    for call in [&ends, &lies] {
        recordings::have_happened(&call.ami).await;
        place.append("Master.csv", &call.rows());
    }
    pbx.answers("Login", &[pbx::COME_IN]);
    program
        .until("a gap", |status| status.sources[0].gaps == 1)
        .await;
    ends_right(&place, &crm, program, &[ends, lies]).await;
}

#[tokio::test]
async fn call_cut_by_kill_is_completed_by_cel_catch_up_file() {
    let (place, crm, pbx) = (Place::new(), crm::start().await, FakePbx::ami().await);
    let flags = flags(&place, &pbx);
    let program = place.run(&crm.url(), &flags);
    pbx.logged_in(1).await;
    let call = soon("attended_transfer");
    let events = call.channel_events();
    let mut program = program;
    pbx.say(&events[..events.len() / 2].concat()).await;
    heard(&mut program, u64::try_from(events.len() / 2).expect("few")).await;
    program.kill().await;

    place.append("cel.csv", &call.cel_lines());
    let program = place.run(&crm.url(), &flags);
    pbx.logged_in(2).await;
    ends_right(&place, &crm, program, &[call]).await;
}

#[tokio::test]
async fn call_gone_after_gap_without_file_is_incomplete_and_retryable() {
    let (place, crm, pbx) = (Place::new(), crm::start().await, FakePbx::ami().await);
    let flags = [place.ami(&pbx), trunk(&place), RATE_FLAG.to_owned()];
    let mut program = place.run(&crm.url(), &flags);
    pbx.logged_in(1).await;
    let call = soon("inbound_answered");
    let events = call.channel_events();
    // Send all but the second half, so the hangups are missed.
    pbx.say(&events[..events.len() / 2].concat()).await;
    heard(&mut program, u64::try_from(events.len() / 2).expect("few")).await;
    pbx.lists_no_channels();
    pbx.cut().await;
    pbx.logged_in(2).await;
    let status = program.until("a letter", |it| it.books.dead == 1).await;
    let gap = status.sources[0].last_gap.expect("a gap");
    assert!(
        gap.from <= gap.until && status.sources[0].gaps == 1,
        "{status:?}"
    );
    let letters = place.letters().await;
    assert_eq!(letters[0]["reason"], "incomplete");
    assert_eq!(letters[0]["call"]["leadId"], 4001);

    let retried = place.command(&["dead", "retry", "--all"]).await;
    assert!(retried.status.success(), "{retried:?}");
    program.settled(1).await;
    program.terminate().await;
    assert_eq!(crm.journal().len(), 1);
    let asked = pbx.asked().join("\n");
    assert!(asked.contains("Action: CoreShowChannels"), "{asked}");
}

/// The lead is in a channel variable, which CDRs do not have.
#[tokio::test]
async fn dead_letter_completed_by_cdrs_keeps_lead_from_events() {
    let (place, crm, pbx) = (Place::new(), crm::start().await, FakePbx::ami().await);
    let alone = [
        place.ami(&pbx),
        recordings::TRUNKS[0].to_owned(),
        RATE_FLAG.to_owned(),
        "--cdr-wait=1s".to_owned(),
        "--pbx-timezone=UTC".to_owned(),
    ];
    let mut program = place.run(&crm.url(), &alone);
    pbx.logged_in(1).await;
    let call = soon("inbound_answered");
    let events = call.channel_events();
    let half = events.len() / 2;
    pbx.say(&events[..half].concat()).await;
    heard(&mut program, u64::try_from(half).expect("few")).await;
    pbx.lists_no_channels();
    pbx.cut().await;
    pbx.logged_in(2).await;
    program.until("a letter", |it| it.books.dead == 1).await;
    program.terminate().await;
    assert_eq!(place.letters().await[0]["call"]["leadId"], 4001);

    let rows = String::from_utf8(call.rows()).expect("UTF-8");
    let file = place.write("Master.csv", rows.replace("lead=4001", ""));
    let mut flags = alone.to_vec();
    flags.push(format!("--catch-up=file://{file}?format=cdr-csv"));
    let mut program = place.run(&crm.url(), &flags);
    program
        .until("its correction", |it| it.books.journaled == 1)
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
        catch_up(&place),
        trunk(&place),
        RATE_FLAG.to_owned(),
    ];
    let mut program = place.run(&crm.url(), &flags);
    pbx.logged_in(1).await;
    let call = soon("blind_transfer");
    let frames: Vec<&[u8]> = call.frames().collect();
    recordings::have_happened(&frames[..frames.len() / 3].concat()).await;
    for frame in &frames[..frames.len() / 3] {
        pbx.say(frame).await;
    }
    heard(&mut program, u64::try_from(frames.len() / 3).expect("few")).await;
    // No further event arrives until the end of the call.
    recordings::have_happened(&call.ami).await;
    pbx.cut().await;
    place.append("cel.csv", &call.cel_lines());
    pbx.logged_in(2).await;
    ends_right(&place, &crm, program, &[call]).await;
    assert_eq!(
        pbx.asked(),
        [""; 0],
        "what is sent becomes an action of the PBX"
    );
}
