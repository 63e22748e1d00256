//! `lead …`, for numbers without a lead, and the lead of a single number.
//!
//! `missed`, for customers who called, didn't reach anyone, and haven't talked to anyone since.

use super::conversation::{
    ask_daemon, converse, csv_line, json_line, line, list_items, parse_item, print_items, show,
};
use crate::config::Asking;
use crate::{Failure, Result, print};
use callbridge_admin::ControlRequest;
use callbridge_model::{Code, LeadId, Zone, safe};
use callbridge_spool::MissedCustomer;
use serde_json::Value;

/// The columns of `lead missing --csv`, in order.
const MISSING_COLUMNS: [&str; 4] = ["phone", "calls", "lastCallAt", "trunk"];

/// Runs `lead missing`, which lists numbers that have called but don't have a lead.
///
/// # Errors
/// Fails with 69 if there's neither a daemon nor a state.
pub(crate) async fn missing(csv: bool, at: &Asking) -> Result<()> {
    if csv {
        print(csv_line(MISSING_COLUMNS)?)?;
        return list_items(at, ControlRequest::LeadMissing, None, print_missing_row).await;
    }
    let none = "every number that called has a lead";
    print_items(at, ControlRequest::LeadMissing, Some(none), missing_line).await
}

fn print_missing_row(item: &Value, zone: &Zone) -> Result<()> {
    let calls = item["calls"].to_string();
    let last = item["lastCallAt"]
        .as_i64()
        .map_or_else(String::new, |at| zone.stamp(at));
    print(csv_line([
        text_field(item, "phone"),
        &calls,
        &last,
        text_field(item, "trunk"),
    ])?)
}

fn missing_line(item: &Value, zone: &Zone) -> String {
    let phone = safe(text_field(item, "phone"));
    let trunk = safe(text_field(item, "trunk"));
    let calls = item["calls"].to_string();
    let unit = if calls == "1" { "call, " } else { "calls," };
    let last = item["lastCallAt"]
        .as_i64()
        .map_or_else(String::new, |at| zone.second(at));
    format!("{phone:<16}  {calls:>4} {unit} last {last}  {trunk}")
}

/// Runs `lead list`, which lists the directory's numbers with their leads.
///
/// # Errors
/// Fails with 69 if there's neither a daemon nor a state.
pub(crate) async fn list(at: &Asking) -> Result<()> {
    let none = "the directory has no numbers yet: see --webhook-listen and --lead-directory";
    print_items(at, ControlRequest::LeadList, Some(none), directory_line).await
}

fn directory_line(item: &Value, zone: &Zone) -> String {
    let phone = safe(text_field(item, "phone"));
    let leads: Vec<String> = item["leads"]
        .as_array()
        .into_iter()
        .flatten()
        .map(ToString::to_string)
        .collect();
    let leads = leads.join(", ");
    let learned = item["learnedAt"]
        .as_i64()
        .map_or_else(String::new, |at| zone.second(at));
    let profile = profile_text(item).map_or_else(String::new, |text| format!("  {text}"));
    format!("{phone:<16}  lead {leads:<12}  since {learned}{profile}")
}

/// Returns a text such as `Anna Karimova, In work, employee 15 (Olga)`, or `None` if nothing is
/// known about the lead.
fn profile_text(item: &Value) -> Option<String> {
    let profile = &item["profile"];
    let employee = profile["responsible"].as_i64().map(|id| {
        let name = profile["responsibleName"]
            .as_str()
            .map(|name| format!(" ({})", safe(name)));
        format!("employee {id}{}", name.unwrap_or_default())
    });
    let parts: Vec<String> = [
        profile["name"].as_str().map(safe),
        profile["stage"].as_str().map(safe),
        employee,
    ]
    .into_iter()
    .flatten()
    .collect();
    if parts.is_empty() {
        return None;
    }
    Some(parts.join(", "))
}

/// Returns the text in the item's field, or an empty one if the field is missing or isn't text.
fn text_field<'a>(item: &'a Value, field: &str) -> &'a str {
    item[field].as_str().unwrap_or_default()
}

/// Runs `lead give`, `lead take`, and `lead given`.
///
/// # Errors
/// Fails with 65 if the number is incomplete or has no assigned lead, and with 69 if there's
/// neither a daemon nor a state.
pub(crate) async fn run_assignment(ask: ControlRequest, at: &Asking) -> Result<()> {
    let is_taken = matches!(ask, ControlRequest::LeadTake { .. });
    let none = if matches!(ask, ControlRequest::LeadGiven) {
        Some("no number has an assigned lead: assign one with `callbridge lead give PHONE LEAD`")
    } else {
        None
    };
    print_items(at, ask, none, |item, zone| {
        assignment_line(item, zone, is_taken)
    })
    .await
}

fn assignment_line(item: &Value, zone: &Zone, is_taken: bool) -> String {
    let phone = safe(text_field(item, "phone"));
    let lead = item["leadId"].as_i64().unwrap_or_default();
    if let Some(left) = item["left"].as_u64() {
        let calls = match left {
            0 => "no call was waiting for it".to_owned(),
            1 => "1 waiting call is sent".to_owned(),
            more => format!("{more} waiting calls are sent"),
        };
        return format!(
            "{phone} has lead {lead}: {calls}{}",
            resend_hint(item, lead)
        );
    }
    if is_taken {
        return format!("{phone} no longer has lead {lead}");
    }
    let since = zone.second(item["at"].as_i64().unwrap_or_default());
    let who = safe(text_field(item, "who"));
    format!("{phone:<16}  lead {lead:<12}  given {since} by {who}")
}

