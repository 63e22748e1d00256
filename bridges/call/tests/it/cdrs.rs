//! Tests that a call gets its lead from its CDR, which arrives separately from the call's events.

use crate::story::{Story, answered_by_101, customer, moment};
use callbridge_call::{Assembler, Cdr, Endpoints, OpenChange, PbxEvent, Settings, TrunkEndpoint};
use std::time::Duration;

const HOUR: f64 = 3600.0;

/// Returns an assembler that waits for each call's CDR, because the lead is in the CDR.
fn assembler() -> Assembler {
    let city = TrunkEndpoint::new("city", "PJSIP/city");
    let endpoints = vec![TrunkEndpoint {
        awaits_cdr: true,
        ..city
    }];
    let endpoints = Endpoints::new(endpoints).expect("no conflict");
    Assembler::new(Settings {
        cdr_wait: Some(Duration::from_secs(10)),
        cdr_apart: true,
        ..Settings::new(endpoints)
    })
}

/// Sends all of a story's events at the time `seconds`, like a backlog.
fn send_events_at(assembler: &mut Assembler, seconds: f64, story: &Story) {
    for (_, event) in &story.events {
        assembler.on_event(event, moment(seconds));
    }
}

/// Returns a five-second call, and a story that contains only that call's CDR.
fn call_and_cdr() -> (Story, Story) {
    let (mut call, city, phone) = answered_by_101();
    call.at(5.0).hangups(&[&phone, &city]);
    let mut cdr = Story::new();
    cdr.at(5.1).cdr(&city, "lead=4001");
    (call, cdr)
}

#[test]
fn early_cdr_waits_for_call_across_restart() {
    let (call, cdr) = call_and_cdr();
    let mut first = assembler();
    send_events_at(&mut first, HOUR, &cdr);
    assert_eq!(first.open_calls(), 0);
    let kept = first.take_changes();
    assert_eq!(kept.len(), 1);

    let mut second = assembler();
    let snapshot = kept[0].snapshot.as_deref().expect("a snapshot");
    second.restore(kept[0].key, snapshot).expect("restored");
    send_events_at(&mut second, HOUR + 60.0, &call);
    second.tick(moment(HOUR + 61.0));
    let calls = second.take_finished();
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].userfields, ["lead=4001"]);
    let is_forgotten = second
        .take_changes()
        .iter()
        .any(|change| change.key == kept[0].key && change.snapshot.is_none());
    assert!(is_forgotten, "the kept CDR is forgotten");
}

#[test]
fn backlog_call_waits_for_its_cdr_by_the_local_clock() {
    let (call, cdr) = call_and_cdr();
    // Events from an hour later that arrive in the same second.
    let mut later = Story::new();
    later.at(HOUR).mention(&customer(9));
    for (cdr_at, finished_at) in [(4.0, 4.0), (20.0, 10.0)] {
        let mut assembler = assembler();
        send_events_at(&mut assembler, 2.0 * HOUR, &call);
        send_events_at(&mut assembler, 2.0 * HOUR, &later);
        let mut cdr_sent = false;
        for tenth in 0..200 {
            let second = f64::from(tenth) / 10.0;
            if !cdr_sent && second >= cdr_at {
                send_events_at(&mut assembler, 2.0 * HOUR + second, &cdr);
                cdr_sent = true;
            }
            assembler.tick(moment(2.0 * HOUR + second));
            if let Some(call) = assembler.take_finished().first() {
                assert!(
                    second >= finished_at && second < finished_at + 1.0,
                    "{second}"
                );
                assert_eq!(call.userfields.len(), usize::from(cdr_sent));
                break;
            }
            assert!(second < finished_at + 1.0, "not finished at {second}");
        }
    }
}

#[test]
fn cdr_of_a_finished_call_is_not_kept() {
    let (call, cdr) = call_and_cdr();
    let mut assembler = assembler();
    send_events_at(&mut assembler, HOUR, &call);
    assembler.tick(moment(HOUR + 11.0));
    assert_eq!(assembler.take_finished().len(), 1);
    assembler.take_changes();
    send_events_at(&mut assembler, HOUR + 12.0, &cdr);
    assert_eq!(assembler.take_changes(), []);
}

#[test]
fn unmatched_cdrs_are_limited_and_expire_after_max_call() {
    let mut assembler = assembler();
    for number in 0..10_010 {
        let cdr = Cdr {
            uniqueid: format!("1795151317.{number}").into(),
            userfield: "lead=4001".into(),
            ..Cdr::default()
        };
        assembler.on_event(&PbxEvent::Cdr(Box::new(cdr)), moment(0.0));
    }
    let kept = |changes: &[OpenChange]| {
        changes
            .iter()
            .filter(|change| change.snapshot.is_some())
            .count()
    };
    assert_eq!(kept(&assembler.take_changes()), 10_000);
    assembler.tick(moment(13.0 * HOUR));
    let forgotten = assembler.take_changes();
    assert_eq!((kept(&forgotten), forgotten.len()), (0, 10_000));
}
