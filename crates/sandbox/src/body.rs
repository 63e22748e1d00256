//! Reads JSON bodies (§7.5): takes each field with its type, and collects the errors. Also reads
//! the paged body of the filter endpoints and makes their answer (§4.7, §2.1 `PageableData`), and
//! reads the bodies of the admin paths.

use crate::{
    FieldError, Paging, Refusal, RefusalReason, Shapes, Success, Treatment, envelope::json_object,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::cmp::Ordering;

/// Result of a command under `/sandbox/admin/`: the answer (null if there is no such path), or a
/// message about the error in the command.
pub(crate) type AdminAnswer = Result<Value, String>;

/// Parses the JSON body of a request to an admin path. An empty body gives the default value.
pub(crate) fn read<T: Default + DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    if body.is_empty() {
        return Ok(T::default());
    }
    serde_json::from_slice(body).map_err(|error| error.to_string())
}

/// Returns the value of a field that the path requires, or an error that names the field.
pub(crate) fn needed<T>(value: Option<T>, name: &str) -> Result<T, String> {
    value.ok_or_else(|| format!("`{name}` is missing"))
}

/// The earliest time that a body can contain: 2000-01-01 in epoch seconds.
pub(super) const EPOCH_MIN: i64 = 946_684_800;

/// The fields of a JSON body that were not read yet, and the errors found so far.
pub(super) struct BodyFields {
    pub(super) map: Map<String, Value>,
    pub(super) errors: Vec<FieldError>,
    /// Text before each name in an error, such as `contacts[0].`.
    prefix: String,
}

impl BodyFields {
    /// Creates the fields of a body, or of one list element in a body. Errors show `prefix` before
    /// each field's name.
    pub(super) const fn new(map: Map<String, Value>, prefix: String) -> Self {
        Self {
            map,
            errors: Vec::new(),
            prefix,
        }
    }

    pub(super) fn refuse(&mut self, field: &str, reason: RefusalReason) {
        let field = format!("{}{field}", self.prefix);
        self.errors.push(FieldError { field, reason });
    }

    /// Removes a field and converts its value with `read`. Returns `None` if the field is null or
    /// absent. Refuses a value that `read` rejects, with a message that names the `expected` type.
    fn take<T>(
        &mut self,
        name: &str,
        expected: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, Refusal> {
        let value = self.map.remove(name).unwrap_or_default();
        let taken = read(&value);
        if taken.is_none() && !value.is_null() {
            let prefix = &self.prefix;
            let message = format!("{prefix}{name}: {expected} expected, not {value}");
            return Err(Refusal::Unparsable(message));
        }
        Ok(taken)
    }

    /// Removes and returns a field that must be an integer from `-max - 1` to `max`. A null or
    /// absent field gives `None`.
    pub(super) fn integer(&mut self, name: &str, max: i64) -> Result<Option<i64>, Refusal> {
        self.take(name, "an integer", |value| {
            let number = value.as_i64()?;
            if number <= max && number >= -max - 1 {
                Some(number)
            } else {
                None
            }
        })
    }

    pub(super) fn text(&mut self, name: &str) -> Result<Option<String>, Refusal> {
        self.take(name, "a string", |value| value.as_str().map(str::to_owned))
    }

    pub(super) fn boolean(&mut self, name: &str) -> Result<Option<bool>, Refusal> {
        self.take(name, "a boolean", Value::as_bool)
    }

    pub(super) fn list(&mut self, name: &str) -> Result<Option<Vec<Value>>, Refusal> {
        self.take(name, "an array", |value| value.as_array().cloned())
    }

    /// Returns `value`. If it is `None`, records that the required field `name` is missing, and
    /// returns a default.
    pub(super) fn required<T: Default>(&mut self, name: &str, value: Option<T>) -> T {
        value.unwrap_or_else(|| {
            self.refuse(name, RefusalReason::NotNull);
            T::default()
        })
    }
}

/// Returns `true` if `phone` is a number in E.164 with its plus sign.
pub(super) fn is_phone(phone: &str) -> bool {
    let digits = phone.strip_prefix('+').unwrap_or_default();
    (7..=15).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit())
}

/// Numbers from this one on are no valid times in seconds, because they are probably milliseconds.
/// As seconds, this number is in the year 5138.
const EPOCH_MAX: i64 = 100_000_000_000;

/// The page, size, order, and ranges that a filter request asks for.
#[derive(Debug)]
pub(super) struct Query {
    page: i64,
    size: i64,
    /// Sort keys, each with `true` for descending. The first key has priority.
    orders: Vec<(String, bool)>,
    ranges: Vec<(&'static str, [Option<i64>; 2])>,
}

impl Query {
    /// Returns the bounds of a range, both inclusive. A bound is `None` if it was not requested.
    pub(super) fn range(&self, name: &str) -> [Option<i64>; 2] {
        let found = self.ranges.iter().find(|(range, _)| *range == name);
        found.map_or([None; 2], |(_, bounds)| *bounds)
    }

