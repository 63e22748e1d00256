//! The hub and its branches, and a collector that sends to a hub.

use super::verdict::first_five;
use super::{FindingKind, OverallState, Problem, SourceState, Status};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Seconds without a report after which a branch is silent. A collector reports once a minute.
pub const SILENT_AFTER_SEC: i64 = 5 * 60;

/// Seconds for which a new incarnation is a problem, because an operator should know why the hub
/// lost commits.
const LOST_COMMITS_SHOWN_SEC: i64 = 24 * 3600;

/// Seconds for which it's a problem that two senders of a branch took turns, or that a collector
/// went back to an older state.
const SENDERS_SHOWN_SEC: i64 = 24 * 3600;
/// Seconds before its expiry from which a certificate is a problem.
pub const CERTIFICATE_SOON_SEC: u64 = 14 * 86_400;

/// The report of a collector, which it sends once a minute and when it stops.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct BranchReport {
    pub version: String,
    /// Epoch seconds by the collector's clock.
    pub at: i64,
    /// Whether the collector is stopping. Its silence is then no problem.
    pub stopping: bool,
    pub verdict: OverallState,
    pub sources: Vec<ReportedSource>,
    /// Gaps that no catch-up file has filled.
    pub gaps: u64,
    /// Calls that are not forwarded yet.
    pub backlog: u64,
    /// Epoch seconds at which the oldest call of the backlog began. `null` without a backlog.
    pub oldest_call_at: Option<i64>,
    /// Calls that wait for a lead or an employee at the collector.
    pub waiting: u64,
    /// Dead letters at the collector.
    pub dead: u64,
    pub forwarded: u64,
    /// Messages of the problems at the collector, worst first.
    pub problems: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ReportedSource {
    pub name: String,
    pub pbx: String,
    pub state: SourceState,
    pub reason: Option<String>,
}

/// The hub's part of `status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HubStatus {
    /// The address of `--collect`.
    pub address: String,
    pub tls: bool,
    /// Epoch seconds at which the hub's certificate expires. `null` without `--tls-cert`.
    pub certificate_expires_at: Option<i64>,
    pub incarnation: String,
    pub seq: u64,
    /// Epoch seconds at which the incarnation began.
    pub began_at: i64,
    /// The branch whose request showed that this state had lost commits. `null` if it has lost no
    /// commits.
    pub lost_commits_shown_by: Option<String>,
    /// Epoch seconds until which nothing is sent to the CRM after lost commits. `null` if calls are
    /// sent.
    pub silent_until: Option<i64>,
    /// Branches whose calls are not sent, since the CRM refuses them, with the fix of each.
    pub paused_branches: BTreeMap<String, String>,
    pub branches: Vec<BranchStatus>,
}

impl HubStatus {
    /// Returns the number of branches that are silent.
    pub fn silent_branches(&self) -> u64 {
        self.branches
            .iter()
            .filter(|branch| branch.state == BranchState::Silent)
            .count() as u64
    }
}

/// A branch, as `branch list --json` and the page show it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct BranchStatus {
    pub branch: String,
    pub pbxs: Vec<String>,
    /// `reports`, `silent`, `stopped`, or `never` if no report has come yet.
    pub state: BranchState,
    /// Epoch seconds of the last report.
    pub reported_at: Option<i64>,
    /// Calls that the hub has taken, repeats included.
    pub taken: u64,
    /// Lines that the hub has refused.
    pub refused: u64,
    /// Epoch seconds of the last refused line. `null` before the first.
    pub refused_at: Option<i64>,
    /// The error of the last refused line.
    pub refusal: Option<String>,
    pub added_at: i64,
    pub report: Option<BranchReport>,
    /// Who uses the branch's token.
    pub senders: Vec<SenderStatus>,
}

/// A collector that uses a branch's token, or all requests without a collector's ID.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SenderStatus {
    /// The random ID of the collector's state. `null` for requests without an ID, such as those of
    /// scripts.
    pub id: Option<String>,
    pub requests: u64,
    /// Epoch seconds of the last request.
    pub last_request_at: i64,
    /// Epoch seconds at which this sender last sent a request after another sender of the branch.
    pub alternated_at: Option<i64>,
    /// Epoch seconds at which this collector last knew less of the hub's answers than before, as a
    /// copy or a restored state does.
    pub went_back_at: Option<i64>,
}

/// Whether a branch reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum BranchState {
    #[default]
    Never,
    Reports,
    Silent,
    Stopped,
}

