//! The lead endpoints, called after the checks of token, window, address, and grant.
//!
//! The document shows `page`, `size`, `orders`, and ranges such as `registeredTimestampFrom` in the
//! payload of `lead/filter`. `createdTimestamp` and `updatedTimestamp` are names of the snapshot,
//! and `registeredTimestamp` means `createdTimestamp`. As in a database, an unknown time is in no
//! range, and is last in ascending order. There is no lookup by phone.

use crate::{
    Asked, BodyFields, Catalog, Content, FieldError, FieldType, FieldUpsert, FieldValues, Lead,
    Refusal, RefusalReason, Rows, Sandbox, Success, ViolationKind, body::read_page,
    envelope::json_value, lead::act, writes::accept,
};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::cmp::Ordering;

/// Largest page of leads (§4.7).
const SIZE_MAX: i64 = 50;
const REGISTERED: &str = "registeredTimestamp";
const CREATED: &str = "createdTimestamp";
const UPDATED: &str = "updatedTimestamp";

/// Answers `POST lead/filter` with a page of the company's leads.
pub(crate) fn filter(core: &Sandbox, asked: &Asked<'_>) -> Result<Success, Refusal> {
    let shapes = &core.settings.shapes;
    let names = [REGISTERED, CREATED, UPDATED];
    let query = read_page(&asked.request.body, SIZE_MAX, shapes, &names)?;
    let company = core.companies.get(&asked.token.company);
    let mut rows: Vec<Cow<'_, Lead>> =
        company.map_or_else(Vec::new, |company| core.leads.all(company));
    rows.retain(|lead| {
        query.holds(REGISTERED, lead.created_timestamp)
            && query.holds(CREATED, lead.created_timestamp)
            && query.holds(UPDATED, lead.updated_timestamp)
    });
    query.sort(&mut rows, |one, other, key| compare(one, other, key));
    Ok(query.answer(&rows, shapes, |lead| match shapes.rows {
        Rows::Strings => json!(lead.id),
        Rows::Objects => lead.record(),
    }))
}

/// Compares two leads by one key. An unknown key leaves the order as it is.
fn compare(one: &Lead, other: &Lead, key: &str) -> Ordering {
    match key {
        "id" => one.id.cmp(&other.id),
        "name" => one.name.cmp(&other.name),
        "balance" => one.balance.total_cmp(&other.balance),
        REGISTERED | CREATED => compare_times(one.created_timestamp, other.created_timestamp),
        UPDATED => compare_times(one.updated_timestamp, other.updated_timestamp),
        _ => Ordering::Equal,
    }
}

/// Compares two times. An unknown time (`None`) is later than all others.
fn compare_times(one: Option<i64>, other: Option<i64>) -> Ordering {
    let one = one.unwrap_or(i64::MAX);
    one.cmp(&other.unwrap_or(i64::MAX))
}

/// Answers `GET lead/{id}`. A lead of another company, a deleted lead, and a lead that never
/// existed have the same answer (§7.4).
pub(crate) fn one(core: &Sandbox, asked: &Asked<'_>) -> Result<Success, Refusal> {
    let lead = act::find_lead(core, asked.token.company, number(asked.id)?)
        .ok_or(Refusal::Plain(409, "Lid topilmadi"))?;
    Ok(Success::from_data(lead.record()))
}

/// Answers `POST lead/{id}/field/list` (§4.4) with 200 and a requestId. The write is carried out
/// later (§3.2). Only the status of the requestId shows that a lead is unknown.
pub(crate) fn upsert_fields(core: &mut Sandbox, asked: &Asked<'_>) -> Result<Success, Refusal> {
    let lead = number(asked.id)?;
    let settings = &core.settings;
    let key = &settings.names.list;
    let (values, skipped) = read_list(&asked.request.body, key, &settings.catalog)?;
    if !skipped.is_empty() {
        let message = format!("fields {skipped:?} are not LED fields: skipped silently");
        core.record_violation(ViolationKind::SkippedField, "§4.4.2", message);
    }
    let content = Content::Fields(FieldUpsert { lead, values });
    accept(core, asked, content)
}

