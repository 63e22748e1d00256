//! The calls of each trunk. Reports trunks without calls, and lists of employees that match no
//! calls.

use super::verdict::{count_with_noun, first_five};
use super::{FindingKind, Problem, Status};
use serde::{Deserialize, Serialize};

/// Seconds after which a trunk without calls is reported, if there are other calls.
const SILENT_SECONDS: i64 = 24 * 3600;

/// A trunk of the flags, and its numbers of calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TrunkStatus {
    /// The trunk's name from its flag.
    pub name: String,
    /// The trunk's PBX. `None` if the trunk applies to all PBXs.
    pub pbx: Option<String>,
    /// Calls of the last 24 hours.
    pub day_calls: u64,
    /// Calls of the last 24 hours that were attributed to an extension.
    pub day_extensions: u64,
    /// Calls of the last 24 hours that were attributed to an employee.
    pub day_employees: u64,
    /// Calls since the state was created.
    pub calls: u64,
    /// Epoch seconds at which its last call began. `null` before the first.
    pub last_at: Option<i64>,
    /// Customers who wait for a callback and whose last call used this trunk.
    pub missed_customers: u64,
    /// Epoch seconds since which a daemon has known the trunk. `null` without a daemon.
    pub since: Option<i64>,
    pub has_employees: bool,
    pub journal: bool,
}

impl TrunkStatus {
    fn silent_since(&self) -> Option<i64> {
        let since = self.since?;
        Some(self.last_at.map_or(since, |last| last.max(since)))
    }
}

/// Reports trunks that had no call for a day while other trunks had calls. Also reports employee
/// lists that matched no call of their trunk.
pub(super) fn silent_trunks(status: &Status, found: &mut Vec<Problem>) {
    for trunk in status.trunks.iter().filter(|trunk| trunk.journal) {
        let others = status.day_calls.saturating_sub(trunk.day_calls);
        let is_silent = trunk
            .silent_since()
            .is_some_and(|since| is_day_old(status, since));
        if trunk.day_calls == 0 && others > 0 && is_silent {
            let came = count_with_noun(others, "call", "calls");
            let ever = match trunk.last_at {
                Some(_) => "has had no call for a day",
                None => "has never had a call",
            };
            let message = format!(
                "trunk {} {ever}, while {came} came by{}: check that its endpoint matches their \
                 channels",
                trunk.name,
                channels(status)
            );
            let values = [trunk.name.clone(), others.to_string()];
            found.push(
                Problem::new(FindingKind::SilentTrunk, message, status.check()).with_values(values),
            );
        }
        let unlisted = trunk.day_extensions > 0 && trunk.day_employees == 0;
        let known = trunk.since.is_some_and(|since| is_day_old(status, since));
        if trunk.has_employees && unlisted && known {
            let calls = count_with_noun(trunk.day_extensions, "call", "calls");
            let message = format!(
                "--employees of trunk {} has matched none of its {calls} of a day{}: check that it \
                 lists the extensions",
                trunk.name,
                extensions(status, ", of extensions (")
            );
            let values = [trunk.name.clone(), trunk.day_extensions.to_string()];
            found.push(
                Problem::new(FindingKind::SilentEmployees, message, status.check())
                    .with_values(values),
            );
        }
    }
}

fn is_day_old(status: &Status, at: i64) -> bool {
    status.at - at >= SILENT_SECONDS
}

/// Reports trunks whose calls name no employee because they have no list of employees. Without
/// [`Status::employees`] it reports nothing.
pub(super) fn trunks_without_employees(status: &Status, found: &mut Vec<Problem>) {
    let mut names = Vec::new();
    let mut calls = 0;
    for trunk in &status.trunks {
        let unlisted = trunk.day_extensions > 0 && trunk.day_employees == 0;
        if trunk.journal && !trunk.has_employees && unlisted {
            names.push(trunk.name.as_str());
            calls += trunk.day_extensions;
        }
    }
    if names.is_empty() || status.employees.is_none() {
        return;
    }
    let message = format!(
        "{} of a day{} named no employee: --employees is missing{}",
        count_with_noun(calls, "call", "calls"),
        list_names(" (over ", &names),
        extensions(status, " (extensions "),
    );
    let values = [calls.to_string(), names.join(", ")];
    found.push(Problem::new(FindingKind::NoEmployees, message, status.check()).with_values(values));
}

/// Returns the unmatched channels seen within a day: ` (over PJSIP/citty, SIP/10.0.0.7)`.
fn channels(status: &Status) -> String {
    let mut prefixes = Vec::new();
    for unmatched in &status.unmatched {
        if !is_day_old(status, unmatched.last_at) {
            prefixes.push(unmatched.prefix.as_str());
        }
    }
    list_names(" (over ", &prefixes)
}

