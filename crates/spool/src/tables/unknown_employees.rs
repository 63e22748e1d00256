//! Employees whom the CRM does not know. An employee is noted when a call with this employee
//! FAILED, and removed when such a call is in the journal. Also returns the extensions of the
//! newest calls.

use super::{calls, meta};
use crate::{Db, Error, RowId};
use callbridge_call::{EventTime, Extension};
use callbridge_leads::lead_request::Finding;
use callbridge_mapping::people::matching::UsedExtension;
use callbridge_model::{CallRecord, EmployeeId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub(crate) const KEY: &str = "employees.unknown";
/// Maximum number of employees that are kept. This many show that the list of employees is wrong.
const KEPT: usize = 100;
/// Number of newest calls whose extensions are returned.
const CALLS: u32 = 500;

/// A stored entry of an employee whom the CRM does not know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnknownEmployee {
    /// The extension of the first call that FAILED because of the employee.
    pub extension: Option<String>,
    /// Number of calls that FAILED because of the employee.
    pub calls: u64,
    /// Epoch seconds at which it was first found that the CRM does not know the employee.
    pub since: i64,
}

/// Unknown employees by their ids in the CRM.
pub(crate) type UnknownEmployees = BTreeMap<i64, UnknownEmployee>;

/// Reads the employees whom the CRM does not know, by their ids in the CRM.
pub fn unknown_employees(db: &Db) -> Result<UnknownEmployees, Error> {
    let text = meta::meta(db, KEY)?;
    // An unreadable value is logged and reset when a process starts.
    let read = text.and_then(|text| serde_json::from_str(&text).ok());
    Ok(read.unwrap_or_default())
}

/// Notes the employee of a FAILED call as unknown to the CRM, if `found` shows that the call's lead
/// exists.
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

/// Removes the employee of a journaled call from the unknown employees, because the CRM knows the
/// employee.
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

/// Returns the extensions of the newest 500 calls. Calls without an extension or a trunk are left
/// out.
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
