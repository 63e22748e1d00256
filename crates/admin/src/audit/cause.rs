//! Finds the likeliest cause why a call that the PBX recorded is missing from the state or the
//! CRM's journal.

use crate::audit::FileCall;
use callbridge_call::{EventTime, UniqueId};
use callbridge_model::Zone;
use callbridge_model::status::SourceGap;
use callbridge_spool::CallFate;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Maximum difference between the time of a call and the epoch in its id if both come from one
/// clock.
const SAME_CLOCK: Duration = Duration::from_secs(600);
/// A gap also explains calls that began up to this many seconds before it, because they ended in
/// it.
const BEGAN_BEFORE: i64 = 3600;

/// The times for which a PBX's calls can be missing: before its first connection, and in gaps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// Time of the first connection by PBX id. Only PBXs whose earlier calls are lost have an
    /// entry.
    pub since: BTreeMap<String, EventTime>,
    /// PBXs of which a call finished in the last 30 days. They count as connected even without an
    /// entry in `since`.
    pub known: BTreeSet<String>,
    /// The newest gaps of all sources, at most the 50 that the gap log keeps.
    pub gaps: Vec<SourceGap>,
}

impl Listening {
    /// Adds the times and PBXs of `more`, and takes its gaps. Every answer has the gaps of all
    /// sources.
    pub fn add(&mut self, more: Self) {
        self.since.extend(more.since);
        self.known.extend(more.known);
        self.gaps = more.gaps;
    }
}

/// Returns the cause for a call that was journaled at `since` but is missing from the CRM's
/// journal.
pub(crate) fn loss_cause(since: Option<EventTime>, zone: &Zone) -> String {
    let when = match since {
        Some(since) => format!("at {}", zone.second(since.floor_seconds().get())),
        None => "long ago".to_owned(),
    };
    format!(
        "journaled here {when}, but the CRM's journal does not have it: deleted there, or never \
         written; --take-in sends it again with the same uuid"
    )
}

pub(crate) fn likeliest_cause(call: &FileCall, fate: CallFate, listening: &Listening) -> String {
    if !call.unmatched.is_empty() {
        return format!(
            "no trunk matched: an outside number appeared on {}, which isn't part of any --trunk; \
             add the channel to one",
            call.unmatched.join(", ")
        );
    }
    match fate {
        CallFate::RowGone => {
            return "it was taken in, and its row was deleted from the state, but not by \
                    callbridge; --take-in stores it again"
                .to_owned();
        }
        CallFate::Counted => {
            return "no trunk matched when it was received, or its trunk had journal=no: it was \
                    counted as internal or skipped; --take-in stores it by today's flags"
                .to_owned();
        }
        CallFate::Stands(_) | CallFate::Open | CallFate::Unknown => {}
    }
    if let Some(apart) = clock_difference(call) {
        return format!(
            "different clocks: the file says that the call began {} min {} the time in its id; \
             check --pbx-timezone and the PBX's clock",
            apart.unsigned_abs() / 60,
            if apart < 0 { "before" } else { "after" }
        );
    }
    let pbx = &call.asked.pbx;
    match listening.since.get(pbx) {
        None if listening.known.contains(pbx) => {}
        None => {
            return format!(
                "PBX {pbx} was never connected with this state: check --pbx-id and --state"
            );
        }
        Some(since) if call.started < *since => {
            return "it began before callbridge was first connected to this PBX".to_owned();
        }
        Some(_) => {}
    }
    let second = call.started.floor_seconds().get();
    let mut gaps = listening.gaps.iter();
    match gaps.find(|gap| second >= gap.from - BEGAN_BEFORE && second <= gap.to) {
        Some(gap) if gap.filled => format!(
            "a gap of {} that was filled from a catch-up file, which did not have this call",
            gap.source
        ),
        Some(gap) => format!("a gap of {} that was not filled", gap.source),
        None => "the cause is not known: no gap was recorded, and its PBX was connected; see the \
                 log of that time"
            .to_owned(),
    }
}

/// Returns how many seconds the call's time is after the epoch in its id. Returns `None` if both
/// times can come from one clock.
fn clock_difference(call: &FileCall) -> Option<i64> {
    let id = UniqueId::new(&call.linkedid)?;
    let epoch = i64::try_from(id.epoch_and_counter()?.0).ok()?;
    let apart = call.started.floor_seconds().get() - epoch;
    if apart.unsigned_abs() > SAME_CLOCK.as_secs() {
        Some(apart)
    } else {
        None
    }
}
