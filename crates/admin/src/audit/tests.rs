//! Tests that the audit counts each call of a file once, and finds the likeliest cause of each
//! missing call.

use super::*;
use callbridge_model::Zone;
use callbridge_model::status::SourceGap;
use std::collections::{BTreeMap, BTreeSet};

const T0: i64 = 1_795_151_317;

fn call(n: i64, outcome: Outcome) -> FileCall {
    let linkedid = format!("{}.{n}", T0 + n);
    FileCall {
        asked: AuditedCall {
            pbx: "office".to_owned(),
            ids: vec![linkedid.clone()],
            uuid: figures::uuid(
                "office",
                &callbridge_call::UniqueId::new(&linkedid).expect("an id"),
            ),
        },
        linkedid,
        started: EventTime::from_seconds(T0 + n),
        phone: Some("+998901110001".to_owned()),
        outcome,
        unmatched: Vec::new(),
        is_open: false,
        values: values(),
        has_late_end: false,
    }
}

fn values() -> AuditedValues {
    AuditedValues {
        started: EventTime::from_seconds(T0).floor_seconds(),
        duration_sec: 17,
        talk_time_sec: 16,
        answered: true,
        direction: callbridge_call::Direction::Inbound,
        phone: Some("+998901110001".to_owned()),
        incomplete: false,
        estimate: false,
    }
}

/// Returns fates of calls without a stored row.
fn without_values(fates: &[CallFate]) -> Vec<AuditedFate> {
    let mut found = Vec::new();
    for fate in fates {
        found.push(AuditedFate {
            fate: *fate,
            values: None,
        });
    }
    found
}

fn journaled_fate(values: AuditedValues) -> AuditedFate {
    AuditedFate {
        fate: CallFate::Stands(State::Journaled),
        values: Some(values),
    }
}

#[test]
fn whole_file_call_corrects_only_an_incomplete_dead_letter() {
    let incomplete = AuditedValues {
        incomplete: true,
        ..values()
    };
    let estimate = AuditedValues {
        estimate: true,
        ..values()
    };
    let dead = CallFate::Stands(State::Dead);
    let journaled = CallFate::Stands(State::Journaled);
    for (of_file, fate, stored, corrects) in [
        (values(), dead, incomplete.clone(), true),
        (values(), dead, values(), false),
        (values(), journaled, incomplete.clone(), false),
        (incomplete.clone(), dead, incomplete.clone(), false),
        (estimate, dead, incomplete, false),
    ] {
        let mut of_file = FileCall {
            values: of_file,
            ..call(0, Outcome::Journal)
        };
        let stored = AuditedFate {
            fate,
            values: Some(stored),
        };
        assert_eq!(
            of_file.corrects(&stored),
            corrects,
            "{of_file:?} {stored:?}"
        );
        of_file.is_open = true;
        assert!(!of_file.corrects(&stored));
    }
}

