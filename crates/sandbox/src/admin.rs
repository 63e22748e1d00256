//! Paths below `/sandbox/`, which the real CRM does not have. They need no token, and do not count
//! for the rate limit. GET shows the state, and POST does what a person would do in the CRM.
//!
//! | path | effect |
//! |---|---|
//! | `GET /sandbox/journal` | every record in full |
//! | `GET /sandbox/breaches` | violations of the document by clients |
//! | `GET /sandbox/requests` | answers by endpoint and status, the fullest windows |
//! | `GET /sandbox/oauth` | applications, connections, refusals; see [`super::oauth`] |
//! | `GET /sandbox/writes` | every accepted write and its status |
//! | `GET /sandbox/leads` | every lead with all its data |
//! | `POST /sandbox/admin/lead`, `…/update`, `…/merge`, `…/delete` | `lead/admin.rs` |
//! | `POST /sandbox/admin/clock` | `{"aheadSec": 3600}`: sets how far the clock is ahead |
//! | `POST /sandbox/admin/leads` | `{"add": [4006], "remove": [4001]}` |
//! | `POST /sandbox/admin/token` | `{"issue": TOKEN, "expiresInSec": 60, "company": 2}` |
//! | `POST /sandbox/admin/grants` | `{"grants": ["PERMISSION_OPEN_API_CALL:SAVE"]}` |
//! | `POST /sandbox/admin/company` | `{"blocked": true, "disconnected": false}` |
//! | `POST /sandbox/admin/faults` | the text of [`super::faults`]; an empty one removes all |
//! | `GET /sandbox/webhooks`, `POST /sandbox/admin/webhook…` | the table of `webhook/admin.rs` |
//! | `POST /sandbox/admin/records` | `{"count": 250}`: adds records of another provider |
//! | `POST /sandbox/admin/record/delete` | `{"uuid": UUID}`: a person deletes a record |

use crate::{
    AdminAnswer, Content, Grant, PAT_SECONDS_MAX, Record, Request, Response, Sandbox, TokenKind,
    body::needed, body::read, endpoints, faults, journal::PREFIX, lead::act, lead::admin as leads,
    oauth::admin as oauth, webhook::admin as webhooks,
};
use callbridge_call::EpochSeconds;
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

/// Largest number of records that one request to `admin/records` adds.
const RECORDS_MAX: u64 = 10_000;

/// The fields of a request body of the paths below `/sandbox/admin/`. Each path reads only some of
/// the fields.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Order {
    add: Vec<i64>,
    remove: Vec<i64>,
    issue: Option<String>,
    #[serde(default = "longest_life")]
    expires_in_sec: Option<i64>,
    company: Option<i64>,
    grants: Option<Vec<Grant>>,
    blocked: Option<bool>,
    disconnected: Option<bool>,
    count: Option<u64>,
    uuid: Option<String>,
    ahead_sec: Option<u64>,
}

/// Returns the default of `expiresInSec`: the longest lifetime of a PAT, 365 days (§5.3.2). An
/// explicit null means no expiry date.
const fn longest_life() -> Option<i64> {
    Some(PAT_SECONDS_MAX)
}

/// Answers a request to a path below `/sandbox/`. `path` is the part after this prefix.
pub(super) fn answer(core: &mut Sandbox, path: &str, request: &Request) -> Response {
    let answer = match (request.method.as_str(), path) {
        ("GET", "journal") => Ok(records_json(core.records())),
        ("GET", "breaches") => Ok(json!(core.violations().all())),
        ("GET", "requests") => Ok(requests_json(core)),
        ("GET", "webhooks") => Ok(webhooks::overview(core)),
        ("GET", "oauth") => Ok(oauth::overview(core)),
        ("GET", "writes") => Ok(writes_json(core)),
        ("GET", "leads") => Ok(leads::all(core)),
        ("POST", "admin/faults") => set_faults(core, request),
        ("POST", _) => match path.strip_prefix("admin/") {
            Some(act) => administer(core, act, &request.body),
            None => return missing(),
        },
        _ => return missing(),
    };
    match answer {
        Ok(Value::Null) => missing(),
        Ok(value) => Response::json(200, &value),
        Err(message) => Response::json(400, &json!({ "error": message })),
    }
}

fn missing() -> Response {
    let message =
        "no such path: journal, breaches, requests, oauth, webhooks, writes, leads, admin/…";
    Response::json(404, &json!({ "error": message }))
}

