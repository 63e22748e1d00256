//! Changes of leads. All changes go through this module, so a change and its events are always
//! recorded together (§6.1.1). One change can cause several events (§6.2, §6.6, §6.7).

use crate::{
    Contact, CrmEvent, Lead, Sandbox, lead::catalog::employee_name, lead::catalog::stage,
    lead::record::render, webhook::events,
};
use callbridge_call::EventTime;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Returns the current lead, or `None` if the company does not have it.
pub fn find_lead(core: &Sandbox, company: i64, id: i64) -> Option<Lead> {
    core.leads.get(core.companies.get(&company)?, id)
}

/// Stores a lead with `at` as the time of its last change, and records the events that follow from
/// the change. Returns the stored lead.
pub(crate) fn save_lead(core: &mut Sandbox, at: EventTime, company: i64, lead: Lead) -> Lead {
    let before = find_lead(core, company, lead.id);
    let after = core.leads.put(company, lead.stamp(at));
    for event in between(before.as_ref(), &after) {
        events::happened(core, at, company, event);
    }
    after
}

/// Deletes a lead if it exists, and records the event `LEAD_DELETED`.
pub(crate) fn delete_lead(core: &mut Sandbox, at: EventTime, company: i64, id: i64) {
    if let Some(was) = find_lead(core, company, id) {
        core.leads.remove(company, id);
        let event = CrmEvent::of_lead("LEAD_DELETED", was.snapshot());
        events::happened(core, at, company, event);
    }
}

/// Merges the leads `from` into the surviving lead `into`. The document says only that the survivor
/// remains and the others are missing. By the sandbox's choice, the survivor gets the contacts and
/// calls of the others, and values for its empty fields. It keeps its name, stage, employee, and
/// balance.
pub(super) fn merge(core: &mut Sandbox, at: EventTime, company: i64, into: i64, from: &[i64]) {
    let Some(mut survivor) = find_lead(core, company, into) else {
        return;
    };
    let mut merged = Vec::new();
    for &id in from {
        if id == into {
            continue;
        }
        let Some(lead) = find_lead(core, company, id) else {
            continue;
        };
        survivor.contacts.extend(lead.contacts);
        for (field, values) in lead.fields {
            survivor.fields.entry(field).or_insert(values);
        }
        core.leads.remove(company, id);
        core.journal.move_lead(company, id, into);
        merged.push(id);
    }
    let survivor = core.leads.put(company, survivor.stamp(at));
    if !merged.is_empty() {
        let event = CrmEvent::of_lead("LEAD_MERGED", survivor.snapshot())
            .with_block("mergedLeadIds", json!(merged));
        events::happened(core, at, company, event);
    }
}

/// Returns the events that follow from a change of a lead. `before` is `None` for a new lead.
fn between(before: Option<&Lead>, after: &Lead) -> Vec<CrmEvent> {
    let Some(before) = before else {
        return vec![CrmEvent::of_lead("LEAD_CREATED", after.snapshot())];
    };
    let mut events = Vec::new();
    if before.status_id != after.status_id {
        let block = json!({
            "fromStatusId": before.status_id, "fromStatusName": stage_name(before.status_id),
            "toStatusId": after.status_id, "toStatusName": stage_name(after.status_id),
        });
        let event = CrmEvent::of_lead("LEAD_STAGE_CHANGED", after.snapshot());
        events.push(event.with_block("stageChange", block));
    }
    if before.responsible_id != after.responsible_id {
        let from = before.responsible_id;
        let to = after.responsible_id;
        let block = json!({
            "fromResponsibleId": from, "fromResponsibleName": from.map(employee_name),
            "toResponsibleId": to, "toResponsibleName": to.map(employee_name),
        });
        let event = CrmEvent::of_lead("LEAD_ASSIGNED", after.snapshot());
        events.push(event.with_block("assignment", block));
    }
    let changes = properties(before, after);
    if !changes.is_empty() {
        let event = CrmEvent::of_lead("LEAD_PROPERTIES_UPDATED", after.snapshot());
        events.push(event.with_block("propertyChanges", Value::Array(changes)));
    }
    events
}

fn stage_name(id: Option<i64>) -> Option<&'static str> {
    stage(id).map(|stage| stage.name)
}

/// Returns the entries of `propertyChanges`, one for each property that changed (§6.7). An absent
/// `from` or `to` is left out.
fn properties(before: &Lead, after: &Lead) -> Vec<Value> {
    let mut entries = Vec::new();
    if before.name != after.name {
        let from = before.name.clone();
        let to = after.name.clone();
        entries.push(entry(json!({ "type": "NAME" }), Some(from), Some(to)));
    }
    let balance_before = balance(before);
    let balance_after = balance(after);
    if balance_before != balance_after {
        let kind = json!({ "type": "BALANCE" });
        entries.push(entry(kind, Some(balance_before), Some(balance_after)));
    }
    let contacts = before.contacts.iter().chain(&after.contacts);
    for id in contacts.map(|contact| contact.id).collect::<BTreeSet<_>>() {
        let from = before.contact(id);
        let to = after.contact(id);
        if from != to {
            // If only the fields of a contact changed, `from` and `to` have the same text.
            let kind = json!({ "type": "CONTACT", "contactId": id });
            entries.push(entry(kind, from.map(contact), to.map(contact)));
        }
    }
    let fields = before.fields.keys().chain(after.fields.keys());
    for id in fields.copied().collect::<BTreeSet<_>>() {
        let from = before.fields.get(&id);
        let to = after.fields.get(&id);
        if from != to {
            let kind = json!({ "type": "CUSTOM_FIELD", "fieldId": id });
            let from = from.map(|values| render(values));
            let to = to.map(|values| render(values));
            entries.push(entry(kind, from, to));
        }
    }
    entries
}

fn entry(mut kind: Value, from: Option<String>, to: Option<String>) -> Value {
    for (name, text) in [("from", from), ("to", to)] {
        if let Some(text) = text {
            kind[name] = json!(text);
        }
    }
    kind
}

/// Formats a balance such as `1500.5 USD`, with the amount without trailing zeros (§6.7). Without a
/// currency, it is only the amount.
fn balance(lead: &Lead) -> String {
    match &lead.currency {
        Some(currency) => format!("{} {currency}", lead.balance),
        None => lead.balance.to_string(),
    }
}

/// Formats a contact such as `Ali [+998901112233, +998935556677]`, with its phones sorted (§6.7).
fn contact(contact: &Contact) -> String {
    let mut phones = contact.phones.clone();
    phones.sort_unstable();
    format!("{} [{}]", contact.name, phones.join(", "))
}
