//! `POST call-history/filter`: a page of the journal (§4.5, §4.7, §2.1 `PageableData`).
//!
//! Without `orders` the oldest record stands first: the document promises no order.

use super::envelope::{Refusal, Success};
use super::journal::Record;
use super::page;
use super::shapes::{Registered, Rows, Shapes};
use serde_json::{Value, json};

const REGISTERED: &str = "registeredTimestamp";

/// Answers a body from the records of one company; they stand in the order they were written.
///
/// # Errors
/// The refusal to answer with.
pub fn answer(
    body: &[u8],
    records: &[Record],
    company: i64,
    shapes: &Shapes,
) -> Result<Success, Refusal> {
    let query = page::read(body, shapes.page.size_max, shapes, &[REGISTERED])?;
    let registered = |record: &Record| match shapes.registered {
        Registered::Stored => record.registered_at.floor_seconds().get(),
        Registered::Started => record.call.started_at,
    };
    // A day's records are many, and the range is most often at their end.
    let first = match (shapes.registered, query.range(REGISTERED)[0]) {
        (Registered::Stored, Some(from)) => {
            records.partition_point(|record| registered(record) < from)
        }
        (Registered::Stored | Registered::Started, _) => 0,
    };
    let mut rows: Vec<&Record> = (records[first..].iter())
        .filter(|record| record.company_id == company)
        .filter(|record| query.holds(REGISTERED, Some(registered(record))))
        .collect();
    let by = |record: &Record, key: &str| match key {
        "startedAt" => record.call.started_at,
        "durationSec" => record.call.duration_sec,
        _ => registered(record),
    };
    query.sort(&mut rows, |one, other, key| {
        by(one, key).cmp(&by(other, key))
    });
    Ok(
        query.answer(&rows, shapes, |record| match shapes.page.rows {
            Rows::Strings => json!(record.uuid),
            Rows::Objects => object(record, registered(record)),
        }),
    )
}

/// A record as a row.
pub(super) fn object(record: &Record, registered: i64) -> Value {
    let call = &record.call;
    json!({
        "uuid": record.uuid, "leadId": call.lead_id, "employeeId": call.employee_id,
        "startedAt": call.started_at, "endedAt": record.ended_at,
        "durationSec": call.duration_sec, "talkTimeSec": call.talk_time_sec,
        "answered": call.answered, "direction": call.direction,
        "hangupCause": record.hangup_cause, "provider": record.provider,
        "registeredTimestamp": registered,
    })
}
