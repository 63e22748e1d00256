//! The position of a hub, its branches, and the requests and changes of both.

use callbridge_call::{EpochSeconds, EventTime};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A pair that a hub sends with each answer, and that a branch sends back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HubPosition {
    /// Id of the incarnation. A new one begins when commits were lost.
    pub incarnation: String,
    /// Number of the commit. It keeps growing in a new incarnation.
    pub seq: u64,
}

/// The end of a silence toward the CRM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubSilence {
    /// The boot that `until` belongs to. The silence of an earlier boot is replaced by that of the
    /// reboot.
    pub boot_id: String,
    /// Time since boot.
    pub until: Duration,
}

/// The row of the table `hub`, as of the last commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubRow {
    pub position: HubPosition,
    /// Time at which the incarnation began.
    pub began: EventTime,
    /// The branch whose request showed that commits were lost. `None` for the first incarnation.
    pub revealed_by: Option<String>,
    pub silence: Option<HubSilence>,
}

/// A request of a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchRequest {
    pub branch: String,
    /// The highest pair that the branch has seen. `None` if it sends none, as scripts do.
    pub seen: Option<HubPosition>,
    /// The incarnation that begins if commits were lost.
    pub next_incarnation: String,
    /// The silence that begins with it.
    pub silence: HubSilence,
    /// Calls in the request that can be read.
    pub calls: u64,
    /// The report of the branch as JSON, if this request is one.
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
    /// The previous token, and when it expires.
    pub previous: Option<(String, EpochSeconds)>,
    /// In alphabetical order.
    pub pbxs: Vec<String>,
    pub added: EpochSeconds,
    /// Calls that were taken, repeats included.
    pub taken: u64,
    /// Time of the last report.
    pub reported: Option<EpochSeconds>,
    /// The last report as JSON.
    pub report: Option<String>,
}

/// A branch to add, or PBXs to add to a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewBranch {
    pub name: String,
    /// SHA-256 of its token. An existing branch keeps its token.
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
    /// Time until which the previous token is valid.
    pub previous_until: EpochSeconds,
}

/// Result of a change of branches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BranchChange {
    /// The branch is new, or its token is.
    NewToken,
    /// PBXs were added to the branch, which keeps its token.
    PbxsAdded,
    Removed,
    /// There is no such branch. Nothing was changed.
    Unknown,
    /// Another branch has this PBX. Nothing was changed.
    PbxOf {
        pbx: String,
        branch: String,
    },
}

/// The calls that are made ready for a hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// The hub has a new incarnation: every forwarded call that is still stored.
    Forwarded,
    /// A state that sent to a CRM becomes a collector's: calls whose outcome is not known. The CRM
    /// accepts a repeated uuid without a second record (§4.5.4).
    Unconfirmed,
}
