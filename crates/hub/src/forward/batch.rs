//! Builds the body of `POST /v1/calls` from ready calls.

use super::core::BatchCall;
use crate::protocol::BODY_BYTES_MAX;
use callbridge_call::{EventTime, Extension, FinishedCall};
use callbridge_formats::message::{ResolvedIds, write};
use callbridge_mapping::journal::figures::half_up;
use callbridge_model::{CallRecord, EmployeeId, LeadId, Phone};
use callbridge_spool::Row;
use std::time::Duration;

/// Minimum talk time sent for an answered call if the times in its record apply.
const TALK_MIN: Duration = Duration::from_millis(500);

/// Calls, along with the request body made from them.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub calls: Vec<BatchCall>,
    pub body: Vec<u8>,
}

/// Builds a request body from as many of these calls as fit into the maximum size.
pub fn batch(rows: &[Row]) -> Batch {
    let mut batch = Batch::default();
    for row in rows {
        let line = message(row);
        let is_full = batch.body.len() + line.len() >= BODY_BYTES_MAX;
        if is_full && !batch.calls.is_empty() {
            break;
        }
        batch.body.extend_from_slice(line.as_bytes());
        batch.body.push(b'\n');
        batch.calls.push(BatchCall {
            row: row.id,
            uuid: row.uuid,
        });
    }
    batch
}

/// Returns a ready call's message.
pub fn message(row: &Row) -> String {
    let record = &row.record;
    let resolved = ResolvedIds {
        phone: record.client_phone.as_ref().map(Phone::as_str),
        lead: record.lead_id.map(LeadId::get),
        employee: record.employee_id.map(EmployeeId::get),
    };
    write(&record.pbx, &as_recorded(&row.call, record), resolved)
}

/// Returns the call with the values from its record. Its exact times are kept if they round to the
/// record's times. If they don't, someone has edited the record or a rule for impossible values has
/// changed it, so the record's times apply.
fn as_recorded(call: &FinishedCall, record: &CallRecord) -> FinishedCall {
    let is_talk_exact = if call.answered {
        half_up(call.talk) == record.talk_time_sec && call.talk > Duration::ZERO
    } else {
        record.talk_time_sec == 0
    };
    let is_exact = is_talk_exact
        && call.answered == record.answered
        && call.started.floor_seconds() == record.started_at
        && half_up(call.ended.since(call.started)).max(1) == record.duration_sec;
    let mut sent = call.clone();
    if !is_exact {
        let length = seconds(record.duration_sec);
        sent.started = EventTime::from_seconds(record.started_at.get());
        sent.ended = sent.started.plus(length);
        sent.answered = record.answered;
        sent.talk = if record.answered {
            seconds(record.talk_time_sec).max(TALK_MIN.min(length))
        } else {
            Duration::ZERO
        };
    }
    sent.direction = record.direction;
    sent.trunk.clone_from(&record.trunk);
    sent.employee = record.employee.clone().map(Extension::new);
    let in_order = record.employees_in_order.iter().map(Extension::new);
    sent.employees_in_order = in_order.collect();
    sent.estimate = record.estimate;
    // A ready call is either complete, or someone decided that it should be sent.
    sent.incomplete = None;
    sent
}

fn seconds(whole: u32) -> Duration {
    Duration::from_secs(whole.into())
}