fn administer(core: &mut Sandbox, act: &str, body: &[u8]) -> AdminAnswer {
    match act.split('/').next().unwrap_or_default() {
        "lead" => return leads::administer(core, act, body),
        "webhook" => return webhooks::administer(core, act, body),
        "oauth" => return oauth::administer(core, act, body),
        _ => {}
    }
    let order: Order = read(body)?;
    match act {
        "leads" => change_leads(core, &order),
        "token" => return issue(core, order),
        "grants" => core.set_grants(core.now, needed(order.grants, "grants")?),
        "company" => core.company(core.now, |company| {
            company.blocked = order.blocked.unwrap_or(company.blocked);
            company.disconnected = order.disconnected.unwrap_or(company.disconnected);
        }),
        "records" => {
            let count = order.count.unwrap_or(1).min(RECORDS_MAX);
            (0..count).for_each(|_| core.add_foreign(core.now));
        }
        "record/delete" => {
            let uuid = needed(order.uuid, "uuid")?;
            core.delete_record(core.now, uuid.strip_prefix(PREFIX).unwrap_or(&uuid));
        }
        "clock" => return set_clock(core, needed(order.ahead_sec, "aheadSec")?),
        _ => return Ok(Value::Null),
    }
    Ok(json!({ "done": act }))
}

/// Deletes the leads in `remove`, and adds the ids in `add` as leads without data.
fn change_leads(core: &mut Sandbox, order: &Order) {
    let company = core.settings.company.id;
    for &lead in &order.remove {
        act::delete_lead(core, core.now, company, lead);
    }
    for &lead in &order.add {
        core.leads.revive(company, lead);
    }
    core.company(core.now, |company| {
        order.add.iter().for_each(|&id| company.leads.add(id));
        order.remove.iter().for_each(|&id| company.leads.remove(id));
    });
}

/// Sets how far the sandbox's clock is ahead of the machine's, in seconds. Refuses a value below
/// the current one, because stored times would then be in the future.
fn set_clock(core: &mut Sandbox, ahead: u64) -> AdminAnswer {
    let before = core.ahead.as_secs();
    let Some(further) = ahead.checked_sub(before) else {
        return Err(format!("`aheadSec`: {before} or more, it cannot go back"));
    };
    let now = core.now.plus(Duration::from_secs(further));
    core.ahead = Duration::from_secs(ahead);
    core.tick(now);
    Ok(json!({ "now": now.floor_seconds(), "aheadSec": ahead }))
}

fn issue(core: &mut Sandbox, order: Order) -> AdminAnswer {
    let value = order.issue.unwrap_or_else(|| core.mint("svc_pat_"));
    let company = order.company.unwrap_or(core.settings.company.id);
    let now_sec = core.now.floor_seconds().get();
    let expires_at = order
        .expires_in_sec
        .map(|seconds| EpochSeconds::new(now_sec.saturating_add(seconds)));
    core.issue(core.now, &value, TokenKind::Pat, company, expires_at);
    Ok(json!({ "token": value }))
}

fn set_faults(core: &mut Sandbox, request: &Request) -> AdminAnswer {
    let text = String::from_utf8_lossy(&request.body);
    let (rules, shapes) = faults::parse(&text).map_err(|wrong| wrong.join("\n"))?;
    core.set_faults(rules);
    core.settings.shapes = shapes;
    Ok(json!({ "done": "faults" }))
}

/// Returns the records as `call-history/filter` does, with more values that the real CRM does not
/// show, such as the submitted uuid and the requestId.
fn records_json(records: &[Record]) -> Value {
    let rows = records.iter().map(|record| {
        let mut row = endpoints::object(record, record.registered_at.floor_seconds().get());
        row["sentUuid"] = json!(record.call.uuid);
        row["requestId"] = json!(record.request_id);
        row["companyId"] = json!(record.company_id);
        row["clientPhone"] = json!(record.call.client_phone);
        row["others"] = json!(record.call.others);
        row
    });
    Value::Array(rows.collect())
}

/// Returns an object with every accepted write and its status, keyed by requestId.
fn writes_json(core: &Sandbox) -> Value {
    let rows = core.journal.writes.iter().map(|(id, write)| {
        let (of, uuid) = match &write.content {
            Content::Call(call) => ("call-history", &*call.uuid),
            Content::Fields(_) => ("lead-fields", ""),
        };
        let row = json!({
            "acceptedAt": write.accepted_at, "of": of, "uuid": uuid, "status": write.status,
            "why": write.why,
        });
        (id.clone(), row)
    });
    Value::Object(rows.collect())
}

fn requests_json(core: &Sandbox) -> Value {
    let answers = core.counts().iter().map(|((endpoint, status), count)| {
        json!({ "endpoint": endpoint.word(), "status": status, "count": count })
    });
    let rate = core.client.windows.rate;
    json!({
        "answers": answers.collect::<Value>(),
        "fullest": core.fullest(),
        "limit": rate.requests,
        "windowSec": rate.window.as_secs_f64(),
        "breaches": core.violations().counts(),
        "records": core.records().len(),
        "pending": core.journal.pending.len(),
    })
}
