//! `POST lead/filter` and `POST lead-task/filter`: pages of at most 50 and 30 (§4.7).
//!
//! Of the payload the document shows `page`, `size`, `orders` and ranges such as
//! `registeredTimestampFrom`; `createdTimestamp` and `updatedTimestamp` are the snapshot's names,
//! and `registeredTimestamp` means the first. As in a database, a moment that is not known lies in
//! no range and is last in ascending order. There is no look-up by phone.

use super::record::Lead;
use super::store::Leads;
use crate::envelope::{Refusal, Success};
use crate::page;
use crate::shapes::{Rows, Shapes};
use crate::token::Company;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::cmp::Ordering;

/// Largest page of leads (§4.7).
const SIZE_MAX: i64 = 50;
/// Largest page of tasks (§4.7).
const TASKS_SIZE_MAX: i64 = 30;
const REGISTERED: &str = "registeredTimestamp";
const CREATED: &str = "createdTimestamp";
const UPDATED: &str = "updatedTimestamp";

/// A page of a company's leads.
///
/// # Errors
/// The refusal to answer with.
pub(super) fn leads(
    body: &[u8],
    leads: &Leads,
    company: &Company,
    shapes: &Shapes,
) -> Result<Success, Refusal> {
    let names = [REGISTERED, CREATED, UPDATED];
    let query = page::read(body, SIZE_MAX, shapes, &names)?;
    let mut rows: Vec<Cow<'_, Lead>> = leads.all(company);
    rows.retain(|lead| {
        query.holds(REGISTERED, lead.created_timestamp)
            && query.holds(CREATED, lead.created_timestamp)
            && query.holds(UPDATED, lead.updated_timestamp)
    });
    // The last key is sorted by first, so that the stable sort leaves the first key in charge.
    for (key, descending) in query.orders.iter().rev() {
        rows.sort_by(|one, other| {
            let order = compare(one, other, key);
            if *descending { order.reverse() } else { order }
        });
    }
    Ok(query.answer(&rows, shapes, |lead| match shapes.page.rows {
        Rows::Strings => json!(lead.id),
        Rows::Objects => lead.record(shapes.lead_rows),
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

/// A page of a company's tasks.
///
/// # Errors
/// The refusal to answer with.
pub(super) fn tasks(
    body: &[u8],
    leads: &Leads,
    company: i64,
    shapes: &Shapes,
) -> Result<Success, Refusal> {
    let query = page::read(body, TASKS_SIZE_MAX, shapes, &[REGISTERED])?;
    let range = (company, i64::MIN)..=(company, i64::MAX);
    let mut rows: Vec<Value> = Vec::new();
    for (_, task) in leads.tasks.range(range) {
        let at = task.item.at.floor_seconds().get();
        if query.holds(REGISTERED, Some(at)) {
            rows.push(task.record());
        }
    }
    Ok(query.answer(&rows, shapes, Clone::clone))
}
