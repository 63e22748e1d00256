//! A lead's profile, which consists of its name, its responsible employee, and its stage (§2.5,
//! §6.7).
//!
//! Every fact is stored with the second when it was reported. The newest report is valid,
//! regardless of arrival order. For reports from the same second, an event that's specifically
//! about the fact takes precedence over other events, so `LEAD_ASSIGNED` counts more for the
//! responsible employee than a stage change. A read (`lead/filter` or `GET lead/{id}`) counts most.
//! Names are personal data, so they're deleted along with the lead ([`forget_until`]), and `Debug`
//! doesn't show them.
//!
//! [`forget_until`]: ProfileFacts::forget_until

use super::fact::{ChangeKind, FactUpdate};
use callbridge_call::EpochSeconds;
use callbridge_model::{EmployeeId, is_hostile};
use serde::Serialize;
use serde_json::Value;
use smol_str::SmolStr;
use std::fmt;

/// Maximum length of a name in bytes.
pub const NAME_BYTES_MAX: usize = 200;

/// A stored name, which is a single line without any characters that are hostile to a terminal,
/// truncated at a character boundary.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(SmolStr);

impl Name {
    /// Sanitizes a name, returning `None` if nothing is left.
    pub fn new(text: &str) -> Option<Self> {
        let mut name = String::with_capacity(text.len().min(NAME_BYTES_MAX));
        let mut gap = "";
        for c in text.chars() {
            if c.is_whitespace() || c.is_control() {
                gap = if name.is_empty() { "" } else { " " };
            } else if !is_hostile(c) {
                if name.len() + gap.len() + c.len_utf8() > NAME_BYTES_MAX {
                    break;
                }
                name.push_str(std::mem::take(&mut gap));
                name.push(c);
            }
        }
        Self::from_stored(&name)
    }

    /// Creates a name from a text stored by [`Name::new`], or returns `None` for an empty text.
    pub fn from_stored(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| Self(text.into()))
    }

    /// Returns the full name, which is personal data and therefore not shown by `Debug`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name({} bytes)", self.0.len())
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0.into()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Responsible {
    /// The employee's ID in the CRM, `responsibleId`.
    pub id: EmployeeId,
    pub name: Option<Name>,
}

/// A lead's displayed name, responsible employee, and stage.
#[derive(Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeadProfile {
    /// The main contact's name if one was reported, or else the lead's own.
    pub name: Option<String>,
    /// `None` if the lead has no responsible employee or none was reported.
    pub responsible: Option<EmployeeId>,
    /// The responsible employee's name in the CRM.
    pub responsible_name: Option<String>,
    pub stage: Option<String>,
}

impl fmt::Debug for LeadProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeadProfile")
            .field("name", &self.name.as_ref().map(String::len))
            .field("responsible", &self.responsible)
            .finish_non_exhaustive()
    }
}

/// A reported fact, or the report that there is no such fact. Of two reports, the greater one is
/// valid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Known<T> {
    pub at: EpochSeconds,
    /// This report's order among those with the same `at`.
    pub rank: u8,
    /// `None` if the report says that the lead has no such fact.
    pub fact: Option<T>,
}

impl<T: Clone + Ord> Known<T> {
    /// Creates a known fact from an update reported by the event or response `by`, or returns
    /// `None` if the fact is unchanged. `own` is the event that's specifically about this fact and
    /// therefore takes precedence over other events.
    pub fn from_update(
        update: &FactUpdate<T>,
        at: EpochSeconds,
        by: ChangeKind,
        own: ChangeKind,
    ) -> Option<Self> {
        let fact = match update {
            FactUpdate::Unchanged => return None,
            FactUpdate::None => None,
            FactUpdate::Is(value) => Some(value.clone()),
        };
        let rank = by.rank() * 2 + u8::from(by == own);
        Some(Self { at, rank, fact })
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfileNews {
    /// The lead's own name, as opposed to a contact's.
    pub name: FactUpdate<Name>,
    /// `responsibleId` and `responsibleName`.
    pub responsible: FactUpdate<Responsible>,
    pub stage: FactUpdate<Name>,
}

impl ProfileNews {
    /// Reads a lead's object as used in events (§2.5). A missing fact is unchanged.
    pub fn read(lead: &Value) -> Self {
        let id = match lead.get("responsibleId") {
            Some(Value::Null) => FactUpdate::None,
            Some(Value::Number(id)) => FactUpdate::from(id.as_i64().and_then(EmployeeId::new)),
            Some(Value::String(id)) => FactUpdate::from(id.parse().ok().and_then(EmployeeId::new)),
            Some(_) | None => FactUpdate::Unchanged,
        };
        let name = lead["responsibleName"].as_str().and_then(Name::new);
        Self {
            name: name_under(lead, "name"),
            responsible: id.map(|id| Responsible { id, name }),
            stage: name_under(lead, "statusName"),
        }
    }

    /// Reads an event's snapshot, in which null facts may be missing (§6.5).
    pub fn read_snapshot(lead: &Value) -> Self {
        let news = Self::read(lead);
        Self {
            responsible: news.responsible.or_none(),
            stage: news.stage.or_none(),
            ..news
        }
    }
}

fn name_under(lead: &Value, key: &str) -> FactUpdate<Name> {
    match lead.get(key) {
        Some(Value::String(text)) => FactUpdate::from(Name::new(text)),
        Some(Value::Null) => FactUpdate::None,
        Some(_) | None => FactUpdate::Unchanged,
    }
}

/// A lead's newest profile facts, each with the second when it was reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfileFacts {
    /// The lead's own name, as opposed to a contact's.
    pub name: Option<Known<Name>>,
    /// The responsible employee, or that there is none.
    pub responsible: Option<Known<Responsible>>,
    pub stage: Option<Known<Name>>,
}

impl ProfileFacts {
    /// Adds the facts from an event or response from this second.
    pub fn learn(&mut self, news: &ProfileNews, at: EpochSeconds, by: ChangeKind) {
        let name = Known::from_update(&news.name, at, by, ChangeKind::PropertiesUpdated);
        self.name = self.name.take().max(name);
        let responsible = Known::from_update(&news.responsible, at, by, ChangeKind::Assigned);
        self.responsible = self.responsible.take().max(responsible);
        let stage = Known::from_update(&news.stage, at, by, ChangeKind::StageChanged);
        self.stage = self.stage.take().max(stage);
    }

    /// Forgets every fact that was reported up to this second.
    pub fn forget_until(&mut self, end: EpochSeconds) {
        self.name.take_if(|name| name.at <= end);
        self.responsible.take_if(|employee| employee.at <= end);
        self.stage.take_if(|stage| stage.at <= end);
    }

    /// Returns the displayed profile. Its name is `contact`, the main contact's name, or else the
    /// lead's own.
    pub fn into_profile(self, contact: Option<&Name>) -> LeadProfile {
        let own_name = self.name.and_then(|known| known.fact);
        let responsible = self.responsible.and_then(|known| known.fact);
        let stage = self.stage.and_then(|known| known.fact);
        let responsible_id = responsible.as_ref().map(|employee| employee.id);
        let responsible_name = responsible.and_then(|employee| employee.name);
        LeadProfile {
            name: contact.cloned().or(own_name).map(String::from),
            responsible: responsible_id,
            responsible_name: responsible_name.map(String::from),
            stage: stage.map(String::from),
        }
    }
}

#[cfg(test)]
#[path = "profile_tests.rs"]
mod tests;
