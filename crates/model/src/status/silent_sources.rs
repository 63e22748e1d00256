//! Finds problems with connected sources that receive nothing, receive events too late, or use
//! accounts with missing permissions.

use super::{FindingKind, Problem, SourceState, Status, seconds_in_words};
use serde::{Deserialize, Serialize};

/// Seconds after its login from which a connection that has received nothing is reported.
const SILENT_SECONDS: i64 = 24 * 3600;

/// The right or setting that the account of a source lacks, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RightKind {
    /// The account receives no events of calls.
    Calls,
    /// The times of a file contradict `--pbx-timezone`.
    Zone,
    /// Channels do not show a variable that contains leads.
    Variables,
    /// The account has no right to list the live channels.
    List,
    /// The account does not receive the PBX's start and stop.
    System,
    /// Events have no timestamps, so there's no telling when they happened if the connection
    /// stalls.
    Times,
    /// The PBX reads event filters in another way, so callbridge sets no filter.
    Filter,
    /// A test event does not come back.
    Echo,
}

/// A missing right or setting, and how to fix it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingRight {
    pub kind: RightKind,
    /// Text with the consequence and the fix.
    pub message: String,
}

/// Finds connections that are logged in and receive nothing. If silence is the only sign, it is
/// reported after a day, because nights and holidays are silent.
pub fn silent_sources(status: &Status, found: &mut Vec<Problem>) {
    for source in status.sources.iter().filter(|source| source.state.is_up()) {
        let name = format!("source {}", source.name());
        let mut deaf = Vec::new();
        let mut missing_rights = Vec::new();
        for right in &source.missing_rights {
            match right.kind {
                RightKind::Calls => deaf.push(&*right.message),
                RightKind::Zone | RightKind::Variables | RightKind::List | RightKind::Times => {
                    missing_rights.push(&*right.message);
                }
                // `status` shows these with the source, and they are no problem, because calls can
                // still arrive.
                RightKind::System | RightKind::Filter | RightKind::Echo => {}
            }
        }
        let silent_seconds = match source.connected_since {
            Some(since) if source.state == SourceState::Connected => (status.at - since).max(0),
            _ => 0,
        };
        if let Some(message) = deaf.first() {
            let values = [source.name().to_owned(), (*message).to_owned()];
            let message = format!("{name}: {message}");
            let deaf = Problem::new(FindingKind::NotHeard, message, status.check());
            found.push(deaf.with_code("not_heard_reason", values));
        } else if silent_seconds >= SILENT_SECONDS {
            let message = format!(
                "{name} is connected for {} and has received no event of a call: there were no \
                 calls, or its account has no right to receive them",
                seconds_in_words(silent_seconds.unsigned_abs())
            );
            let values = [source.name().to_owned()];
            found.push(
                Problem::new(FindingKind::NotHeard, message, status.check()).with_values(values),
            );
        }
        if let Some(late) = source.late_seconds {
            let late = seconds_in_words(late);
            let message = format!(
                "{name}: events arrive up to {late} late, so calls are journaled late; check the \
                 network and the load between the PBX and callbridge, and the PBX's clock"
            );
            let values = [source.name().to_owned(), late];
            found.push(
                Problem::new(FindingKind::LateEvents, message, status.check()).with_values(values),
            );
        }
        if !missing_rights.is_empty() {
            let message = format!("{name}: {}", missing_rights.join("; "));
            let values = [source.name().to_owned(), missing_rights.join("; ")];
            found.push(
                Problem::new(FindingKind::Rights, message, status.check()).with_values(values),
            );
        }
    }
}
