//! The CRM's fields from `GET crm-field` (§2.4, §4.7), and whether an ID can be written. Apart from
//! `infoType`, the form of its records isn't documented, so a missing property is never a reason to
//! reject a field.

use super::FieldId;
use callbridge_call::EventTime;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// Maximum number of fields to keep per catalog. A larger catalog is considered incomplete.
pub const FIELDS_MAX: usize = 5_000;

/// Maximum depth to which lists are searched.
const DEPTH_MAX: u32 = 4;

/// Maximum length of a field's name in characters. Anything longer is cut off.
const NAME_MAX: usize = 60;

/// One of the CRM's fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrmField {
    /// The ID used to write values (§2.4).
    pub id: FieldId,
    /// `LED`, `CONTACT`, or some other word, or `None` if the record has none.
    pub info_type: Option<String>,
    /// The record's `name` or `title`, truncated to 60 characters, or `None` if it has neither.
    pub name: Option<String>,
}

/// The CRM's fields as last read, or why they couldn't be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Catalog {
    /// When the fields were read or couldn't be.
    pub at: EventTime,
    /// Up to [`FIELDS_MAX`] fields.
    pub fields: Vec<CrmField>,
    /// Whether `fields` is complete. If it isn't, a missing ID may still be valid.
    pub whole: bool,
    /// Why the catalog couldn't be read, in which case no ID is checked, or `None` if it was read.
    pub unread: Option<String>,
}

/// Whether a field can be written for a lead, according to the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    /// A lead-level field (`infoType` `LED`), which can be written.
    Led,
    /// The catalog doesn't show whether the field can be written, for this reason. It's written
    /// anyway.
    Unsure(String),
    /// The field isn't a lead-level field but has this `infoType`. The CRM would silently ignore a
    /// value (§4.4.2).
    Other(String),
    /// The CRM has no such field.
    Unknown,
    /// The field exists, but the CRM rejected a value. The text contains the value and the reason.
    Refused(String),
}

impl Fit {
    /// Returns `true` if a value for the field should be sent.
    pub const fn is_writable(&self) -> bool {
        matches!(self, Self::Led | Self::Unsure(_))
    }
}

impl fmt::Display for Fit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ignored = "the CRM would silently ignore it";
        match self {
            Self::Led => f.write_str("a field of leads"),
            Self::Unsure(why) => write!(f, "not checked: {why}"),
            Self::Other(kind) if kind == "CONTACT" => {
                write!(f, "a field of contacts (CONTACT): {ignored}")
            }
            Self::Other(kind) => write!(f, "not a field of leads (infoType {kind}): {ignored}"),
            Self::Unknown => write!(f, "not a field of this CRM: {ignored}"),
            Self::Refused(what) => write!(f, "the CRM did not accept {what}"),
        }
    }
}

impl Catalog {
    /// Creates a catalog of the fields that were read. `whole` means that these are all of the
    /// CRM's fields. If there are more than [`FIELDS_MAX`], the catalog is truncated and
    /// incomplete.
    pub fn read(mut fields: Vec<CrmField>, whole: bool, at: EventTime) -> Self {
        let whole = whole && fields.len() <= FIELDS_MAX;
        fields.truncate(FIELDS_MAX);
        let texts = (fields.iter_mut()).flat_map(|field| [&mut field.name, &mut field.info_type]);
        for text in texts.flatten() {
            *text = text.chars().take(NAME_MAX).collect();
        }
        Self {
            at,
            fields,
            whole,
            unread: None,
        }
    }

    /// Creates a catalog that couldn't be read, for this reason.
    pub fn unread(why: String, at: EventTime) -> Self {
        Self {
            at,
            fields: Vec::new(),
            whole: false,
            unread: Some(why),
        }
    }

    pub fn field(&self, id: FieldId) -> Option<&CrmField> {
        self.fields.iter().find(|field| field.id == id)
    }

    /// Checks whether the field with this ID can be written to a lead.
    pub fn fit(&self, id: FieldId) -> Fit {
        if let Some(why) = &self.unread {
            return Fit::Unsure(format!("the CRM's fields cannot be read ({why})"));
        }
        match self.field(id) {
            Some(field) => match field.info_type.as_deref().map(str::trim) {
                None | Some("") => {
                    Fit::Unsure("the CRM does not report whether it is a field of leads".to_owned())
                }
                Some(kind) if kind.eq_ignore_ascii_case("LED") => Fit::Led,
                Some(kind) => Fit::Other(kind.to_ascii_uppercase()),
            },
            None if self.whole => Fit::Unknown,
            None => Fit::Unsure("only a part of the CRM's fields could be read".to_owned()),
        }
    }
}

