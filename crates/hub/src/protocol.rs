//! The parts of the protocol that the hub and its collectors share.

use callbridge_model::CallUuid;
use callbridge_spool::HubPosition;
use serde::{Deserialize, Serialize};

/// Path that call messages are posted to, one per line.
pub const CALLS: &str = "/v1/calls";
/// Path that a collector's report is posted to.
pub const REPORT: &str = "/v1/report";
/// Path from which `callbridge check` gets the token's branch.
pub const BRANCH: &str = "/v1/branch";

/// Content type of a [`CALLS`] body.
pub const NDJSON: &str = "application/x-ndjson";
/// Header with the ID of the collector's state. A request without it comes from a script.
pub const SENDER: &str = "callbridge-sender";
/// Headers with the highest position that the collector has seen (incarnation and number).
pub const SEEN_INCARNATION: &str = "callbridge-incarnation";
pub const SEEN_SEQ: &str = "callbridge-seq";

/// Maximum number of lines per request.
pub const LINES_MAX: usize = 500;
/// Maximum size of a body in bytes.
pub const BODY_BYTES_MAX: usize = 1 << 20;
/// Maximum size of a report in bytes.
pub const REPORT_BYTES_MAX: usize = 64 * 1024;
/// Maximum length in bytes of an incarnation or a sender's ID in a header.
pub const ID_BYTES_MAX: usize = 64;

/// The 200 response to [`CALLS`], sent after the commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallsAnswer {
    #[serde(flatten)]
    pub position: HubPosition,
    /// Calls that the hub has stored, whether now or earlier.
    pub taken: Vec<CallUuid>,
    pub refused: Vec<RefusedLine>,
}

/// A line that the hub refuses no matter how often it's sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedLine {
    /// The line number, starting at 1.
    pub line: usize,
    /// The message's ID, if it can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The field, and the values that it accepts.
    pub error: String,
}

/// The 200 response to [`REPORT`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportAnswer {
    #[serde(flatten)]
    pub position: HubPosition,
}

/// The 200 response to [`BRANCH`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BranchAnswer {
    pub branch: String,
    pub pbxs: Vec<String>,
    /// The hub's version.
    pub version: String,
    /// The hub's clock, in milliseconds since the epoch.
    pub time_ms: i64,
}

/// The body of every other response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorAnswer {
    pub error: String,
}