/// Returns a line with the command that resends the number's dead letters with the new lead, or an
/// empty one if there are none.
fn resend_hint(item: &Value, lead: i64) -> String {
    let dead = item["deadLetters"].as_array().into_iter().flatten();
    let ids: Vec<String> = dead.map(ToString::to_string).collect();
    if ids.is_empty() {
        return String::new();
    }
    let which = match item["moreDeadLetters"].as_bool() {
        Some(true) => format!("the newest {} of its dead letters", ids.len()),
        _ => "its dead letters".to_owned(),
    };
    let ids = ids.join(" ");
    format!("\n    to resend {which}: callbridge dead retry {ids} --lead {lead}")
}

/// Runs `lead check PHONE` with the daemon's lists or, without a daemon, with the lists given by
/// the flags.
///
/// # Errors
/// Fails with 64 if no daemon is running and neither the trunks nor the directory can tell, and
/// with 69 if there's neither a daemon nor a state.
pub(crate) async fn check(ask: ControlRequest, at: &Asking) -> Result<()> {
    let found = converse(at, ask, |item, zone| {
        show(at, item, || checked_lines(item, zone))
    })
    .await?;
    if found == 0 {
        let message = "no daemon runs, no trunk is known, and the directory has no lead for this \
                       number: give the --trunk flags of `run`";
        return Err(Failure::new(Code::Usage, message));
    }
    Ok(())
}

fn checked_lines(item: &Value, zone: &Zone) -> String {
    let lead = match item["leadId"].as_i64() {
        Some(lead) => format!("lead {lead}"),
        None => text_field(item, "result").replace('_', " "),
    };
    let trunk = item["trunk"].as_str().unwrap_or("directory");
    let phone = safe(text_field(item, "phone"));
    let reason = text_field(item, "reason");
    let shown_reason = safe(&zone.localize_text(reason));
    let mut text = format!("{trunk}: {phone} {lead}: {shown_reason}");
    if let Some(profile) = profile_text(item) {
        text.push_str(&format!("\n    {profile}"));
    }
    for known in item["known"].as_array().into_iter().flatten() {
        let message = text_field(known, "message");
        // If there's only one lead, the reason already contains this message.
        if !reason.contains(message) {
            text.push_str(&format!("\n    {}", safe(&zone.localize_text(message))));
        }
    }
    text
}

/// Runs `lead set LEAD ID=VALUE…` and waits for the result. Only a daemon can send the values.
///
/// # Errors
/// Fails with 65 if the CRM rejects a value, with 69 without a daemon, and with 77 if the token is
/// rejected or a grant is missing.
pub(crate) async fn set(lead: LeadId, ask: ControlRequest, at: &Asking) -> Result<()> {
    let no_daemon = format!(
        "no daemon runs on {0}, and only a daemon can send values: start `callbridge run --state \
         {0}`, or give the daemon's state with --state",
        at.state
    );
    ask_daemon(at, ask, no_daemon, |item, _| {
        if at.json {
            json_line(item)
        } else {
            print_set_result(lead, item)
        }
    })
    .await
}

fn print_set_result(lead: LeadId, item: &Value) -> Result<()> {
    let result = text_field(item, "result");
    let request = text_field(item, "requestId");
    if result == "accepted" {
        let notes = item["notes"].as_array().into_iter().flatten();
        for note in notes.filter_map(Value::as_str) {
            line(&format!("note: {}", safe(note)))?;
        }
    }
    line(&format!("lead {lead}: {result} (request {request})"))
}

/// The columns of `missed --csv`, in order.
const MISSED_COLUMNS: [&str; 6] = ["phone", "leadId", "trunk", "firstAt", "lastAt", "tries"];

/// Runs `missed`, which lists customers waiting for a callback.
///
/// # Errors
/// Fails with 69 if there's neither a daemon nor a state.
pub(crate) async fn missed(ask: ControlRequest, csv: bool, at: &Asking) -> Result<()> {
    if csv {
        print(csv_line(MISSED_COLUMNS)?)?;
        return list_items(at, ask, None, print_missed_row).await;
    }
    let mut first = true;
    let none = "no customer waits for a callback";
    list_items(at, ask, Some(none), |item, zone| {
        let missed: MissedCustomer = parse_item(item)?;
        if std::mem::take(&mut first) {
            let head = ["phone", "lead", "tries", "waits since", "last try", "trunk"];
            line(&columns(head))?;
        }
        line(&missed_line(&missed, zone))
    })
    .await
}

fn print_missed_row(item: &Value, zone: &Zone) -> Result<()> {
    let missed: MissedCustomer = parse_item(item)?;
    print(csv_line([
        missed.phone.as_str(),
        &lead_text(&missed),
        missed.trunk.as_str(),
        &zone.stamp(missed.first_at.get()),
        &zone.stamp(missed.last_at.get()),
        &missed.tries.to_string(),
    ])?)
}

fn missed_line(missed: &MissedCustomer, zone: &Zone) -> String {
    columns([
        &safe(missed.phone.as_str()),
        &lead_text(missed),
        &missed.tries.to_string(),
        &zone.second(missed.first_at.get()),
        &zone.second(missed.last_at.get()),
        &safe(&missed.trunk),
    ])
}

fn lead_text(missed: &MissedCustomer) -> String {
    missed.lead_id.map(|id| id.to_string()).unwrap_or_default()
}

fn columns([phone, lead, tries, since, last, trunk]: [&str; 6]) -> String {
    let text = format!("{phone:<16}  {lead:>10}  {tries:>5}  {since:<25}  {last:<25}  {trunk}");
    text.trim_end().to_owned()
}