impl BranchState {
    /// Returns the word in JSON and on the page: `reports`.
    pub fn word(self) -> &'static str {
        self.into()
    }

    /// Returns the state of a branch at the time `now`. `report` is the last report, with the epoch
    /// seconds at which it arrived.
    pub fn from_report(report: Option<(i64, &BranchReport)>, now: i64) -> Self {
        match report {
            None => Self::Never,
            Some((_, report)) if report.stopping => Self::Stopped,
            Some((at, _)) if now.saturating_sub(at) > SILENT_AFTER_SEC => Self::Silent,
            Some(_) => Self::Reports,
        }
    }
}

/// The collector's part of `status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ForwardStatus {
    /// The addresses of `--forward`.
    pub hubs: Vec<String>,
    /// The hub of the last request.
    pub hub: String,
    /// Calls that the hub has stored.
    pub forwarded: u64,
    /// Calls that are not forwarded yet.
    pub ready: u64,
    /// Why the last request failed. `null` if the hub accepted it.
    pub reason: Option<String>,
    /// Epoch seconds of the hub's last answer to calls or a report.
    pub answered_at: Option<i64>,
    /// The highest position (`incarnation` and `seq`) that the hub has answered. Empty before the
    /// first answer.
    pub incarnation: String,
    pub seq: u64,
}

pub(super) fn hub(status: &Status, found: &mut Vec<Problem>) {
    let Some(hub) = &status.hub else {
        return;
    };
    if let Some(branch) = &hub.lost_commits_shown_by
        && status.at.saturating_sub(hub.began_at) < LOST_COMMITS_SHOWN_SEC
    {
        let remove = status.command(&format!("branch remove {branch}"));
        let message = format!(
            "This state lost commits, as a request of branch {branch} showed. The collectors \
             resend what they still have. If no backup was restored, the branch's sender is broken \
             or its token was stolen. In that case, remove the branch: {remove}"
        );
        let problem = Problem::new(
            FindingKind::HubLostCommits,
            message,
            status.command("status"),
        );
        found.push(problem.with_values([branch.clone(), remove]));
    }
    senders(hub, status, found);
    let left = hub
        .certificate_expires_at
        .map(|at| at.saturating_sub(status.at));
    if let Some(left) = left
        && left < CERTIFICATE_SOON_SEC.cast_signed()
    {
        let days = left.div_euclid(86_400).to_string();
        let message = if left > 0 {
            format!(
                "The hub's certificate expires in {days} days. Renew it, since the collectors will \
                 then refuse to send calls. The new one is reloaded automatically."
            )
        } else {
            "The hub's certificate has expired, so the collectors refuse to send calls. Renew it. \
             The new one is reloaded automatically."
                .to_owned()
        };
        let problem = Problem::new(FindingKind::HubCertificate, message, status.check());
        found.push(problem.with_values([days]));
    }
    let mut silent = Vec::new();
    for branch in &hub.branches {
        if branch.state == BranchState::Silent {
            silent.push(branch.branch.as_str());
        }
    }
    if !silent.is_empty() {
        let count = silent.len().to_string();
        let names = silent.join(", ");
        let message = format!(
            "{count} branches send no report: {names}. Check the machine and the network of each."
        );
        let problem = Problem::new(
            FindingKind::SilentBranches,
            message,
            status.command("branch list"),
        );
        found.push(problem.with_values([count, names]));
    }
    for (branch, fix) in &hub.paused_branches {
        let message = format!("calls of the branch {branch} are paused: {fix}");
        let command = status.command("dead list");
        let problem = Problem::new(FindingKind::PausedBranches, message, command);
        found.push(problem.with_values([branch.clone()]));
    }
}

/// Finds branches with a second sender, and collectors with an older state than before.
fn senders(hub: &HubStatus, status: &Status, found: &mut Vec<Problem>) {
    let mut shared = Vec::new();
    let mut copied = Vec::new();
    for branch in &hub.branches {
        let senders = &branch.senders;
        if senders
            .iter()
            .any(|sender| is_recent(sender.alternated_at, status.at))
        {
            shared.push(branch.branch.as_str());
        }
        if senders
            .iter()
            .any(|sender| is_recent(sender.went_back_at, status.at))
        {
            copied.push(branch.branch.as_str());
        }
    }
    let command = status.command("branch list");
    if !copied.is_empty() {
        let names = first_five(&copied);
        let message = format!(
            "The collector of {names} has returned to an older state. If two collectors run with \
             copies of one state, stop one of them and start it with an empty state."
        );
        let problem = Problem::new(FindingKind::CopiedCollector, message, command.clone());
        found.push(problem.with_values([names]));
    }
    if !shared.is_empty() {
        let names = first_five(&shared);
        let message = format!(
            "More than one sender uses the token of {names}. Add a branch for each collector and \
             each script, so that you can tell them apart and revoke their tokens separately."
        );
        let problem = Problem::new(FindingKind::BranchSenders, message, command);
        found.push(problem.with_values([names]));
    }
}

