//! The parts of the protocol that both sides use.

use callbridge_model::CallUuid;
use callbridge_spool::HubPosition;
use serde::{Deserialize, Serialize};

/// Path of `POST` for call messages, one per line.
pub const CALLS: &str = "/v1/calls";
/// Path of `POST` for the report of a collector.
pub const REPORT: &str = "/v1/report";
/// Path of `GET` for the branch of the token, for `callbridge check`.
pub const BRANCH: &str = "/v1/branch";

/// Content type of the body of [`CALLS`].
pub const NDJSON: &str = "application/x-ndjson";
/// Header with the ID of the collector's state. A request without it comes from a script.
pub const SENDER: &str = "callbridge-sender";
/// Headers with the highest position (incarnation and number) that the collector has seen.
pub const SEEN_INCARNATION: &str = "callbridge-incarnation";
pub const SEEN_SEQ: &str = "callbridge-seq";

/// Maximum lines of a request.
pub const LINES_MAX: usize = 500;
/// Maximum bytes of a body.
pub const BODY_BYTES_MAX: usize = 1 << 20;
/// Maximum bytes of a report.
pub const REPORT_BYTES_MAX: usize = 64 * 1024;
/// Maximum bytes of an incarnation or a sender's ID in a header.
pub const ID_BYTES_MAX: usize = 64;

/// The 200 to [`CALLS`], sent after the commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallsAnswer {
    #[serde(flatten)]
    pub position: HubPosition,
    /// Calls that the hub has stored, now or before.
    pub taken: Vec<CallUuid>,
    pub refused: Vec<RefusedLine>,
}

/// A line that the hub refuses, however often it is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedLine {
    /// Number of the line, from 1.
    pub line: usize,
    /// The id in the message, if it can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The field and the values that it accepts.
    pub error: String,
}

/// The 200 to [`REPORT`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportAnswer {
    #[serde(flatten)]
    pub position: HubPosition,
}

/// The 200 to [`BRANCH`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BranchAnswer {
    pub branch: String,
    pub pbxs: Vec<String>,
    /// Version of the hub.
    pub version: String,
    /// The hub's clock, in milliseconds since the epoch.
    pub time_ms: i64,
}

/// The body of every other answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorAnswer {
    pub error: String,
}
