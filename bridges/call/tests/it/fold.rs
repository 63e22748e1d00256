//! Tests of calls that are known only from call detail records.

use crate::story::settings;
use callbridge_call::{Cdr, Direction, EventTime, FinishedCall, Folder, Settings};
use std::time::Duration;

const BASE: i64 = 1_700_000_000;

/// A CDR, given by its channel, destination channel, application, start second, end second, billed
/// seconds (`None` if it wasn't answered), and the time and counter of its unique ID. All times are
/// in seconds since `BASE`.
struct Row(
    &'static str,
    &'static str,
    &'static str,
    i64,
    i64,
    Option<u32>,
    (i64, u32),
);

fn moment(second: i64) -> EventTime {
    EventTime::from_seconds(BASE + second)
}

fn cdr(row: &Row) -> Cdr<'static> {
    let &Row(channel, dest, app, start, end, billed, (epoch, counter)) = row;
    Cdr {
        uniqueid: format!("{}.{counter}", BASE + epoch).into(),
        channel: channel.into(),
        dest_channel: dest.into(),
        source: "998901110001".into(),
        destination: "100".into(),
        last_app: app.into(),
        started_at: Some(moment(start)),
        answered_at: billed.map(|billed| moment(end - i64::from(billed))),
        ended_at: Some(moment(end)),
        billed_micros: Some(i64::from(billed.unwrap_or(0)) * 1_000_000),
        disposition: if billed.is_some() {
            "ANSWERED"
        } else {
            "NO ANSWER"
        }
        .into(),
        ..Cdr::default()
    }
}

fn folder() -> Folder {
    Folder::new(Settings {
        cdr_wait: Some(Duration::from_secs(10)),
        ..settings()
    })
}

fn fold_rows(rows: &[Row]) -> Vec<FinishedCall> {
    let mut folder = folder();
    for row in rows {
        folder.on_cdr(&cdr(row), moment(row.4));
    }
    folder.finish_all();
    folder.take_finished()
}

fn single_call(rows: &[Row]) -> FinishedCall {
    let mut calls = fold_rows(rows);
    assert_eq!(calls.len(), 1, "{calls:#?}");
    calls.remove(0)
}

const CITY: &str = "PJSIP/city-0000000a";
const ANNA: &str = "PJSIP/101-0000000b";
const BORIS: &str = "PJSIP/102-0000000c";

#[test]
fn records_of_optimized_local_channel_fold_into_one_call() {
    let call = single_call(&[
        Row(
            ANNA,
            "Local/9@out-000005a6;1",
            "Dial",
            0,
            19,
            Some(0),
            (0, 1),
        ),
        Row(ANNA, CITY, "Dial", 19, 203, Some(183), (0, 1)),
        Row(
            CITY,
            "Local/9@out-000005a6;1",
            "AppDial",
            19,
            19,
            Some(0),
            (0, 4),
        ),
    ]);
    assert_eq!(call.direction, Direction::Outbound);
    assert_eq!((call.started, call.ended), (moment(0), moment(203)));
    assert_eq!(call.talk, Duration::from_secs(183));
    assert!(call.answered && call.estimate);
    assert_eq!(call.employee.expect("somebody").as_str(), "101");
}

#[test]
fn phone_of_unknown_technology_talks_in_records() {
    let answered = single_call(&[Row(CITY, "TAPI/1", "Dial", 0, 40, Some(35), (0, 1))]);
    assert!(answered.answered && answered.incomplete.is_none());
    assert_eq!(answered.employee.expect("somebody").as_str(), "1");
    let placed = single_call(&[Row("TAPI/2", CITY, "Dial", 0, 40, Some(31), (0, 1))]);
    assert_eq!(placed.direction, Direction::Outbound);
    assert_eq!(placed.employee.expect("somebody").as_str(), "2");
}

