//! `missed`: customers who called, got nobody, and were not talked to since.

use super::conversation::{csv_line, json_line, line, list_items, typed};
use crate::config::Asking;
use crate::{Failure, print};
use callbridge_admin::ControlRequest;
use callbridge_admin::protocol::MissedView;
use callbridge_model::Zone;
use callbridge_model::safe::safe;
use serde_json::Value;

/// The columns of `--csv`.
const COLUMNS: [&str; 6] = ["phone", "leadId", "trunk", "firstAt", "lastAt", "tries"];

/// `missed`
///
/// # Errors
/// 69 without daemon and state.
pub(crate) async fn run(ask: ControlRequest, csv: bool, at: &Asking) -> Result<(), Failure> {
    if csv {
        print(&csv_line(COLUMNS)?)?;
    }
    let mut first = true;
    let show = |item: &Value, zone: &Zone| {
        if at.json {
            return json_line(item);
        }
        let missed: MissedView = typed(item)?;
        let lead = missed.lead_id.map(|id| id.to_string()).unwrap_or_default();
        let tries = missed.tries.to_string();
        if csv {
            let [first, last] = [missed.first_at, missed.last_at].map(|at| zone.stamp(at));
            let (phone, trunk) = (missed.phone, missed.trunk);
            let row = [phone, lead, trunk, first, last, tries];
            return print(&csv_line(row)?);
        }
        if std::mem::take(&mut first) {
            let head = ["phone", "lead", "tries", "waits since", "last try", "trunk"];
            line(&columns(head))?;
        }
        let [since, last] = [missed.first_at, missed.last_at].map(|at| zone.second(at));
        let (phone, trunk) = (safe(&missed.phone), safe(&missed.trunk));
        line(&columns([&phone, &lead, &tries, &since, &last, &trunk]))
    };
    let none = if csv {
        ""
    } else {
        "nobody waits for a call back"
    };
    list_items(at, ask, none, show).await
}

fn columns([phone, lead, tries, since, last, trunk]: [&str; 6]) -> String {
    let text = format!("{phone:<16}  {lead:>10}  {tries:>5}  {since:<25}  {last:<25}  {trunk}");
    text.trim_end().to_owned()
}
