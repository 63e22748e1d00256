//! A letter is sent again: mapped anew by the rules in force, under its own uuid.

use callbridge_call::EventTime;
use callbridge_mapping::{EmployeeWish, People, Rules, Wish, journal};
use callbridge_model::{CallRecord, LeadId, Outcome, Reason};
use callbridge_spool::{Error, Row, State, Step};

/// Returns the step that sends the letter again. With another lead than before, where the call may
/// have been written all the same, the journal is searched first.
///
/// # Errors
/// In words, with what to do.
pub fn plan(
    row: &Row,
    asked: Wish,
    rules: &Rules,
    people: &People,
    now: EventTime,
) -> Result<Step, String> {
    match row.state {
        State::Dead | State::Parked => {}
        other => return Err(format!("it is {}, neither dead nor parked", other.word())),
    }
    if row.reason == Some(Reason::UuidConflict) {
        let (row, uuid) = (row.id, row.uuid);
        return Err(Error::UuidTaken { row, uuid }.to_string());
    }
    let mut record = record(row, asked, rules, people, now)?;
    if let Some(said) = asked.said {
        if row.reason != Some(Reason::Incomplete) {
            let reason = row.reason.map_or("no letter", Reason::word);
            return Err(format!(
                "--answered and --talk are for letters `incomplete`, whose facts were missed: this \
                 one is {reason}"
            ));
        }
        record = record.said_by_hand(said, now.floor_seconds())?;
    }
    let old = row.record.lead_id;
    if may_be_written(row.reason) && old.is_some() && old != record.lead_id {
        let before = format!("lead {}", old.map_or(0, LeadId::get));
        return Ok(Step::Recheck { record, before });
    }
    let by_itself = false;
    Ok(Step::Retry { record, by_itself })
}

/// Returns the record to send, mapped anew where trunks are known.
fn record(
    row: &Row,
    asked: Wish,
    rules: &Rules,
    people: &People,
    now: EventTime,
) -> Result<CallRecord, String> {
    if rules.trunks.is_empty() {
        return as_kept(row, asked);
    }
    let judged = journal::remap(&row.record, &row.call, Some(asked), rules, people, now);
    match judged.outcome {
        Outcome::Journal => Ok(judged.record),
        Outcome::DeadLetter | Outcome::Internal | Outcome::Skipped => Err(judged.message),
    }
}

/// Without the daemon's flags nothing can be mapped anew: the kept values are sent.
fn as_kept(row: &Row, asked: Wish) -> Result<CallRecord, String> {
    let mut record = row.record.clone();
    if asked.lead.is_some() {
        (record.lead_id, record.lead_from) = (asked.lead, Some(journal::BY_HAND.to_owned()));
    }
    match asked.employee {
        None => {}
        Some(EmployeeWish::None) => record.employee_id = None,
        Some(EmployeeWish::Is(id)) => record.employee_id = Some(id),
    }
    match record.lead_id {
        Some(_) => Ok(record),
        None => Err("it has no lead: give one with --lead".to_owned()),
    }
}

/// Returns `true` for reasons with which the CRM may have written the call all the same.
const fn may_be_written(reason: Option<Reason>) -> bool {
    matches!(reason, Some(Reason::ServerError | Reason::Unconfirmed))
}