#[test]
fn differing_call_is_counted_and_listed_with_both_values() {
    let stored = AuditedValues {
        started: EventTime::from_seconds(T0 + 8).floor_seconds(),
        talk_time_sec: 24,
        ..values()
    };
    let calls = [call(0, Outcome::Journal), call(1, Outcome::Journal)];
    let fates = [journaled_fate(values()), journaled_fate(stored)];
    let unread = JournalFindings::unread("no daemon runs");
    let report = account(&calls, &fates, &listening(), unread, &zone());
    assert_eq!((report.journaled, report.unexplained.len()), (2, 0));
    assert!(!report.is_clean());
    let json = serde_json::to_value(&report).expect("JSON");
    let different = serde_json::json!([{
        "linkedid": calls[1].linkedid, "startedAt": T0 + 1, "phone": "+998901110001",
        "differs": [
            {"field": "startedAt", "stored": T0 + 8, "file": T0},
            {"field": "talkTimeSec", "stored": 24, "file": 16}]}]);
    assert_eq!(json["different"], different);
    let text = report.to_text(&zone());
    let end = text.find("The file has other").expect("the difference");
    insta::assert_snapshot!(text[end..].trim_end(), @r"
    The file has other values than callbridge:

    2026-11-20 10:08:38 +05  +998901110001  1795151318.1
      start: callbridge has 2026-11-20 10:08:45 +05, the file has 2026-11-20 10:08:37 +05
      talk in seconds: callbridge has 24, the file has 16
    ");
}

#[test]
fn values_of_an_open_call_are_not_compared() {
    let open = FileCall {
        is_open: true,
        ..call(0, Outcome::Journal)
    };
    let fate = AuditedFate {
        fate: CallFate::Stands(State::Ready),
        values: Some(AuditedValues {
            talk_time_sec: 3,
            ..values()
        }),
    };
    let unread = JournalFindings::unread("no daemon runs");
    let report = account(&[open], &[fate], &listening(), unread, &zone());
    assert!(report.is_clean(), "{report:?}");
}

fn listening() -> Listening {
    let since = EventTime::from_seconds(T0 - 1000);
    Listening {
        since: BTreeMap::from([("office".to_owned(), since)]),
        ..Listening::default()
    }
}

fn zone() -> Zone {
    Zone::from_name("Asia/Tashkent").expect("a zone")
}

/// Makes a report that does not read the CRM's journal.
fn report_without_journal(calls: &[FileCall], fates: &[CallFate], listening: &Listening) -> Report {
    let unread = JournalFindings::unread("no daemon runs");
    account(calls, &without_values(fates), listening, unread, &zone())
}

/// Returns the cause of the one call that nothing explains.
fn cause(call: FileCall, fate: CallFate, listening: &Listening) -> String {
    let mut report = report_without_journal(&[call], &[fate], listening);
    let only = report.unexplained.pop().expect("unexplained");
    assert_eq!(report.unexplained, []);
    only.cause
}

#[test]
fn call_open_in_file_is_under_way_unless_stored_as_finished() {
    let open = FileCall {
        is_open: true,
        ..call(1, Outcome::DeadLetter)
    };
    assert_eq!(report_of_one(&open, CallFate::Unknown).under_way, 1);
    assert_eq!(report_of_one(&open, CallFate::Open).under_way, 1);
    let dead = CallFate::Stands(State::Dead);
    assert_eq!(report_of_one(&open, dead).dead, 1);
}

fn report_of_one(call: &FileCall, fate: CallFate) -> Report {
    report_without_journal(std::slice::from_ref(call), &[fate], &listening())
}

#[test]
fn file_calls_are_counted_once_in_the_report() {
    use State::{Dead, Discarded, Forwarded, Journaled, Ready, Sending, Submitted, Waiting};
    let states = [
        Ready, Sending, Submitted, Journaled, Journaled, Dead, Waiting, Discarded, Forwarded,
    ];
    let mut fates: Vec<CallFate> = states.map(CallFate::Stands).to_vec();
    let mut calls: Vec<FileCall> = (0..9).map(|n| call(n, Outcome::Journal)).collect();
    for (outcome, fate) in [
        (Outcome::Journal, CallFate::Open),
        (Outcome::Internal, CallFate::Counted),
        (Outcome::Internal, CallFate::Unknown),
        (Outcome::Skipped, CallFate::Counted),
        (Outcome::Skipped, CallFate::Unknown),
        (Outcome::Journal, CallFate::Unknown),
        (Outcome::DeadLetter, CallFate::RowGone),
    ] {
        calls.push(call(20, outcome));
        fates.push(fate);
    }
    let report = report_without_journal(&calls, &fates, &listening());
    let Report {
        file,
        journaled,
        forwarded,
        dead,
        waiting,
        discarded,
        under_way,
        internal,
        skipped,
        unexplained,
        different,
        changed,
        journal,
    } = report;
    assert!(different.is_empty());
    assert!(changed.is_empty() && !journal.read, "{journal:?}");
    assert_eq!((journaled, under_way, internal, skipped), (2, 4, 2, 2));
    assert_eq!(unexplained.len(), 2);
    let kept = journaled + forwarded + dead + waiting + discarded;
    let sum = kept + under_way + internal + skipped;
    assert_eq!(file, sum + 2);
    assert_eq!((file, forwarded), (16, 1));
}

#[test]
fn unmatched_channel_of_internal_call_is_named_as_cause() {
    let mut over = call(1, Outcome::Internal);
    over.unmatched.push("PJSIP/citty".to_owned());
    for fate in [CallFate::Counted, CallFate::Unknown] {
        let cause = cause(over.clone(), fate, &listening());
        assert!(
            cause.starts_with("no trunk matched: an outside number appeared on PJSIP/citty"),
            "{cause}"
        );
    }
}

/// Returns the reported cause if call `n` is missing in the CRM and unknown to callbridge.
fn cause_of_unknown(n: i64, listening: &Listening) -> String {
    cause(call(n, Outcome::Journal), CallFate::Unknown, listening)
}

#[test]
fn missing_call_is_reported_with_its_likeliest_cause() {
    let first = cause_of_unknown(-2000, &listening());
    assert!(
        first.contains("before callbridge was first connected"),
        "{first}"
    );
    let never = cause_of_unknown(5, &Listening::default());
    assert!(never.contains("was never connected"), "{never}");
    let by_queue = Listening {
        known: BTreeSet::from(["office".to_owned()]),
        ..Listening::default()
    };
    let known = cause_of_unknown(5, &by_queue);
    assert!(known.starts_with("the cause is not known"), "{known}");
    let mut gaps = listening();
    gaps.gaps.push(SourceGap {
        source: "ami://a@pbx".to_owned(),
        from: T0 + 100,
        to: T0 + 200,
        filled: false,
    });
    let in_it = cause_of_unknown(150, &gaps);
    assert_eq!(in_it, "a gap of ami://a@pbx that was not filled");
    let after = cause_of_unknown(300, &gaps);
    assert!(after.starts_with("the cause is not known"), "{after}");
    gaps.gaps[0].filled = true;
    assert!(cause_of_unknown(150, &gaps).contains("which did not have this call"));
    let mut zone = call(5, Outcome::Journal);
    zone.started = EventTime::from_seconds(T0 + 5 - 5 * 3600);
    let zone = cause(zone, CallFate::Unknown, &listening());
    assert!(
        zone.starts_with("different clocks") && zone.contains("300 min before"),
        "{zone}"
    );
    let deleted = cause(call(5, Outcome::Journal), CallFate::RowGone, &listening());
    assert!(deleted.contains("deleted from the state"), "{deleted}");
    let counted = cause(call(5, Outcome::Journal), CallFate::Counted, &listening());
    assert!(counted.starts_with("no trunk matched when"), "{counted}");
}

#[test]
fn report_has_a_json_form_and_a_text_form() {
    let calls = [call(1, Outcome::Journal), call(2, Outcome::Journal)];
    let fates = [CallFate::Stands(State::Journaled), CallFate::RowGone];
    let report = report_without_journal(&calls, &fates, &listening());
    let json = serde_json::to_string(&report).expect("JSON");
    let cause = json.find(",\"cause\"").expect("a cause");
    insta::assert_snapshot!(
        json[..cause].replace(",\"", ",\n\""),
        @r#"
    {"file":2,
    "journaled":1,
    "forwarded":0,
    "dead":0,
    "waiting":0,
    "discarded":0,
    "underWay":0,
    "internal":0,
    "skipped":0,
    "unexplained":[{"linkedid":"1795151319.2",
    "startedAt":1795151319,
    "phone":"+998901110001"
    "#
    );
    let zone = zone();
    let text = report.to_text(&zone);
    let end = text.find(" was deleted").expect("its cause");
    let text = format!("{} …", &text[..end]);
    insta::assert_snapshot!(text, @r"
    in the file         2
    journaled           1
    forwarded           0
    dead                0
    waiting             0
    discarded           0
    under way           0
    internal            0
    skipped             0
    unexplained         1
    different           0

    The CRM's journal was not read: no daemon runs.

    2026-11-20 10:08:39 +05  +998901110001  1795151319.2
      it was taken in, and its row …
    ");
    let none = report_without_journal(&calls[..1], &fates[..1], &listening()).to_text(&zone);
    assert!(
        none.ends_with("Each call of the file is explained.\n"),
        "{none}"
    );
}

#[test]
fn call_lost_by_crm_is_unexplained_and_changed_call_listed() {
    let calls: Vec<FileCall> = (0..3).map(|n| call(n, Outcome::Journal)).collect();
    let fates = [CallFate::Stands(State::Journaled); 3];
    let lost = callbridge_spool::JournaledCall {
        uuid: calls[1].asked.uuid,
        started: calls[1].started.floor_seconds(),
        since: Some(EventTime::from_seconds(T0 + 60)),
        sent: None,
    };
    let long_ago = callbridge_spool::JournaledCall {
        since: None,
        ..lost.clone()
    };
    let duration = journal::Difference {
        field: "durationSec",
        here: 61.into(),
        there: 6.into(),
    };
    let findings = JournalFindings {
        reading: journal::JournalReading {
            read: true,
            asked: 3,
            missing: 1,
            too_new: 2,
            requests: 4,
            reason: None,
        },
        missing: BTreeMap::from([(1, lost)]),
        changed: BTreeMap::from([(2, vec![duration])]),
    };
    let report = account(
        &calls,
        &without_values(&fates),
        &listening(),
        findings,
        &zone(),
    );
    assert_eq!(
        (report.file, report.journaled, report.unexplained.len()),
        (3, 2, 1)
    );
    let json = serde_json::to_value(&report).expect("JSON");
    let unexplained = &json["unexplained"][0];
    assert_eq!(unexplained["linkedid"], calls[1].linkedid);
    let cause = unexplained["cause"].as_str().expect("a cause");
    assert!(
        cause.starts_with("journaled here at 2026-11-20 10:09:37 +05, but"),
        "{cause}"
    );
    let changed = serde_json::json!([{
        "linkedid": calls[2].linkedid, "startedAt": T0 + 2, "phone": "+998901110001",
        "differs": [{"field": "durationSec", "here": 61, "there": 6}]}]);
    assert_eq!(json["changed"], changed);
    let reading = serde_json::json!({
        "read": true, "asked": 3, "missing": 1, "tooNew": 2, "requests": 4, "reason": null});
    assert_eq!(json["journal"], reading);
    let text = report.to_text(&zone());
    let expected = "The CRM's journal does not have 1 of the 3 that were looked for (4 requests); \
                 journaled too recently to be looked for: 2.";
    assert!(text.contains(expected), "{text}");
    assert!(text.contains("  durationSec: 61 here, 6 there\n"), "{text}");
    let old = cause::loss_cause(long_ago.since, &zone());
    assert!(old.starts_with("journaled here long ago, but"), "{old}");
}
