//! What is found of lines that are let in: whether they receive anything, and what their accounts
//! lack.

use super::verdict::todo;
use super::{FindingKind, SourceState, Status, Todo, seconds_in_words};
use serde::{Deserialize, Serialize};

/// Seconds after which a line that has received nothing since it was let in is reported.
const SILENT_SECONDS: i64 = 24 * 3600;

/// A right or setting that the account of a source lacks, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lacking {
    /// The account receives no events of calls.
    Calls,
    /// Channels do not show a variable that leads come from.
    Variables,
    /// The account may not ask which channels live.
    List,
    /// The account does not receive the PBX's start and stop.
    System,
    /// Events carry no time of their own.
    Times,
    /// The PBX reads filters of events in another way, so there is none.
    Filter,
    /// An event of its own does not come back.
    Echo,
}

/// A right or setting that an account lacks, with its fix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingRight {
    /// The right or setting that is missing.
    pub kind: Lacking,
    /// The lack and its fix, in words.
    pub what: String,
}

/// Finds lines that are let in and receive nothing. Silence alone is reported after a day, for
/// nights and holidays are silent.
pub fn silent_sources(status: &Status, found: &mut Vec<Todo>) {
    for source in status.sources.iter().filter(|it| it.state.is_up()) {
        let name = format!("source {}", source.name());
        let silent = source.state == SourceState::Connected;
        let (mut deaf, mut lacks) = (Vec::new(), Vec::new());
        for lack in &source.lacks {
            match lack.kind {
                Lacking::Calls => deaf.push(&*lack.what),
                Lacking::Variables | Lacking::List => lacks.push(&*lack.what),
                // Shown beside the source, as `check` shows them without a fault: calls may arrive
                // all the same, and if not, the first one shows it.
                Lacking::System | Lacking::Times | Lacking::Filter | Lacking::Echo => {}
            }
        }
        let since = source.connected_since.filter(|_| silent);
        let seconds = since.map_or(0, |since| (status.at - since).max(0));
        if let Some(what) = deaf.first() {
            let values = [source.name().to_owned(), (*what).to_owned()];
            let what = format!("{name}: {what}");
            let deaf = todo(FindingKind::NotHeard, what, status.check());
            found.push(deaf.with_code("not_heard_why", values));
        } else if seconds >= SILENT_SECONDS {
            let what = format!(
                "{name} is connected for {} and has received no event of a call: there were no \
                 calls, or its account may not receive them",
                seconds_in_words(seconds.unsigned_abs())
            );
            let values = [source.name().to_owned()];
            found.push(todo(FindingKind::NotHeard, what, status.check()).with(values));
        }
        if !lacks.is_empty() {
            let what = format!("{name}: {}", lacks.join("; "));
            let values = [source.name().to_owned(), lacks.join("; ")];
            found.push(todo(FindingKind::Rights, what, status.check()).with(values));
        }
    }
}
