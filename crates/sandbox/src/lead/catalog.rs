//! A company's setup for its leads: the CRM fields (§2.4), the stages (§3.3), and the names of
//! employees. The document does not list any, so their ids and names are the sandbox's choice.

use crate::IdSet;
use serde::Serialize;
use serde_json::{Value, json};

/// The LED fields that exist without `--led-fields`.
pub const DEFAULT_LED: &str = "11-19";
/// The CONTACT fields that exist without `--contact-fields`.
pub const DEFAULT_CONTACT: &str = "21-29";
/// Most fields that `GET crm-field` lists.
const LISTED_MAX: usize = 1_000;

/// The CRM fields of a company, by level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catalog {
    /// Ids of lead-level fields. The last digit determines the type ([`FieldType::from_id`]).
    pub led: IdSet,
    /// Ids of contact fields, which the lead field upsert skips.
    pub contact: IdSet,
}

impl Default for Catalog {
    fn default() -> Self {
        Self {
            led: IdSet::parse(DEFAULT_LED).unwrap_or_default(),
            contact: IdSet::parse(DEFAULT_CONTACT).unwrap_or_default(),
        }
    }
}

impl Catalog {
    /// Returns the `data` of `GET crm-field`. The document names `id` and `infoType`. The name and
    /// the type are the sandbox's choice.
    pub fn record(&self) -> Value {
        let led = self.led.ids().take(LISTED_MAX).map(|id| (id, "LED"));
        let contact = (self.contact.ids().take(LISTED_MAX)).map(|id| (id, "CONTACT"));
        let rows = led.chain(contact).map(|(id, info)| {
            let kind = FieldType::from_id(id);
            json!({ "id": id, "name": format!("Field {id}"), "infoType": info, "type": kind })
        });
        rows.collect()
    }
}

/// The type of a CRM field's values. The document has only multi-selects and scalars (§2.4). The
/// sandbox also restricts number, boolean, and day fields to their values, and decides which id has
/// which type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FieldType {
    /// A text. Every scalar value of JSON is accepted as a text.
    Text,
    /// Several texts, each a separate entry of `valueList`.
    MultiSelect,
    /// A number, whole or not.
    Number,
    /// The literals `true` and `false`.
    Boolean,
    /// A day as a text: `2026-11-20`.
    Date,
}

impl FieldType {
    /// Returns the type of a field by the last digit of its id: 4 is multi-select, 5 number, 6
    /// boolean, 7 date, and every other digit text.
    pub const fn from_id(id: i64) -> Self {
        match id % 10 {
            4 => Self::MultiSelect,
            5 => Self::Number,
            6 => Self::Boolean,
            7 => Self::Date,
            _ => Self::Text,
        }
    }

    /// Returns `true` if a field of this type accepts the scalar `value`. Null clears a field of
    /// any type. A multi-select accepts no other scalar.
    pub fn accepts(self, value: &Value) -> bool {
        match self {
            Self::Text => !value.is_array() && !value.is_object(),
            Self::MultiSelect => value.is_null(),
            Self::Number => value.is_null() || value.is_number(),
            Self::Boolean => value.is_null() || value.is_boolean(),
            Self::Date => value.is_null() || value.as_str().is_some_and(is_day),
        }
    }
}

fn is_day(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let has_digits_only = parts
        .iter()
        .all(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
    has_digits_only && parts.iter().map(|part| part.len()).eq([4, 2, 2])
}

/// A stage of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage {
    /// The stage's name, as in `statusName` (§2.5).
    pub name: &'static str,
    /// The stage's pipeline, as in `pipeId` (§2.5).
    pub pipe: i64,
}

/// Id, name, and pipeline of each stage.
const STAGES: [(i64, &str, i64); 6] = [
    (1, "New", 1),
    (2, "In work", 1),
    (3, "Won", 1),
    (4, "Lost", 1),
    (11, "Request", 2),
    (12, "Done", 2),
];

/// Returns the stage with this id, or `None` if `id` is `None` or unknown.
pub fn stage(id: Option<i64>) -> Option<Stage> {
    let known = STAGES.into_iter().find(|(known, ..)| Some(*known) == id);
    known.map(|(_, name, pipe)| Stage { name, pipe })
}

/// Returns the name that the sandbox gives an employee, such as `Employee 501`.
pub fn employee_name(id: i64) -> String {
    format!("Employee {id}")
}
