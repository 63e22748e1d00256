//! The lead endpoints, behind token, window, address and grant.

use super::order::{Order, What};
use super::store::{Item, LeadChange, Task};
use super::{body, filter};
use crate::answer::Caller;
use crate::breaches::Kind;
use crate::core::{Change, Sandbox};
use crate::envelope::{Refusal, Request, Success};
use crate::faults::Action;
use crate::filter as call_filter;
use crate::routes::Endpoint;
use callbridge_call::EventTime;
use serde_json::{Value, json};

/// §7.4: the same for another company's, a deleted and a never-existing lead.
const NO_LEAD: Refusal = Refusal::Conflict("Lid topilmadi");
const NO_ITEM: Refusal = Refusal::Conflict("Yozuv topilmadi");
const NO_PATH: Refusal = Refusal::NotFound("Manzil topilmadi");

impl Sandbox {
    /// Answers an endpoint of leads; `id` is what stood in its path.
    pub(crate) fn of_leads(
        &mut self,
        now: EventTime,
        caller: &Caller,
        endpoint: Endpoint,
        id: &str,
        request: &Request,
        fault: Option<Action>,
    ) -> Result<Success, Refusal> {
        let company = caller.token.company;
        let post = request.method == "POST";
        match endpoint {
            Endpoint::LeadFilter => {
                let company = self.companies.get(&company).ok_or(NO_PATH)?;
                filter::leads(&request.body, &self.leads, company, &self.settings.shapes)
            }
            Endpoint::CrmField => Ok(Success::of(self.settings.catalogue.record())),
            Endpoint::LeadSave => {
                let draft = body::lead(&request.body, &self.settings.catalogue)?;
                let taken = |uuid: &String| self.leads.has_uuid(company, draft.id, uuid);
                if draft.uuid.as_ref().is_some_and(taken) {
                    return Err(Refusal::Conflict("Bunday uuid mavjud"));
                }
                self.order(now, caller, What::Lead(Box::new(draft)), fault)
            }
            Endpoint::LeadFields => self.field_list(now, caller, number(id)?, request, fault),
            Endpoint::Lead => self.one_lead(now, company, number(id)?, request),
            Endpoint::LeadNotes => {
                let lead = self.there(company, number(id)?)?;
                if post {
                    let notes = body::notes(&request.body)?;
                    return self.order(now, caller, What::Notes { lead, notes }, fault);
                }
                let mut notes = list(self.leads.notes.get(&(company, lead)));
                if let Value::Array(rows) = &mut notes.data {
                    rows.extend(self.call_notes(company, lead));
                }
                Ok(notes)
            }
            Endpoint::LeadNote => {
                let (lead, note) = pair(id)?;
                let lead = self.there(company, lead)?;
                item(self.leads.notes.get(&(company, lead)), note)
            }
            Endpoint::LeadHistory => {
                let lead = self.there(company, number(id)?)?;
                Ok(list(self.leads.history.get(&(company, lead))))
            }
            Endpoint::LeadHistoryItem => {
                let (lead, entry) = pair(id)?;
                let lead = self.there(company, lead)?;
                item(self.leads.history.get(&(company, lead)), entry)
            }
            Endpoint::LeadTasks => {
                filter::tasks(&request.body, &self.leads, company, &self.settings.shapes)
            }
            Endpoint::LeadTaskSave => {
                let (lead, task) = body::task(&request.body)?;
                self.order(now, caller, What::Task { lead, task }, fault)
            }
            Endpoint::LeadTask => {
                let task = self.leads.tasks.get(&(company, number(id)?));
                task.map(|task| Success::of(task.record())).ok_or(NO_ITEM)
            }
            _ => Err(NO_PATH),
        }
    }

    /// `GET` and `DELETE lead/{id}`: both at once, 409 for one that is not there.
    fn one_lead(
        &mut self,
        now: EventTime,
        company: i64,
        id: i64,
        request: &Request,
    ) -> Result<Success, Refusal> {
        let lead = self.lead(company, id).ok_or(NO_LEAD)?;
        if request.method == "DELETE" {
            let change = LeadChange::Deleted { company, lead: id };
            self.change(now, Change::Lead(change));
            return Ok(Success::default());
        }
        Ok(Success::of(lead.record(self.settings.shapes.lead_rows)))
    }

    /// §4.4. An unknown lead is told by the requestId alone.
    fn field_list(
        &mut self,
        now: EventTime,
        caller: &Caller,
        lead: i64,
        request: &Request,
        fault: Option<Action>,
    ) -> Result<Success, Refusal> {
        let settings = &self.settings;
        let form = settings.shapes.field_list;
        let key = &settings.names.list;
        let (values, skipped) = body::field_list(&request.body, key, form, &settings.catalogue)?;
        if !skipped.is_empty() {
            let words = format!("fields {skipped:?} are no LED fields: skipped without a word");
            self.breach(now, Kind::SkippedField, "§4.4.2", words);
        }
        self.order(now, caller, What::Fields { lead, values }, fault)
    }

    /// A journaled call is a note on its lead (§4.5.5); it has no id among the others (ours).
    fn call_notes(&self, company: i64, lead: i64) -> impl Iterator<Item = Value> {
        let records = self.journal.records().iter();
        let own = records
            .filter(move |record| record.company_id == company && record.call.lead_id == lead);
        own.map(|record| {
            let registered = record.registered_at.floor_seconds().get();
            json!({ "call": call_filter::object(record, registered) })
        })
    }

    fn there(&self, company: i64, lead: i64) -> Result<i64, Refusal> {
        let found = self.companies.get(&company);
        let there = found.is_some_and(|company| self.leads.exists(company, lead));
        there.then_some(lead).ok_or(NO_LEAD)
    }

    /// Takes a write in: 200 with its requestId, done when it is due (§4.4, §3.2).
    fn order(
        &mut self,
        now: EventTime,
        caller: &Caller,
        what: What,
        fault: Option<Action>,
    ) -> Result<Success, Refusal> {
        let (request_id, due) = self.next_write(now, fault)?;
        let order = Order {
            request_id: request_id.clone(),
            company: caller.token.company,
            token: caller.key,
            accepted_at: now,
            due,
            doomed: fault == Some(Action::Failed),
            what,
        };
        let change = LeadChange::Ordered(Box::new(order));
        self.change(now, Change::Lead(change));
        Ok(Success {
            request_id: Some(request_id),
            ..Success::default()
        })
    }
}

/// The number in a path; anything else is no id.
fn number(id: &str) -> Result<i64, Refusal> {
    id.parse().map_err(|_| Refusal::Business("Id noto‘g‘ri"))
}

fn pair(id: &str) -> Result<(i64, i64), Refusal> {
    let (one, other) = id.split_once('/').ok_or(NO_PATH)?;
    Ok((number(one)?, number(other)?))
}

fn list(items: Option<&Vec<Item>>) -> Success {
    let rows = items.into_iter().flatten().map(Item::record).collect();
    Success::of(Value::Array(rows))
}

fn item(items: Option<&Vec<Item>>, id: i64) -> Result<Success, Refusal> {
    let found = items.into_iter().flatten().find(|item| item.id == id);
    found.map(|item| Success::of(item.record())).ok_or(NO_ITEM)
}

impl Item {
    fn record(&self) -> Value {
        let mut record = self.body.clone();
        record["id"] = json!(self.id);
        record["createdTimestamp"] = json!(self.at.floor_seconds());
        record
    }
}

impl Task {
    pub(super) fn record(&self) -> Value {
        let mut record = self.item.record();
        record["leadId"] = json!(self.lead);
        record
    }
}