#[test]
fn did_is_read_only_from_the_did_column() {
    assert_eq!(did_of(CITY, ANNA, "7001").as_deref(), Some("7001"));
    // The CDR's destination, 100, is a step in the dialplan rather than the number that was called.
    assert_eq!(did_of(CITY, ANNA, ""), None);
    assert_eq!(did_of(CITY, ANNA, "s"), None);
    assert_eq!(did_of(ANNA, CITY, "7001"), None, "out");
}

/// Returns the called number of a call whose only record has this value in its `did` column.
fn did_of(channel: &'static str, dest: &'static str, did: &'static str) -> Option<String> {
    let mut folder = folder();
    let row = Row(channel, dest, "Dial", 0, 30, Some(20), (0, 1));
    let record = Cdr {
        did: did.into(),
        ..cdr(&row)
    };
    folder.on_cdr(&record, moment(30));
    folder.finish_all();
    folder.take_finished().remove(0).did
}

#[test]
fn announcement_does_not_count_as_an_answer() {
    for app in ["Playback", "VoiceMail", "Queue", "Hangup", "Dial"] {
        let call = single_call(&[Row(CITY, "", app, 0, 30, Some(30), (0, 1))]);
        assert!(!call.answered, "{app}");
        assert_eq!(call.talk, Duration::ZERO, "{app}");
        assert_eq!(call.direction, Direction::Inbound, "{app}");
    }
}

#[test]
fn voicemail_after_unanswered_dial_is_not_an_answer() {
    // Asterisk before 12 writes one CDR per call, which keeps the Dial's destination channel.
    for app in ["VoiceMail", "Hangup", "Congestion"] {
        let trunk = "SIP/carrier-0000000a";
        let phone = "SIP/101-0000000b";
        let call = single_call(&[Row(trunk, phone, app, 0, 60, Some(40), (0, 1))]);
        assert!(!call.answered, "{app}");
        assert_eq!(call.employee.expect("it was dialed").as_str(), "101");
    }
}

#[test]
fn unanswered_record_with_billed_seconds_has_no_talk() {
    let mut row = cdr(&Row(CITY, ANNA, "Queue", 0, 15, Some(15), (0, 1)));
    row.disposition = "NO ANSWER".into();
    let mut folder = folder();
    folder.on_cdr(&row, moment(15));
    folder.finish_all();
    let call = folder.take_finished().remove(0);
    assert!(!call.answered);
    assert_eq!((call.talk, call.ended), (Duration::ZERO, moment(15)));
}

#[test]
fn call_without_its_first_record_starts_with_its_channel() {
    let call = single_call(&[Row(CITY, BORIS, "Dial", 19, 60, Some(30), (0, 1))]);
    assert_eq!(call.started, moment(0));
    let reused = single_call(&[Row(CITY, BORIS, "Dial", 1_900, 1_960, Some(30), (0, 1))]);
    assert_eq!(reused.started, moment(1_900));
}

#[test]
fn call_with_unknown_time_zone_is_incomplete() {
    let mut row = cdr(&Row(CITY, ANNA, "Dial", 0, 60, Some(30), (0, 1)));
    row.zoneless = true;
    let mut folder = folder();
    folder.on_cdr(&row, moment(60));
    folder.finish_all();
    let why = folder.take_finished().remove(0).incomplete;
    assert!(why.expect("incomplete").contains("--pbx-timezone"));
}

#[test]
fn record_without_id_gets_id_of_channel_start_and_destination() {
    let mut folder = folder();
    for row in [
        Row(CITY, ANNA, "Queue", 0, 15, None, (0, 1)),
        Row(CITY, BORIS, "Queue", 15, 40, Some(20), (0, 1)),
        // A later run of the PBX reuses the channel name.
        Row(CITY, ANNA, "Dial", 9_000, 9_010, Some(5), (0, 1)),
    ] {
        let bare = Cdr {
            uniqueid: "".into(),
            ..cdr(&row)
        };
        folder.on_cdr(&bare, moment(40));
    }
    folder.finish_all();
    let calls = folder.take_finished();
    let ids: Vec<&str> = calls.iter().map(|call| call.linkedid.as_str()).collect();
    assert_eq!(
        ids,
        [
            "PJSIP/city-0000000a@1700000000/100",
            "PJSIP/city-0000000a@1700009000/100"
        ]
    );
    assert_eq!(calls[0].employee.as_ref().expect("Boris").as_str(), "102");
}

