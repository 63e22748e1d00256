//! Rejected field writes, including which item caused the rejection and which fields are therefore
//! omitted.

use super::item::Given;
use super::{Field, Fit, Item, Name};
use callbridge_call::EventTime;
use callbridge_model::LeadId;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long a rejected field is omitted.
const REST: Duration = Duration::from_secs(3600);
/// If a rejection's time is further in the future than this, the clock was set back after it was
/// stored.
const CLOCK_SLACK: Duration = Duration::from_secs(300);
/// Maximum length in characters of the CRM's message. Anything longer is cut off.
const REASON_MAX: usize = 300;

/// Why a write was rejected, and which part of it is to blame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason, including the CRM's message.
    pub reason: String,
    pub blames: RefusedPart,
}

/// The part of a write that caused its rejection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefusedPart {
    /// The items at these positions in the request's list, counting from 0.
    Items(Vec<usize>),
    /// Some item, because the body was rejected before its lead was looked up (§4.5.1).
    SomeItem,
    /// Some item or the lead, because a write for an unknown lead is also FAILED (§3.2).
    ItemOrLead,
}

impl Refusal {
    /// Creates a rejection. `errors[]` identifies fields by their position in the body, as in
    /// `[1].value` (§7.5). If it doesn't identify any field, `else_blames` applies.
    pub fn new(reason: String, errors: &Value, else_blames: RefusedPart) -> Self {
        let rows = errors.as_array().into_iter().flatten();
        let fields = rows.filter_map(|row| row.get("field")?.as_str());
        let items: BTreeSet<usize> = fields.filter_map(place_in_list).collect();
        let blames = if items.is_empty() {
            else_blames
        } else {
            RefusedPart::Items(items.into_iter().collect())
        };
        Self { reason, blames }
    }
}

fn place_in_list(field: &str) -> Option<usize> {
    let (_, rest) = field.split_once('[')?;
    let (place, _) = rest.split_once(']')?;
    place.parse().ok()
}

/// A field whose value the CRM rejected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RefusedField {
    /// The field in `--lead-field` at the time of the rejection.
    field: Field,
    item: Item,
    lead: LeadId,
    reason: String,
    at: EventTime,
    /// Whether it's certain that the field rather than the lead caused the rejection.
    sure: bool,
}

/// Fields whose values the CRM rejected. A field is removed once the CRM accepts a value for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RefusedFields(BTreeMap<Name, RefusedField>);

impl RefusedFields {
    /// Records that a field's item was rejected. Returns `true` if it wasn't known before that the
    /// field causes rejections.
    pub fn note(
        &mut self,
        (name, field): (Name, Field),
        (lead, item): (LeadId, Item),
        refusal: &Refusal,
        at: EventTime,
    ) -> bool {
        let before = self.0.get(&name).filter(|refused| refused.field == field);
        let known = before.is_some_and(|refused| refused.sure);
        let twice = before.is_some_and(|refused| refused.lead != lead);
        let sure = known || twice || refusal.blames != RefusedPart::ItemOrLead;
        let reason = refusal.reason.chars().take(REASON_MAX).collect();
        let refused = RefusedField {
            field,
            item,
            lead,
            reason,
            at,
            sure,
        };
        self.0.insert(name, refused);
        sure && !known
    }

    /// Records that the CRM accepted these items, and forgets their fields' rejections. Returns
    /// `true` if there were any. Null is ignored, because every field accepts it.
    pub fn note_accepted(&mut self, items: &[(Name, Item)]) -> bool {
        let values = items.iter().filter(|(_, item)| item.given != Given::Null);
        let taken = values.filter(|(name, _)| self.0.remove(name).is_some());
        taken.count() > 0
    }

    fn sure_refusal(&self, name: Name, field: Field) -> Option<&RefusedField> {
        let refused = self.0.get(&name);
        refused.filter(|refused| refused.sure && refused.field == field)
    }

    /// Returns `true` if the field has caused a rejection, so that it's tried separately.
    pub fn is_refused(&self, name: Name, field: Field) -> bool {
        self.sure_refusal(name, field).is_some()
    }

    /// Returns `true` if the field was rejected within the last hour, so that it isn't tried.
    pub fn is_resting(&self, name: Name, field: Field, now: EventTime) -> bool {
        self.sure_refusal(name, field).is_some_and(|refused| {
            now < refused.at.plus(REST) && refused.at <= now.plus(CLOCK_SLACK)
        })
    }

