//! Employees that the CRM doesn't know. One is added when a call with that employee FAILED, and
//! removed once such a call is in the journal. Also lists the extensions used in the newest calls.

use super::{calls, meta};
use crate::{Db, Error, RowId};
use callbridge_call::{EventTime, Extension};
use callbridge_leads::lead_request::Finding;
use callbridge_mapping::people::matching::UsedExtension;
use callbridge_model::{CallRecord, EmployeeId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub(crate) const KEY: &str = "employees.unknown";
/// Maximum number of employees to keep, which is enough to show that the employee list is wrong.
const KEPT: usize = 100;
/// Number of newest calls whose extensions are returned.
const CALLS: u32 = 500;

/// The stored entry for an employee that the CRM doesn't know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnknownEmployee {
    /// The extension in the first call that FAILED because of the employee.
    pub extension: Option<String>,
    /// Number of calls that FAILED because of the employee.
    pub calls: u64,
    /// When the CRM was first found not to know the employee, in epoch seconds.
    pub since: i64,
}

/// Unknown employees by their ID in the CRM.
pub(crate) type UnknownEmployees = BTreeMap<i64, UnknownEmployee>;

/// Reads the employees that the CRM doesn't know, by their ID in the CRM.
pub fn unknown_employees(db: &Db) -> Result<UnknownEmployees, Error> {
    let text = meta::meta(db, KEY)?;
    // If the value can't be read, it's logged and reset when a process starts.
    let read = text.and_then(|text| serde_json::from_str(&text).ok());
    Ok(read.unwrap_or_default())
}

/// Records that the CRM doesn't know the employee of a FAILED call, provided that `found` shows
/// that the call's lead exists.
pub(crate) fn note_unknown_employee(
    db: &Db,
    call: &CallRecord,
    found: Finding,
    at: EventTime,
) -> Result<(), Error> {
    if found != Finding::LeadExists {
        return Ok(());
    }
    let Some(employee) = call.employee_id else {
        return Ok(());
    };
    let mut all = unknown_employees(db)?;
    if all.len() >= KEPT && !all.contains_key(&employee.get()) {
        return Ok(());
    }
    let unknown = all
        .entry(employee.get())
        .or_insert_with(|| UnknownEmployee {
            extension: call.employee.clone(),
            calls: 0,
            since: at.floor_seconds().get(),
        });
    unknown.calls += 1;
    meta::remember(db, KEY, &all)
}

/// Removes a journaled call's employee from the unknown ones, since the call shows that the CRM
/// knows the employee.
pub(crate) fn employee_is_known(db: &Db, row: RowId) -> Result<(), Error> {
    if meta::meta(db, KEY)?.is_none() {
        return Ok(());
    }
    let mut all = unknown_employees(db)?;
    let known = calls::record(db, row)?.employee_id.map(EmployeeId::get);
    if known.is_none_or(|known| all.remove(&known).is_none()) {
        return Ok(());
    }
    if all.is_empty() {
        meta::drop_meta(db, KEY)
    } else {
        meta::remember(db, KEY, &all)
    }
}

/// Returns the extensions used in the newest 500 calls, skipping calls without an extension or
/// trunk.
pub fn extensions_met(db: &Db) -> Result<Vec<UsedExtension>, Error> {
    let text = "SELECT pbx, trunk, extension, started
         FROM calls ORDER BY id DESC LIMIT ?1";
    db.query_known(
        text,
        [CALLS],
        |(pbx, trunk, extension, started): (_, Option<_>, Option<Extension>, _)| {
            Some(UsedExtension {
                pbx,
                trunk: trunk?,
                extension: extension?,
                started,
            })
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_unknown_employees_stay_readable() {
        let stored = r#"{"999":{"extension":"101","calls":2,"since":1795151317}}"#;
        let all: UnknownEmployees = serde_json::from_str(stored).expect("readable");
        assert_eq!(serde_json::to_string(&all).expect("JSON"), stored);
    }
}
