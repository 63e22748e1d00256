//! Property tests of calls made from arbitrary CDRs in arbitrary order.

use crate::story::settings;
use callbridge_call::{Cdr, EventTime, FinishedCall, Folder, Settings};
use proptest::prelude::*;
use std::time::Duration;

const NAMES: [&str; 9] = [
    "PJSIP/city-0000000a",
    "PJSIP/gsm-0000000b",
    "PJSIP/101-0000000c",
    "PJSIP/102-0000000d",
    "Local/101@in-00000001;1",
    "Local/101@in-00000001;2",
    "DAHDI/1-1",
    "Agent/7",
    "",
];
const APPS: [&str; 6] = [
    "Dial",
    "Queue",
    "AppDial",
    "AppDial2",
    "VoiceMail",
    "ConfBridge",
];

fn moment(second: i64) -> EventTime {
    EventTime::from_seconds(1_700_000_000 + second)
}

fn id_of(n: i64) -> String {
    match n {
        0 => String::new(),
        n => format!("{}.{n}", 1_700_000_000 + n * 40),
    }
}

prop_compose! {
    fn record()(
        channel in 0..NAMES.len(),
        dest in 0..NAMES.len(),
        app in 0..APPS.len(),
        id in 0..6_i64,
        linked in 0..3_i64,
        start in 0..400_i64,
        lasted in 0..300_u32,
        billed in 0..400_u32,
        answered: bool,
        ended: bool,
    ) -> Cdr<'static> {
        Cdr {
            uniqueid: id_of(id).into(),
            linkedid: id_of(linked).into(),
            channel: NAMES[channel].into(),
            dest_channel: NAMES[dest].into(),
            source: "998901110001".into(),
            destination: "100".into(),
            last_app: APPS[app].into(),
            disposition: if answered { "ANSWERED" } else { "NO ANSWER" }.into(),
            started_at: Some(moment(start)),
            ended_at: ended.then(|| moment(start + i64::from(lasted))),
            duration_micros: Some(i64::from(lasted) * 1_000_000),
            // The billed time may be longer than the call, because the decoder doesn't limit it.
            billed_micros: Some(i64::from(billed.min(lasted + 1)) * 1_000_000),
            ..Cdr::default()
        }
    }
}

fn folder() -> Folder {
    Folder::new(Settings {
        max_open_calls: 4,
        ..settings()
    })
}

fn fold_records(records: &[Cdr<'static>]) -> Vec<FinishedCall> {
    let mut folder = Folder::new(settings());
    for record in records {
        folder.on_cdr(record, EventTime::from_seconds(1_700_010_000));
    }
    folder.finish_all();
    sort_calls(folder.take_finished())
}

/// Sorts calls by their values, because a restart may change the order of finished calls.
fn sort_calls(mut calls: Vec<FinishedCall>) -> Vec<FinishedCall> {
    calls.sort_by_key(|call| {
        let id = (call.linkedid.clone(), call.trunk.clone());
        (call.started, id, call.ended)
    });
    calls
}

proptest! {
    #[test]
    fn folded_calls_have_consistent_figures_and_none_stays_open(
        records in prop::collection::vec(record(), 1..30)
    ) {
        let mut folder = folder();
        let mut calls = Vec::new();
        for (n, record) in (0_i64..).zip(&records) {
            let now = EventTime::from_seconds(1_700_000_300 + n * 20);
            folder.on_cdr(record, now);
            folder.tick(now);
            prop_assert!(folder.open_calls() <= 4);
            calls.extend(folder.take_finished());
        }
        let due = folder.next_deadline();
        prop_assert_eq!(due.is_some(), folder.open_calls() > 0);
        folder.tick(EventTime::from_seconds(1_700_000_300).plus(Duration::from_secs(90_000)));
        prop_assert_eq!(folder.open_calls(), 0);
        calls.extend(folder.take_finished());
        for call in &calls {
            prop_assert!(call.estimate);
            prop_assert!(call.started <= call.ended);
            prop_assert!(call.talk <= call.ended.since(call.started));
            prop_assert_eq!(call.answered, call.talk >= Duration::from_millis(500));
            // The call belongs to the last employee to start talking to the customer.
            if let Some(last) = call.employees_in_order.last() {
                prop_assert_eq!(call.employee.as_ref(), Some(last));
            }
        }
    }

    #[test]
    fn duplicate_records_change_no_call(records in prop::collection::vec(record(), 1..20)) {
        let twice: Vec<Cdr<'static>> = records.iter().chain(&records).cloned().collect();
        prop_assert_eq!(fold_records(&twice), fold_records(&records));
    }

    #[test]
    fn restart_between_records_changes_no_call(
        records in prop::collection::vec(record(), 2..20),
        cut in 1..19_usize,
    ) {
        let arrived = EventTime::from_seconds(1_700_010_000);
        let cut = cut.min(records.len() - 1);
        let mut before = Folder::new(settings());
        for record in &records[..cut] {
            before.on_cdr(record, arrived);
        }
        let mut after = Folder::new(settings());
        for change in before.take_changes() {
            let bytes = change.snapshot.expect("open");
            after.restore(change.key, &bytes).expect("restored");
        }
        for record in &records[cut..] {
            after.on_cdr(record, arrived);
        }
        after.finish_all();
        prop_assert_eq!(sort_calls(after.take_finished()), fold_records(&records));
    }
}
