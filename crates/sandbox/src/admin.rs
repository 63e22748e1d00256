//! What stands beside the service, outside its budget and without a token: looking at what it
//! holds, and doing what a person would do in the CRM.
//!
//! | path | does |
//! |---|---|
//! | `GET /sandbox/journal` | every record in full |
//! | `GET /sandbox/breaches` | what clients did against the document |
//! | `GET /sandbox/requests` | answers by endpoint and status, the fullest windows |
//! | `GET /sandbox/oauth` | applications, connections, refusals; see [`super::oauth`] |
//! | `GET /sandbox/writes` | every accepted write and its status |
//! | `GET /sandbox/leads` | every lead with all that is known |
//! | `POST /sandbox/admin/lead`, `…/update`, `…/merge`, `…/delete` | `lead/admin.rs` |
//! | `POST /sandbox/admin/clock` | `{"aheadSec": 3600}` of the machine's clock, in all |
//! | `POST /sandbox/admin/leads`, `…/employees` | `{"add": [4006], "remove": [4001]}` |
//! | `POST /sandbox/admin/token` | `{"issue": TOKEN, "expiresInSec": 60, "company": 2}` |
//! | `POST /sandbox/admin/token/revoke` | `{"token": TOKEN}`, or every token |
//! | `POST /sandbox/admin/token/expire` | `{"token": TOKEN, "inSec": 86400}`, null for never |
//! | `POST /sandbox/admin/grants` | `{"grants": ["PERMISSION_OPEN_API_CALL:SAVE"]}` |
//! | `POST /sandbox/admin/company` | `{"blocked": true, "disconnected": false}` |
//! | `POST /sandbox/admin/faults` | the text of [`super::faults`]; an empty one ends them |
//! | `GET /sandbox/webhooks`, `POST /sandbox/admin/webhook…` | the table of `webhook/admin.rs` |
//! | `POST /sandbox/admin/records` | `{"count": 250}`: records of another telephony |
//! | `POST /sandbox/admin/record/delete` | `{"uuid": UUID}`: a person deletes a record |

use super::core::{Change, Sandbox};
use super::envelope::{Request, Response};
use super::faults;
use super::filter;
use super::journal::{PREFIX, Record};
use super::lead::{self, LeadChange};
use super::oauth;
use super::token::{Grant, IdSet, TokenKind};
use super::webhook;
use crate::lead::act;
use crate::token_gen;
use callbridge_call::{EpochSeconds, EventTime};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Life of a PAT that is issued without one (§5.3.2).
const PAT_SECONDS_MAX: i64 = 365 * 86_400;
/// Most records added by one request.
const RECORDS_MAX: u64 = 10_000;

pub(crate) type AdminAnswer = Result<Value, String>;
pub(crate) type JsonFields = Map<String, Value>;

/// Answers a path below `/sandbox/`.
pub(super) fn answer(
    core: &mut Sandbox,
    now: EventTime,
    path: &str,
    request: &Request,
) -> Response {
    let answer = match (request.method.as_str(), path) {
        ("GET", "journal") => Ok(records_json(core.records())),
        ("GET", "breaches") => Ok(json!(core.violations().all())),
        ("GET", "requests") => Ok(requests_json(core)),
        ("GET", "webhooks") => Ok(webhook::admin::overview(core)),
        ("GET", "oauth") => Ok(oauth::look(core, now)),
        ("GET", "writes") => Ok(json!(core.journal().entries())),
        ("GET", "leads") => Ok(lead::all(core)),
        ("POST", "admin/faults") => set_faults(core, request),
        ("POST", _) => match path.strip_prefix("admin/").map(|act| (act, body(request))) {
            Some((act, Ok(fields))) => administer(core, now, act, &fields),
            Some((_, Err(words))) => Err(words),
            None => return missing(),
        },
        _ => return missing(),
    };
    match answer {
        Ok(Value::Null) => missing(),
        Ok(value) => Response::json(200, &value),
        Err(words) => Response::json(400, &json!({ "error": words })),
    }
}

fn missing() -> Response {
    let words =
        "no such path: journal, breaches, requests, oauth, webhooks, writes, leads, admin/…";
    Response::json(404, &json!({ "error": words }))
}

