//! Employees, contracts, payments, flats and contract fields (§4.7, §7.4): they exist, and nothing
//! of their records is shown but how a missing one is reported.

use super::answer::Caller;
use super::core::Sandbox;
use super::envelope::{Refusal, Request, Success};
use super::lead::catalogue::employee_name;
use super::page;
use super::routes::Endpoint;
use super::shapes::Rows;
use super::token::IdSet;
use serde_json::{Value, json};

/// Largest page of employees (§4.7).
const EMPLOYEES_SIZE_MAX: i64 = 50;
/// Most employees that pages are made of.
const EMPLOYEES_MAX: usize = 100_000;

/// Records that exist in the first company; no flag changes them, and their ids are ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Others {
    /// Contracts.
    pub contracts: IdSet,
    /// Payments.
    pub payments: IdSet,
    /// Flats.
    pub flats: IdSet,
}

impl Default for Others {
    fn default() -> Self {
        let ids = |text| IdSet::parse(text).unwrap_or_default();
        Self {
            contracts: ids("7001-7009"),
            payments: ids("8001-8009"),
            flats: ids("9001-9009"),
        }
    }
}

pub(super) fn of_others(
    sandbox: &Sandbox,
    caller: &Caller,
    endpoint: Endpoint,
    id: &str,
    request: &Request,
) -> Result<Success, Refusal> {
    let others = &sandbox.settings.others;
    let first = caller.token.company == sandbox.settings.company.id;
    let there = |set: &IdSet| first && id.parse().is_ok_and(|id| set.contains(id));
    let record = |found: bool| found.then(|| Success::of(json!({ "id": id.parse::<i64>().ok() })));
    match endpoint {
        Endpoint::Employees => employees(sandbox, caller, request),
        // A missing contract or payment is no 404: the generic system error (§7.4).
        Endpoint::Contract if request.path.ends_with(id) => {
            record(there(&others.contracts)).ok_or(Refusal::Status(500))
        }
        // Its payments and its schedule.
        Endpoint::Contract if there(&others.contracts) => Ok(Success::of(json!([]))),
        Endpoint::Contract => Err(Refusal::Status(500)),
        Endpoint::Payment => record(there(&others.payments)).ok_or(Refusal::Status(500)),
        Endpoint::Flat => {
            let missing = Refusal::Conflict("Xonadon topilmadi");
            record(there(&others.flats)).ok_or(missing)
        }
        Endpoint::ContractField => Ok(Success::of(json!([
            { "id": 31, "name": "Field 31", "type": "TEXT" },
        ]))),
        _ => Err(Refusal::NotFound("Manzil topilmadi")),
    }
}

fn employees(sandbox: &Sandbox, caller: &Caller, request: &Request) -> Result<Success, Refusal> {
    let shapes = &sandbox.settings.shapes;
    let query = page::read(&request.body, EMPLOYEES_SIZE_MAX, shapes, &[])?;
    let company = sandbox.companies.get(&caller.token.company);
    let mut ids: Vec<i64> = (company.into_iter())
        .flat_map(|company| company.employees.ids().take(EMPLOYEES_MAX))
        .collect();
    ids.sort_unstable();
    ids.dedup();
    if query
        .orders
        .first()
        .is_some_and(|(key, down)| key == "id" && *down)
    {
        ids.reverse();
    }
    Ok(query.answer(&ids, shapes, |id| match shapes.page.rows {
        Rows::Strings => Value::from(*id),
        Rows::Objects => json!({ "id": id, "name": employee_name(*id) }),
    }))
}
