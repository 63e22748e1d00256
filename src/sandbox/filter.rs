//! `POST call-history/filter`: a page of the journal (§4.5, §4.7, §2.1 `PageableData`).
//!
//! Without `orders` the oldest record stands first: the document promises no order.

use super::envelope::{FieldError, Reason, Refusal, Success, json_object};
use super::journal::Record;
use super::shapes::{Paging, Range, Registered, Rows, Shapes};
use serde_json::{Map, Value, json};

const EPOCH_MIN: i64 = 946_684_800;
/// Above are milliseconds: the year 5138 in seconds.
const EPOCH_MAX: i64 = 100_000_000_000;

#[derive(Debug)]
struct Query {
    page: i64,
    size: i64,
    orders: Vec<(String, bool)>,
    from: Option<i64>,
    to: Option<i64>,
}

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
    let query = read(body, shapes.size_max, shapes.range)?;
    let registered = |record: &Record| match shapes.registered {
        Registered::Stored => record.registered_at.floor_seconds().get(),
        Registered::Started => record.call.started_at,
    };
    // A day's records are many, and the range is most often at their end.
    let first = match (shapes.registered, query.from) {
        (Registered::Stored, Some(from)) => {
            records.partition_point(|record| registered(record) < from)
        }
        (Registered::Stored | Registered::Started, _) => 0,
    };
    let mut rows: Vec<&Record> = (records[first..].iter())
        .filter(|record| record.company_id == company)
        .filter(|record| query.from.is_none_or(|from| registered(record) >= from))
        .filter(|record| query.to.is_none_or(|to| registered(record) <= to))
        .collect();
    // The last key is sorted by first, so that the stable sort leaves the first key in charge.
    for (key, descending) in query.orders.iter().rev() {
        let by = |record: &Record| match key.as_str() {
            "startedAt" => record.call.started_at,
            "durationSec" => record.call.duration_sec,
            _ => registered(record),
        };
        if *descending {
            rows.sort_by_key(|record| std::cmp::Reverse(by(record)));
        } else {
            rows.sort_by_key(|record| by(record));
        }
    }
    Ok(page(&rows, &query, shapes, registered))
}

fn page(
    rows: &[&Record],
    query: &Query,
    shapes: &Shapes,
    registered: impl Fn(&Record) -> i64,
) -> Success {
    let size = usize::try_from(query.size).unwrap_or(1).max(1);
    let skip = usize::try_from(query.page - 1)
        .unwrap_or(0)
        .saturating_mul(size);
    let total = rows.len().div_ceil(size) as u64;
    let current = query.page.unsigned_abs();
    let rows: Vec<Value> = (rows.iter().skip(skip).take(size))
        .map(|record| match shapes.rows {
            Rows::Strings => json!(record.uuid),
            Rows::Objects => object(record, registered(record)),
        })
        .collect();
    match shapes.paging {
        Paging::Beside => Success {
            data: json!(rows),
            request_id: None,
            paging: Some((current, total)),
        },
        Paging::Inside => {
            let mut data = Map::new();
            data.insert(shapes.rows_key.clone(), json!(rows));
            data.insert("currentPage".to_owned(), json!(current));
            data.insert("totalPages".to_owned(), json!(total));
            Success::of(Value::Object(data))
        }
    }
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

fn read(body: &[u8], size_max: i64, range: Range) -> Result<Query, Refusal> {
    let map = json_object(body)?;
    let mut errors = Vec::new();
    let mut refuse = |field: &str, reason| {
        errors.push(FieldError {
            field: field.to_owned(),
            reason,
        });
    };
    let (page, size) = (integer(&map, "page")?, integer(&map, "size")?);
    match page {
        None => refuse("page", Reason::NotNull),
        Some(..1) => refuse("page", Reason::Min),
        Some(_) => {}
    }
    match size {
        None => refuse("size", Reason::NotNull),
        Some(..1) => refuse("size", Reason::Min),
        Some(size) if size > size_max => refuse("size", Reason::Max),
        Some(_) => {}
    }
    let mut bounds = [None, None];
    for (bound, name) in bounds
        .iter_mut()
        .zip(["registeredTimestampFrom", "registeredTimestampTo"])
    {
        let at = match range {
            Range::Kept | Range::Refused => integer(&map, name)?,
            Range::Ignored => None,
        };
        let wrong =
            at.is_some_and(|at| range == Range::Refused || !(EPOCH_MIN..EPOCH_MAX).contains(&at));
        if wrong {
            refuse(name, Reason::ValidEpochSec);
        }
        *bound = at;
    }
    let orders = orders(map.get("orders"))?;
    let (Some(page), Some(size), true) = (page, size, errors.is_empty()) else {
        return Err(Refusal::Invalid(errors));
    };
    let [from, to] = bounds;
    Ok(Query {
        page,
        size,
        orders,
        from,
        to,
    })
}

fn integer(map: &Map<String, Value>, name: &str) -> Result<Option<i64>, Refusal> {
    match map.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.as_i64().map(Some).ok_or_else(|| {
            Refusal::Unparsable(format!("{name}: an integer expected, not {value}"))
        }),
    }
}

fn orders(value: Option<&Value>) -> Result<Vec<(String, bool)>, Refusal> {
    let map = match value {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Object(map)) => map,
        Some(_) => return Err(Refusal::Unparsable("orders: an object expected".to_owned())),
    };
    map.iter()
        .map(|(key, way)| match way.as_str() {
            Some("ASC") => Ok((key.clone(), false)),
            Some("DESC") => Ok((key.clone(), true)),
            _ => {
                let words = format!("orders.{key}: no enum constant {way}, one of [ASC, DESC]");
                Err(Refusal::Unparsable(words))
            }
        })
        .collect()
}
