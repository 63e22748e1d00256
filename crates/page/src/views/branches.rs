//! A hub's Branches view, which shows the branches that report, the calls they haven't forwarded
//! yet, and their problems.

use crate::answer::{self, Handled};
use crate::{page::AuthenticatedRequest, shell::PageShell};
use askama::Template;
use callbridge_model::status::{BranchState, BranchStatus, HubStatus, OverallState};

/// Maximum number of branches to show. Those with a problem come first.
const BRANCHES_MAX: usize = 200;

#[derive(Template)]
#[template(path = "branches.html")]
struct BranchesSheet<'a> {
    c: &'a PageShell,
    /// `None` if this isn't a hub.
    hub: Option<&'a HubStatus>,
    rows: Vec<&'a BranchStatus>,
}

/// Serves `GET /branches`.
pub(crate) async fn list(mut visit: AuthenticatedRequest<'_>) -> Handled {
    let status = visit.refresh_badges().await?;
    let hub = status.hub.as_ref();
    let mut rows: Vec<&BranchStatus> = hub.into_iter().flat_map(|hub| &hub.branches).collect();
    rows.sort_by_key(|branch| pill(branch) == "well");
    rows.truncate(BRANCHES_MAX);
    let c = &visit.shell;
    answer::html(&BranchesSheet { c, hub, rows })
}

impl BranchesSheet<'_> {
    fn pill(&self, branch: &BranchStatus) -> &'static str {
        pill(branch)
    }

    /// Returns why this branch's calls aren't being sent, along with the fix, or `None` if they
    /// are.
    fn pause(&self, branch: &BranchStatus) -> Option<&String> {
        self.hub?.paused_branches.get(&branch.branch)
    }

    /// Returns the sentence saying that commits were lost, and that nothing is sent to the CRM
    /// until this time.
    fn silence(&self, until: &i64) -> String {
        let c = self.c;
        c.text_with("branches.silent", c.moment(until))
    }
}

/// Returns a branch's style class, which is `down`, `attention`, or `well`.
fn pill(branch: &BranchStatus) -> &'static str {
    match (branch.state, &branch.report) {
        (BranchState::Silent, _) => "down",
        (BranchState::Never | BranchState::Stopped, _) | (_, None) => "attention",
        (BranchState::Reports, Some(report)) if report.verdict == OverallState::Ok => "well",
        (BranchState::Reports, Some(_)) => "attention",
    }
}
