//! `dead …`, which lists, shows, retries, discards, exports, and watches dead letters.

use super::conversation::{
    converse, csv_line, follow, line, list_items, print_items, show as print_item,
};
use crate::config::Asking;
use crate::terminal::width;
use crate::{Failure, Result, print, wait_for_closed_stdout};
use callbridge_admin::{ControlRequest, dead_letters::text};
use callbridge_model::{Code, safe};
use serde_json::Value;

/// Runs `dead show`, and `dead export` as JSON lines.
pub(super) async fn show(ask: ControlRequest, at: &Asking) -> Result<()> {
    let width = width().unwrap_or(usize::MAX);
    print_items(at, ask, None, |item, zone| text::show(item, width, zone)).await
}

/// Runs `dead watch`, which shows new dead letters until `shutdown` resolves. Since this command
/// doesn't hold a lock on the state, a daemon can be started in the meantime. There are only new
/// dead letters while a daemon is running.
pub(super) async fn watch(at: &Asking, shutdown: impl Future<Output = ()>) -> Result<()> {
    let width = width().unwrap_or(usize::MAX);
    let begun = "watching for dead letters; press Ctrl-C to stop";
    let watched = follow(
        at,
        begun,
        |_| ControlRequest::Watch,
        async || Ok(()),
        |item, zone| line(&text::list_line(item, width, zone)),
    );
    tokio::select! {
        ended = watched => ended,
        () = shutdown => Ok(()),
        () = wait_for_closed_stdout() => Ok(()),
    }
}

/// Runs `dead list`, which prints a header followed by one line per dead letter.
pub(super) async fn list(ask: ControlRequest, at: &Asking) -> Result<()> {
    let width = width().unwrap_or(usize::MAX);
    let mut first = true;
    list_items(at, ask, Some("no dead letters"), |item, zone| {
        if std::mem::take(&mut first) {
            line(&text::list_head(item, width, zone))?;
        }
        line(&text::list_line(item, width, zone))
    })
    .await
}

/// Runs `dead retry` and `dead discard`, which print the result for each dead letter. Fails with 65
/// if any of them was refused.
pub(super) async fn change(ask: ControlRequest, at: &Asking) -> Result<()> {
    let mut refused = 0;
    let all = converse(at, ask, |item, _| {
        let result = item["result"].as_str().unwrap_or_default();
        refused += u64::from(result == "refused");
        print_item(at, item, || outcome_line(item, result))
    })
    .await?;
    if refused > 0 {
        let message =
            format!("{refused} of {all} dead letters were refused, for the reasons above");
        return Err(Failure::new(Code::Input, message));
    }
    if all == 0 && !at.json {
        line("no dead letters")?;
    }
    Ok(())
}

/// Returns the line for one dead letter's outcome.
fn outcome_line(item: &Value, result: &str) -> String {
    let id = json_text(item, "id");
    let mut line = format!("{id:>6}  {}", result.replace('_', " "));
    if let Some(lead) = item["leadId"].as_i64() {
        line += &format!(", lead {lead}");
    }
    match item["answered"].as_bool() {
        Some(true) => {
            let talk_time = json_text(item, "talkTimeSec");
            line += &format!(", {talk_time} s of talk, by hand");
        }
        Some(false) => line += ", not answered, by hand",
        None => {}
    }
    if let Some(direction) = item["direction"].as_str() {
        line += &format!(", direction {direction}");
    }
    let message = item["message"]
        .as_str()
        .filter(|message| !message.is_empty());
    line + &message.map_or_else(String::new, |message| format!(": {}", safe(message)))
}

/// Returns the field's value as JSON, or an empty text if the item doesn't have that field.
fn json_text(item: &Value, field: &str) -> String {
    item.get(field).map(Value::to_string).unwrap_or_default()
}

/// Runs `dead export` as CSV. No cell is a formula for a spreadsheet.
pub(super) async fn export(ask: ControlRequest, at: &Asking) -> Result<()> {
    print(csv_line(text::CSV_COLUMNS.split(','))?)?;
    list_items(at, ask, None, |item, _| {
        print(csv_line(text::csv_row(item))?)
    })
    .await
}
