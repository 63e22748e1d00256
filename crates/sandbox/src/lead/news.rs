//! What a change of a lead is told as (§6.2, §6.6, §6.7): one change, several events.

use super::catalogue::{employee_name, stage};
use super::record::{Contact, Lead, rendered};
use crate::webhook::{
    CrmEvent, Property, PropertyChange, Responsible, Stage, balance_text, contact_text,
};
use serde_json::Value;
use std::collections::BTreeSet;

/// What there is to tell of a lead that was, or was not, and now is.
pub(super) fn between(before: Option<&Lead>, after: &Lead) -> Vec<CrmEvent> {
    let lead = || Box::new(after.snapshot());
    let Some(before) = before else {
        return vec![CrmEvent::LeadCreated { lead: lead() }];
    };
    let mut events = Vec::new();
    if before.status_id != after.status_id {
        events.push(CrmEvent::LeadStageChanged {
            lead: lead(),
            from: stage_of(before.status_id),
            to: stage_of(after.status_id),
        });
    }
    if before.responsible_id != after.responsible_id {
        events.push(CrmEvent::LeadAssigned {
            lead: lead(),
            from: responsible(before.responsible_id),
            to: responsible(after.responsible_id),
        });
    }
    let changes = properties(before, after);
    if !changes.is_empty() {
        events.push(CrmEvent::LeadPropertiesUpdated {
            lead: lead(),
            changes,
        });
    }
    events
}

fn stage_of(id: Option<i64>) -> Stage {
    let name = stage(id).map(|stage| stage.name.to_owned());
    Stage { id, name }
}

fn responsible(id: Option<i64>) -> Responsible {
    let name = id.map(employee_name);
    Responsible { id, name }
}

/// The entries of `propertyChanges`: one for each property that changed (§6.7).
fn properties(before: &Lead, after: &Lead) -> Vec<PropertyChange> {
    let mut entries = Vec::new();
    let mut entry = |kind, from: Option<String>, to: Option<String>| {
        entries.push(PropertyChange { kind, from, to });
    };
    if before.name != after.name {
        let (from, to) = (before.name.clone(), after.name.clone());
        entry(Property::Name, Some(from), Some(to));
    }
    let balance = |lead: &Lead| balance_text(lead.balance, lead.currency.as_deref());
    if balance(before) != balance(after) {
        entry(
            Property::Balance,
            Some(balance(before)),
            Some(balance(after)),
        );
    }
    let contacts = before.contacts.iter().chain(&after.contacts);
    for id in contacts.map(|contact| contact.id).collect::<BTreeSet<_>>() {
        let (from, to) = (before.contact(id), after.contact(id));
        if from != to {
            // One whose fields alone changed is told with the same words on both sides.
            let words = |contact: &Contact| contact_text(&contact.name, &contact.phones);
            entry(Property::Contact(id), from.map(words), to.map(words));
        }
    }
    let fields = before.fields.keys().chain(after.fields.keys());
    for id in fields.copied().collect::<BTreeSet<_>>() {
        let (from, to) = (before.fields.get(&id), after.fields.get(&id));
        if from != to {
            let words = |values: &Vec<Value>| rendered(values);
            entry(Property::CustomField(id), from.map(words), to.map(words));
        }
    }
    entries
}
