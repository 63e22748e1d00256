//! Reading a JSON body: fields taken one by one, each of its type, and what was wrong (§7.5); the
//! paged body of the filter endpoints and its answer (§4.7, §2.1 `PageableData`); what a person
//! orders.

use crate::{
    FieldError, Paging, Refusal, RefusalReason, Shapes, Success, Treatment, envelope::json_object,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::cmp::Ordering;

/// Result of an order below `/sandbox/admin/`: the answer, null for no such path, or the fault of
/// the order in words.
pub(crate) type AdminAnswer = Result<Value, String>;

/// Reads a body as the order that its path expects; an empty one orders nothing.
pub(crate) fn read<T: Default + DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    if body.is_empty() {
        return Ok(T::default());
    }
    serde_json::from_slice(body).map_err(|error| error.to_string())
}

/// A field that the path cannot do without.
pub(crate) fn needed<T>(value: Option<T>, name: &str) -> Result<T, String> {
    value.ok_or_else(|| format!("`{name}` is missing"))
}

/// The earliest moment of a call: 2000-01-01 in epoch seconds.
pub(super) const EPOCH_MIN: i64 = 946_684_800;

/// The fields of a body not yet taken, and the faults found so far.
pub(super) struct BodyFields {
    pub(super) map: Map<String, Value>,
    pub(super) errors: Vec<FieldError>,
    /// Stands before each name in an error: `contacts[0].`
    prefix: String,
}

impl BodyFields {
    pub(super) const fn new(map: Map<String, Value>) -> Self {
        Self {
            map,
            errors: Vec::new(),
            prefix: String::new(),
        }
    }

    /// The fields of an element of a list in the body.
    pub(super) fn within(map: Map<String, Value>, prefix: String) -> Self {
        Self {
            prefix,
            ..Self::new(map)
        }
    }

    pub(super) fn refuse(&mut self, field: &str, reason: RefusalReason) {
        self.errors.push(FieldError {
            field: format!("{}{field}", self.prefix),
            reason,
        });
    }

    /// Takes a field of this type; null and absent are the same. Anything else is the parser's
    /// refusal.
    fn take<T>(
        &mut self,
        name: &str,
        expected: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, Refusal> {
        match self.map.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match read(&value) {
                Some(read) => Ok(Some(read)),
                None => Err(self.wrong_type(name, &value, expected)),
            },
        }
    }

    /// Takes an integer, which has no fraction and is within the type's range.
    pub(super) fn integer(&mut self, name: &str, max: i64) -> Result<Option<i64>, Refusal> {
        let within = |n: &i64| *n <= max && *n >= -max - 1;
        self.take(name, "an integer", |value| value.as_i64().filter(within))
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

    /// A field that must be there; without it the body is refused, whatever stands in its place.
    pub(super) fn required<T: Default>(&mut self, name: &str, value: Option<T>) -> T {
        value.unwrap_or_else(|| {
            self.refuse(name, RefusalReason::NotNull);
            T::default()
        })
    }

    pub(super) fn check_phone(&mut self, name: &str, phone: &str) {
        if !is_phone(phone) {
            self.refuse(name, RefusalReason::ValidPhone);
        }
    }

    fn wrong_type(&self, name: &str, value: &Value, expected: &str) -> Refusal {
        let name = format!("{}{name}", self.prefix);
        Refusal::Unparsable(format!("{name}: {expected} expected, not {value}"))
    }
}

/// Returns `true` for a number in E.164 with its plus sign.
pub(super) fn is_phone(phone: &str) -> bool {
    let digits = phone.strip_prefix('+').unwrap_or_default();
    (7..=15).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit())
}

/// The first number taken for milliseconds: the year 5138 in seconds.
const EPOCH_MAX: i64 = 100_000_000_000;

/// Page, size, order and ranges that a filter request asks for.
#[derive(Debug)]
pub(super) struct Query {
    page: i64,
    size: i64,
    /// Keys with "descending", the first in charge.
    orders: Vec<(String, bool)>,
    ranges: Vec<(&'static str, [Option<i64>; 2])>,
}

impl Query {
    /// The bounds of a range, both within; `None` for one not asked for.
    pub(super) fn range(&self, name: &str) -> [Option<i64>; 2] {
        let found = self.ranges.iter().find(|(range, _)| *range == name);
        found.map_or([None, None], |(_, bounds)| *bounds)
    }

    /// Returns `true` where a moment lies within a range. One that is not known lies in none that
    /// was asked for.
    pub(super) fn holds(&self, name: &str, at: Option<i64>) -> bool {
        match (self.range(name), at) {
            ([None, None], _) => true,
            (_, None) => false,
            ([from, to], Some(at)) => {
                from.is_none_or(|from| at >= from) && to.is_none_or(|to| at <= to)
            }
        }
    }

    /// Puts rows into the order asked for. The last key is sorted by first, so that the stable sort
    /// leaves the first key in charge.
    pub(super) fn sort<T>(&self, rows: &mut [T], compare: impl Fn(&T, &T, &str) -> Ordering) {
        for (key, descending) in self.orders.iter().rev() {
            rows.sort_by(|one, other| {
                let order = compare(one, other, key);
                if *descending { order.reverse() } else { order }
            });
        }
    }

    /// Cuts the page out of these rows, and answers with it.
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
        match shapes.page {
            Paging::Beside => Success {
                data: json!(rows),
                request_id: None,
                paging: Some((current, total)),
            },
            Paging::Inside => {
                let key = &*shapes.rows_key;
                let data = json!({ key: rows, "currentPage": current, "totalPages": total });
                Success::of(data)
            }
        }
    }
}

/// Reads a paged body; of each range `NAME` the fields `NAMEFrom` and `NAMETo`.
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
    let mut fields = BodyFields::new(json_object(body)?);
    let (page, size) = (
        fields.integer("page", i64::MAX)?,
        fields.integer("size", i64::MAX)?,
    );
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
            let known = |at| shape == Treatment::Kept && (EPOCH_MIN..EPOCH_MAX).contains(&at);
            if bound.is_some_and(|at| !known(at)) {
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
        Treatment::Kept | Treatment::Refused => orders,
        Treatment::Ignored => orders.map(|_| Vec::new()),
    }
}
