//! `lead …`: numbers without a lead, and the lead of one number.
//!
//! `missed`: customers who called, reached no one, and have not talked to anyone since.

use super::conversation::{
    ask_daemon, converse, csv_line, json_line, line, list_items, print_items, show, typed,
};
use crate::config::Asking;
use crate::{Failure, Result, print};
use callbridge_admin::ControlRequest;
use callbridge_model::{Code, LeadId, Zone, safe};
use callbridge_spool::MissedCustomer;
use serde_json::Value;

/// Runs `lead missing`: numbers that called and have no lead.
///
/// # Errors
/// 69 without a daemon and a state.
pub(crate) async fn missing(csv: bool, at: &Asking) -> Result<()> {
    const COLUMNS: [&str; 4] = ["phone", "calls", "lastCallAt", "trunk"];
    if csv {
        print(csv_line(COLUMNS)?)?;
    }
    let show = |item: &Value, zone: &Zone| {
        let text = |name: &str| item[name].as_str().unwrap_or_default();
        let (phone, calls, trunk) = (text("phone"), item["calls"].to_string(), text("trunk"));
        let shown = if csv { Zone::stamp } else { Zone::second };
        let at = item["lastCallAt"].as_i64();
        let at = at.map_or_else(String::new, |at| shown(zone, at));
        if csv {
            return print(csv_line([phone, &calls, &at, trunk])?);
        }
        let what = if calls == "1" { "call, " } else { "calls," };
        let (phone, trunk) = (safe(phone), safe(trunk));
        line(&format!(
            "{phone:<16}  {calls:>4} {what} last {at}  {trunk}"
        ))
    };
    let none = (!csv).then_some("every number that called has a lead");
    list_items(at, ControlRequest::LeadMissing, none, show).await
}

/// Runs `lead list`: the numbers of the directory with their leads.
///
/// # Errors
/// 69 without a daemon and a state.
pub(crate) async fn list(at: &Asking) -> Result<()> {
    let text = |item: &Value, zone: &Zone| {
        let phone = item["phone"].as_str().unwrap_or_default();
        let leads = item["leads"].as_array().into_iter().flatten();
        let leads: Vec<String> = leads.map(ToString::to_string).collect();
        let learned = item["learnedAt"].as_i64();
        let learned = learned.map_or_else(String::new, |at| zone.second(at));
        let (phone, leads) = (safe(phone), leads.join(", "));
        let known = known_by(item).map_or_else(String::new, |words| format!("  {words}"));
        format!("{phone:<16}  lead {leads:<12}  since {learned}{known}")
    };
    let none = "the directory has no numbers yet: see --webhook-listen and --lead-directory";
    print_items(at, ControlRequest::LeadList, Some(none), text).await
}

/// Returns `Anna Karimova, In work, employee 15 (Olga)`. `None` if nothing is known about the lead.
fn known_by(item: &Value) -> Option<String> {
    let profile = &item["profile"];
    let text = |name: &str| profile[name].as_str().map(safe);
    let employee = profile["responsible"].as_i64().map(|id| {
        let name = text("responsibleName").map(|name| format!(" ({name})"));
        format!("employee {id}{}", name.unwrap_or_default())
    });
    let parts = [text("name"), text("stage"), employee];
    let words: Vec<String> = parts.into_iter().flatten().collect();
    (!words.is_empty()).then(|| words.join(", "))
}

/// Runs `lead give`, `lead take`, and `lead given`.
///
/// # Errors
/// 65 if the number is incomplete or has no assigned lead, 69 without a daemon and a state.
pub(crate) async fn given(ask: ControlRequest, at: &Asking) -> Result<()> {
    let taken = matches!(ask, ControlRequest::LeadTake { .. });
    let text = |item: &Value, zone: &Zone| {
        let text = |name: &str| item[name].as_str().unwrap_or_default();
        let number = |name: &str| item[name].as_i64().unwrap_or_default();
        let (phone, lead) = (safe(text("phone")), number("leadId"));
        if let Some(left) = item["left"].as_u64() {
            let calls = match left {
                0 => "no call was waiting for it".to_owned(),
                1 => "1 waiting call is sent".to_owned(),
                more => format!("{more} waiting calls are sent"),
            };
            return format!("{phone} has lead {lead}: {calls}");
        }
        if taken {
            return format!("{phone} no longer has lead {lead}");
        }
        let (since, who) = (zone.second(number("at")), safe(text("who")));
        format!("{phone:<16}  lead {lead:<12}  given {since} by {who}")
    };
    let none = "no number has an assigned lead: assign one with `callbridge lead give PHONE LEAD`";
    let none = matches!(ask, ControlRequest::LeadGiven).then_some(none);
    print_items(at, ask, none, text).await
}

