//! Tests of CDRs whose application merely joined channels, as with conference rooms, logged-in
//! agents, pickups, and channels that were moved. Such records show who could hear whom, but no one
//! was dialed.

use crate::story::settings;
use callbridge_call::{Cdr, Direction, EventTime, FinishedCall, Folder, Settings};
use std::time::Duration;

const BASE: i64 = 1_795_163_500;
const CUSTOMER: &str = "SIP/carrier-0000000a";
const AGENT: &str = "SIP/101-0000000b";

fn moment(second: i64) -> EventTime {
    EventTime::from_seconds(BASE + second)
}

/// Returns the CDR of a channel that ran this application from second `start` to second `end`, and
/// was answered immediately. The channel was created at the start, with this number in its unique
/// ID.
fn joined(channel: &str, number: u32, app: &str, [start, end]: [i64; 2]) -> Cdr<'static> {
    let id = format!("{}.{number}", BASE + start);
    Cdr {
        uniqueid: id.clone().into(),
        linkedid: id.into(),
        channel: channel.to_owned().into(),
        last_app: app.to_owned().into(),
        disposition: "ANSWERED".into(),
        started_at: Some(moment(start)),
        answered_at: Some(moment(start)),
        ended_at: Some(moment(end)),
        billed_micros: Some((end - start) * 1_000_000),
        ..Cdr::default()
    }
}

/// Returns the CDR of the customer who called in.
fn customer(app: &str, data: &str, span: [i64; 2]) -> Cdr<'static> {
    Cdr {
        source: "998901110001".into(),
        last_data: data.to_owned().into(),
        ..joined(CUSTOMER, 10, app, span)
    }
}

/// Returns the CDR of the agent's phone.
fn agent(app: &str, data: &str, span: [i64; 2]) -> Cdr<'static> {
    Cdr {
        source: "101".into(),
        last_data: data.to_owned().into(),
        ..joined(AGENT, 1, app, span)
    }
}

fn folder() -> Folder {
    Folder::new(Settings {
        cdr_wait: Some(Duration::from_secs(10)),
        ..settings()
    })
}