fn body(request: &Request) -> Result<Map<String, Value>, String> {
    if request.body.is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_slice(&request.body) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err("a JSON object expected".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn administer(
    core: &mut Sandbox,
    now: EventTime,
    act: &str,
    fields: &Map<String, Value>,
) -> AdminAnswer {
    let done = || Ok(json!({ "done": act }));
    match act {
        "leads" => {
            let (add, remove) = (ids(fields, "add")?, ids(fields, "remove")?);
            change_leads(core, now, &add, &remove);
            done()
        }
        "employees" => {
            let (add, remove) = (ids(fields, "add")?, ids(fields, "remove")?);
            core.company(now, |company| {
                change_ids(&mut company.employees, &add, &remove)
            });
            done()
        }
        "token" => issue(core, now, fields),
        "token/revoke" => {
            match text(fields, "token")? {
                Some(token) => core.revoke(now, token),
                None => core.revoke_all(now),
            }
            done()
        }
        "token/expire" => {
            let token = text(fields, "token")?.ok_or("`token` is missing")?;
            let at = whole(fields, "inSec")?.map(|seconds| later(now, seconds));
            core.expire(now, token, at);
            done()
        }
        "grants" => {
            core.set_grants(now, grants(fields)?);
            done()
        }
        "company" => {
            let (blocked, gone) = (flag(fields, "blocked")?, flag(fields, "disconnected")?);
            core.company(now, |company| {
                company.blocked = blocked.unwrap_or(company.blocked);
                company.disconnected = gone.unwrap_or(company.disconnected);
            });
            done()
        }
        "records" => {
            add_records(core, now, whole(fields, "count")?);
            done()
        }
        "record/delete" => {
            let uuid = text(fields, "uuid")?.ok_or("`uuid` is missing")?;
            core.delete_record(now, uuid.strip_prefix(PREFIX).unwrap_or(uuid));
            done()
        }
        "clock" => set_clock(core, now, fields),
        _ if act.starts_with("lead") => lead::administer(core, now, act, fields),
        _ => match act.strip_prefix("oauth/") {
            Some(act) => oauth::administer(core, now, act, fields),
            None => webhook::admin::administer(core, now, act, fields),
        },
    }
}

fn add_records(core: &mut Sandbox, now: EventTime, count: Option<i64>) {
    let count = count.unwrap_or(1).unsigned_abs().min(RECORDS_MAX);
    (0..count).for_each(|_| core.add_foreign(now));
}

/// Ids of leads of which nothing is known; one taken away is a lead deleted.
fn change_leads(core: &mut Sandbox, now: EventTime, add: &[i64], remove: &[i64]) {
    let company = core.settings.company.id;
    for &lead in remove {
        if act::find_lead(core, company, lead).is_some() {
            let change = LeadChange::Deleted { company, lead };
            core.change(now, Change::Lead(change));
        }
    }
    for &lead in add {
        if core.leads.is_gone(company, lead) {
            let change = LeadChange::Revived { company, lead };
            core.change(now, Change::Lead(change));
        }
    }
    core.company(now, |company| change_ids(&mut company.leads, add, remove));
}

/// The clock goes ahead only: what happened cannot be ahead of now.
fn set_clock(core: &mut Sandbox, now: EventTime, fields: &Map<String, Value>) -> AdminAnswer {
    let ahead = whole(fields, "aheadSec")?.ok_or("`aheadSec` is missing")?;
    let before = core.ahead().as_secs();
    let ahead = u64::try_from(ahead).ok().filter(|&ahead| ahead >= before);
    let ahead = ahead.ok_or_else(|| format!("`aheadSec`: {before} or more, it cannot go back"))?;
    let now = now.plus(Duration::from_secs(ahead - before));
    core.change(now, Change::Ahead(ahead));
    core.tick(now);
    Ok(json!({ "now": now.floor_seconds(), "aheadSec": ahead }))
}

fn issue(core: &mut Sandbox, now: EventTime, fields: &Map<String, Value>) -> AdminAnswer {
    let value = match text(fields, "issue")? {
        Some(value) => value.to_owned(),
        None => token_gen::mint(core, "svc_pat_"),
    };
    let company = whole(fields, "company")?.unwrap_or(core.settings.company.id);
    let seconds = match fields.contains_key("expiresInSec") {
        true => whole(fields, "expiresInSec")?,
        false => Some(PAT_SECONDS_MAX),
    };
    let expires_at = seconds.map(|seconds| later(now, seconds));
    core.issue(now, &value, TokenKind::Pat, company, expires_at);
    Ok(json!({ "token": value }))
}

fn set_faults(core: &mut Sandbox, request: &Request) -> AdminAnswer {
    let words = String::from_utf8_lossy(&request.body);
    match faults::parse(&words) {
        Ok((rules, shapes)) => {
            core.set_faults(rules);
            core.settings_mut().shapes = shapes;
            Ok(json!({ "done": "faults" }))
        }
        Err(wrong) => {
            let words: Vec<String> = wrong.iter().map(ToString::to_string).collect();
            Err(words.join("\n"))
        }
    }
}

fn change_ids(set: &mut IdSet, add: &[i64], remove: &[i64]) {
    add.iter().for_each(|&id| set.add(id));
    remove.iter().for_each(|&id| set.remove(id));
}

fn later(now: EventTime, seconds: i64) -> EpochSeconds {
    EpochSeconds::new(now.floor_seconds().get().saturating_add(seconds))
}

pub(super) fn text<'a>(
    fields: &'a Map<String, Value>,
    name: &str,
) -> Result<Option<&'a str>, String> {
    field(fields, name, Value::as_str, "text")
}

