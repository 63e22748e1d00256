//! Types for a hub, which accepts calls from branches: its position, its branches, their requests,
//! and changes to branches.

use crate::Silence;
use callbridge_call::{EpochSeconds, EventTime};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The pair of incarnation and commit number that a hub sends with each response. The branch sends
/// it back, which lets the hub notice if it has lost commits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HubPosition {
    /// The incarnation's ID. A new incarnation begins when the hub has lost commits.
    pub incarnation: String,
    /// The commit's number, which keeps growing across incarnations.
    pub seq: u64,
}

/// The row in the `hub` table, as of the last commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubRow {
    pub position: HubPosition,
    /// When the incarnation began.
    pub began: EventTime,
    /// The branch whose request revealed that commits were lost, or `None` for the first
    /// incarnation.
    pub revealed_by: Option<String>,
    /// The last sign that another database is in use.
    pub sighting: Option<Sighting>,
    /// The branches that proved it, as a list of names. Nothing is sent to the CRM until someone
    /// resumes sending ([`Op::ResumeSending`](crate::Op::ResumeSending)).
    pub split_by: Option<String>,
}

/// A sign that another database is in use: since this hub's last answer to a sender, another one
/// has answered it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    pub branch: String,
    pub at: EventTime,
}

/// Two signs within this time prove that another database is in use.
const SIGHTED_WITHIN: Duration = Duration::from_secs(3600);

impl Sighting {
    /// Returns the names of the branches if this sign and the one before it prove that another
    /// database is in use. A single branch proves nothing unless it's the only one, since its
    /// token may have been stolen.
    pub(crate) fn proof(&self, before: Option<&Self>, branches: u64) -> Option<String> {
        let before = before?;
        let apart = self.at.since(before.at).max(before.at.since(self.at));
        if apart > SIGHTED_WITHIN {
            return None;
        }
        if before.branch != self.branch {
            return Some(format!("{}, {}", before.branch, self.branch));
        }
        (branches == 1).then(|| self.branch.clone())
    }
}

/// Prefix of the source of a branch's unreadable dead letters.
pub const BRANCH_SOURCE: &str = "branch ";

/// Returns why a call isn't accepted whose PBX doesn't belong to the branch that sent it.
pub fn foreign_pbx_message(pbx: &str, branch: &str) -> String {
    format!(
        "pbx: {pbx} is not a PBX of branch {branch}; at the hub, run: callbridge branch add \
         {branch} --pbx {pbx}"
    )
}

/// A branch's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchRequest {
    pub branch: String,
    /// ID of the collector's state, or `None` for a script's request.
    pub sender: Option<String>,
    /// The highest position that the sender has seen, or `None` if the request doesn't include one.
    pub seen: Option<HubPosition>,
    /// ID of the incarnation that begins if the request reveals that commits were lost.
    pub next_incarnation: String,
    /// The silence that begins with that incarnation.
    pub silence: Silence,
    /// Number of readable calls in the request.
    pub calls: u64,
    /// Number of refused lines in the request.
    pub refused: u64,
    /// The last refused line's error, with the ID if it can be read.
    pub refusal: Option<String>,
    /// The branch's report about itself as JSON, if the request contains one.
    pub report: Option<String>,
    pub at: EventTime,
}

/// Position of the commit that includes a branch's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubAnswer {
    pub position: HubPosition,
    /// Whether the request revealed that commits were lost, so that a new incarnation has begun.
    pub lost_commits: bool,
}

/// A branch as stored. Tokens are stored as SHA-256 hashes in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    pub name: String,
    pub token: String,
    /// The previous token, with its expiry.
    pub previous: Option<(String, EpochSeconds)>,
    /// The branch's PBX IDs in alphabetical order.
    pub pbxs: Vec<String>,
    pub added: EpochSeconds,
    /// Number of calls that the hub accepted from the branch, including repeats.
    pub taken: u64,
    /// Number of lines that the hub refused.
    pub refused: u64,
    /// Time and error of the last refused line.
    pub refusal: Option<(EpochSeconds, String)>,
    /// Time of the branch's last report.
    pub reported: Option<EpochSeconds>,
    /// The last report as JSON.
    pub report: Option<String>,
    /// The branch's senders, ordered by ID.
    pub senders: Vec<BranchSender>,
}

/// A collector that uses a branch's token, or everything that sends requests without a collector's
/// ID.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct BranchSender {
    /// ID of the collector's state, or empty for requests without an ID.
    pub sender: String,
    pub requests: u64,
    /// Time of the last request.
    pub last_at: EpochSeconds,
    /// Time at which this sender last sent a request after another sender of the branch.
    pub alternated: Option<EpochSeconds>,
    /// Time at which this sender last knew less of the hub's responses than before. Either its
    /// state was restored, or two collectors have copies of it.
    pub went_back: Option<EpochSeconds>,
}

/// A branch to add, or PBXs to add to an existing one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewBranch {
    pub name: String,
    /// SHA-256 hash of a new branch's token. An existing branch keeps its token.
    pub token: String,
    pub pbxs: Vec<String>,
    pub at: EpochSeconds,
}

/// A new token for a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRotation {
    pub branch: String,
    /// SHA-256 hash of the new token.
    pub token: String,
    /// How long the previous token remains valid, or `None` if it expires immediately.
    pub previous_until: Option<EpochSeconds>,
}

/// Result of changing branches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BranchChange {
    /// The branch is new, or its token was replaced.
    NewToken,
    /// PBXs were added to the branch, which keeps its token.
    PbxsAdded,
    Removed,
    /// No branch has this name, so nothing was changed.
    Unknown,
    /// Another branch has the token, so nothing was changed.
    TokenOf {
        branch: String,
    },
    /// Another branch already has this PBX ID, so nothing was changed.
    PbxOf {
        pbx: String,
        branch: String,
    },
}

/// The calls that [`Op::Offer`](crate::Op::Offer) makes ready to be sent to a hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// Every forwarded call that's still stored, because the hub has a new incarnation.
    Forwarded,
    /// Calls whose outcome at the CRM is unknown, because a state that used to send to the CRM now
    /// sends to a hub. If the CRM gets the same uuid again, it doesn't create a second record
    /// (§4.5.4).
    Unconfirmed,
}