/// Returns the CDRs of a queued call that Boris answers after Anna doesn't.
fn queued_call() -> Vec<Row> {
    vec![
        Row(CITY, "Local/1@q-00000001;1", "Queue", 0, 5, None, (0, 1)),
        Row("Local/1@q-00000001;2", ANNA, "Dial", 0, 5, None, (0, 3)),
        Row(
            CITY,
            "Local/2@q-00000002;1",
            "Queue",
            5,
            30,
            Some(25),
            (0, 1),
        ),
        Row(
            "Local/2@q-00000002;2",
            BORIS,
            "Dial",
            5,
            30,
            Some(20),
            (5, 5),
        ),
    ]
}

/// Returns the four CDRs of [`queued_call`] in one of their 24 possible orders, numbered from 0.
fn queued_call_in_order(mut order: usize) -> Vec<Row> {
    let mut rest = queued_call();
    let mut rows = Vec::new();
    while !rest.is_empty() {
        let count = rest.len();
        rows.push(rest.remove(order % count));
        order /= count;
    }
    rows
}

#[test]
fn reordered_or_duplicate_records_give_the_same_call() {
    let wanted = single_call(&queued_call());
    assert_eq!(wanted.talk, Duration::from_secs(20));
    assert_eq!(wanted.employee.as_ref().expect("Boris").as_str(), "102");
    for order in 0..24 {
        let mut rows = queued_call_in_order(order);
        assert_eq!(single_call(&rows), wanted, "order {order}");
        rows.extend(queued_call());
        assert_eq!(single_call(&rows), wanted, "order {order}, then again");
    }
}

#[test]
fn consultation_is_not_talk_of_the_held_customer() {
    let call = single_call(&[
        Row(CITY, ANNA, "Dial", 0, 60, Some(50), (0, 1)),
        // Anna consults Boris and returns to the customer. The next two CDRs are the two sides of
        // the consultation.
        Row(
            ANNA,
            "Local/2@in-00000002;1",
            "AppDial",
            20,
            35,
            Some(15),
            (0, 2),
        ),
        Row(
            "Local/2@in-00000002;2",
            BORIS,
            "Dial",
            20,
            35,
            Some(13),
            (20, 4),
        ),
    ]);
    assert_eq!(call.talk, Duration::from_secs(35));
    assert_eq!(call.employees_in_order.len(), 1);
}

#[test]
fn live_call_is_folded_after_the_wait_without_a_record() {
    let mut folder = folder();
    folder.on_cdr(
        &cdr(&Row(CITY, ANNA, "Dial", 0, 20, Some(15), (0, 1))),
        moment(20),
    );
    assert_eq!(folder.next_deadline(), Some(moment(30)));
    folder.tick(moment(29));
    assert!(folder.take_finished().is_empty());
    folder.tick(moment(30));
    let call = folder.take_finished().remove(0);
    assert!(call.live);
    // The call has been emitted, so the CDR of the customer's next conversation arrives too late.
    let late = cdr(&Row(CITY, BORIS, "Dial", 20, 90, Some(70), (0, 2)));
    assert!(!folder.on_cdr(&late, moment(90)));
}

/// Returns the CDR of a call that ends at `end`. `n` makes its names and ID unique.
fn other_call(n: u32, end: i64) -> Cdr<'static> {
    let id = (end - 20, n);
    let mut row = cdr(&Row(CITY, ANNA, "Dial", end - 20, end, Some(15), id));
    row.channel = format!("PJSIP/gsm-{n:08x}").into();
    row.dest_channel = format!("PJSIP/101-1{n:07x}").into();
    row
}