fn extensions(status: &Status, before: &str) -> String {
    let mut extensions = Vec::new();
    if let Some(employees) = &status.employees {
        let unlisted = employees.unlisted.iter();
        extensions.extend(unlisted.map(|unlisted| unlisted.extension.as_str()));
    }
    list_names(before, &extensions)
}

fn list_names(before: &str, all: &[&str]) -> String {
    match all {
        [] => String::new(),
        all => format!("{before}{})", first_five(all)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{Employees, Unlisted, Unmatched};

    const NOW: i64 = 1_795_151_317;

    fn trunk() -> TrunkStatus {
        TrunkStatus {
            name: "city".to_owned(),
            since: Some(NOW - SILENT_SECONDS),
            journal: true,
            has_employees: true,
            ..TrunkStatus::default()
        }
    }

    fn unmatched_channels(prefix: &str, last_at: i64) -> Unmatched {
        Unmatched {
            prefix: prefix.to_owned(),
            last_at,
            ..Unmatched::default()
        }
    }

    fn trunk_findings(trunk: TrunkStatus, day_calls: u64) -> Vec<(FindingKind, String)> {
        let unlisted = Unlisted {
            extension: "101".to_owned(),
            ..Unlisted::default()
        };
        let status = Status {
            at: NOW,
            day_calls,
            trunks: vec![trunk],
            unmatched: vec![
                unmatched_channels("PJSIP/citty", NOW - 60),
                unmatched_channels("PJSIP/old", NOW - SILENT_SECONDS),
            ],
            employees: Some(Employees {
                unlisted: vec![unlisted],
                ..Employees::default()
            }),
            ..Status::default()
        };
        let mut found = Vec::new();
        silent_trunks(&status, &mut found);
        trunks_without_employees(&status, &mut found);
        found
            .into_iter()
            .map(|problem| (problem.kind, problem.message))
            .collect()
    }

    #[test]
    fn silent_trunk_is_reported_with_unmatched_channels() {
        let found = trunk_findings(trunk(), 7);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].0, FindingKind::SilentTrunk);
        insta::assert_snapshot!(
            found[0].1,
            @"trunk city has never had a call, while 7 calls came by (over PJSIP/citty): check \
            that its endpoint matches their channels"
        );
        let once = TrunkStatus {
            last_at: Some(NOW - SILENT_SECONDS - 1),
            ..trunk()
        };
        assert!(
            trunk_findings(once, 1)[0]
                .1
                .contains("no call for a day, while 1 call came by")
        );
    }

    #[test]
    fn quiet_day_new_trunk_or_trunk_with_calls_is_not_reported() {
        assert_eq!(trunk_findings(trunk(), 0), [], "no call came by");
        let new = TrunkStatus {
            since: Some(NOW - SILENT_SECONDS + 1),
            ..trunk()
        };
        assert_eq!(trunk_findings(new, 7), []);
        let taking = TrunkStatus {
            day_calls: 1,
            last_at: Some(NOW - 60),
            ..trunk()
        };
        assert_eq!(trunk_findings(taking.clone(), 7), []);
        let unknown = TrunkStatus {
            since: None,
            ..trunk()
        };
        assert_eq!(trunk_findings(unknown, 7), [], "no daemon says since when");
        let left_out = TrunkStatus {
            journal: false,
            ..trunk()
        };
        assert_eq!(trunk_findings(left_out, 7), []);
    }

    #[test]
    fn unmatched_employee_list_is_reported_with_extensions() {
        let unlisted = TrunkStatus {
            day_calls: 3,
            day_extensions: 2,
            last_at: Some(NOW - 60),
            ..trunk()
        };
        let found = trunk_findings(unlisted.clone(), 3);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].0, FindingKind::SilentEmployees);
        insta::assert_snapshot!(
            found[0].1,
            @"--employees of trunk city has matched none of its 2 calls of a day, of extensions \
            (101): check that it lists the extensions"
        );
        let listed = TrunkStatus {
            day_employees: 1,
            ..unlisted.clone()
        };
        assert_eq!(trunk_findings(listed, 3), []);
        let without = TrunkStatus {
            has_employees: false,
            since: None,
            ..unlisted
        };
        let found = trunk_findings(without, 3);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].0, FindingKind::NoEmployees);
        insta::assert_snapshot!(
            found[0].1,
            @"2 calls of a day (over city) named no employee: --employees is missing (extensions \
            101)"
        );
    }
}
