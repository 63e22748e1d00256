//! Changes of leads as the core undergoes them. Both ways, at once and on replay, lead through
//! here, so an event stands or falls with its change (§6.1.1).

use super::news::between;
use super::order::{Draft, Order, What};
use super::record::{FieldValues, Lead};
use super::store::{Item, LeadChange, Task};
use crate::core::Sandbox;
use crate::webhook::{Attribution, Event};
use callbridge_call::EventTime;
use serde_json::json;

/// The uuids of leads are made from their numbers.
const NAMESPACE: uuid::Uuid = uuid::Uuid::from_u128(0x91b2_5c0e_77d4_4c1b_9d0a_6e13_af20_84d5);

impl Sandbox {
    /// The lead as it is; `None` when the company has no such one.
    pub fn lead(&self, company: i64, id: i64) -> Option<Lead> {
        self.leads.get(self.companies.get(&company)?, id)
    }

    pub(crate) fn apply_lead(&mut self, at: EventTime, change: LeadChange) {
        match change {
            LeadChange::Saved { company, lead } => self.save_lead(at, company, *lead),
            LeadChange::Imported { company, leads } => {
                for lead in leads {
                    let known = self.leads.is_gone(company, lead.id)
                        || self.leads.is_known(company, lead.id);
                    if !known {
                        self.leads.put(company, stamped(lead, at));
                    }
                }
            }
            LeadChange::Merged {
                company,
                into,
                from,
            } => self.merge(at, company, into, &from),
            LeadChange::Deleted { company, lead } => {
                if let Some(was) = self.lead(company, lead) {
                    self.leads.remove(company, lead);
                    self.leads.drop_parts(company, lead);
                    let lead = Box::new(was.snapshot());
                    self.happened(at, company, Event::LeadDeleted { lead });
                }
            }
            LeadChange::Revived { company, lead } => self.leads.revive(company, lead),
            LeadChange::Ordered(order) => {
                let Order { due, .. } = *order;
                let serial = self.journal.enter(
                    &order.request_id,
                    order.token,
                    order.accepted_at,
                    order.what.word(),
                );
                self.leads.pending.insert((due, serial), *order);
            }
        }
    }

    fn save_lead(&mut self, at: EventTime, company: i64, lead: Lead) {
        let before = self.lead(company, lead.id);
        let id = lead.id;
        self.leads.put(company, stamped(lead, at));
        let Some(after) = self.lead(company, id) else {
            return;
        };
        for event in between(before.as_ref(), &after) {
            self.note_history(at, company, id, event.name());
            self.happened(at, company, event);
        }
    }

    /// The document says of a merge that the survivor stands and the others are missing. Ours:
    /// their contacts, notes, tasks, history and calls go to the survivor, and the fields it has no
    /// value in; its own name, stage, employee and balance stay.
    fn merge(&mut self, at: EventTime, company: i64, into: i64, from: &[i64]) {
        let Some(mut survivor) = self.lead(company, into) else {
            return;
        };
        let mut merged = Vec::new();
        for &id in from {
            let Some(lead) = self.lead(company, id).filter(|_| id != into) else {
                continue;
            };
            survivor.contacts.extend(lead.contacts);
            for (field, values) in lead.fields {
                survivor.fields.entry(field).or_insert(values);
            }
            self.leads.remove(company, id);
            self.leads.move_parts(company, id, into);
            self.journal.move_lead(company, id, into);
            merged.push(id);
        }
        self.leads.put(company, stamped(survivor, at));
        if let (Some(survivor), false) = (self.lead(company, into), merged.is_empty()) {
            let lead = Box::new(survivor.snapshot());
            let event = Event::LeadMerged { lead, merged };
            self.note_history(at, company, into, event.name());
            self.happened(at, company, event);
        }
    }

    /// Does the first order that is due; the status of its requestId says how it ended.
    pub(crate) fn settle_order(&mut self) {
        let Some(((due, _), order)) = self.leads.pending.pop_first() else {
            return;
        };
        let why = if order.doomed {
            Some("by order of a fault")
        } else {
            self.execute(due, order.company, order.what).err()
        };
        self.journal.end(&order.request_id, why);
    }

    fn execute(&mut self, at: EventTime, company: i64, what: What) -> Result<(), &'static str> {
        const NO_LEAD: &str = "unknown leadId";
        match what {
            What::Lead(draft) => {
                let lead = self.drafted(company, &draft)?;
                self.save_lead(at, company, lead);
            }
            What::Fields { lead, values } => {
                let mut lead = self.lead(company, lead).ok_or(NO_LEAD)?;
                upsert(&mut lead.fields, &values);
                self.save_lead(at, company, lead);
            }
            What::Notes { lead, notes } => {
                self.lead(company, lead).ok_or(NO_LEAD)?;
                for note in notes {
                    let id = self.leads.next_part();
                    let item = Item { id, at, body: note };
                    let parts = self.leads.notes.entry((company, lead)).or_default();
                    parts.push(item);
                }
            }
            What::Task { lead, task } => {
                self.lead(company, lead).ok_or(NO_LEAD)?;
                let id = self.leads.next_part();
                let item = Item { id, at, body: task };
                self.leads.tasks.insert((company, id), Task { lead, item });
            }
        }
        Ok(())
    }

    /// The lead that a draft makes of the one that is, or of none.
    fn drafted(&self, company: i64, draft: &Draft) -> Result<Lead, &'static str> {
        let lead = match draft.id {
            Some(id) => self.lead(company, id).ok_or("unknown leadId")?,
            None => {
                let mut lead = fresh(self.leads.free_id(&self.companies).ok_or("no id is left")?);
                lead.attributions.push(attribution("OPEN_API"));
                lead
            }
        };
        self.laid_over(company, lead, draft)
    }

    /// What is wanted laid over a lead; an employee must be one of the company's.
    pub(super) fn laid_over(
        &self,
        company: i64,
        mut lead: Lead,
        draft: &Draft,
    ) -> Result<Lead, &'static str> {
        if let Some(employee) = draft.responsible_id {
            let known = self.companies.get(&company).map(|c| &c.employees);
            if employee.is_some_and(|id| known.is_none_or(|known| !known.contains(id))) {
                return Err("unknown employeeId");
            }
            lead.responsible_id = employee;
        }
        shape(&mut lead, draft);
        Ok(lead)
    }

    /// What the lead's history shows of an event.
    fn note_history(&mut self, at: EventTime, company: i64, lead: i64, name: &str) {
        let id = self.leads.next_part();
        let body = json!({ "event": name });
        let items = self.leads.history.entry((company, lead)).or_default();
        items.push(Item { id, at, body });
    }
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