#[test]
fn records_of_batching_pbx_wait_for_next_batch() {
    let mut folder = folder();
    // The first batch could be a backlog. After the second one, a third is expected.
    for (n, batch) in [(20, 300), (21, 600)] {
        folder.on_cdr(&other_call(n, batch - 100), moment(batch));
        folder.tick(moment(batch + 10));
        assert_eq!(folder.take_finished().len(), 1);
    }
    let early = Row(CITY, ANNA, "Dial", 880, 895, None, (880, 1));
    folder.on_cdr(&cdr(&early), moment(901));
    folder.tick(moment(1_100));
    assert!(
        folder.take_finished().is_empty(),
        "the rest may be in the next batch"
    );
    let rest = Row(CITY, BORIS, "Dial", 895, 899, Some(3), (880, 1));
    folder.on_cdr(&cdr(&rest), moment(1_200));
    folder.on_cdr(&other_call(22, 1_000), moment(1_200));
    folder.tick(moment(1_210));
    let calls = folder.take_finished();
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].employee.as_ref().expect("Boris").as_str(), "102");
    folder.tick(moment(1_600));
    assert_eq!(
        folder.take_finished().len(),
        1,
        "nothing stays open for ever"
    );
}

#[test]
fn backlog_call_is_folded_after_the_wait_without_a_record() {
    let mut folder = folder();
    folder.on_cdr(
        &cdr(&Row(CITY, ANNA, "Dial", 0, 20, Some(15), (0, 1))),
        moment(300),
    );
    assert_eq!(folder.next_deadline(), Some(moment(310)));
    folder.tick(moment(309));
    assert!(folder.take_finished().is_empty());
    folder.tick(moment(310));
    let calls = folder.take_finished();
    assert_eq!(calls.len(), 1);
    assert!(!calls[0].live);
}

#[test]
fn record_id_reused_by_other_channel_is_separate_call() {
    let again = Cdr {
        channel: "PJSIP/city-0000000e".into(),
        ..cdr(&Row(CITY, BORIS, "Dial", 1_900, 1_945, Some(38), (0, 1)))
    };
    let first = cdr(&Row(CITY, ANNA, "Dial", 0, 113, None, (0, 1)));
    let mut folder = folder();
    folder.on_cdr(&first, moment(113));
    folder.on_cdr(&again, moment(1_945));
    folder.finish_all();
    assert_eq!(folder.take_finished().len(), 2);
}

#[test]
fn record_that_ends_at_its_start_uses_its_duration() {
    let row = Cdr {
        ended_at: Some(moment(0)),
        answered_at: None,
        duration_micros: Some(45_000_000),
        billed_micros: Some(38_000_000),
        ..cdr(&Row(CITY, ANNA, "Dial", 0, 0, Some(38), (0, 1)))
    };
    let mut folder = folder();
    folder.on_cdr(&row, moment(45));
    folder.finish_all();
    let call = folder.take_finished().remove(0);
    assert_eq!(
        (call.ended, call.talk),
        (moment(45), Duration::from_secs(38))
    );
}

/// Returns a row's CDR with the linkedid of the first channel.
fn linked_cdr(row: &Row) -> Cdr<'static> {
    Cdr {
        linkedid: format!("{BASE}.1").into(),
        ..cdr(row)
    }
}

#[test]
fn call_waits_for_the_record_of_its_first_channel() {
    let mut folder = folder();
    let half = Row("Local/1@q-00000001;2", ANNA, "Dial", 0, 5, None, (0, 3));
    let half = linked_cdr(&half);
    folder.on_cdr(&half, moment(5));
    folder.tick(moment(3_000));
    assert_eq!(folder.open_calls(), 1);
    let root = Row(CITY, BORIS, "Queue", 0, 3_600, Some(3_590), (0, 1));
    let root = linked_cdr(&root);
    folder.on_cdr(&root, moment(3_600));
    folder.tick(moment(3_610));
    let call = folder.take_finished().remove(0);
    assert_eq!(call.talk, Duration::from_secs(3_590));
    assert_eq!(call.also_known_as.len(), 1);
}

