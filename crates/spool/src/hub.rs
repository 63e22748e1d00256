//! Types for a hub, which accepts the calls of branches: its position, its branches, their
//! requests, and changes of branches.

use crate::Silence;
use callbridge_call::{EpochSeconds, EventTime};
use serde::{Deserialize, Serialize};

/// The pair of incarnation and commit number that a hub sends with each answer. A branch sends it
/// back, so the hub notices if it has lost commits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HubPosition {
    /// Id of the incarnation. A new incarnation begins when the hub has lost commits.
    pub incarnation: String,
    /// Number of the commit. The number keeps growing in a new incarnation.
    pub seq: u64,
}

/// The row of the table `hub`, as of the last commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubRow {
    pub position: HubPosition,
    /// Time at which the incarnation began.
    pub began: EventTime,
    /// The branch whose request showed that commits were lost. `None` for the first incarnation.
    pub revealed_by: Option<String>,
}

/// Begins the source of a branch's unreadable dead letters.
pub const BRANCH_SOURCE: &str = "branch ";

/// A request of a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchRequest {
    pub branch: String,
    /// ID of the collector's state. `None` for a request of a script.
    pub sender: Option<String>,
    /// The highest position that the sender has seen. `None` if the request has none.
    pub seen: Option<HubPosition>,
    /// Id of the incarnation that begins if the request shows that commits were lost.
    pub next_incarnation: String,
    /// The silence that begins with that incarnation.
    pub silence: Silence,
    /// Number of calls in the request that can be read.
    pub calls: u64,
    /// Number of refused lines in the request.
    pub refused: u64,
    /// The error of the last refused line, with the id if it can be read.
    pub refusal: Option<String>,
    /// The branch's report about itself as JSON, if the request contains a report.
    pub report: Option<String>,
    pub at: EventTime,
}

/// The position of the commit that contains the request of a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubAnswer {
    pub position: HubPosition,
    /// The request showed that commits were lost, so a new incarnation has begun.
    pub lost_commits: bool,
}

/// A branch as it is stored. Tokens are stored as their SHA-256 in hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    pub name: String,
    pub token: String,
    /// The previous token, and the time at which it expires.
    pub previous: Option<(String, EpochSeconds)>,
    /// PBX ids of the branch, in alphabetical order.
    pub pbxs: Vec<String>,
    pub added: EpochSeconds,
    /// Number of calls that the hub took from the branch, including repeats.
    pub taken: u64,
    /// Number of lines that the hub refused.
    pub refused: u64,
    /// Time and error of the last refused line.
    pub refusal: Option<(EpochSeconds, String)>,
    /// Time of the branch's last report.
    pub reported: Option<EpochSeconds>,
    /// The last report as JSON.
    pub report: Option<String>,
    /// The senders of the branch, in the order of their IDs.
    pub senders: Vec<BranchSender>,
}

/// A collector that uses a branch's token, or all requests without a collector's ID.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct BranchSender {
    /// ID of the collector's state. Empty for requests without an ID.
    pub sender: String,
    pub requests: u64,
    /// Time of the last request.
    pub last_at: EpochSeconds,
    /// Time at which this sender last sent a request after another sender of the branch.
    pub alternated: Option<EpochSeconds>,
    /// Time at which this sender last knew less of the hub's answers than before. Either its state
    /// was restored, or two collectors have copies of it.
    pub went_back: Option<EpochSeconds>,
}

/// A branch to add, or PBXs to add to a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewBranch {
    pub name: String,
    /// SHA-256 of the token for a new branch. An existing branch keeps its token.
    pub token: String,
    pub pbxs: Vec<String>,
    pub at: EpochSeconds,
}

/// A new token for a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRotation {
    pub branch: String,
    /// SHA-256 of the new token.
    pub token: String,
    /// Time until which the previous token is valid, or `None` if it ends at once.
    pub previous_until: Option<EpochSeconds>,
}

/// Result of a change of branches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BranchChange {
    /// The branch is new, or its token was replaced.
    NewToken,
    /// PBXs were added to the branch, which keeps its token.
    PbxsAdded,
    Removed,
    /// No branch has the name. Nothing was changed.
    Unknown,
    /// Another branch has the token, so nothing was changed.
    TokenOf {
        branch: String,
    },
    /// Another branch already has the PBX id. Nothing was changed.
    PbxOf {
        pbx: String,
        branch: String,
    },
}

/// The calls that [`Op::Offer`](crate::Op::Offer) makes ready to be sent to a hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// Every forwarded call that is still stored, because the hub has a new incarnation.
    Forwarded,
    /// Calls whose outcome at the CRM is not known, because a state that sent to the CRM now sends
    /// to a hub. The CRM accepts a repeated uuid without a second record (§4.5.4).
    Unconfirmed,
}
