//! What a company has set up for its leads: the CRM fields (§2.4), the stages (§3.3), the names of
//! its employees. The document gives none of their values; these are ours.

use crate::sandbox::token::IdSet;
use serde_json::{Value, json};

/// LED fields without `--led-fields`.
pub const DEFAULT_LED: &str = "11-19";
/// CONTACT fields without `--contact-fields`.
pub const DEFAULT_CONTACT: &str = "21-29";
/// Most fields that `GET crm-field` lists.
const LISTED_MAX: usize = 1_000;

/// Kinds of field (§2.4 `infoType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InfoType {
    /// Of the lead itself.
    Led,
    /// Of a contact.
    Contact,
}

/// The field catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catalogue {
    /// Ids of lead-level fields; every one whose number ends with 4 is a multi-select.
    pub led: IdSet,
    /// Ids of contact fields.
    pub contact: IdSet,
}

impl Default for Catalogue {
    fn default() -> Self {
        Self {
            led: IdSet::parse(DEFAULT_LED).unwrap_or_default(),
            contact: IdSet::parse(DEFAULT_CONTACT).unwrap_or_default(),
        }
    }
}

impl Catalogue {
    /// The kind of a field; `None` for an unknown one.
    pub fn kind(&self, id: i64) -> Option<InfoType> {
        if self.led.contains(id) {
            Some(InfoType::Led)
        } else if self.contact.contains(id) {
            Some(InfoType::Contact)
        } else {
            None
        }
    }

    /// `data` of `GET crm-field`: `id` and `infoType`, which the document names, and a name and a
    /// type, which it does not.
    pub fn record(&self) -> Value {
        let row = |info: &'static str| {
            move |id: i64| {
                let kind = if multiple(id) { "MULTI_SELECT" } else { "TEXT" };
                json!({ "id": id, "name": format!("Field {id}"), "infoType": info, "type": kind })
            }
        };
        let led = self.led.ids().take(LISTED_MAX).map(row("LED"));
        let contact = self.contact.ids().take(LISTED_MAX).map(row("CONTACT"));
        Value::Array(led.chain(contact).collect())
    }
}

/// Does the field hold several values?
const fn multiple(id: i64) -> bool {
    id % 10 == 4
}

/// A stage of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage {
    /// §2.5 `statusId`
    pub id: i64,
    /// §2.5 `statusName`
    pub name: &'static str,
    /// §2.5 `pipeId`
    pub pipe: i64,
}

const STAGES: [Stage; 6] = [
    Stage {
        id: 1,
        name: "New",
        pipe: 1,
    },
    Stage {
        id: 2,
        name: "In work",
        pipe: 1,
    },
    Stage {
        id: 3,
        name: "Won",
        pipe: 1,
    },
    Stage {
        id: 4,
        name: "Lost",
        pipe: 1,
    },
    Stage {
        id: 11,
        name: "Request",
        pipe: 2,
    },
    Stage {
        id: 12,
        name: "Done",
        pipe: 2,
    },
];

/// The stage of an id; `None` for none, and for an unknown one.
pub fn stage(id: Option<i64>) -> Option<Stage> {
    STAGES.into_iter().find(|stage| Some(stage.id) == id)
}

/// How an employee is called.
pub fn employee_name(id: i64) -> String {
    format!("Employee {id}")
}
