//! The state of the lists of leads and employees, and employees that match no calls.

use super::verdict::{count_with_noun, if_any};
use super::{FindingKind, Problem, Status};
use serde::{Deserialize, Serialize};

/// A file of leads or employees.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListFile {
    /// Path from its flag.
    pub file: String,
    /// `leads` or `employees`.
    pub kind: String,
    /// Number of valid rows in use.
    pub rows: u64,
    /// Number of invalid rows.
    pub bad: u64,
    /// The first of the invalid rows, with line and reason.
    pub faults: Vec<String>,
    /// Why the current file is not used. The rows that were read before stay in use.
    pub reason: Option<String>,
    /// Epoch seconds at which the rows in use were read. `null` before the first time.
    pub read_at: Option<i64>,
}

impl ListFile {
    /// Returns the problem of the list: the code of its row in the table of texts, the message, and
    /// its values.
    fn fault(&self) -> Option<(&'static str, String, Vec<String>)> {
        let Self {
            file, rows, bad, ..
        } = self;
        if let Some(reason) = &self.reason {
            let rows = count_with_noun(*rows, "row", "rows");
            let stays = match self.read_at {
                Some(_) => format!("the rows read before stay in use ({rows})"),
                None => "no row of it is in use".to_owned(),
            };
            let values = vec![file.clone(), reason.clone()];
            let reason = reason.strip_prefix(&format!("{file}: ")).unwrap_or(reason);
            let message = format!("the list {file} cannot be used: {reason}; {stays}");
            return Some(("list_unused", message, values));
        }
        if *bad > 0 {
            let rows = count_with_noun(*bad, "row", "rows");
            let unnamed = bad.saturating_sub(self.faults.len() as u64);
            let more = if_any(unnamed, |unnamed| format!("; and {unnamed} more"));
            let each = self.faults.join("; ");
            let message = format!("{rows} of the list {file} cannot be used: {each}{more}");
            return Some((
                "list_rows",
                message,
                vec![file.clone(), bad.to_string(), each],
            ));
        }
        if *rows == 0 {
            let message = format!("the list {file} has no row");
            return Some(("list_empty", message, vec![file.clone()]));
        }
        None
    }
}

/// Comparison of the employee lists with the newest calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Employees {
    /// Number of compared calls: the newest with an extension, on trunks with employees.
    pub calls: u64,
    /// Number of these calls whose extension is listed.
    pub matched: u64,
    /// Listed extensions that none of the calls had.
    pub unmatched: Vec<String>,
    /// Unmatched extensions that are probably mistyped, because extensions are rarely written like
    /// this.
    pub doubtful: Vec<Doubtful>,
    /// Extensions of the calls that are in no list.
    pub unlisted: Vec<Unlisted>,
    /// Employees whom the CRM does not know.
    pub unknown: Vec<UnknownEmployee>,
}

/// A listed extension with letters among its digits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doubtful {
    pub extension: String,
    /// The extension that was perhaps meant, in digits only.
    pub meant: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Unlisted {
    pub extension: String,
    pub calls: u64,
    /// Epoch seconds at which the newest of the calls began.
    pub last_at: i64,
}

/// An employee whom the CRM does not know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnknownEmployee {
    /// The id in the list.
    pub employee_id: i64,
    /// The extension of the first call that FAILED because of this employee.
    pub extension: Option<String>,
    /// Number of calls that FAILED because of this employee.
    pub calls: u64,
    /// Epoch seconds at which the first of the calls FAILED.
    pub since: i64,
}

/// Minimum number of calls without a listed extension that shows a problem of the lists.
const CALLS_MIN: u64 = 10;

impl Employees {
    fn unlisted(&self) -> String {
        const SHOWN: usize = 10;
        let mut shown = Vec::new();
        for Unlisted {
            extension, calls, ..
        } in self.unlisted.iter().take(SHOWN)
        {
            shown.push(format!("{extension} ({calls})"));
        }
        shown.join(", ")
    }

    /// Returns the line for `status`. `None` without calls to compare.
    pub(super) fn to_line(&self) -> Option<String> {
        let Self { calls, matched, .. } = self;
        if *calls == 0 {
            return None;
        }
        let unlisted = if self.unlisted.is_empty() {
            String::new()
        } else {
            format!(", not listed: {}", self.unlisted())
        };
        Some(format!(
            "staff    {matched} of {calls} calls have an extension in an employee list{unlisted}"
        ))
    }
}

pub(super) fn employees(status: &Status, found: &mut Vec<Problem>) {
    let Some(employees) = &status.employees else {
        return;
    };
    for unknown in &employees.unknown {
        let id = unknown.employee_id;
        let extension = match &unknown.extension {
            Some(extension) => format!(" (extension {extension})"),
            None => String::new(),
        };
        let calls = count_with_noun(unknown.calls, "call", "calls");
        let message = format!(
            "the CRM does not know employee {id}{extension}, {calls} FAILED: correct --employees"
        );
        let values = [id.to_string(), unknown.calls.to_string()];
        let problem = Problem::new(FindingKind::Employees, message, status.check());
        found.push(problem.with_code("employee_unknown", values));
    }
    for Doubtful { extension, meant } in &employees.doubtful {
        let message = format!(
            "--employees has extension {extension}, which no call had: did you mean {meant}?"
        );
        let values = [extension.clone(), meant.clone()];
        let problem = Problem::new(FindingKind::Employees, message, status.check());
        found.push(problem.with_code("employee_doubtful", values));
    }
    if employees.calls >= CALLS_MIN && employees.matched == 0 {
        let calls = employees.calls;
        let unlisted = employees.unlisted();
        let message =
            format!("--employees has none of the extensions of the last {calls} calls: {unlisted}");
        let values = [calls.to_string(), unlisted];
        let problem = Problem::new(FindingKind::Employees, message, status.check());
        found.push(problem.with_code("employees_unmatched", values));
    }
}

pub(super) fn lists(status: &Status, found: &mut Vec<Problem>) {
    let faults = status.lists.iter().filter_map(ListFile::fault);
    found.extend(faults.map(|(code, message, values)| {
        Problem::new(FindingKind::Lists, message, status.check()).with_code(code, values)
    }));
}
