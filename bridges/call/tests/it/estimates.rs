//! Tests of values that CDRs cannot prove: ids that no PBX made, the extension `h`, the last
//! application in CDRs of Asterisk before 12, and contradictory durations.

use crate::story::settings;
use callbridge_call::{Cdr, EventTime, FinishedCall, Folder, Settings};
use std::time::Duration;

const BASE: i64 = 1_795_163_500;

fn moment(second: i64) -> EventTime {
    EventTime::from_seconds(BASE + second)
}

/// Returns the CDR of an answered call of 30 s from a customer to a phone, 20 s of it billed.
fn answered_cdr(start: i64, number: u32, driver: &str) -> Cdr<'static> {
    let trunk = if driver == "SIP" { "carrier" } else { "city" };
    Cdr {
        uniqueid: format!("{}.{number}", BASE + start).into(),
        channel: format!("{driver}/{trunk}-{number:08x}").into(),
        dest_channel: format!("{driver}/101-{:08x}", number + 1).into(),
        source: "998901110001".into(),
        destination: "101".into(),
        last_app: "Dial".into(),
        disposition: "ANSWERED".into(),
        started_at: Some(moment(start)),
        ended_at: Some(moment(start + 30)),
        duration_micros: Some(30_000_000),
        billed_micros: Some(20_000_000),
        ..Cdr::default()
    }
}