    /// Checks whether the field can be written. `fit` is the catalog's verdict. If that says that
    /// the field can be written, a rejection overrides it.
    pub fn fit(&self, name: Name, field: Field, fit: Fit) -> Fit {
        match self.sure_refusal(name, field) {
            Some(refused) if fit.is_writable() => {
                let item = refused.item.to_json();
                Fit::Refused(format!(
                    "{item} of lead {}: {}",
                    refused.lead, refused.reason
                ))
            }
            Some(_) | None => fit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lead_field::FieldId;
    use serde_json::json;

    fn time_at(seconds: i64) -> EventTime {
        EventTime::from_seconds(1_795_151_317 + seconds)
    }

    fn refusal(blames: RefusedPart) -> Refusal {
        Refusal::new("400".to_owned(), &Value::Null, blames)
    }

    fn field(flag: &str) -> (Name, Field) {
        let fields = crate::lead_field::parse(flag).expect("a field");
        fields.into_iter().next().expect("one")
    }

    fn item_of_lead(lead: i64) -> (LeadId, Item) {
        let id = FieldId::new(15).expect("an id");
        let lead = LeadId::new(lead).expect("a lead");
        (lead, Item::text(id, "2".to_owned()))
    }

    /// Returns the part to blame if a response's errors identify these fields.
    fn blamed_part(fields: &[&str]) -> RefusedPart {
        let rows = fields
            .iter()
            .map(|field| json!({ "field": field, "reason": "MAX" }));
        let errors = Value::Array(rows.collect());
        Refusal::new(String::new(), &errors, RefusedPart::SomeItem).blames
    }

    #[test]
    fn refused_items_are_found_by_their_index_in_any_path() {
        let named = ["[2].value", "fields[0].id", "upsert.list[2].value", "x[y]"];
        assert_eq!(blamed_part(&named), RefusedPart::Items(vec![0, 2]));
        assert_eq!(blamed_part(&["fields", "]1[", "[]"]), RefusedPart::SomeItem);
        assert_eq!(
            refusal(RefusedPart::ItemOrLead).blames,
            RefusedPart::ItemOrLead
        );
    }

    #[test]
    fn refused_field_is_blamed_at_once_or_at_second_lead() {
        let mut refused = RefusedFields::default();
        let count = field("missed_count=15");
        assert!(!refused.note(
            count,
            item_of_lead(4_001),
            &refusal(RefusedPart::ItemOrLead),
            time_at(0)
        ));
        assert!(!refused.note(
            count,
            item_of_lead(4_001),
            &refusal(RefusedPart::ItemOrLead),
            time_at(1)
        ));
        assert_eq!(refused.fit(count.0, count.1, Fit::Led), Fit::Led);
        assert!(refused.note(
            count,
            item_of_lead(4_002),
            &refusal(RefusedPart::ItemOrLead),
            time_at(2)
        ));
        let said = refused.fit(count.0, count.1, Fit::Led).to_string();
        assert!(
            said.contains(r#"{"id":15,"value":"2"} of lead 4002: 400"#),
            "{said}"
        );
        assert!(
            !refused.note(
                count,
                item_of_lead(4_003),
                &refusal(RefusedPart::SomeItem),
                time_at(3)
            ),
            "known"
        );
        let mut refused = RefusedFields::default();
        assert!(refused.note(
            count,
            item_of_lead(4_001),
            &refusal(RefusedPart::SomeItem),
            time_at(0)
        ));
        let other = Fit::Other("CONTACT".to_owned());
        assert_eq!(refused.fit(count.0, count.1, other.clone()), other, "worse");
    }

    #[test]
    fn refused_field_rests_an_hour_and_clears_when_accepted() {
        let mut refused = RefusedFields::default();
        let (name, text) = field("missed_count=15");
        refused.note(
            (name, text),
            item_of_lead(4_001),
            &refusal(RefusedPart::SomeItem),
            time_at(0),
        );
        for (seconds, is_resting) in [(1, true), (3_599, true), (3_600, false)] {
            let found = refused.is_resting(name, text, time_at(seconds));
            assert_eq!(found, is_resting, "{seconds}");
        }
        assert!(
            !refused.is_resting(name, text, time_at(-400)),
            "the clock was set back"
        );
        assert!(refused.is_refused(name, text), "and is tried alone then");
        let (_, number) = field("missed_count=15:number");
        assert!(!refused.is_refused(name, number));
        let (_, item) = item_of_lead(4_001);
        let null = Item {
            given: Given::Null,
            ..item.clone()
        };
        assert!(
            !refused.note_accepted(&[(name, null)]),
            "every field takes null"
        );
        assert!(refused.note_accepted(&[(name, item)]) && !refused.is_refused(name, text));
    }
}