/// Runs `lead check PHONE` with the daemon's lists, or with those that the flags name.
///
/// # Errors
/// 69 without a daemon, a state, and trunks.
pub(crate) async fn check(ask: ControlRequest, at: &Asking) -> Result<()> {
    let text = |item: &Value, zone: &Zone| {
        let text = |name: &str| item[name].as_str().unwrap_or_default();
        let lead = match item["leadId"].as_i64() {
            Some(lead) => format!("lead {lead}"),
            None => text("result").replace('_', " "),
        };
        let trunk = item["trunk"].as_str().unwrap_or("directory");
        let (phone, why) = (safe(text("phone")), safe(&zone.in_words(text("reason"))));
        let mut words = format!("{trunk}: {phone} {lead}: {why}");
        if let Some(known) = known_by(item) {
            words.push_str(&format!("\n    {known}"));
        }
        for known in item["known"].as_array().into_iter().flatten() {
            let known = known["message"].as_str().unwrap_or_default();
            // If there is only one lead, the reason already contains this.
            if !text("reason").contains(known) {
                words.push_str(&format!("\n    {}", safe(&zone.in_words(known))));
            }
        }
        words
    };
    let each = |item: &Value, zone: &Zone| show(at, item, || text(item, zone));
    let found = converse(at, ask, each).await?;
    if found == 0 {
        let words = "no daemon runs, no trunk is known, and the directory has no lead for this \
                     number: give the --trunk flags of `run`";
        return Err(Failure::new(Code::Usage, words));
    }
    Ok(())
}

/// Runs `lead set LEAD ID=VALUE…`. Only a daemon can do it. Waits for the result.
///
/// # Errors
/// 65 if the CRM refuses a value, 69 without a daemon, 77 for a token or grant.
pub(crate) async fn set(lead: LeadId, ask: ControlRequest, at: &Asking) -> Result<()> {
    let each = |item: &Value, _: &Zone| {
        if at.json {
            return json_line(item);
        }
        let text = |name: &str| item[name].as_str().unwrap_or_default();
        let (result, request) = (text("result"), text("requestId"));
        let notes = item["notes"].as_array().filter(|_| result == "accepted");
        for note in notes.into_iter().flatten().filter_map(Value::as_str) {
            line(&format!("note: {}", safe(note)))?;
        }
        line(&format!("lead {lead}: {result} (request {request})"))
    };
    let nobody = || {
        format!(
            "no daemon runs on {0}, and only a daemon can send values: start `callbridge run \
             --state {0}`, or give the daemon's state with --state",
            at.state
        )
    };
    ask_daemon(at, ask, nobody, each).await
}

/// The columns of `missed --csv`, in their order.
const COLUMNS: [&str; 6] = ["phone", "leadId", "trunk", "firstAt", "lastAt", "tries"];

/// Runs `missed`: lists customers who wait for a callback.
///
/// # Errors
/// 69 without a daemon and a state.
pub(crate) async fn missed(ask: ControlRequest, csv: bool, at: &Asking) -> Result<()> {
    if csv {
        print(csv_line(COLUMNS)?)?;
    }
    let mut first = true;
    let show = |item: &Value, zone: &Zone| {
        let missed: MissedCustomer = typed(item)?;
        let lead = missed.lead_id.map(|id| id.to_string()).unwrap_or_default();
        let tries = missed.tries.to_string();
        if csv {
            let [first, last] = [missed.first_at, missed.last_at].map(|at| zone.stamp(at.get()));
            let (phone, trunk) = (missed.phone.as_str(), missed.trunk.as_str());
            return print(csv_line([phone, &lead, trunk, &first, &last, &tries])?);
        }
        if std::mem::take(&mut first) {
            let head = ["phone", "lead", "tries", "waits since", "last try", "trunk"];
            line(&columns(head))?;
        }
        let [since, last] = [missed.first_at, missed.last_at].map(|at| zone.second(at.get()));
        let (phone, trunk) = (safe(missed.phone.as_str()), safe(&missed.trunk));
        line(&columns([&phone, &lead, &tries, &since, &last, &trunk]))
    };
    let none = (!csv).then_some("no customer waits for a callback");
    list_items(at, ask, none, show).await
}

fn columns([phone, lead, tries, since, last, trunk]: [&str; 6]) -> String {
    let text = format!("{phone:<16}  {lead:>10}  {tries:>5}  {since:<25}  {last:<25}  {trunk}");
    text.trim_end().to_owned()
}