fn fold_records(records: &[Cdr<'_>]) -> Vec<FinishedCall> {
    let mut folder = Folder::new(Settings {
        cdr_wait: Some(Duration::from_secs(10)),
        ..settings()
    });
    for record in records {
        folder.on_cdr(record, record.ended_at.unwrap_or(moment(0)));
    }
    folder.finish_all(moment(100_000));
    folder.take_finished()
}

fn single_call(record: Cdr<'_>) -> FinishedCall {
    let mut calls = fold_records(&[record]);
    assert_eq!(calls.len(), 1, "{calls:#?}");
    calls.remove(0)
}

/// 101 dials a customer three times, each 12 s after the end of the attempt before.
#[test]
fn records_of_one_retrying_command_are_one_attempt() {
    let number = "PJSIP/998901110001@city,20";
    for (app, data, wanted) in [
        ("Dial", number.to_owned(), 3),
        ("RetryDial", format!("busy,10,3,{number}"), 1),
        ("RetryDial", format!("busy,2,3,{number}"), 3),
    ] {
        let records: Vec<Cdr<'_>> = (0..3)
            .map(|n| Cdr {
                uniqueid: format!("{BASE}.1").into(),
                linkedid: format!("{BASE}.1").into(),
                channel: "PJSIP/101-00000001".into(),
                dest_channel: format!("PJSIP/city-{:08x}", n + 2).into(),
                source: "101".into(),
                destination: "998901110001".into(),
                last_app: app.into(),
                last_data: data.as_str().into(),
                disposition: "NO ANSWER".into(),
                started_at: Some(moment(n * 32)),
                ended_at: Some(moment(n * 32 + 20)),
                duration_micros: Some(20_000_000),
                billed_micros: Some(0),
                ..Cdr::default()
            })
            .collect();
        let calls = fold_records(&records);
        assert_eq!(calls.len(), wanted, "{app} {data} {calls:#?}");
    }
}

#[test]
fn linkedid_not_made_by_a_pbx_joins_no_unrelated_records() {
    for linkedid in ["0", "N/A", "unknown", "deal-77"] {
        let mut records = [answered_cdr(0, 1, "PJSIP"), answered_cdr(3, 3, "PJSIP")];
        for record in &mut records {
            record.linkedid = linkedid.into();
        }
        let calls = fold_records(&records);
        let ids: Vec<&str> = calls.iter().map(|call| call.linkedid.as_str()).collect();
        let own = records.each_ref().map(|record| &*record.uniqueid);
        assert_eq!(ids, own, "{linkedid}");
    }
}

#[test]
fn linkedid_not_made_by_a_pbx_joins_records_near_its_channel() {
    for (start, calls) in [(32, 1), (36, 2)] {
        let mut first = answered_cdr(0, 1, "PJSIP");
        first.uniqueid = "deal-77".into();
        first.linkedid = "deal-77".into();
        // The phone calls a colleague.
        let mut second = answered_cdr(start, 3, "PJSIP");
        second.channel = "PJSIP/101-00000009".into();
        second.dest_channel = "PJSIP/102-0000000a".into();
        second.linkedid = "deal-77".into();
        let calls_found = fold_records(&[first, second]);
        assert_eq!(calls_found.len(), calls, "{start}");
        let mut ids = calls_found.iter().map(|call| call.linkedid.as_str());
        assert!(ids.any(|id| id == "deal-77"), "{start}");
    }
}

#[test]
fn unrelated_record_with_a_finished_calls_linkedid_is_not_late() {
    // A linkedid that names no channel is forgotten. One that is also a unique id is remembered.
    for (uniqueid, linkedid) in [("1795163500.1", "0"), ("deal-77", "deal-77")] {
        let mut first = answered_cdr(0, 1, "PJSIP");
        first.uniqueid = uniqueid.into();
        let unrelated = answered_cdr(20, 3, "PJSIP");
        let mut folder = Folder::new(settings());
        for mut record in [first, unrelated] {
            record.linkedid = linkedid.into();
            assert!(folder.on_cdr(&record, moment(50)), "{linkedid}");
            folder.finish_all(moment(50));
        }
        assert_eq!(folder.take_finished().len(), 2, "{linkedid}");
    }
}

#[test]
fn record_of_extension_h_does_not_extend_the_call() {
    let call = answered_cdr(0, 1, "PJSIP");
    let mut handler = answered_cdr(30, 1, "PJSIP");
    handler.uniqueid = call.uniqueid.clone();
    handler.destination = "h".into();
    let both = fold_records(&[call, handler.clone()]);
    assert_eq!(both.len(), 1);
    assert_eq!(both[0].ended, moment(30));
    assert_eq!(both[0].talk, Duration::from_secs(20));
    let alone = single_call(handler);
    assert!(!alone.answered && alone.incomplete.is_none());
}

#[test]
fn last_app_before_asterisk_12_decides_if_answer_is_known() {
    for (app, is_answered, is_known) in [
        ("Dial", true, true),
        ("Queue", true, true),
        ("", true, true),
        ("VoiceMail", false, true),
        ("AGI", false, false),
        ("Macro", false, false),
    ] {
        let mut record = answered_cdr(0, 1, "SIP");
        record.last_app = app.into();
        let call = single_call(record);
        assert_eq!(call.answered, is_answered, "{app}");
        assert_eq!(call.incomplete.is_none(), is_known, "{app}");
        let mut record = answered_cdr(0, 1, "PJSIP");
        record.last_app = app.into();
        let call = single_call(record);
        assert!(call.answered && call.incomplete.is_none(), "PJSIP: {app}");
    }
}

#[test]
fn negative_duration_makes_the_call_incomplete() {
    for duration in [-3590, 4_294_963_706] {
        let mut record = answered_cdr(0, 1, "PJSIP");
        record.ended_at = None;
        record.duration_micros = Some(duration * 1_000_000);
        record.billed_micros = Some(-3_600_000_000);
        let call = single_call(record);
        assert!(call.answered && call.incomplete.is_some(), "{duration}");
    }
}

#[test]
fn billed_time_over_duration_is_clamped_only_within_a_second() {
    for (billed, talk) in [(31, 30), (32, 32), (4_294_967_290, 4_294_967_290)] {
        let mut record = answered_cdr(0, 1, "PJSIP");
        record.billed_micros = Some(billed * 1_000_000);
        let call = single_call(record);
        assert_eq!(call.talk, Duration::from_secs(talk), "{billed}");
        assert!(call.answered && call.incomplete.is_none());
    }
    let mut record = answered_cdr(0, 1, "PJSIP");
    record.billed_micros = Some(-6_000_000);
    assert_eq!(single_call(record).talk, Duration::from_secs(4_294_967_290));
}

/// Returns the call of a record with this disposition and these billed seconds.
fn call_of_disposition(disposition: &'static str, billed: i64) -> FinishedCall {
    let mut record = answered_cdr(0, 1, "PJSIP");
    record.disposition = disposition.into();
    record.billed_micros = Some(billed * 1_000_000);
    single_call(record)
}

#[test]
fn known_dispositions_are_a_yes_or_a_no_as_word_or_number() {
    for yes in ["ANSWERED", "ANSWER", "8", "answered", " 8 "] {
        let call = call_of_disposition(yes, 20);
        assert!(call.answered && call.incomplete.is_none(), "{yes}");
        assert_eq!(call.talk, Duration::from_secs(20), "{yes}");
    }
    for no in [
        "NO ANSWER",
        "NOANSWER",
        "BUSY",
        "FAILED",
        "CONGESTION",
        "CANCEL",
        "0",
        "1",
        "2",
        "4",
        "16",
        "32",
    ] {
        for billed in [0, 20] {
            let call = call_of_disposition(no, billed);
            assert!(!call.answered && call.incomplete.is_none(), "{no}");
        }
    }
}

#[test]
fn unknown_disposition_with_an_answer_is_incomplete_and_named() {
    for unknown in ["64", "", "RESPONDIDA", "ANSWERED ELSEWHERE"] {
        let why = call_of_disposition(unknown, 20).incomplete;
        let shown = format!("disposition is \"{unknown}\"");
        assert!(why.expect("incomplete").contains(&shown), "{unknown}");
        let mut record = answered_cdr(0, 1, "PJSIP");
        record.disposition = unknown.into();
        record.billed_micros = Some(0);
        record.answered_at = Some(moment(10));
        assert!(single_call(record).incomplete.is_some(), "{unknown}");
        // Nothing speaks of an answer.
        let call = call_of_disposition(unknown, 0);
        assert!(!call.answered && call.incomplete.is_none(), "{unknown}");
    }
}

#[test]
fn answer_in_the_last_second_is_talk_of_under_a_second() {
    for (start, answer, is_answered) in
        [(0, Some(30), true), (30, Some(30), true), (0, None, false)]
    {
        let mut record = answered_cdr(0, 1, "PJSIP");
        record.started_at = Some(moment(start));
        record.answered_at = answer.map(moment);
        record.duration_micros = Some((30 - start) * 1_000_000);
        record.billed_micros = Some(0);
        let call = single_call(record);
        assert_eq!(call.answered, is_answered, "{answer:?}");
        assert!(call.talk < Duration::from_secs(1), "{answer:?}");
        assert_eq!(call.incomplete, None, "{answer:?}");
    }
    // With fractions of a second, the records say how short the talk was.
    let mut record = answered_cdr(0, 1, "PJSIP");
    record.answered_at = Some(EventTime::from_micros(moment(29).micros() + 900_000));
    record.billed_micros = Some(0);
    assert!(!single_call(record).answered);
}
