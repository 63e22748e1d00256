//! Handles records that arrive after their call has been folded. By then, the call may have been
//! journaled and can't be changed anymore. However, if the late record shows that the call or its
//! talk time was longer, the corrected values are returned as a revised call.

use super::Folder;
use super::group::{RECORDS_MAX, same_channel, same_id};
use super::record::Record;
use crate::{EventTime, FinishedCall};
use std::collections::VecDeque;
use std::time::Duration;

/// Maximum number of folded groups to keep. The oldest is dropped first.
const KEPT_MAX: usize = 1_000;
/// Smaller differences are ignored, since the times in records are whole seconds.
const ROUNDING: Duration = Duration::from_secs(1);

/// The most recently folded groups, oldest first.
#[derive(Debug, Default)]
pub(super) struct FoldedGroups(VecDeque<FoldedGroup>);

#[derive(Debug)]
struct FoldedGroup {
    records: Vec<Record>,
    /// The calls made from these records, as last emitted.
    calls: Vec<FinishedCall>,
}

impl FoldedGroups {
    pub(super) fn keep(&mut self, records: Vec<Record>, calls: &[FinishedCall]) {
        if self.0.len() >= KEPT_MAX {
            self.0.pop_front();
        }
        let calls = calls.to_vec();
        self.0.push_back(FoldedGroup { records, calls });
    }

    /// Adds a late record to the newest group it belongs to and returns that group's revised calls.
    /// `folder` must be empty and is used to fold the records again.
    pub(super) fn revise(&mut self, late: Record, mut folder: Folder) -> Vec<FinishedCall> {
        // Old Asterisks reuse channel names, such as `DAHDI/1-1`, so the IDs come first.
        let groups = self.0.iter().rev();
        let mut known = None;
        for tie in [same_channel_id, same_id, same_channel] {
            let mut tied = groups.clone();
            known = known.or_else(|| tied.position(|group| group.is_tied(&late, tie)));
        }
        let Some(group) = known.and_then(|place| self.0.iter_mut().rev().nth(place)) else {
            return Vec::new();
        };
        if group.records.contains(&late) || group.records.len() >= RECORDS_MAX {
            return Vec::new();
        }
        group.records.push(late);
        let now = EventTime::from_seconds(0);
        for record in &group.records {
            folder.groups.take_in(record.clone(), now);
        }
        folder.finish_all();
        let mut revised = Vec::new();
        for call in folder.finished {
            let mut known = group.calls.iter_mut();
            if let Some(known) = known.find(|known| known.linkedid == call.linkedid)
                && has_more(&call, known)
            {
                known.clone_from(&call);
                revised.push(call);
            }
        }
        revised
    }
}

fn same_channel_id(known: &Record, late: &Record) -> bool {
    !late.uniqueid.is_empty() && known.uniqueid == late.uniqueid
}

impl FoldedGroup {
    fn is_tied(&self, late: &Record, tie: fn(&Record, &Record) -> bool) -> bool {
        self.records.iter().any(|known| tie(known, late))
    }
}

/// Returns `true` if a call ends later or has more talk time than was known before.
fn has_more(call: &FinishedCall, known: &FinishedCall) -> bool {
    call.ended > known.ended.plus(ROUNDING)
        || call.talk > known.talk + ROUNDING
        || call.answered && !known.answered
}