/// Parses the id in a path, or refuses it.
fn number(id: &str) -> Result<i64, Refusal> {
    id.parse().map_err(|_| Refusal::Plain(400, "Id noto‘g‘ri"))
}

/// Reads a body with the list `key`. Returns the values to write, and the ids of fields that are
/// skipped because they are not lead-level fields.
///
/// # Errors
/// The refusal to answer with.
fn read_list(
    body: &[u8],
    key: &str,
    catalog: &Catalog,
) -> Result<(FieldValues, Vec<i64>), Refusal> {
    let (items, prefix) = items(body, key)?;
    if items.is_empty() {
        return Err(field_refusal(key, RefusalReason::NotEmpty));
    }
    let mut values = FieldValues::new();
    let mut skipped = Vec::new();
    let mut errors = Vec::new();
    for (number, item) in items.into_iter().enumerate() {
        let at = format!("{prefix}[{number}]");
        let Value::Object(map) = item else {
            return Err(Refusal::Unparsable(format!("{at}: an object expected")));
        };
        let mut fields = BodyFields::new(map, format!("{at}."));
        let id = fields.integer("id", i64::MAX)?;
        fields.required("id", id);
        // A field that is skipped silently has no type to check (§4.4.2).
        let own = id.filter(|&id| catalog.led.contains(id));
        let value = item_values(&mut fields, &at, own.map(FieldType::from_id))?;
        errors.append(&mut fields.errors);
        match (own, value) {
            (Some(id), Some(value)) => {
                values.insert(id, value);
            }
            // An item without `value` and `valueList` changes nothing.
            (Some(_), None) => {}
            (None, _) => skipped.extend(id),
        }
    }
    if errors.is_empty() {
        Ok((values, skipped))
    } else {
        Err(Refusal::Invalid(errors))
    }
}

/// Returns the items of the list in a body, and the prefix of their names in errors. The body is
/// the list, or an object with the list under `key`.
fn items(body: &[u8], key: &str) -> Result<(Vec<Value>, String), Refusal> {
    match json_value(body)? {
        Value::Array(items) => Ok((items, String::new())),
        Value::Object(mut map) => match map.remove(key) {
            Some(Value::Array(items)) => Ok((items, key.to_owned())),
            None | Some(Value::Null) => Err(field_refusal(key, RefusalReason::NotNullCollection)),
            Some(_) => Err(Refusal::Unparsable(format!("{key}: an array expected"))),
        },
        _ => {
            let message = "JSON array or object expected".to_owned();
            Err(Refusal::Unparsable(message))
        }
    }
}

/// Returns the values that an item writes: `None` if the item changes nothing, or an empty list if
/// the item clears the field. `at` names the item in errors. Without a `kind`, the type is not
/// checked.
fn item_values(
    fields: &mut BodyFields,
    at: &str,
    kind: Option<FieldType>,
) -> Result<Option<Vec<Value>>, Refusal> {
    let message = match (fields.map.remove("value"), fields.list("valueList")?) {
        (Some(_), Some(_)) => "value: beside valueList, which of the two is meant?",
        (None, Some(list)) if !list.iter().all(Value::is_string) => "valueList: strings expected",
        (None, Some(_)) if kind.is_some_and(|kind| kind != FieldType::MultiSelect) => {
            "valueList: the field is not a multi-select"
        }
        (None, Some(list)) => return Ok(Some(list)),
        (Some(Value::Array(_) | Value::Object(_)), None) => "value: a scalar expected",
        (Some(value), None) if kind.is_some_and(|kind| !kind.accepts(&value)) => {
            "value: not of the field's type"
        }
        (Some(Value::Null), None) => return Ok(Some(Vec::new())),
        (Some(scalar), None) => return Ok(Some(vec![scalar])),
        (None, None) => return Ok(None),
    };
    Err(Refusal::Unparsable(format!("{at}.{message}")))
}

fn field_refusal(field: &str, reason: RefusalReason) -> Refusal {
    let field = field.to_owned();
    Refusal::Invalid(vec![FieldError { field, reason }])
}