/// Returns the customers' calls, ordered by start time.
fn customer_calls(records: &[Cdr<'_>]) -> Vec<FinishedCall> {
    let mut folder = folder();
    for record in records {
        folder.on_cdr(record, record.ended_at.unwrap_or(moment(0)));
    }
    folder.finish_all();
    let mut calls = folder.take_finished();
    calls.retain(|call| call.direction != Direction::Internal);
    calls.sort_by_key(|call| call.started);
    calls
}

fn single_call(records: &[Cdr<'_>]) -> FinishedCall {
    let mut calls = customer_calls(records);
    assert_eq!(calls.len(), 1, "{calls:#?}");
    calls.remove(0)
}

/// Returns the start, the duration, and the talk time in seconds, along with the employee.
fn values(call: &FinishedCall) -> (i64, u64, u64, Option<&str>) {
    (
        call.started.floor_seconds().get() - BASE,
        call.ended.since(call.started).as_secs(),
        call.talk.as_secs(),
        call.employee.as_ref().map(|employee| employee.as_str()),
    )
}

#[test]
fn records_of_one_room_at_one_time_connect() {
    for app in ["ConfBridge", "MeetMe", "Conference"] {
        let call = single_call(&[
            customer(app, "600,F", [100, 130]),
            agent(app, "600,F", [0, 1000]),
        ]);
        assert_eq!(values(&call), (100, 30, 30, Some("101")), "{app}");
        assert_eq!(call.direction, Direction::Inbound, "{app}");
        assert_eq!(call.incomplete, None, "{app}");
    }
}

#[test]
fn customer_of_another_room_or_time_is_unanswered() {
    for other in [
        agent("MeetMe", "601", [0, 1000]),
        agent("MeetMe", "600", [0, 100]),
        agent("MeetMe", "600", [130, 1000]),
        agent("Playback", "600", [0, 1000]),
    ] {
        let call = single_call(&[customer("MeetMe", "600", [100, 130]), other.clone()]);
        assert_eq!(values(&call), (100, 30, 0, None), "{other:?}");
        assert_eq!(call.incomplete, None, "{other:?}");
    }
}

#[test]
fn record_that_names_no_room_is_incomplete() {
    let call = single_call(&[
        customer("MeetMe", "", [100, 130]),
        agent("MeetMe", "600", [0, 1000]),
    ]);
    assert!(call.incomplete.expect("incomplete").contains("room"));
}

#[test]
fn agent_who_stays_in_a_room_joins_no_calls() {
    // The dialer uses one half of a Local channel to dial each customer while the other half enters
    // the room.
    let mut records = vec![agent("MeetMe", "600", [0, 1000])];
    for (number, start, disposition) in [(20, 100, "ANSWERED"), (30, 300, "NO ANSWER")] {
        let local = format!("Local/600@rooms-{number:08x}");
        let mut dialing = joined(&format!("{local};1"), number, "Dial", [start, start + 30]);
        dialing.dest_channel = format!("SIP/carrier-{number:08x}").into();
        dialing.last_data = "SIP/carrier/998901110001,,To".into();
        dialing.disposition = disposition.into();
        dialing.billed_micros = Some(20_000_000);
        let mut half = joined(
            &format!("{local};2"),
            number + 1,
            "MeetMe",
            [start, start + 30],
        );
        half.last_data = "600,F".into();
        half.linkedid = dialing.linkedid.clone();
        records.extend([dialing, half]);
    }
    let calls = customer_calls(&records);
    let all: Vec<_> = calls.iter().map(values).collect();
    assert_eq!(all, [(100, 30, 20, Some("101")), (300, 30, 0, None)]);
    for call in &calls {
        assert_eq!(call.direction, Direction::Outbound);
        let number = call.number.as_ref().expect("a number");
        assert_eq!(number.text, "998901110001");
    }
}

#[test]
fn agent_alone_in_a_room_has_no_customer() {
    assert!(customer_calls(&[agent("MeetMe", "600", [0, 1000])]).is_empty());
}

#[test]
fn colleagues_who_talk_before_a_room_have_a_call_of_their_own() {
    let mut colleague = joined("SIP/102-0000000c", 3, "Dial", [80, 95]);
    colleague.dest_channel = AGENT.into();
    let mut together = joined("SIP/102-0000000c", 3, "MeetMe", [95, 140]);
    together.uniqueid = colleague.uniqueid.clone();
    together.linkedid = colleague.linkedid.clone();
    together.last_data = "600".into();
    let call = single_call(&[
        colleague,
        together,
        customer("MeetMe", "600", [100, 130]),
        agent("MeetMe", "600", [95, 150]),
    ]);
    assert_eq!((call.started, call.ended), (moment(100), moment(130)));
    assert_eq!(call.talk, Duration::from_secs(30));
    assert_eq!(call.employees_in_order.len(), 2);
}

/// Returns the records of customers who reached a logged-in agent. The login's record lists the
/// customer's channel, and all records have the login's linkedid.
fn records_of_login(customers: i64) -> Vec<Cdr<'static>> {
    let mut records = Vec::new();
    for i in 1..=customers {
        let start = 100 * i;
        let channel = format!("PJSIP/city-{i:08x}");
        let mut request = customer("AgentRequest", "1001", [start, start + 1]);
        request.channel = channel.clone().into();
        request.uniqueid = format!("{}.{}", BASE + start, 10 + i).into();
        let mut login = agent("AgentLogin", "1001", [0, start + 30]);
        login.dest_channel = channel.into();
        for mut record in [request, login] {
            record.linkedid = format!("{BASE}.1").into();
            records.push(record);
        }
    }
    records
}

#[test]
fn login_of_an_agent_neither_starts_nor_joins_calls() {
    let calls = customer_calls(&records_of_login(3));
    let all: Vec<_> = calls.iter().map(values).collect();
    let expected = [100, 200, 300].map(|start| (start, 30, 30, Some("101")));
    assert_eq!(all, expected);
    assert!(
        calls
            .iter()
            .all(|call| call.direction == Direction::Inbound)
    );
}

#[test]
fn destination_of_a_joining_application_was_not_dialed() {
    for app in [
        "ConfBridge",
        "MeetMe",
        "Conference",
        "AgentLogin",
        "AgentRequest",
        "Bridge",
        "ParkedCall",
        "Pickup",
    ] {
        // The phone's record is older than the customer's.
        let mut joins = agent(app, "600", [0, 130]);
        joins.dest_channel = CUSTOMER.into();
        let waits = customer("Wait", "", [100, 110]);
        joins.linkedid = waits.linkedid.clone();
        let call = single_call(&[waits, joins]);
        assert_eq!(call.direction, Direction::Inbound, "{app}");
        assert_eq!(call.started, moment(100), "{app}");
        let number = call.number.expect("the caller's number").text;
        assert_eq!(number, "998901110001", "{app}");
    }
}

#[test]
fn record_of_a_moved_channel_is_the_customers() {
    for moved in ["AsyncGoto", "Transfered", "Parked"] {
        let mut dialing = agent("Dial", "SIP/carrier/998901110001,300,T", [0, 40]);
        dialing.dest_channel = CUSTOMER.into();
        dialing.billed_micros = Some(30_000_000);
        let mut redirected = joined(&format!("{moved}/{CUSTOMER}"), 3, "Dial", [40, 85]);
        redirected.uniqueid = format!("{}.3", BASE + 40).into();
        redirected.linkedid = dialing.linkedid.clone();
        redirected.dest_channel = "SIP/102-0000000d".into();
        redirected.answered_at = None;
        redirected.billed_micros = Some(40_000_000);
        let call = single_call(&[dialing, redirected]);
        assert_eq!(values(&call), (0, 85, 70, Some("102")), "{moved}");
        assert_eq!(call.direction, Direction::Outbound, "{moved}");
    }
}

#[test]
fn customer_in_a_room_waits_for_the_record_of_whoever_stays() {
    let mut folder = folder();
    folder.on_cdr(&customer("MeetMe", "600", [100, 130]), moment(130));
    folder.tick(moment(200));
    assert!(folder.take_finished().is_empty());
    folder.on_cdr(&agent("MeetMe", "600", [0, 1000]), moment(1000));
    folder.tick(moment(1010));
    let calls = folder.take_finished();
    let call = calls.iter().find(|call| call.trunk.is_some());
    assert_eq!(values(call.expect("the call")), (100, 30, 30, Some("101")));
}

/// Returns the candidates for the customer's number, in order.
fn candidates(record: &Cdr<'_>) -> Vec<String> {
    let call = single_call(std::slice::from_ref(record));
    let all = call.number.into_iter().chain(call.more_numbers);
    let mut texts: Vec<String> = all.map(|number| number.text).collect();
    texts.dedup();
    texts
}

#[test]
fn record_contributes_all_numbers_of_the_customer() {
    let mut outbound = agent("Dial", "SIP/carrier/1010998901110001,300,T", [0, 40]);
    outbound.dest_channel = CUSTOMER.into();
    outbound.destination = "9998901110001".into();
    assert_eq!(candidates(&outbound), ["1010998901110001", "9998901110001"]);
    let mut inbound = customer("Dial", "SIP/101,20", [0, 40]);
    inbound.dest_channel = AGENT.into();
    inbound.destination = "101".into();
    inbound.source = "4711".into();
    inbound.caller_id = "\"Anna\" <998901110001>".into();
    assert_eq!(candidates(&inbound), ["4711", "998901110001"]);
    inbound.source = "anonymous".into();
    assert!(candidates(&inbound).is_empty());
}

#[test]
fn user_field_of_another_customer_is_not_the_calls() {
    // 101 has no user field. Both customers have one, and 101's record lists the second customer's
    // channel.
    let mut first = customer("MeetMe", "600", [100, 130]);
    first.userfield = "lead=1;lead=2".into();
    first.dest_channel = "SIP/carrier-0000000e".into();
    let mut second = customer("MeetMe", "600", [105, 125]);
    second.channel = "SIP/carrier-0000000e".into();
    second.uniqueid = format!("{}.14", BASE + 105).into();
    second.linkedid = second.uniqueid.clone();
    second.userfield = "lead=2".into();
    let mut other = agent("MeetMe", "600", [100, 140]);
    other.dest_channel = second.channel.clone();
    other.linkedid = first.linkedid.clone();
    other.userfield = ";lead=2".into();
    let calls = customer_calls(&[first, second, other]);
    let fields: Vec<_> = calls.iter().map(|call| call.userfields.clone()).collect();
    assert_eq!(fields, [["lead=1"], ["lead=2"]]);
    // An outbound call's field isn't split up, and neither is one that the dialplan wrote with a
    // semicolon in it.
    let mut outbound = agent("Dial", "SIP/carrier/998901110001", [0, 40]);
    outbound.dest_channel = CUSTOMER.into();
    outbound.userfield = "x=2;lead=1".into();
    assert_eq!(single_call(&[outbound]).userfields, ["x=2;lead=1"]);
}