/// Returns `true` if something of the senders happened so recently that it's still a problem.
fn is_recent(happened_at: Option<i64>, now: i64) -> bool {
    happened_at.is_some_and(|at| now.saturating_sub(at) < SENDERS_SHOWN_SEC)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn branch(state: BranchState) -> BranchStatus {
        BranchStatus {
            branch: "samarkand".to_owned(),
            state,
            ..BranchStatus::default()
        }
    }

    fn with_certificate_for(seconds: i64) -> HubStatus {
        HubStatus {
            certificate_expires_at: Some(100 + seconds),
            ..HubStatus::default()
        }
    }

    fn with_sender(sender: SenderStatus) -> HubStatus {
        HubStatus {
            branches: vec![BranchStatus {
                senders: vec![sender],
                ..branch(BranchState::Reports)
            }],
            ..HubStatus::default()
        }
    }

    fn judge_hub(hub: HubStatus) -> Status {
        let status = Status {
            hub: Some(hub),
            at: 100,
            ..Status::default()
        };
        status.judged()
    }

    /// Returns statuses with this module's problems, each with the findings that it must produce.
    pub(in crate::status) fn statuses_with_findings() -> Vec<(Status, &'static [FindingKind])> {
        let silent = HubStatus {
            branches: vec![branch(BranchState::Silent), branch(BranchState::Reports)],
            ..HubStatus::default()
        };
        let stopped = HubStatus {
            branches: vec![branch(BranchState::Stopped), branch(BranchState::Never)],
            ..HubStatus::default()
        };
        let lost = HubStatus {
            began_at: 90,
            lost_commits_shown_by: Some("samarkand".to_owned()),
            ..HubStatus::default()
        };
        let fix = "five calls in a row were refused".to_owned();
        let paused = HubStatus {
            branches: vec![branch(BranchState::Reports)],
            paused_branches: BTreeMap::from([("samarkand".to_owned(), fix)]),
            ..HubStatus::default()
        };
        let shared = with_sender(SenderStatus {
            alternated_at: Some(90),
            ..SenderStatus::default()
        });
        let copied = with_sender(SenderStatus {
            went_back_at: Some(90),
            ..SenderStatus::default()
        });
        let long_ago = with_sender(SenderStatus {
            alternated_at: Some(100 - SENDERS_SHOWN_SEC),
            ..SenderStatus::default()
        });
        vec![
            (judge_hub(paused), &[FindingKind::PausedBranches]),
            (judge_hub(shared), &[FindingKind::BranchSenders]),
            (judge_hub(copied), &[FindingKind::CopiedCollector]),
            (judge_hub(long_ago), &[]),
            (judge_hub(with_certificate_for(14 * 86_400)), &[]),
            (
                judge_hub(with_certificate_for(14 * 86_400 - 1)),
                &[FindingKind::HubCertificate],
            ),
            (
                judge_hub(with_certificate_for(-1)),
                &[FindingKind::HubCertificate],
            ),
            (judge_hub(silent), &[FindingKind::SilentBranches]),
            (judge_hub(stopped), &[]),
            (judge_hub(lost), &[FindingKind::HubLostCommits]),
        ]
    }

    #[test]
    fn lost_commits_name_the_branch_and_the_command_that_removes_it() {
        let lost = HubStatus {
            began_at: 90,
            lost_commits_shown_by: Some("samarkand".to_owned()),
            ..HubStatus::default()
        };
        let status = judge_hub(lost);
        let message = &status.problems[0].message;
        assert!(message.contains("request of branch samarkand"), "{message}");
        assert!(message.contains("branch remove samarkand"), "{message}");
    }

    #[test]
    fn branch_is_silent_five_minutes_after_its_last_report() {
        let mut report = BranchReport::default();
        assert_eq!(BranchState::from_report(None, 0), BranchState::Never);
        assert_eq!(
            BranchState::from_report(Some((0, &report)), 300),
            BranchState::Reports
        );
        assert_eq!(
            BranchState::from_report(Some((0, &report)), 301),
            BranchState::Silent
        );
        report.stopping = true;
        assert_eq!(
            BranchState::from_report(Some((0, &report)), 9_000),
            BranchState::Stopped
        );
    }
}
