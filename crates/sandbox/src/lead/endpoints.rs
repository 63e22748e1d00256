//! The lead endpoints, behind token, window, address and grant.
//!
//! Of the payload of `lead/filter` the document shows `page`, `size`, `orders` and ranges such as
//! `registeredTimestampFrom`; `createdTimestamp` and `updatedTimestamp` are the snapshot's names,
//! and `registeredTimestamp` means the first. As in a database, a moment that is not known lies in
//! no range and is last in ascending order. There is no look-up by phone.

use super::field_list;
use super::record::Lead;
use super::store::FieldUpsert;
use crate::answer::Asked;
use crate::core::Sandbox;
use crate::envelope::{Refusal, Success};
use crate::journal::Content;
use crate::lead::act;
use crate::shapes::Rows;
use crate::violations::ViolationKind;
use crate::{endpoints, page};
use serde_json::json;
use std::borrow::Cow;
use std::cmp::Ordering;

/// Largest page of leads (§4.7).
const SIZE_MAX: i64 = 50;
const REGISTERED: &str = "registeredTimestamp";
const CREATED: &str = "createdTimestamp";
const UPDATED: &str = "updatedTimestamp";

/// `POST lead/filter`: a page of the company's leads.
pub(crate) fn filter(sandbox: &Sandbox, asked: &Asked<'_>) -> Result<Success, Refusal> {
    let shapes = &sandbox.settings.shapes;
    let names = [REGISTERED, CREATED, UPDATED];
    let query = page::read(&asked.request.body, SIZE_MAX, shapes, &names)?;
    let company = sandbox.companies.get(&asked.token.company);
    let mut rows: Vec<Cow<'_, Lead>> =
        company.map_or_else(Vec::new, |company| sandbox.leads.all(company));
    rows.retain(|lead| {
        query.holds(REGISTERED, lead.created_timestamp)
            && query.holds(CREATED, lead.created_timestamp)
            && query.holds(UPDATED, lead.updated_timestamp)
    });
    query.sort(&mut rows, |one, other, key| compare(one, other, key));
    Ok(query.answer(&rows, shapes, |lead| match shapes.page.rows {
        Rows::Strings => json!(lead.id),
        Rows::Objects => lead.record(),
    }))
}

/// By one key; an unknown one leaves the order as it is.
fn compare(one: &Lead, other: &Lead, key: &str) -> Ordering {
    let known = |at: Option<i64>| at.unwrap_or(i64::MAX);
    match key {
        "id" => one.id.cmp(&other.id),
        "name" => one.name.cmp(&other.name),
        "balance" => one.balance.total_cmp(&other.balance),
        REGISTERED | CREATED => known(one.created_timestamp).cmp(&known(other.created_timestamp)),
        UPDATED => known(one.updated_timestamp).cmp(&known(other.updated_timestamp)),
        _ => Ordering::Equal,
    }
}

/// `GET lead/{id}`. The answer is the same for another company's, a deleted and a never-existing
/// lead (§7.4).
pub(crate) fn one(sandbox: &Sandbox, asked: &Asked<'_>) -> Result<Success, Refusal> {
    let lead = act::find_lead(sandbox, asked.token.company, number(asked.id)?);
    let lead = lead.ok_or(Refusal::Conflict("Lid topilmadi"))?;
    Ok(Success::of(lead.record()))
}

/// `POST lead/{id}/field/list` (§4.4): 200 with its requestId, done when it is due (§3.2). An
/// unknown lead is told by the requestId alone.
pub(crate) fn upsert_fields(sandbox: &mut Sandbox, asked: &Asked<'_>) -> Result<Success, Refusal> {
    let lead = number(asked.id)?;
    let settings = &sandbox.settings;
    let key = &settings.names.list;
    let (values, skipped) = field_list::read(&asked.request.body, key, &settings.catalogue)?;
    if !skipped.is_empty() {
        let words = format!("fields {skipped:?} are not LED fields: skipped silently");
        sandbox.violation(asked.now, ViolationKind::SkippedField, "§4.4.2", words);
    }
    let content = Content::Fields(FieldUpsert { lead, values });
    endpoints::accept(sandbox, asked, content)
}

/// The number in a path; anything else is no id.
fn number(id: &str) -> Result<i64, Refusal> {
    id.parse().map_err(|_| Refusal::Business("Id noto‘g‘ri"))
}
