//! The paged body of the filter endpoints, and its answer (§4.7, §2.1 `PageableData`).

use super::body::EPOCH_MIN;
use super::envelope::{FieldError, Refusal, RefusalReason, Success, json_object};
use super::shapes::{Orders, Paging, Range, Shapes};
use serde_json::{Map, Value, json};

/// Above are milliseconds: the year 5138 in seconds.
const EPOCH_MAX: i64 = 100_000_000_000;

/// What a page is asked for.
#[derive(Debug)]
pub(super) struct Query {
    page: i64,
    size: i64,
    /// Keys with "descending", the first in charge.
    pub(super) orders: Vec<(String, bool)>,
    ranges: Vec<(&'static str, [Option<i64>; 2])>,
}

impl Query {
    /// The bounds of a range, both within; `None` for one not asked for.
    pub(super) fn range(&self, name: &str) -> [Option<i64>; 2] {
        let found = self.ranges.iter().find(|(range, _)| *range == name);
        found.map_or([None, None], |(_, bounds)| *bounds)
    }

    /// Does a moment lie within a range? One that is not known lies in none that was asked for.
    pub(super) fn holds(&self, name: &str, at: Option<i64>) -> bool {
        match (self.range(name), at) {
            ([None, None], _) => true,
            (_, None) => false,
            ([from, to], Some(at)) => {
                from.is_none_or(|from| at >= from) && to.is_none_or(|to| at <= to)
            }
        }
    }

    /// The page of these rows.
    pub(super) fn answer<T>(
        &self,
        rows: &[T],
        shapes: &Shapes,
        row: impl Fn(&T) -> Value,
    ) -> Success {
        let size = usize::try_from(self.size).unwrap_or(1).max(1);
        let skip = usize::try_from(self.page - 1)
            .unwrap_or(0)
            .saturating_mul(size);
        let total = rows.len().div_ceil(size) as u64;
        let current = self.page.unsigned_abs();
        let rows: Vec<Value> = rows.iter().skip(skip).take(size).map(row).collect();
        match shapes.page.paging {
            Paging::Beside => Success {
                data: json!(rows),
                request_id: None,
                paging: Some((current, total)),
            },
            Paging::Inside => {
                let mut data = Map::new();
                data.insert(shapes.page.rows_key.clone(), json!(rows));
                data.insert("currentPage".to_owned(), json!(current));
                data.insert("totalPages".to_owned(), json!(total));
                Success::of(Value::Object(data))
            }
        }
    }
}

/// Reads a paged body; of each range `NAME` the fields `NAMEFrom` and `NAMETo`.
///
/// # Errors
/// The refusal to answer with.
pub(super) fn read(
    body: &[u8],
    size_max: i64,
    shapes: &Shapes,
    names: &[&'static str],
) -> Result<Query, Refusal> {
    let range = shapes.page.range;
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
        None => refuse("page", RefusalReason::NotNull),
        Some(..1) => refuse("page", RefusalReason::Min),
        Some(_) => {}
    }
    match size {
        None => refuse("size", RefusalReason::NotNull),
        Some(..1) => refuse("size", RefusalReason::Min),
        Some(size) if size > size_max => refuse("size", RefusalReason::Max),
        Some(_) => {}
    }
    let mut ranges = Vec::new();
    for name in names {
        let mut bounds = [None, None];
        for (bound, end) in bounds.iter_mut().zip(["From", "To"]) {
            let field = format!("{name}{end}");
            let at = match range {
                Range::Kept | Range::Refused => integer(&map, &field)?,
                Range::Ignored => None,
            };
            let wrong = at
                .is_some_and(|at| range == Range::Refused || !(EPOCH_MIN..EPOCH_MAX).contains(&at));
            if wrong {
                refuse(&field, RefusalReason::ValidEpochSec);
            }
            *bound = at;
        }
        ranges.push((*name, bounds));
    }
    let orders = orders(map.get("orders"), shapes.page.orders)?;
    let (Some(page), Some(size), true) = (page, size, errors.is_empty()) else {
        return Err(Refusal::Invalid(errors));
    };
    Ok(Query {
        page,
        size,
        orders,
        ranges,
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

fn orders(value: Option<&Value>, shape: Orders) -> Result<Vec<(String, bool)>, Refusal> {
    let map = match value {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Object(map)) => map,
        Some(_) => return Err(Refusal::Unparsable("orders: an object expected".to_owned())),
    };
    if let (Orders::Refused, Some(key)) = (shape, map.keys().next()) {
        let words = format!("orders.{key}: no such key to sort by");
        return Err(Refusal::Unparsable(words));
    }
    let orders: Result<Vec<(String, bool)>, Refusal> = (map.iter())
        .map(|(key, way)| match way.as_str() {
            Some("ASC") => Ok((key.clone(), false)),
            Some("DESC") => Ok((key.clone(), true)),
            _ => {
                let words = format!("orders.{key}: no enum constant {way}, one of [ASC, DESC]");
                Err(Refusal::Unparsable(words))
            }
        })
        .collect();
    match shape {
        Orders::Kept | Orders::Refused => orders,
        Orders::Ignored => orders.map(|_| Vec::new()),
    }
}
