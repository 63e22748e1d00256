//! The lead endpoints, behind token, window, address and grant.

use super::order::{LeadAction, Order};
use super::store::{LeadChange, LeadItem, Task};
use super::{body, filter};
use crate::answer::Caller;
use crate::core::{Change, Sandbox};
use crate::endpoints;
use crate::envelope::{Refusal, Request, Success};
use crate::faults::Action;
use crate::filter as call_filter;
use crate::lead::act;
use crate::routes::Endpoint;
use crate::violations::ViolationKind;
use callbridge_call::EventTime;
use serde_json::{Value, json};

/// §7.4: the same for another company's, a deleted and a never-existing lead.
const NO_LEAD: Refusal = Refusal::Conflict("Lid topilmadi");
const NO_ITEM: Refusal = Refusal::Conflict("Yozuv topilmadi");
const NO_PATH: Refusal = Refusal::NotFound("Manzil topilmadi");

/// Answers an endpoint of leads; `id` is what stood in its path.
pub(crate) fn of_leads(
    sandbox: &mut Sandbox,
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
            let company = sandbox.companies.get(&company).ok_or(NO_PATH)?;
            filter::leads(
                &request.body,
                &sandbox.leads,
                company,
                &sandbox.settings.shapes,
            )
        }
        Endpoint::CrmField => Ok(Success::of(sandbox.settings.catalogue.record())),
        Endpoint::LeadSave => {
            let draft = body::lead(&request.body, &sandbox.settings.catalogue)?;
            let taken = |uuid: &String| sandbox.leads.has_uuid(company, draft.id, uuid);
            if draft.uuid.as_ref().is_some_and(taken) {
                return Err(Refusal::Conflict("Bunday uuid mavjud"));
            }
            order(
                sandbox,
                now,
                caller,
                LeadAction::Lead(Box::new(draft)),
                fault,
            )
        }
        Endpoint::LeadFields => field_list(sandbox, now, caller, number(id)?, request, fault),
        Endpoint::Lead => one_lead(sandbox, now, company, number(id)?, request),
        Endpoint::LeadNotes => {
            let lead = there(sandbox, company, number(id)?)?;
            if post {
                let notes = body::notes(&request.body)?;
                return order(
                    sandbox,
                    now,
                    caller,
                    LeadAction::Notes { lead, notes },
                    fault,
                );
            }
            let mut notes = list(sandbox.leads.notes.get(&(company, lead)));
            if let Value::Array(rows) = &mut notes.data {
                rows.extend(call_notes(sandbox, company, lead));
            }
            Ok(notes)
        }
        Endpoint::LeadNote => {
            let (lead, note) = pair(id)?;
            let lead = there(sandbox, company, lead)?;
            item(sandbox.leads.notes.get(&(company, lead)), note)
        }
        Endpoint::LeadHistory => {
            let lead = there(sandbox, company, number(id)?)?;
            Ok(list(sandbox.leads.history.get(&(company, lead))))
        }
        Endpoint::LeadHistoryItem => {
            let (lead, entry) = pair(id)?;
            let lead = there(sandbox, company, lead)?;
            item(sandbox.leads.history.get(&(company, lead)), entry)
        }
        Endpoint::LeadTasks => filter::tasks(
            &request.body,
            &sandbox.leads,
            company,
            &sandbox.settings.shapes,
        ),
        Endpoint::LeadTaskSave => {
            let (lead, task) = body::task(&request.body)?;
            order(sandbox, now, caller, LeadAction::Task { lead, task }, fault)
        }
        Endpoint::LeadTask => {
            let task = sandbox.leads.tasks.get(&(company, number(id)?));
            task.map(|task| Success::of(task.record())).ok_or(NO_ITEM)
        }
        _ => Err(NO_PATH),
    }
}

/// `GET` and `DELETE lead/{id}`: both at once, 409 for one that is not there.
fn one_lead(
    sandbox: &mut Sandbox,
    now: EventTime,
    company: i64,
    id: i64,
    request: &Request,
) -> Result<Success, Refusal> {
    let lead = act::find_lead(sandbox, company, id).ok_or(NO_LEAD)?;
    if request.method == "DELETE" {
        let change = LeadChange::Deleted { company, lead: id };
        sandbox.change(now, Change::Lead(change));
        return Ok(Success::default());
    }
    Ok(Success::of(lead.record(sandbox.settings.shapes.lead_rows)))
}

/// §4.4. An unknown lead is told by the requestId alone.
fn field_list(
    sandbox: &mut Sandbox,
    now: EventTime,
    caller: &Caller,
    lead: i64,
    request: &Request,
    fault: Option<Action>,
) -> Result<Success, Refusal> {
    let settings = &sandbox.settings;
    let form = settings.shapes.field_list;
    let key = &settings.names.list;
    let (values, skipped) = body::field_list(&request.body, key, form, &settings.catalogue)?;
    if !skipped.is_empty() {
        let words = format!("fields {skipped:?} are no LED fields: skipped without a word");
        sandbox.record_violation(now, ViolationKind::SkippedField, "§4.4.2", words);
    }
    order(
        sandbox,
        now,
        caller,
        LeadAction::Fields { lead, values },
        fault,
    )
}

/// A journaled call is a note on its lead (§4.5.5); it has no id among the others (ours).
fn call_notes(sandbox: &Sandbox, company: i64, lead: i64) -> impl Iterator<Item = Value> {
    let records = sandbox.journal.records().iter();
    let own =
        records.filter(move |record| record.company_id == company && record.call.lead_id == lead);
    own.map(|record| {
        let registered = record.registered_at.floor_seconds().get();
        json!({ "call": call_filter::object(record, registered) })
    })
}

fn there(sandbox: &Sandbox, company: i64, lead: i64) -> Result<i64, Refusal> {
    let found = sandbox.companies.get(&company);
    let there = found.is_some_and(|company| sandbox.leads.exists(company, lead));
    there.then_some(lead).ok_or(NO_LEAD)
}

/// Takes a write in: 200 with its requestId, done when it is due (§4.4, §3.2).
fn order(
    sandbox: &mut Sandbox,
    now: EventTime,
    caller: &Caller,
    what: LeadAction,
    fault: Option<Action>,
) -> Result<Success, Refusal> {
    let (request_id, due) = endpoints::next_write(sandbox, now, fault)?;
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
    sandbox.change(now, Change::Lead(change));
    Ok(Success {
        request_id: Some(request_id),
        ..Success::default()
    })
}

/// The number in a path; anything else is no id.
fn number(id: &str) -> Result<i64, Refusal> {
    id.parse().map_err(|_| Refusal::Business("Id noto‘g‘ri"))
}

fn pair(id: &str) -> Result<(i64, i64), Refusal> {
    let (one, other) = id.split_once('/').ok_or(NO_PATH)?;
    Ok((number(one)?, number(other)?))
}

fn list(items: Option<&Vec<LeadItem>>) -> Success {
    let rows = items.into_iter().flatten().map(LeadItem::record).collect();
    Success::of(Value::Array(rows))
}

fn item(items: Option<&Vec<LeadItem>>, id: i64) -> Result<Success, Refusal> {
    let found = items.into_iter().flatten().find(|item| item.id == id);
    found.map(|item| Success::of(item.record())).ok_or(NO_ITEM)
}

impl LeadItem {
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
