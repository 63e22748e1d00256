//! `branch …`, which manages the branches whose calls a hub accepts.

use super::conversation::{line, list_items, print_items};
use crate::Result;
use crate::config::Asking;
use callbridge_admin::ControlRequest;
use callbridge_model::status::seconds_in_words;
use callbridge_model::{Zone, clock, safe};
use serde_json::Value;

/// Runs `branch list`.
///
/// # Errors
/// Fails with 69 if there's neither a daemon nor a state.
pub(crate) async fn list(at: &Asking) -> Result<()> {
    let none = "there is no branch: add one with `callbridge branch add NAME --pbx PBX`";
    print_items(at, ControlRequest::Branches, Some(none), branch_line).await
}

/// Returns a line about those of a branch's lines that the hub rejected, or an empty one if there
/// are none.
fn refused_line(item: &Value, zone: &Zone) -> String {
    let Some(at) = item["refusedAt"].as_i64() else {
        return String::new();
    };
    let (lines, at) = (&item["refused"], zone.second(at));
    let error = safe(item["refusal"].as_str().unwrap_or_default());
    format!("\n    refused lines: {lines}, last {at}: {error}")
}

/// Formats a branch as two lines, the first with its name and state, and the second with its
/// numbers.
fn branch_line(item: &Value, zone: &Zone) -> String {
    let name = name_of(item);
    let state = safe(item["state"].as_str().unwrap_or_default());
    let pbxs: Vec<&str> = item["pbxs"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let pbxs = safe(&pbxs.join(", "));
    let more = refused_line(item, zone) + &sender_lines(item, zone);
    let Some(reported) = item["reportedAt"].as_i64() else {
        return format!("{name:<16}  {state:<8}  PBX {pbxs}; no report yet{more}");
    };
    let report = &item["report"];
    let version = safe(report["version"].as_str().unwrap_or("?"));
    let backlog = &report["backlog"];
    let mut figures = format!("version {version}, backlog {backlog}");
    if let Some(oldest) = report["oldestCallAt"].as_i64() {
        let now = clock::now().wall.floor_seconds().get();
        let age = u64::try_from(now.saturating_sub(oldest)).unwrap_or(0);
        figures.push_str(&format!(" (oldest {})", seconds_in_words(age)));
    }
    let waiting = &report["waiting"];
    let dead = &report["dead"];
    figures.push_str(&format!(", {waiting} waiting, {dead} dead letters"));
    for problem in report["problems"].as_array().into_iter().flatten() {
        let problem = safe(problem.as_str().unwrap_or_default());
        figures.push_str(&format!("\n    problem: {problem}"));
    }
    let reported = zone.second(reported);
    format!("{name:<16}  {state:<8}  PBX {pbxs}; last report {reported}\n    {figures}{more}")
}

fn is_unchanged_collector(sender: &Value) -> bool {
    sender["id"].is_string() && sender["wentBackAt"].is_null()
}

/// Formats a branch's senders, one per line, unless its only sender is a single collector.
fn sender_lines(item: &Value, zone: &Zone) -> String {
    let senders = item["senders"].as_array().map_or(&[][..], Vec::as_slice);
    if senders.len() < 2 && senders.iter().all(is_unchanged_collector) {
        return String::new();
    }
    let mut lines = String::new();
    for sender in senders {
        let who = match sender["id"].as_str() {
            Some(id) => format!("collector {}", safe(id)),
            None => "requests without a collector's ID".to_owned(),
        };
        let requests = &sender["requests"];
        let last = zone.second(sender["lastRequestAt"].as_i64().unwrap_or_default());
        lines.push_str(&format!(
            "\n    sender: {who}, {requests} requests, last {last}"
        ));
        if let Some(at) = sender["wentBackAt"].as_i64() {
            lines.push_str(&format!("; returned to an older state {}", zone.second(at)));
        }
    }
    lines
}

/// Runs `branch add` and `branch rotate`, which only print the token, so that the output can be
/// written to a file.
///
/// # Errors
/// Fails with 65 if another branch has the PBX or there's no such branch, and with 69 if there's
/// neither a daemon nor a state.
pub(crate) async fn token(request: ControlRequest, at: &Asking) -> Result<()> {
    list_items(at, request, None, token_line).await
}

fn token_line(item: &Value, _: &Zone) -> Result<()> {
    match item["token"].as_str() {
        Some(token) => line(token),
        None => line(&format!("branch {} keeps its token", name_of(item))),
    }
}

/// Runs `branch remove`.
///
/// # Errors
/// Fails with 65 if there's no such branch, and with 69 if there's neither a daemon nor a state.
pub(crate) async fn remove(request: ControlRequest, at: &Asking) -> Result<()> {
    list_items(at, request, None, removed_line).await
}

fn removed_line(item: &Value, _: &Zone) -> Result<()> {
    line(&format!("branch {} is removed", name_of(item)))
}

/// Runs `sending resume`.
///
/// # Errors
/// 69 if there is neither a daemon nor a state.
pub(crate) async fn resume_sending(at: &Asking) -> Result<()> {
    list_items(at, ControlRequest::Resume, None, resumed_line).await
}

fn resumed_line(item: &Value, _: &Zone) -> Result<()> {
    match item["resumed"].as_bool() {
        Some(true) => line("sending resumes after one rate-limit window plus 45 s"),
        _ => line("no second database has been reported, so sending isn't paused for it"),
    }
}

fn name_of(item: &Value) -> String {
    safe(item["branch"].as_str().unwrap_or_default())
}
