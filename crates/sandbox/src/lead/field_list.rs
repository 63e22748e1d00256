//! The body of the lead field upsert (§2.4, §4.4).

use super::catalogue::{Catalogue, FieldType};
use super::record::FieldValues;
use crate::body::BodyFields;
use crate::envelope::{FieldError, Refusal, RefusalReason, json_value};
use serde_json::Value;

/// What is to be written, and the ids that are skipped because they name a contact field or none.
///
/// # Errors
/// The refusal to answer with.
pub(super) fn read(
    body: &[u8],
    key: &str,
    catalogue: &Catalogue,
) -> Result<(FieldValues, Vec<i64>), Refusal> {
    let (items, prefix) = items(body, key)?;
    if items.is_empty() {
        return Err(refused(key, RefusalReason::NotEmpty));
    }
    let (mut values, mut skipped, mut errors) = (FieldValues::new(), Vec::new(), Vec::new());
    for (number, item) in items.into_iter().enumerate() {
        let at = format!("{prefix}[{number}]");
        let Value::Object(map) = item else {
            return Err(Refusal::Unparsable(format!("{at}: an object expected")));
        };
        let mut fields = BodyFields::within(map, format!("{at}."));
        let id = fields.integer("id", i64::MAX)?;
        let id = fields.required("id", id);
        // What is passed over in silence is judged by nothing (§4.4.2).
        let own = id.filter(|&id| catalogue.led.contains(id));
        let value = given(&mut fields, &at, own.map(FieldType::of))?;
        errors.append(&mut fields.errors);
        match (own, value) {
            (Some(id), Some(value)) => {
                values.insert(id, value);
            }
            // An item without `value` and `valueList` says nothing.
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

/// The items of the list, bare or under the key, and what stands before them in the name of a
/// field.
fn items(body: &[u8], key: &str) -> Result<(Vec<Value>, String), Refusal> {
    match json_value(body)? {
        Value::Array(items) => Ok((items, String::new())),
        Value::Object(mut map) => match map.remove(key) {
            Some(Value::Array(items)) => Ok((items, key.to_owned())),
            None | Some(Value::Null) => Err(refused(key, RefusalReason::NotNullCollection)),
            Some(_) => Err(Refusal::Unparsable(format!("{key}: an array expected"))),
        },
        _ => {
            let words = "JSON array or object expected".to_owned();
            Err(Refusal::Unparsable(words))
        }
    }
}

/// The values of an item; `None` where it says nothing, the empty list where it clears.
fn given(
    fields: &mut BodyFields,
    at: &str,
    kind: Option<FieldType>,
) -> Result<Option<Vec<Value>>, Refusal> {
    let wrong = |words: &str| Err(Refusal::Unparsable(format!("{at}.{words}")));
    match (fields.map.remove("value"), fields.list("valueList")?) {
        (Some(_), Some(_)) => wrong("value: beside valueList, which of the two is meant?"),
        (None, Some(list)) if !list.iter().all(Value::is_string) => {
            wrong("valueList: strings expected")
        }
        (None, Some(_)) if kind.is_some_and(|kind| kind != FieldType::MultiSelect) => {
            wrong("valueList: the field is not a multi-select")
        }
        (None, Some(list)) => Ok(Some(list)),
        (Some(Value::Array(_) | Value::Object(_)), None) => wrong("value: a scalar expected"),
        (Some(value), None) if kind.is_some_and(|kind| !kind.takes(&value)) => {
            wrong("value: not of the field's type")
        }
        (Some(Value::Null), None) => Ok(Some(Vec::new())),
        (Some(scalar), None) => Ok(Some(vec![scalar])),
        (None, None) => Ok(None),
    }
}

fn refused(field: &str, reason: RefusalReason) -> Refusal {
    Refusal::Invalid(vec![FieldError {
        field: field.to_owned(),
        reason,
    }])
}
