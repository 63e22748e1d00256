//! Changes of leads. All of them lead through here, so an event stands or falls with its change
//! (§6.1.1).

use super::news::between;
use super::record::{Lead, upsert};
use super::store::FieldUpsert;
use crate::core::Sandbox;
use crate::webhook::event::CrmEvent;
use crate::webhook::told;
use callbridge_call::EventTime;
use serde_json::json;

/// The lead as it is; `None` when the company has no such one.
pub fn find_lead(sandbox: &Sandbox, company: i64, id: i64) -> Option<Lead> {
    sandbox.leads.get(sandbox.companies.get(&company)?, id)
}

/// A lead as it now is; its timestamps are those of the change.
pub(super) fn save_lead(sandbox: &mut Sandbox, at: EventTime, company: i64, lead: Lead) {
    let before = find_lead(sandbox, company, lead.id);
    let id = lead.id;
    sandbox.leads.put(company, lead.stamped(at));
    let Some(after) = find_lead(sandbox, company, id) else {
        return;
    };
    for event in between(before.as_ref(), &after) {
        told::happened(sandbox, at, company, event);
    }
}

/// A lead is no more, if it was.
pub(crate) fn delete_lead(sandbox: &mut Sandbox, at: EventTime, company: i64, id: i64) {
    if let Some(was) = find_lead(sandbox, company, id) {
        sandbox.leads.remove(company, id);
        let event = CrmEvent::of_lead("LEAD_DELETED", was.snapshot());
        told::happened(sandbox, at, company, event);
    }
}

/// The document says of a merge that the survivor stands and the others are missing. Ours:
/// their contacts and calls go to the survivor, and the fields it has no value in; its own name,
/// stage, employee and balance stay.
pub(super) fn merge(sandbox: &mut Sandbox, at: EventTime, company: i64, into: i64, from: &[i64]) {
    let Some(mut survivor) = find_lead(sandbox, company, into) else {
        return;
    };
    let mut merged = Vec::new();
    for &id in from {
        let Some(lead) = find_lead(sandbox, company, id).filter(|_| id != into) else {
            continue;
        };
        survivor.contacts.extend(lead.contacts);
        for (field, values) in lead.fields {
            survivor.fields.entry(field).or_insert(values);
        }
        sandbox.leads.remove(company, id);
        sandbox.journal.move_lead(company, id, into);
        merged.push(id);
    }
    sandbox.leads.put(company, survivor.stamped(at));
    if let (Some(survivor), false) = (find_lead(sandbox, company, into), merged.is_empty()) {
        let event = CrmEvent::of_lead("LEAD_MERGED", survivor.snapshot());
        let event = event.with("mergedLeadIds", json!(merged));
        told::happened(sandbox, at, company, event);
    }
}

/// The fields of a list are written; why not, where there is no such lead.
pub(crate) fn write_fields(
    sandbox: &mut Sandbox,
    at: EventTime,
    company: i64,
    fields: &FieldUpsert,
) -> Result<(), &'static str> {
    let mut lead = find_lead(sandbox, company, fields.lead).ok_or("unknown leadId")?;
    upsert(&mut lead.fields, &fields.values);
    save_lead(sandbox, at, company, lead);
    Ok(())
}