/// Reads the fields in a response to `GET crm-field`, also returning `true` if they're complete.
/// The payload isn't documented (§2.8), so any record with an `id` and an `infoType`, in any list
/// or group, is considered a field. If no record has an `infoType`, all records with an `id` are.
pub fn rows(envelope: &Value) -> Option<(Vec<CrmField>, bool)> {
    let data = envelope.get("data")?;
    let mut lists = Vec::new();
    gather(data, DEPTH_MAX, &mut lists);
    let mut all: Vec<CrmField> = lists.iter().copied().flatten().filter_map(field).collect();
    if all.is_empty() && !lists.iter().any(|rows| rows.is_empty()) {
        return None;
    }
    if all.iter().any(|field| field.info_type.is_some()) {
        // Records without an `infoType` are the fields' options.
        all.retain(|field| field.info_type.is_some());
    }
    all.sort_by_key(|field| field.id);
    all.dedup_by_key(|field| field.id);
    let current = first_number([data, envelope], "currentPage");
    let total = first_number([data, envelope], "totalPages");
    let whole = match (current, total) {
        (Some(current), Some(total)) => current >= total,
        (None, Some(total)) => total <= 1,
        (_, None) => true,
    };
    Some((all, whole))
}

fn first_number(places: [&Value; 2], key: &str) -> Option<i64> {
    places
        .into_iter()
        .find_map(|place| place.get(key)?.as_i64())
}

/// Collects lists that are inside lists or under keys, because fields may be grouped.
fn gather<'a>(value: &'a Value, depth: u32, lists: &mut Vec<&'a Vec<Value>>) {
    if depth == 0 {
        return;
    }
    match value {
        Value::Array(rows) => {
            lists.push(rows);
            for row in rows.iter().filter_map(Value::as_object) {
                for inner in row.values().filter(|value| value.is_array()) {
                    gather(inner, depth - 1, lists);
                }
            }
        }
        Value::Object(map) => {
            for inner in map.values() {
                gather(inner, depth - 1, lists);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn field(row: &Value) -> Option<CrmField> {
    let id = row.get("id")?;
    let id = match id.as_i64() {
        Some(id) => FieldId::new(id)?,
        None => FieldId::parse(id.as_str()?)?,
    };
    Some(CrmField {
        id,
        info_type: text_under(row, "infoType"),
        name: text_under(row, "name").or_else(|| text_under(row, "title")),
    })
}

fn text_under(row: &Value, key: &str) -> Option<String> {
    row.get(key).and_then(Value::as_str).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(id: i64, kind: Option<&str>) -> CrmField {
        CrmField {
            id: FieldId::new(id).expect("positive"),
            info_type: kind.map(str::to_owned),
            name: None,
        }
    }

    /// Returns the fields in a response as text, ending with `true` if the response has all fields.
    fn fields_text(json: &str) -> String {
        let envelope = serde_json::from_str(json).expect("JSON");
        let Some((fields, whole)) = rows(&envelope) else {
            return "none".to_owned();
        };
        let fields = fields.iter().map(|field| {
            let kind = field.info_type.as_deref().unwrap_or("-");
            let name = field.name.as_deref().unwrap_or("-");
            format!("{} {kind} {name}", field.id)
        });
        format!("{} {whole}", fields.collect::<Vec<_>>().join(", "))
    }

    #[test]
    fn fields_are_found_at_any_depth_and_one_page_is_incomplete() {
        let all = [
            r#"{"data":[{"id":12,"infoType":"LED","name":"a"},{"id":"11","infoType":"CONTACT"}]}"#,
            r#"{"data":{"fields":[{"id":1,"infoType":"LED","options":[{"id":9,"name":"x"}]}]}}"#,
            r#"{"data":[{"group":"g","fields":[{"id":1,"infoType":"LED"}]}]}"#,
            r#"{"data":{"data":[{"id":1}],"currentPage":1,"totalPages":2}}"#,
            r#"{"data":[]}"#,
            r#"{"data":null}"#,
            r#"{"data":[{"name":"x"},7]}"#,
        ];
        insta::assert_snapshot!(all.map(fields_text).join("\n"), @r"
        11 CONTACT -, 12 LED a true
        1 LED - true
        1 LED - true
        1 - - false
         true
        none
        none
        ");
    }

    fn fit_of(catalog: &Catalog, id: i64) -> Fit {
        catalog.fit(FieldId::new(id).expect("positive"))
    }

    #[test]
    fn field_id_is_writable_unless_excluded_by_catalog() {
        let at = EventTime::from_seconds(1);
        let fields = vec![
            field(11, Some("LED")),
            field(21, Some("CONTACT")),
            field(31, None),
        ];
        let part = Catalog::read(fields.clone(), false, at);
        let whole = Catalog::read(fields, true, at);
        let unread = Catalog::unread("403".to_owned(), at);
        let words = [
            fit_of(&whole, 11),
            fit_of(&whole, 21),
            fit_of(&whole, 31),
            fit_of(&whole, 99),
            fit_of(&part, 99),
            fit_of(&unread, 11),
        ];
        let words = words.map(|fit| format!("{} {fit}", fit.is_writable()));
        insta::assert_snapshot!(words.join("\n"), @r"
        true a field of leads
        false a field of contacts (CONTACT): the CRM would silently ignore it
        true not checked: the CRM does not report whether it is a field of leads
        false not a field of this CRM: the CRM would silently ignore it
        true not checked: only a part of the CRM's fields could be read
        true not checked: the CRM's fields cannot be read (403)
        ");
    }
}