    /// Returns `true` if the time `at` is in the range `name`, or if the range was not requested.
    /// An unknown time (`None`) is in no requested range.
    pub(super) fn holds(&self, name: &str, at: Option<i64>) -> bool {
        let [from, to] = self.range(name);
        from.is_none_or(|from| at.is_some_and(|at| at >= from))
            && to.is_none_or(|to| at.is_some_and(|at| at <= to))
    }

    /// Sorts rows in the requested order. It sorts by the last key first, because the sort is
    /// stable and the first key has priority.
    pub(super) fn sort<T>(&self, rows: &mut [T], compare: impl Fn(&T, &T, &str) -> Ordering) {
        for (key, descending) in self.orders.iter().rev() {
            rows.sort_by(|one, other| {
                let order = compare(one, other, key);
                if *descending { order.reverse() } else { order }
            });
        }
    }

    /// Returns a success with the requested page of `rows`. `row` converts one row to JSON.
    pub(super) fn answer<T>(
        &self,
        rows: &[T],
        shapes: &Shapes,
        row: impl Fn(&T) -> Value,
    ) -> Success {
        let size = usize::try_from(self.size).unwrap_or(1).max(1);
        let skip = usize::try_from(self.page - 1).unwrap_or(0);
        let total = rows.len().div_ceil(size) as u64;
        let current = self.page.unsigned_abs();
        let on_page = rows.iter().skip(skip.saturating_mul(size)).take(size);
        let list: Value = on_page.map(row).collect();
        let (data, paging) = match shapes.page {
            Paging::Beside => (list, Some((current, total))),
            Paging::Inside => {
                let key = &*shapes.rows_key;
                let page = json!({ key: list, "currentPage": current, "totalPages": total });
                (page, None)
            }
        };
        Success {
            data,
            request_id: None,
            paging,
        }
    }
}

/// Reads the body of a filter request. `size_max` is the largest page size. `names` are the ranges
/// that the body can have: the range `NAME` has the fields `NAMEFrom` and `NAMETo`.
///
/// # Errors
/// The refusal to answer with.
pub(super) fn read_page(
    body: &[u8],
    size_max: i64,
    shapes: &Shapes,
    names: &[&'static str],
) -> Result<Query, Refusal> {
    let shape = shapes.range;
    let mut fields = BodyFields::new(json_object(body)?, String::new());
    let page = fields.integer("page", i64::MAX)?;
    let size = fields.integer("size", i64::MAX)?;
    for (name, given, most) in [("page", page, i64::MAX), ("size", size, size_max)] {
        match given {
            None => fields.refuse(name, RefusalReason::NotNull),
            Some(..1) => fields.refuse(name, RefusalReason::Min),
            Some(given) if given > most => fields.refuse(name, RefusalReason::Max),
            Some(_) => {}
        }
    }
    let mut ranges = Vec::new();
    for name in names {
        let mut bounds = [None, None];
        for (bound, end) in bounds.iter_mut().zip(["From", "To"]) {
            let field = format!("{name}{end}");
            if shape != Treatment::Ignored {
                *bound = fields.integer(&field, i64::MAX)?;
            }
            if let Some(at) = *bound
                && (shape != Treatment::Kept || !(EPOCH_MIN..EPOCH_MAX).contains(&at))
            {
                fields.refuse(&field, RefusalReason::ValidEpochSec);
            }
        }
        ranges.push((*name, bounds));
    }
    let orders = orders(fields.map.get("orders"), shapes.orders)?;
    let (Some(page), Some(size), true) = (page, size, fields.errors.is_empty()) else {
        return Err(Refusal::Invalid(fields.errors));
    };
    Ok(Query {
        page,
        size,
        orders,
        ranges,
    })
}

fn orders(value: Option<&Value>, shape: Treatment) -> Result<Vec<(String, bool)>, Refusal> {
    let map = match value {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Object(map)) => map,
        Some(_) => return Err(Refusal::Unparsable("orders: an object expected".to_owned())),
    };
    if let (Treatment::Refused, Some(key)) = (shape, map.keys().next()) {
        let message = format!("orders.{key}: no such key to sort by");
        return Err(Refusal::Unparsable(message));
    }
    let mut orders = Vec::new();
    for (key, way) in map {
        let Some(way @ ("ASC" | "DESC")) = way.as_str() else {
            let message = format!("orders.{key}: no enum constant {way}, one of [ASC, DESC]");
            return Err(Refusal::Unparsable(message));
        };
        if shape == Treatment::Kept {
            orders.push((key.clone(), way == "DESC"));
        }
    }
    Ok(orders)
}
