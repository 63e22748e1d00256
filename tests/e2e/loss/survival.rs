//! Tests calls during which callbridge, the CRM, or the token fails.

use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::{Place, TOKEN};
use crate::support::recordings::{self, Recording, TRUNKS};
use callbridge_model::Status;
use callbridge_sandbox as sandbox;
use callbridge_sandbox::token::{CALL_READ, CALL_SAVE, Grant};
use callbridge_sandbox::{Action, Endpoint, Rule, Server, ViolationKind};
use callbridge_testbed::broker::{self, Broker};
use callbridge_testbed::pbx::{self, FakePbx};
use callbridge_testbed::wait::{pass, until};
use std::time::Duration;

/// Returns the time five minutes ago, in seconds since the epoch.
fn five_minutes_ago() -> i64 {
    callbridge_model::clock::now().wall.floor_seconds().get() - 300
}

/// Returns a predicate that's true while sending is paused for this reason.
fn is_paused_by(reason: &str) -> impl Fn(&Status) -> bool {
    move |status| (status.pause.as_ref()).is_some_and(|pause| pause.reason == reason)
}

/// Longer than a gap during which nothing can be missed.
const LONG_GAP: Duration = Duration::from_secs(3);

/// Returns a call that the tests interrupt.
fn cut_call() -> Recording {
    recordings::one("attended_transfer").moved_to(five_minutes_ago())
}

/// Returns an internal call that starts after these events. Since a source reports events in order,
/// all of these events have been stored once the internal call is finished.
fn internal_call_after(events: &[&[u8]]) -> Recording {
    let cut_time = recordings::last_time(&events.concat()).expect("a time");
    recordings::one("internal_call").moved_to(cut_time.floor_seconds().get())
}

