//! Changes of leads as the core undergoes them. Both ways, at once and on replay, lead through
//! here, so an event stands or falls with its change (§6.1.1).

use super::news::between;
use super::record::{FieldValues, Lead};
use super::store::{LeadAction, LeadChange, Order};
use crate::core::Sandbox;
use crate::webhook::{CrmEvent, told};
use callbridge_call::EventTime;
use serde_json::json;

/// The uuids of leads are made from their numbers.
const NAMESPACE: uuid::Uuid = uuid::Uuid::from_u128(0x91b2_5c0e_77d4_4c1b_9d0a_6e13_af20_84d5);

/// The lead as it is; `None` when the company has no such one.
pub fn find_lead(sandbox: &Sandbox, company: i64, id: i64) -> Option<Lead> {
    sandbox.leads.get(sandbox.companies.get(&company)?, id)
}

pub(crate) fn apply_lead(sandbox: &mut Sandbox, at: EventTime, change: LeadChange) {
    match change {
        LeadChange::Saved { company, lead } => save_lead(sandbox, at, company, *lead),
        LeadChange::Imported { company, leads } => {
            for lead in leads {
                let known = sandbox.leads.is_gone(company, lead.id)
                    || sandbox.leads.is_known(company, lead.id);
                if !known {
                    sandbox.leads.put(company, stamped(lead, at));
                }
            }
        }
        LeadChange::Merged {
            company,
            into,
            from,
        } => merge(sandbox, at, company, into, &from),
        LeadChange::Deleted { company, lead } => {
            if let Some(was) = find_lead(sandbox, company, lead) {
                sandbox.leads.remove(company, lead);
                let event = CrmEvent::of_lead("LEAD_DELETED", was.snapshot());
                told::happened(sandbox, at, company, event);
            }
        }
        LeadChange::Revived { company, lead } => sandbox.leads.revive(company, lead),
        LeadChange::Ordered(order) => {
            let Order {
                token,
                accepted_at,
                due,
                ..
            } = *order;
            let journal = &mut sandbox.journal;
            let serial = journal.enter(&order.request_id, token, accepted_at, "lead-fields");
            sandbox.leads.pending.insert((due, serial), *order);
        }
    }
}

fn save_lead(sandbox: &mut Sandbox, at: EventTime, company: i64, lead: Lead) {
    let before = find_lead(sandbox, company, lead.id);
    let id = lead.id;
    sandbox.leads.put(company, stamped(lead, at));
    let Some(after) = find_lead(sandbox, company, id) else {
        return;
    };
    for event in between(before.as_ref(), &after) {
        told::happened(sandbox, at, company, event);
    }
}

/// The document says of a merge that the survivor stands and the others are missing. Ours:
/// their contacts and calls go to the survivor, and the fields it has no value in; its own name,
/// stage, employee and balance stay.
fn merge(sandbox: &mut Sandbox, at: EventTime, company: i64, into: i64, from: &[i64]) {
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
    sandbox.leads.put(company, stamped(survivor, at));
    if let (Some(survivor), false) = (find_lead(sandbox, company, into), merged.is_empty()) {
        let event = CrmEvent::of_lead("LEAD_MERGED", survivor.snapshot());
        let event = event.with("mergedLeadIds", json!(merged));
        told::happened(sandbox, at, company, event);
    }
}

/// Does the first order that is due; the status of its requestId says how it ended.
pub(crate) fn settle_order(sandbox: &mut Sandbox) {
    let Some(((due, _), order)) = sandbox.leads.pending.pop_first() else {
        return;
    };
    let why = if order.doomed {
        Some("by order of a fault")
    } else {
        execute(sandbox, due, order.company, &order.what).err()
    };
    sandbox.journal.end(&order.request_id, why);
}

fn execute(
    sandbox: &mut Sandbox,
    at: EventTime,
    company: i64,
    what: &LeadAction,
) -> Result<(), &'static str> {
    if let Some(fields) = &what.fields {
        let mut lead = find_lead(sandbox, company, fields.lead).ok_or("unknown leadId")?;
        upsert(&mut lead.fields, &fields.values);
        save_lead(sandbox, at, company, lead);
    }
    Ok(())
}

/// A lead that begins: its uuid is made from its number.
pub(super) fn fresh(id: i64) -> Lead {
    let uuid = uuid::Uuid::new_v5(&NAMESPACE, &id.to_be_bytes());
    Lead {
        uuid: Some(uuid.to_string()),
        ..Lead::bare(id)
    }
}

/// Only what is listed; an empty list clears (§4.4).
pub(super) fn upsert(fields: &mut FieldValues, values: &FieldValues) {
    for (id, value) in values {
        if value.is_empty() {
            fields.remove(id);
        } else {
            fields.insert(*id, value.clone());
        }
    }
}

fn stamped(mut lead: Lead, at: EventTime) -> Lead {
    let second = at.floor_seconds().get();
    lead.created_timestamp = lead.created_timestamp.or(Some(second));
    lead.updated_timestamp = Some(second);
    lead
}
