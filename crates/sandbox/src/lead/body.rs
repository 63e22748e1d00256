//! The bodies of the lead endpoints. Of POST lead the document names `fields` and
//! `contacts[].fields`; the other names here are those of the snapshot (§2.5), as the natural ones.

use super::catalogue::{Catalogue, FieldType, InfoType, stage};
use super::order::Draft;
use super::record::{Contact, FieldValues};
use crate::body::{BodyFields, is_phone};
use crate::envelope::{FieldError, Refusal, RefusalReason, json_object, json_value};
use crate::shapes::FieldList;
use serde_json::{Map, Value};

/// Notes of one request (§4.7, Limits).
const NOTES_MAX: usize = 10;

/// The field list of the upsert (§2.4, §4.4): what is to be written, and the ids that are skipped
/// because they name a contact field or none.
///
/// # Errors
/// The refusal to answer with.
pub(super) fn field_list(
    body: &[u8],
    key: &str,
    form: FieldList,
    catalogue: &Catalogue,
) -> Result<(FieldValues, Vec<i64>), Refusal> {
    let (items, prefix) = match (json_value(body)?, form) {
        (Value::Array(items), FieldList::Either | FieldList::Bare) => (items, String::new()),
        (Value::Object(mut map), FieldList::Either | FieldList::Wrapped) => match map.remove(key) {
            Some(Value::Array(items)) => (items, key.to_owned()),
            None | Some(Value::Null) => return Err(refused(key, RefusalReason::NotNullCollection)),
            Some(_) => return Err(Refusal::Unparsable(format!("{key}: an array expected"))),
        },
        (_, FieldList::Bare) => {
            return Err(Refusal::Unparsable("JSON array expected".to_owned()));
        }
        (_, FieldList::Wrapped) => {
            return Err(Refusal::Unparsable("JSON object expected".to_owned()));
        }
        (_, FieldList::Either) => {
            let words = "JSON array or object expected".to_owned();
            return Err(Refusal::Unparsable(words));
        }
    };
    if items.is_empty() {
        return Err(refused(key, RefusalReason::NotEmpty));
    }
    let mut errors = Vec::new();
    // What is passed over in silence is judged by nothing (§4.4.2).
    let own = (catalogue, InfoType::Led);
    let read = field_items(items, &prefix, own, &mut errors)?;
    if !errors.is_empty() {
        return Err(Refusal::Invalid(errors));
    }
    let (mut values, mut skipped) = (FieldValues::new(), Vec::new());
    for (id, value) in read {
        match (catalogue.kind(id), value) {
            (Some(InfoType::Led), Some(value)) => {
                values.insert(id, value);
            }
            // An item without `value` and `valueList` says nothing.
            (Some(InfoType::Led), None) => {}
            (Some(InfoType::Contact) | None, _) => skipped.push(id),
        }
    }
    Ok((values, skipped))
}

/// An item of a field list: the id and, as far as said, the values; the empty list clears.
type FieldItem = (i64, Option<Vec<Value>>);