/// Divides the call's events at the point before the employee puts the customer on hold. A call
/// that's interrupted while two parties are talking is complete no matter how long the gap is.
fn cut_in_talk<'a>(events: &'a [&'a [u8]]) -> (&'a [&'a [u8]], &'a [&'a [u8]]) {
    let hold = events
        .iter()
        .position(|event| memchr::memmem::find(event, b"Hold").is_some());
    events.split_at(hold.expect("the call is put on hold"))
}

#[tokio::test]
async fn ami_call_interrupted_by_kill_is_complete_after_restart() {
    let (place, crm, pbx) = (Place::new(), crm::start().await, FakePbx::ami().await);
    let source = place.ami(&pbx);
    let flags = [&source, TRUNKS[0], RATE_FLAG];
    let call = cut_call();
    let events: Vec<&[u8]> = call.events().collect();
    let (before, after) = cut_in_talk(&events);
    let internal = internal_call_after(before);

    let mut program = place.run(&crm.url(), &flags);
    pbx.logged_in(1).await;
    pbx.say(&before.concat()).await;
    pbx.say(&internal.events().collect::<Vec<_>>().concat())
        .await;
    program
        .until("the internal call", |status| status.books.internal == 1)
        .await;
    program.kill().await;
    pass(LONG_GAP).await;

    let mut program = place.run(&crm.url(), &flags);
    pbx.logged_in(2).await;
    pbx.say(&after.concat()).await;
    program.settled(1).await;
    program.terminate().await;
    crm::judge(&crm, &place.letters().await, &recordings::expected(&[call]));
}

#[tokio::test]
async fn websocket_cut_during_call_counts_gap_and_call_continues() {
    let (place, crm, pbx) = (Place::new(), crm::start().await, FakePbx::websocket().await);
    let source = format!("--source=ws://{}/", pbx.addr());
    let call = cut_call();
    let events: Vec<&[u8]> = call.events().collect();
    let internal = internal_call_after(cut_in_talk(&events).0);
    let frames: Vec<&[u8]> = call.frames().collect();
    let (before, after) = cut_in_talk(&frames);
    let mut program = place.run(&crm.url(), &[&source, TRUNKS[0], RATE_FLAG]);
    pbx.logged_in(1).await;
    for frame in before.iter().copied().chain(internal.frames()) {
        pbx.say(frame).await;
    }
    program
        .until("the internal call", |status| status.books.internal == 1)
        .await;
    pbx.cut().await;
    program
        .until("a gap", |status| status.sources[0].gaps > 0)
        .await;
    pbx.logged_in(2).await;
    for frame in after {
        pbx.say(frame).await;
    }
    program.settled(1).await;
    program.terminate().await;
    crm::judge(&crm, &place.letters().await, &recordings::expected(&[call]));
}

#[tokio::test]
async fn call_is_complete_after_kill_with_acknowledged_events() {
    let (place, crm, broker) = (Place::new(), crm::start().await, Broker::shared());
    let queue = "cut-call";
    broker.declare(queue).await;
    let secret = place.write("secret", broker::SECRET);
    let base = broker.url(broker::ADMINISTRATOR);
    let source = format!("--source={base}?queue={queue}&format=asterisk-cel&secret-file={secret}");
    let leads = place.write("leads.csv", "phone,leadId\n998901110002,4002\n");
    let trunk = format!("--trunk=city=PJSIP/city,country=UZ,lead=csv:{leads}");
    let flags = [&source, &trunk, RATE_FLAG];
    let call = cut_call();
    let events: Vec<&[u8]> = call.events().collect();
    let internal = internal_call_after(&events[..events.len() / 2]);
    let bodies = call.cel();
    let (before, after) = bodies.split_at(bodies.len() / 2);

    broker.publish(queue, before).await;
    broker.publish(queue, &internal.cel()).await;
    // If a kill happens before an acknowledgment, the broker redelivers the message. Keep killing
    // the program until every message has been acknowledged.
    loop {
        let mut program = place.run(&crm.url(), &flags);
        let consumed = program.until("all messages taken", |status| status.books.internal == 1);
        consumed.await;
        until("an empty queue", async || broker.depth(queue).await == 0).await;
        program.kill().await;
        if broker.depth(queue).await == 0 {
            break;
        }
    }
    let mut program = place.run(&crm.url(), &flags);
    broker.publish(queue, after).await;
    program.settled(1).await;
    program.terminate().await;
    crm::judge(&crm, &place.letters().await, &recordings::expected(&[call]));
}

/// Promise: SIGTERM ends callbridge in time, with every call accounted for.
#[tokio::test]
async fn sigterm_lets_request_finish_and_accounts_for_every_call() {
    let (place, crm) = (Place::new(), crm::start().await);
    let calls = ["inbound_answered", "outbound_answered", "blind_transfer"];
    let calls = calls.map(recordings::one);
    for call in &calls {
        place.append("recorded", &call.ami);
    }
    let source = place.file("recorded", "ami");
    let flags = [&source, TRUNKS[0], TRUNKS[1], RATE_FLAG];
    let fault = Action::Delay(Duration::from_secs(5));
    let fault = Rule::always(Endpoint::CallHistory, fault);
    crm.admin(|core, _| core.set_faults(vec![fault]));

    let mut program = place.run(&crm.url(), &flags);
    program
        .until("requests under way", |current| {
            current.books.finished == 3 && current.books.sending > 0
        })
        .await;
    until("the arrival of a request", async || {
        count_accepted(&crm) > 0
    })
    .await;
    program.terminate().await;
    let status = place.lines(&["status", "--json"]).await.remove(0);
    let status: Status = serde_json::from_value(status).expect("a status");
    assert!(status.books.balance(), "{:?}", status.books);
    assert_eq!((status.books.finished, status.books.sending), (3, 0));

    crm.admin(|core, _| core.set_faults(Vec::new()));
    let flags = [&flags[..], &["--until-idle"]].concat();
    place.run(&crm.url(), &flags).expect_success().await;
    crm::judge(&crm, &place.letters().await, &recordings::expected(&calls));
}

#[tokio::test]
async fn sigterm_does_not_wait_for_silent_crm_or_pbx() {
    let (place, crm) = (Place::new(), crm::start().await);
    let call = recordings::one("inbound_answered");
    place.append("recorded", &call.ami);
    let secret = place.write("secret", pbx::SECRET);
    // This listener never responds.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a port");
    let addr = listener.local_addr().expect("bound");
    let fault = Rule::always(
        Endpoint::CallHistory,
        Action::Delay(Duration::from_secs(900)),
    );
    crm.admin(|core, _| core.set_faults(vec![fault]));
    let source = place.file("recorded", "ami");
    let cel = "queue=q&format=asterisk-cel";
    let flags = [
        source.clone(),
        format!("--source=ami://bridge@{addr}?secret-file={secret}&pbx=a"),
        format!("--source=ws://{addr}/?pbx=b"),
        format!("--source=amqp://bridge@{addr}/pbx?{cel}&secret-file={secret}&pbx=c"),
        TRUNKS[0].to_owned(),
        RATE_FLAG.to_owned(),
    ];
    let mut program = place.run(&crm.url(), &flags);
    program
        .until("a request", |status| status.books.sending == 1)
        .await;
    until("the arrival of the request", async || {
        count_accepted(&crm) > 0
    })
    .await;
    program.terminate().await;

    crm.admin(|core, _| core.set_faults(Vec::new()));
    let flags = [&source, TRUNKS[0], RATE_FLAG, "--until-idle"];
    place.run(&crm.url(), &flags).expect_success().await;
    crm::judge(&crm, &place.letters().await, &recordings::expected(&[call]));
}

/// Returns the number of submissions accepted by the CRM.
fn count_accepted(crm: &Server) -> u64 {
    crm.admin(|core, _| core.journal.accepted())
}

#[tokio::test]
async fn calls_during_crm_outage_reach_crm_after_restart() {
    let place = Place::new();
    let config = sandbox::Config {
        state: Some(place.at("crm")),
        ..crm::settings()
    };
    let crm = sandbox::start(config.clone()).await.expect("a sandbox");
    let (listen, url) = (crm.addr(), crm.url());
    let calls = ["inbound_answered", "outbound_answered"].map(recordings::one);
    place.append("recorded", &calls[0].ami);
    let source = place.file("recorded", "ami");
    let flags = [&source, TRUNKS[0], RATE_FLAG];

    let mut program = place.run(&url, &flags);
    program.settled(1).await;
    crm.stop().await.expect("the CRM stops");
    place.append("recorded", &calls[1].ami);
    let status = program
        .until("an outage", is_paused_by("unreachable"))
        .await;
    assert_eq!((status.books.finished, status.books.ready), (2, 1));
    assert!(
        status
            .pause
            .expect("a pause")
            .fix
            .contains("CRM unreachable since")
    );
    program.terminate().await;

    let mut program = place.run(&url, &flags);
    program
        .until("the outage again", is_paused_by("unreachable"))
        .await;
    let config = sandbox::Config { listen, ..config };
    let crm = sandbox::start(config).await.expect("the same sandbox");
    let status = program.settled(2).await;
    assert_eq!((status.books.journaled, status.pause), (2, None));
    program.terminate().await;
    crm::judge(&crm, &place.letters().await, &recordings::expected(&calls));
}

#[tokio::test]
async fn new_token_in_file_ends_the_pause_of_a_refused_token() {
    let (place, crm) = (Place::new(), crm::start().await);
    let calls = ["inbound_answered", "outbound_answered"].map(recordings::one);
    place.append("recorded", &calls[0].ami);
    let source = place.file("recorded", "ami");
    let mut program = place.run(&crm.url(), &[&source, TRUNKS[0], RATE_FLAG]);
    program.settled(1).await;

    crm.admin(|core, _| core.revoke(TOKEN));
    place.append("recorded", &calls[1].ami);
    let status = program
        .until("a refused token", is_paused_by("token_refused"))
        .await;
    assert_eq!(status.token.state, "refused");
    assert_eq!((status.books.ready, status.books.journaled), (1, 1));

    crm.admin(|core, now| core.issue_pat(now, "svc_pat_after_it", None));
    place.write("token", "svc_pat_after_it\n");
    let status = program.settled(2).await;
    assert_eq!((status.token.state.as_str(), status.pause), ("ok", None));
    program.terminate().await;
    crm::judge(&crm, &place.letters().await, &recordings::expected(&calls));
}

fn grants(names: &[&str]) -> Vec<Grant> {
    names.iter().filter_map(|name| Grant::parse(name)).collect()
}

#[tokio::test]
async fn missing_grant_is_named_and_calls_are_sent_once_granted() {
    let (place, crm) = (Place::new(), crm::start().await);
    crm.admin(|core, now| core.set_grants(now, grants(&[CALL_READ])));
    let calls = [recordings::one("inbound_answered")];
    place.append("recorded", &calls[0].ami);
    let source = place.file("recorded", "ami");
    let mut program = place.run(&crm.url(), &[&source, TRUNKS[0], RATE_FLAG]);
    let status = program
        .until("a pause for the grant", |current| {
            is_paused_by("no_grant")(current) && current.books.ready == 1
        })
        .await;
    assert_eq!(status.token.state, "no_grant");
    let fix = status.pause.expect("a pause").fix;
    assert!(fix.contains("PERMISSION_OPEN_API_CALL:SAVE"), "{fix}");
    assert_eq!(count_accepted(&crm), 0);

    crm.admin(|core, now| core.set_grants(now, grants(&[CALL_SAVE, CALL_READ])));
    let status = program.settled(1).await;
    assert_eq!((status.token.state.as_str(), status.pause), ("ok", None));
    program.terminate().await;
    let repeated = crm.admin(|core, _| core.violations().count(ViolationKind::RepeatAfter403));
    assert_eq!(repeated, 0);
    crm::judge(&crm, &place.letters().await, &recordings::expected(&calls));
}

/// Promise: A state folder that disappears in use ends the process with 73.
#[tokio::test]
async fn daemon_exits_73_when_its_state_folder_disappears() {
    let (place, crm) = (Place::new(), crm::start().await);
    let calls = recordings::consecutive(2);
    place.append("recorded", &calls[0].ami);
    let source = place.file("recorded", "ami");
    let flags = [&source, TRUNKS[0], TRUNKS[1], RATE_FLAG];
    let mut program = place.run(&crm.url(), &flags);
    program.settled(1).await;
    let state = place.at("state");
    // All files disappear at the same time, so the first missing file is always `spool.db`.
    std::fs::rename(&state, place.at("elsewhere")).expect("moved");
    place.append("recorded", &calls[1].ami);
    let exit_status = program.ended().await;
    let log = place.logs();
    assert_eq!(exit_status.code(), Some(73), "{log}");
    let line = format!(
        "callbridge: the state folder {} disappeared in use: spool.db is missing: put the folder \
         back, and start callbridge again\n",
        state.display()
    );
    assert!(log.ends_with(&line), "{log}");
    assert!(
        !state.exists(),
        "callbridge created the folder again while it ran"
    );
    assert_eq!(crm.journal().len(), 1);
    // When systemd restarts the program, it starts a new state. The CRM recognizes the first call
    // by its UUID.
    let mut program = place.run(&crm.url(), &flags);
    program.settled(2).await;
    program.terminate().await;
    assert_eq!(crm.journal().len(), 2);
}
