//! A stored branch, as shown by `branch list --json`, `status`, and the page.

use callbridge_call::EpochSeconds;
use callbridge_model::status::{BranchReport, BranchState, BranchStatus, SenderStatus};
use callbridge_spool::{Branch, BranchSender};

/// Returns a branch's status at `now`, in epoch seconds.
pub fn branch_status(branch: Branch, now: i64) -> BranchStatus {
    let report: Option<BranchReport> = branch
        .report
        .as_deref()
        .and_then(|text| serde_json::from_str(text).ok());
    let reported_at = branch.reported.map(|at| at.get());
    let (refused_at, refusal) = branch.refusal.unzip();
    BranchStatus {
        refused: branch.refused,
        refused_at: refused_at.map(EpochSeconds::get),
        refusal,
        state: BranchState::from_report(reported_at.zip(report.as_ref()), now),
        branch: branch.name,
        pbxs: branch.pbxs,
        reported_at,
        taken: branch.taken,
        added_at: branch.added.get(),
        report,
        senders: branch.senders.into_iter().map(sender_status).collect(),
    }
}

fn sender_status(sender: BranchSender) -> SenderStatus {
    SenderStatus {
        id: Some(sender.sender).filter(|id| !id.is_empty()),
        requests: sender.requests,
        last_request_at: sender.last_at.get(),
        alternated_at: sender.alternated.map(EpochSeconds::get),
        went_back_at: sender.went_back.map(EpochSeconds::get),
    }
}