#[test]
fn waiting_records_survive_a_restart() {
    let rows = [
        Row(CITY, ANNA, "Dial", 0, 20, None, (0, 1)),
        Row(CITY, BORIS, "Dial", 20, 60, Some(30), (0, 1)),
    ];
    let mut before = folder();
    before.on_cdr(&cdr(&rows[0]), moment(20));
    let kept = before.take_changes();
    assert_eq!(kept.len(), 1);
    let mut after = folder();
    for change in &kept {
        let bytes = change.snapshot.as_deref().expect("open");
        after.restore(change.key, bytes).expect("restored");
    }
    after.on_cdr(&cdr(&rows[1]), moment(60));
    after.tick(moment(70));
    let call = after.take_finished().remove(0);
    assert_eq!(
        (call.started, call.talk),
        (moment(0), Duration::from_secs(30))
    );
    let gone = after.take_changes();
    assert_eq!((gone.len(), gone[0].key), (1, kept[0].key));
    assert!(gone[0].snapshot.is_none());
    assert!(after.restore(7, b"torn").is_err());
}

#[test]
fn open_calls_over_the_limit_are_folded_oldest_first() {
    let mut folder = Folder::new(Settings {
        max_open_calls: 3,
        ..settings()
    });
    for n in 0..10_i64 {
        let counter = u32::try_from(n).expect("small");
        let mut row = cdr(&Row(
            CITY,
            ANNA,
            "Dial",
            n * 100,
            n * 100 + 20,
            Some(15),
            (n * 100, counter),
        ));
        row.channel = format!("PJSIP/city-{n:08x}").into();
        row.dest_channel = format!("PJSIP/101-1{n:07x}").into();
        folder.on_cdr(&row, moment(n * 100 + 20));
        assert!(folder.open_calls() <= 3);
    }
    let calls = folder.take_finished();
    let ends: Vec<EventTime> = calls.iter().map(|call| call.ended).collect();
    let expected: Vec<EventTime> = (0..7).map(|n| moment(n * 100 + 20)).collect();
    assert_eq!(ends, expected);
}

#[test]
fn backlog_calls_finish_only_after_the_backlog_is_read() {
    let mut folder = folder();
    let root = Row(ANNA, CITY, "Dial", 0, 20, Some(15), (0, 1));
    folder.on_cdr(&cdr(&root), moment(50_000));
    // The backlog includes half an hour of other calls before the CDR of the customer whom Anna
    // transferred to Boris arrives.
    for n in 0..20_u32 {
        let end = i64::from(n) * 100 + 100;
        let mut other = cdr(&Row(
            CITY,
            BORIS,
            "Dial",
            end - 20,
            end,
            Some(9),
            (end - 20, n + 50),
        ));
        other.channel = format!("PJSIP/gsm-{n:08x}").into();
        other.dest_channel = format!("PJSIP/103-{n:08x}").into();
        folder.on_cdr(&other, moment(50_000 + i64::from(n)));
        folder.tick(moment(50_000 + i64::from(n)));
    }
    assert!(folder.take_finished().is_empty());
    let rest = Row(CITY, BORIS, "Dial", 20, 2_000, Some(1_980), (0, 2));
    folder.on_cdr(&cdr(&rest), moment(50_020));
    folder.tick(moment(50_030));
    let calls = folder.take_finished();
    assert_eq!(calls.len(), 21);
    let call = calls
        .iter()
        .find(|call| call.ended == moment(2_000))
        .expect("the whole call");
    assert_eq!(call.direction, Direction::Outbound);
    assert_eq!(call.talk, Duration::from_secs(1_995));
}
