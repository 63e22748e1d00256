//! The CRM's fields from `GET crm-field` (§2.4, §4.7), and whether an id can be written. Apart from
//! `infoType`, the form of its records is not published. A missing property is never a reason to
//! refuse a field.

use super::FieldId;
use callbridge_call::EventTime;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// Maximum fields that are kept of one catalog. A larger catalog counts as incomplete.
pub const FIELDS_MAX: usize = 5_000;

/// Maximum depth at which lists are searched.
const DEPTH_MAX: u32 = 4;

/// Characters of a field's name that are kept.
const NAME_MAX: usize = 60;

/// One field of the CRM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrmField {
    /// Id by which values are written (§2.4).
    pub id: FieldId,
    /// `LED`, `CONTACT` or another word. `None` if the record has none.
    pub info_type: Option<String>,
    /// `name` or `title` of the record, cut to 60 characters. `None` if the record has neither.
    pub name: Option<String>,
}

/// The CRM's fields from the last read, or the reason why the read failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Catalog {
    /// Time of the read, or of its failure.
    pub at: EventTime,
    /// At most [`FIELDS_MAX`].
    pub fields: Vec<CrmField>,
    /// `fields` is complete. Otherwise an absent id can still be valid.
    pub whole: bool,
    /// Why the catalog could not be read, so that no id is checked. `None` if it was read.
    pub unread: Option<String>,
}

/// Whether a field can be written for a lead, according to the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    /// A lead-level field (`infoType` `LED`), which can be written.
    Led,
    /// The catalog does not show whether the field can be written, for this reason. The field is
    /// written anyway.
    Unsure(String),
    /// The field is not a lead-level field, but has this `infoType`. The CRM would ignore a value
    /// silently (§4.4.2).
    Other(String),
    /// The CRM has no such field.
    Unknown,
    /// The field exists, but the CRM refused a value. The text shows the value and the reason.
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
    /// Makes a catalog of the fields that were read. `whole` means that these are all fields of the
    /// CRM. If there are more than [`FIELDS_MAX`], the catalog is cut, and is incomplete.
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

    /// Makes a catalog that could not be read, for this reason.
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

    /// Checks whether a field of this id can be written to a lead.
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

/// Reads the fields in an answer to `GET crm-field`, and returns `true` with them if they are
/// complete. Its payload is not published (§2.8): records with an `id` and an `infoType` are
/// fields, in any list or group. If no record has an `infoType`, all records with an `id` are
/// fields.
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

/// Collects lists in lists and under keys, because fields can be grouped.
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

    /// Returns the fields in an answer as text, which ends in `true` if the answer has all fields.
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