fn field_items(
    items: Vec<Value>,
    prefix: &str,
    (catalogue, own): (&Catalogue, InfoType),
    errors: &mut Vec<FieldError>,
) -> Result<Vec<FieldItem>, Refusal> {
    let mut read = Vec::new();
    for (number, item) in items.into_iter().enumerate() {
        let at = format!("{prefix}[{number}]");
        let Value::Object(map) = item else {
            return Err(Refusal::Unparsable(format!("{at}: an object expected")));
        };
        let mut fields = BodyFields::within(map, format!("{at}."));
        let id = fields.integer("id", i64::MAX)?;
        let id = fields.required("id", id);
        let known = id.filter(|&id| catalogue.kind(id) == Some(own));
        let value = given(&mut fields, &at, known.map(FieldType::of))?;
        errors.append(&mut fields.errors);
        if let Some(id) = id {
            read.push((id, value));
        }
    }
    Ok(read)
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
            wrong("valueList: the field is no multi-select")
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

/// The body of POST lead.
///
/// # Errors
/// The refusal to answer with.
pub(super) fn lead(body: &[u8], catalogue: &Catalogue) -> Result<Draft, Refusal> {
    let mut fields = BodyFields::new(json_object(body)?);
    let draft = draft(&mut fields, catalogue)?;
    if draft.id.is_none() && draft.name.is_none() {
        fields.refuse("name", RefusalReason::NotNull);
    }
    if fields.errors.is_empty() {
        Ok(draft)
    } else {
        Err(Refusal::Invalid(fields.errors))
    }
}

/// Takes the properties of a lead; what is wrong with them stands in `fields.errors`.
pub(super) fn draft(fields: &mut BodyFields, catalogue: &Catalogue) -> Result<Draft, Refusal> {
    let name = fields.text("name")?;
    if name.as_deref().is_some_and(|name| name.trim().is_empty()) {
        fields.refuse("name", RefusalReason::NotBlank);
    }
    let status_id = fields.integer("statusId", i64::MAX)?;
    if status_id.is_some() && stage(status_id).is_none() {
        fields.refuse("statusId", RefusalReason::NotFound);
    }
    let nobody = fields.map.get("responsibleId") == Some(&Value::Null);
    let responsible_id = fields.integer("responsibleId", i64::MAX)?;
    let mut draft = Draft {
        id: fields.integer("id", i64::MAX)?,
        name,
        status_id,
        pipe_id: fields.integer("pipeId", i64::MAX)?,
        responsible_id: (nobody || responsible_id.is_some()).then_some(responsible_id),
        balance: fields.decimal("balance")?,
        currency: fields.text("currency")?,
        uuid: fields.text("uuid")?,
        ..Draft::default()
    };
    if let Some(items) = fields.list("fields")? {
        let values = complete(
            items,
            "fields",
            InfoType::Led,
            catalogue,
            &mut fields.errors,
        )?;
        draft.fields = Some(values);
    }
    if let Some(list) = fields.list("contacts")? {
        draft.contacts = Some(contacts(list, catalogue, &mut fields.errors)?);
    }
    Ok(draft)
}

/// A complete set of fields: each must be one of its kind (ours: the document says it only of the
/// upsert, that others are skipped).
fn complete(
    items: Vec<Value>,
    prefix: &str,
    kind: InfoType,
    catalogue: &Catalogue,
    errors: &mut Vec<FieldError>,
) -> Result<FieldValues, Refusal> {
    let mut values = FieldValues::new();
    let read = field_items(items, prefix, (catalogue, kind), errors)?;
    for (number, (id, value)) in read.into_iter().enumerate() {
        if catalogue.kind(id) != Some(kind) {
            errors.push(FieldError {
                field: format!("{prefix}[{number}].id"),
                reason: RefusalReason::NotFound,
            });
        }
        let value = value.unwrap_or_default();
        if !value.is_empty() {
            values.insert(id, value);
        }
    }
    Ok(values)
}

fn contacts(
    list: Vec<Value>,
    catalogue: &Catalogue,
    errors: &mut Vec<FieldError>,
) -> Result<Vec<Contact>, Refusal> {
    let mut contacts = Vec::new();
    for (number, item) in list.into_iter().enumerate() {
        let at = format!("contacts[{number}]");
        let Value::Object(map) = item else {
            return Err(Refusal::Unparsable(format!("{at}: an object expected")));
        };
        let mut fields = BodyFields::within(map, format!("{at}."));
        let mut contact = Contact {
            id: fields.integer("id", i64::MAX)?.unwrap_or(0),
            name: fields.text("name")?.unwrap_or_default(),
            phones: phones(&mut fields)?,
            fields: FieldValues::new(),
        };
        if let Some(items) = fields.list("fields")? {
            let prefix = format!("{at}.fields");
            contact.fields = complete(items, &prefix, InfoType::Contact, catalogue, errors)?;
        }
        errors.append(&mut fields.errors);
        contacts.push(contact);
    }
    Ok(contacts)
}

/// `phones`, or one `phone`.
fn phones(fields: &mut BodyFields) -> Result<Vec<String>, Refusal> {
    let mut phones = Vec::new();
    if let Some(phone) = fields.text("phone")? {
        fields.check_phone("phone", &phone);
        phones.push(phone);
    }
    for (number, phone) in fields.list("phones")?.into_iter().flatten().enumerate() {
        let name = format!("phones[{number}]");
        match phone.as_str() {
            Some(phone) if is_phone(phone) => phones.push(phone.to_owned()),
            Some(_) => fields.refuse(&name, RefusalReason::ValidPhone),
            None => return Err(fields.wrong_type(&name, &phone, "a string")),
        }
    }
    Ok(phones)
}

/// The notes of one request: 1 to 10, each an object. They come as a bare array, or in the first
/// array of an object (ours: the body is not shown).
///
/// # Errors
/// The refusal to answer with.
pub(super) fn notes(body: &[u8]) -> Result<Vec<Value>, Refusal> {
    let notes = match json_value(body)? {
        Value::Array(notes) => notes,
        Value::Object(map) => match map.into_iter().find_map(|(_, value)| match value {
            Value::Array(notes) => Some(notes),
            _ => None,
        }) {
            Some(notes) => notes,
            None => return Err(refused("notes", RefusalReason::NotNullCollection)),
        },
        _ => return Err(Refusal::Unparsable("JSON array expected".to_owned())),
    };
    if notes.is_empty() || notes.len() > NOTES_MAX {
        return Err(refused("notes", RefusalReason::Size));
    }
    if notes.iter().any(|note| !note.is_object()) {
        return Err(Refusal::Unparsable("a note is an object".to_owned()));
    }
    Ok(notes)
}

/// A task: an object with its `leadId`.
///
/// # Errors
/// The refusal to answer with.
pub(super) fn task(body: &[u8]) -> Result<(i64, Value), Refusal> {
    let mut fields = BodyFields::new(json_object(body)?);
    let lead = fields.integer("leadId", i64::MAX)?;
    match lead {
        Some(lead) => Ok((lead, Value::Object(rest(fields)))),
        None => Err(refused("leadId", RefusalReason::NotNull)),
    }
}

fn rest(fields: BodyFields) -> Map<String, Value> {
    fields.map
}

fn refused(field: &str, reason: RefusalReason) -> Refusal {
    Refusal::Invalid(vec![FieldError {
        field: field.to_owned(),
        reason,
    }])
}
