//! Made-up calls and times for the spool's tests.

use crate::{CallFailure, FIRST_POLL, Finished, Op, QueueQuery, RowId, SuspendedCalls};
use callbridge_call::{
    Direction, EpochSeconds, EventTime, Extension, FinishedCall, RawNumber, UniqueId,
};
use callbridge_model::{
    CallRecord, CallUuid, Judged, LeadId, Outcome, Phone, Reason, TokenFingerprint,
};
use std::time::Duration;

/// When the tests begin.
pub const T0: i64 = 1_795_151_317;

/// Returns the time this many seconds after [`T0`].
pub fn time_at(seconds: i64) -> EventTime {
    EventTime::from_seconds(T0 + seconds)
}

fn unique_id(text: &str) -> UniqueId {
    UniqueId::new(text).expect("not empty")
}

/// Creates the `n`th call, with a number, linkedid, and UUID of its own.
pub fn finished_call(n: u32, outcome: Outcome, reason: Option<Reason>) -> Finished {
    let linkedid = format!("{T0}.{}", n * 2);
    let number = format!("99890{n:07}");
    let kept = outcome.is_kept();
    let start = T0 + i64::from(n);
    let record = CallRecord {
        uuid: kept.then(|| CallUuid(uuid::Uuid::from_u128(u128::from(n) + 1))),
        linkedid: linkedid.clone(),
        pbx: "pbx1".into(),
        direction: Direction::Inbound,
        answered: true,
        lead_id: reason.is_none().then(|| LeadId::new(4001)).flatten(),
        lead_from: None,
        trunk: Some("city".into()),
        client_phone: Phone::from_e164(&format!("+{number}")),
        employee: Some("101".into()),
        employee_id: None,
        employees_in_order: vec!["101".into()],
        started_at: EpochSeconds::new(start),
        duration_sec: 5,
        talk_time_sec: 4,
        incomplete: false,
        estimate: false,
        by_hand: None,
        did: None,
    };
    let call = FinishedCall {
        linkedid: unique_id(&linkedid),
        also_known_as: vec![
            unique_id(&linkedid),
            unique_id(&format!("{T0}.{}", n * 2 + 1)),
        ],
        direction: Direction::Inbound,
        answered: true,
        trunk: Some("city".into()),
        number: Some(RawNumber {
            text: number,
            from_dial_string: false,
        }),
        employee: Some(Extension::new("101")),
        employees_in_order: vec![Extension::new("101")],
        started: EventTime::from_seconds(start),
        ended: EventTime::from_seconds(start + 5),
        talk: Duration::from_millis(4_150),
        variables: Vec::new(),
        userfields: Vec::new(),
        incomplete: None,
        estimate: false,
        by_arrival: false,
        live: true,
        remarks: Vec::new(),
        decided_by: Vec::new(),
        timeline: None,
        unmatched: Vec::new(),
        unknown_channels: Vec::new(),
        more_numbers: Vec::new(),
        shown_number: None,
        did: None,
        given: None,
    };
    let judged = Judged {
        record,
        outcome,
        reason,
        message: reason.map_or_else(String::new, |reason| format!("because of {reason}")),
        live: true,
        remarks: Vec::new(),
        judged_at: time_at(i64::from(n) + 6),
        kept_out_unanswered: false,
    };
    Finished::new(judged, call)
}

/// Creates a call for the journal.
pub fn journal(n: u32) -> Finished {
    finished_call(n, Outcome::Journal, None)
}

/// Returns the operation that reports a call as FAILED at this time.
pub fn failure_op(row: RowId, at: EventTime) -> Op {
    let (message, errors) = ("FAILED".to_owned(), serde_json::Value::Null);
    Op::FailedCall(CallFailure {
        row,
        message,
        errors,
        at,
    })
}

/// Returns the query of a sender whose token is `token`.
pub fn ask(now: EventTime) -> QueueQuery {
    QueueQuery {
        now,
        tokens: vec![TokenFingerprint::of("token")],
        confirmable_before: now.minus(FIRST_POLL),
        ending_before: now.minus(Duration::from_secs(85_500)),
        untried_first: false,
        suspended: SuspendedCalls::default(),
    }
}
