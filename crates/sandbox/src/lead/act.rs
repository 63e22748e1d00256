//! Changes of leads as the core undergoes them. Both ways, at once and on replay, lead through
//! here, so an event stands or falls with its change (§6.1.1).

use super::news::between;
use super::order::{Draft, LeadAction, Order};
use super::record::{FieldValues, Lead};
use super::store::{LeadChange, LeadItem, Task};
use crate::core::Sandbox;
use crate::webhook;
use crate::webhook::{Attribution, CrmEvent};
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
                sandbox.leads.drop_parts(company, lead);
                let lead = Box::new(was.snapshot());
                webhook::happened(sandbox, at, company, CrmEvent::LeadDeleted { lead });
            }
        }
        LeadChange::Revived { company, lead } => sandbox.leads.revive(company, lead),
        LeadChange::Ordered(order) => {
            let Order { due, .. } = *order;
            let serial = sandbox.journal.enter(
                &order.request_id,
                order.token,
                order.accepted_at,
                order.what.word(),
            );
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
        note_history(sandbox, at, company, id, event.name());
        webhook::happened(sandbox, at, company, event);
    }
}

/// The document says of a merge that the survivor stands and the others are missing. Ours:
/// their contacts, notes, tasks, history and calls go to the survivor, and the fields it has no
/// value in; its own name, stage, employee and balance stay.
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
        sandbox.leads.move_parts(company, id, into);
        sandbox.journal.move_lead(company, id, into);
        merged.push(id);
    }
    sandbox.leads.put(company, stamped(survivor, at));
    if let (Some(survivor), false) = (find_lead(sandbox, company, into), merged.is_empty()) {
        let lead = Box::new(survivor.snapshot());
        let event = CrmEvent::LeadMerged { lead, merged };
        note_history(sandbox, at, company, into, event.name());
        webhook::happened(sandbox, at, company, event);
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
        execute(sandbox, due, order.company, order.what).err()
    };
    sandbox.journal.end(&order.request_id, why);
}

fn execute(
    sandbox: &mut Sandbox,
    at: EventTime,
    company: i64,
    what: LeadAction,
) -> Result<(), &'static str> {
    const NO_LEAD: &str = "unknown leadId";
    match what {
        LeadAction::Lead(draft) => {
            let lead = drafted(sandbox, company, &draft)?;
            save_lead(sandbox, at, company, lead);
        }
        LeadAction::Fields { lead, values } => {
            let mut lead = find_lead(sandbox, company, lead).ok_or(NO_LEAD)?;
            upsert(&mut lead.fields, &values);
            save_lead(sandbox, at, company, lead);
        }
        LeadAction::Notes { lead, notes } => {
            find_lead(sandbox, company, lead).ok_or(NO_LEAD)?;
            for note in notes {
                let id = sandbox.leads.next_part();
                let item = LeadItem { id, at, body: note };
                let parts = sandbox.leads.notes.entry((company, lead)).or_default();
                parts.push(item);
            }
        }
        LeadAction::Task { lead, task } => {
            find_lead(sandbox, company, lead).ok_or(NO_LEAD)?;
            let id = sandbox.leads.next_part();
            let item = LeadItem { id, at, body: task };
            sandbox
                .leads
                .tasks
                .insert((company, id), Task { lead, item });
        }
    }
    Ok(())
}

/// The lead that a draft makes of the one that is, or of none.
fn drafted(sandbox: &Sandbox, company: i64, draft: &Draft) -> Result<Lead, &'static str> {
    let lead = match draft.id {
        Some(id) => find_lead(sandbox, company, id).ok_or("unknown leadId")?,
        None => {
            let mut lead = fresh(
                sandbox
                    .leads
                    .free_id(&sandbox.companies)
                    .ok_or("no id is left")?,
            );
            lead.attributions.push(attribution("OPEN_API"));
            lead
        }
    };
    laid_over(sandbox, company, lead, draft)
}

/// What is wanted laid over a lead; an employee must be one of the company's.
pub(super) fn laid_over(
    sandbox: &Sandbox,
    company: i64,
    mut lead: Lead,
    draft: &Draft,
) -> Result<Lead, &'static str> {
    if let Some(employee) = draft.responsible_id {
        let known = sandbox.companies.get(&company).map(|c| &c.employees);
        if employee.is_some_and(|id| known.is_none_or(|known| !known.contains(id))) {
            return Err("unknown employeeId");
        }
        lead.responsible_id = employee;
    }
    shape(&mut lead, draft);
    Ok(lead)
}

/// What the lead's history shows of an event.
fn note_history(sandbox: &mut Sandbox, at: EventTime, company: i64, lead: i64, name: &str) {
    let id = sandbox.leads.next_part();
    let body = json!({ "event": name });
    let items = sandbox.leads.history.entry((company, lead)).or_default();
    items.push(LeadItem { id, at, body });
}

/// A lead that begins: its uuid is made from its number.
pub(super) fn fresh(id: i64) -> Lead {
    let uuid = uuid::Uuid::new_v5(&NAMESPACE, &id.to_be_bytes());
    Lead {
        uuid: Some(uuid.to_string()),
        ..Lead::bare(id)
    }
}

/// Lays what is wanted over a lead.
fn shape(lead: &mut Lead, draft: &Draft) {
    if let Some(name) = &draft.name {
        lead.name.clone_from(name);
    }
    if let Some(status) = draft.status_id {
        lead.status_id = Some(status);
        lead.pipe_id = super::catalogue::stage(draft.status_id).map(|stage| stage.pipe);
    }
    if let Some(pipe) = draft.pipe_id {
        lead.pipe_id = Some(pipe);
    }
    lead.balance = draft.balance.unwrap_or(lead.balance);
    if let Some(currency) = &draft.currency {
        lead.currency = Some(currency.clone());
    }
    if let Some(contacts) = &draft.contacts {
        lead.contacts.clone_from(contacts);
    }
    if let Some(fields) = &draft.fields {
        lead.fields.clone_from(fields);
    }
    upsert(&mut lead.fields, &draft.upserts);
    if let Some(uuid) = &draft.uuid {
        lead.uuid = Some(uuid.clone());
    }
    if let Some(source) = &draft.source {
        lead.attributions.push(attribution(source));
    }
}

fn attribution(source: &str) -> Attribution {
    Attribution {
        channel_id: 1,
        source: source.to_owned(),
        channel_value: source.to_owned(),
        // Set with the other timestamps.
        attached_timestamp: 0,
    }
}

/// Only what is listed; an empty list clears (§4.4).
fn upsert(fields: &mut FieldValues, values: &FieldValues) {
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
    for attribution in &mut lead.attributions {
        if attribution.attached_timestamp == 0 {
            attribution.attached_timestamp = second;
        }
    }
    lead
}
