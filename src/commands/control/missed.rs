//! `missed`: customers who called, got nobody, and were not talked to since.

use super::conversation::{converse, csv_line, json_line, line};
use crate::config::command::Asking;
use crate::failure::Failure;
use crate::stdout::print;
use callbridge_call::EpochSeconds;
use callbridge_control::protocol::ControlRequest;
use callbridge_leads::directory::words::moment;
use callbridge_mapping::journal::Rules;
use callbridge_model::Zone;
use callbridge_model::safe::safe;
use serde_json::Value;

/// The columns of `--csv`.
const COLUMNS: [&str; 6] = ["phone", "leadId", "trunk", "firstAt", "lastAt", "tries"];

/// `missed`
///
/// # Errors
/// 69 without daemon and state.
pub(crate) async fn run(within_sec: Option<u64>, csv: bool, at: &Asking) -> Result<(), Failure> {
    if csv {
        print(&csv_line(COLUMNS)?)?;
    }
    let mut first = true;
    let show = |item: &Value, zone: &Zone| {
        if at.json {
            return json_line(item);
        }
        let told = |name: &str| match item.get(name) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        if csv {
            let cell = |name: &str| match name {
                "firstAt" | "lastAt" => {
                    seconds(item, name).map_or_else(String::new, |at| moment(EpochSeconds::new(at)))
                }
                name => told(name),
            };
            return print(&csv_line(COLUMNS.map(cell))?);
        }
        if std::mem::take(&mut first) {
            line(&columns([
                "phone",
                "lead",
                "tries",
                "waits since",
                "last try",
                "trunk",
            ]))?;
        }
        let time = |name| seconds(item, name).map_or_else(String::new, |at| zone.second(at));
        let (phone, trunk) = (safe(&told("phone")), safe(&told("trunk")));
        let row = [
            phone,
            told("leadId"),
            told("tries"),
            time("firstAt"),
            time("lastAt"),
            trunk,
        ];
        line(&columns(row.each_ref().map(String::as_str)))
    };
    let ask = ControlRequest::Missed { within_sec };
    let found = converse(at, ask, Rules::default(), show).await?;
    if found == 0 && !csv && !at.json {
        line("nobody waits for a call back")?;
    }
    Ok(())
}

fn seconds(item: &Value, name: &str) -> Option<i64> {
    item[name].as_i64()
}

fn columns([phone, lead, tries, since, last, trunk]: [&str; 6]) -> String {
    let text = format!("{phone:<16}  {lead:>10}  {tries:>5}  {since:<25}  {last:<25}  {trunk}");
    text.trim_end().to_owned()
}
