//! How the lists of leads and employees stand, and which employees match nobody.

use super::verdict::todo;
use super::{FindingKind, Status, Todo};
use serde::{Deserialize, Serialize};

/// A file of leads or employees.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListFile {
    /// Its path.
    pub file: String,
    /// `leads` or `employees`.
    pub kind: String,
    /// Good rows in force.
    pub rows: u64,
    /// Rows that cannot be used.
    pub bad: u64,
    /// The first of them: line and reason.
    pub faults: Vec<String>,
    /// Why the file as it is now is not used; what was read before stays in force.
    pub why: Option<String>,
    /// When the rows in force were read, in epoch seconds; `null` before the first time.
    pub read_at: Option<i64>,
}

impl ListFile {
    /// What is wrong with it: the code of its row in the table of texts, words, and values.
    fn fault(&self) -> Option<(&'static str, String, Vec<String>)> {
        let Self {
            file, rows, bad, ..
        } = self;
        if let Some(why) = &self.why {
            let stays = match self.read_at {
                Some(_) => {
                    let rows = super::verdict::counted(*rows, "row", "rows");
                    format!("what was read before stays in force ({rows})")
                }
                None => "nothing of it is in force".to_owned(),
            };
            let values = vec![file.clone(), why.clone()];
            let why = why.strip_prefix(&format!("{file}: ")).unwrap_or(why);
            let what = format!("the list {file} cannot be used: {why}; {stays}");
            return Some(("list_unused", what, values));
        }
        if *bad > 0 {
            let rows = super::verdict::counted(*bad, "row", "rows");
            let more = match bad.saturating_sub(count(self.faults.len())) {
                0 => String::new(),
                more => format!("; and {more} more"),
            };
            let each = self.faults.join("; ");
            let what = format!("{rows} of the list {file} cannot be used: {each}{more}");
            return Some(("list_rows", what, vec![file.clone(), bad.to_string(), each]));
        }
        let empty = || format!("the list {file} has no row");
        (*rows == 0).then(|| ("list_empty", empty(), vec![file.clone()]))
    }
}

/// How the lists of employees meet the newest calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Employees {
    /// Calls looked at: the newest with an extension, over trunks with employees.
    pub calls: u64,
    /// Those of them whose extension is listed.
    pub matched: u64,
    /// Listed extensions that none of the calls had.
    pub unmatched: Vec<String>,
    /// Those of them that no extension is likely to be.
    pub doubtful: Vec<Doubtful>,
    /// Extensions of the calls that no list has.
    pub unlisted: Vec<Unlisted>,
    /// Employees whom the CRM does not know.
    pub unknown: Vec<UnknownEmployee>,
}

/// A listed extension with letters among its digits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doubtful {
    /// As it is listed.
    pub extension: String,
    /// What may have been meant.
    pub meant: String,
}

/// An extension that no list has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Unlisted {
    /// The extension.
    pub extension: String,
    /// Its calls.
    pub calls: u64,
    /// When the newest of them began, in epoch seconds.
    pub last_at: i64,
}

/// An employee whom the CRM does not know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnknownEmployee {
    /// The id that the list gives.
    pub employee_id: i64,
    /// The extension of the first such call.
    pub extension: Option<String>,
    /// Calls that FAILED for it.
    pub calls: u64,
    /// When the first of them was found so, in epoch seconds.
    pub since: i64,
}

/// So many calls without a listed extension are no chance.
const CALLS_MIN: u64 = 10;

impl Employees {
    fn unlisted(&self) -> String {
        const SHOWN: usize = 10;
        let each = self.unlisted.iter().take(SHOWN);
        let each = each.map(|it| format!("{} ({})", it.extension, it.calls));
        each.collect::<Vec<_>>().join(", ")
    }

    /// A line of `status`; `None` where there is nothing to say.
    pub(super) fn to_line(&self) -> Option<String> {
        let Self { calls, matched, .. } = self;
        if *calls == 0 {
            return None;
        }
        let unlisted = match self.unlisted.is_empty() {
            true => String::new(),
            false => format!(", not listed: {}", self.unlisted()),
        };
        let line = format!("staff    {matched} of {calls} calls have a listed extension{unlisted}");
        Some(line)
    }
}

pub(super) fn employees(status: &Status, found: &mut Vec<Todo>) {
    let Some(employees) = &status.employees else {
        return;
    };
    let unknown = employees.unknown.iter().map(|it| {
        let extension = it.extension.as_ref();
        let extension = extension.map_or_else(String::new, |it| format!(" (extension {it})"));
        let calls = super::verdict::counted(it.calls, "call", "calls");
        let id = it.employee_id;
        let values = vec![id.to_string(), it.calls.to_string()];
        let what = format!(
            "the CRM does not know employee {id}{extension}, {calls} FAILED: correct --employees"
        );
        ("employee_unknown", what, values)
    });
    let doubtful = employees.doubtful.iter().map(|it| {
        let Doubtful { extension, meant } = it;
        let what = format!(
            "--employees has extension {extension}, which no call had: did you mean {meant}?"
        );
        (
            "employee_doubtful",
            what,
            vec![extension.clone(), meant.clone()],
        )
    });
    let nobody = employees.calls >= CALLS_MIN && employees.matched == 0;
    let nobody = nobody.then(|| {
        let (calls, unlisted) = (employees.calls, employees.unlisted());
        let what =
            format!("--employees has none of the extensions of the last {calls} calls: {unlisted}");
        (
            "employees_unmatched",
            what,
            vec![calls.to_string(), unlisted],
        )
    });
    let all = unknown.chain(doubtful).chain(nobody);
    found.extend(all.map(|(code, what, values)| {
        todo(FindingKind::Employees, what, status.check()).with_code(code, values)
    }));
}

fn count(of: usize) -> u64 {
    u64::try_from(of).unwrap_or(u64::MAX)
}

pub(super) fn lists(status: &Status, found: &mut Vec<Todo>) {
    let faults = status.lists.iter().filter_map(ListFile::fault);
    found.extend(faults.map(|(code, what, values)| {
        todo(FindingKind::Lists, what, status.check()).with_code(code, values)
    }));
}