pub(super) fn whole(fields: &Map<String, Value>, name: &str) -> Result<Option<i64>, String> {
    field(fields, name, Value::as_i64, "number")
}

pub(super) fn flag(fields: &Map<String, Value>, name: &str) -> Result<Option<bool>, String> {
    field(fields, name, Value::as_bool, "true or false")
}

/// A field that may be missing or null, and else is of one kind.
fn field<'a, T>(
    fields: &'a Map<String, Value>,
    name: &str,
    read: impl FnOnce(&'a Value) -> Option<T>,
    kind: &str,
) -> Result<Option<T>, String> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match read(value) {
            Some(value) => Ok(Some(value)),
            None => Err(format!("`{name}`: {kind} expected")),
        },
    }
}

pub(super) fn ids(fields: &Map<String, Value>, name: &str) -> Result<Vec<i64>, String> {
    let wrong = || format!("`{name}`: a list of numbers expected");
    match fields.get(name) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(list)) => list
            .iter()
            .map(|id| id.as_i64().filter(|&id| id > 0).ok_or_else(wrong))
            .collect(),
        Some(_) => Err(wrong()),
    }
}

pub(super) fn grants(fields: &Map<String, Value>) -> Result<Vec<Grant>, String> {
    let list = fields.get("grants").and_then(Value::as_array);
    let list = list.ok_or("`grants`: a list of PERMISSION:SCOPE expected")?;
    list.iter()
        .map(|grant| {
            let known = grant.as_str().and_then(Grant::parse);
            known.ok_or_else(|| format!("`{grant}` is no PERMISSION:SCOPE of §2.3"))
        })
        .collect()
}

/// The records as the filter shows them, with what only the sandbox tells.
fn records_json(records: &[Record]) -> Value {
    let rows = records.iter().map(|record| {
        let mut row = filter::object(record, record.registered_at.floor_seconds().get());
        row["sentUuid"] = json!(record.call.uuid);
        row["requestId"] = json!(record.request_id);
        row["companyId"] = json!(record.company_id);
        row["clientPhone"] = json!(record.call.client_phone);
        row["others"] = json!(record.call.others);
        row
    });
    Value::Array(rows.collect())
}

fn requests_json(core: &Sandbox) -> Value {
    let answers: Vec<Value> = (core.counts().iter())
        .map(|((endpoint, status), count)| {
            json!({ "endpoint": endpoint.word(), "status": status, "count": count })
        })
        .collect();
    json!({
        "answers": answers,
        "fullest": core.fullest(),
        "limit": core.client.windows.rate().requests,
        "windowSec": core.client.windows.rate().window.as_secs_f64(),
        "breaches": core.violations().counts(),
        "records": core.records().len(),
        "pending": core.journal().pending(),
    })
}
