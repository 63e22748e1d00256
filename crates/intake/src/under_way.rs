//! Calls in progress. The spool keeps their snapshots under a name that consists of the PBX and the
//! branch of its calls. This module reads and writes these names, and returns the calls in the
//! snapshots.

use super::{Intake, settings::Settings};
use callbridge_call::{Assembler, EventTime, FinishedCall, OpenChange, Patience, Reconciler};
use callbridge_spool::Op;
use std::collections::BTreeMap;

/// One of the records of a PBX's calls, or the calls that are held until both records are
/// available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Branch {
    Events,
    Records,
    CatchUpEvents,
    CatchUpRecords,
    Held,
}

/// The suffixes of stored names. The one for records comes first, because what precedes it can be
/// any PBX name, even one with a `?`.
const SUFFIXES: [(Branch, &str); 5] = [
    (Branch::Records, "?cdr"),
    (Branch::CatchUpEvents, "?second"),
    (Branch::CatchUpRecords, "?second-cdr"),
    (Branch::Held, "?held"),
    (Branch::Events, ""),
];

impl Branch {
    /// Splits a stored name into PBX and branch, so that `hq?held` means the held calls of `hq`.
    /// The branch is `None` for a name that no version of callbridge has written.
    pub(super) fn read(name: &str) -> (&str, Option<Self>) {
        if let Some(pbx) = name.strip_suffix(SUFFIXES[0].1) {
            return (pbx, Some(Self::Records));
        }
        let (pbx, suffix) = name.split_at(name.find('?').unwrap_or(name.len()));
        let known = SUFFIXES.iter().find(|(_, known)| *known == suffix);
        (pbx, known.map(|(branch, _)| *branch))
    }

    /// Adds the operations that store this branch's changes.
    pub(super) fn keep(self, pbx: &str, changes: Vec<OpenChange>, ops: &mut Vec<Op>) {
        let suffix = (SUFFIXES.iter())
            .find(|(branch, _)| *branch == self)
            .map_or("", |(_, suffix)| suffix);
        ops.extend(changes.into_iter().map(|change| Op::Open {
            pbx: format!("{pbx}{suffix}"),
            key: change.key,
            snapshot: change.snapshot,
        }));
    }
}

impl Intake {
    pub fn open_calls(&self) -> usize {
        self.pbxes
            .values()
            .map(|pbx| pbx.assembler.open_calls() + pbx.records.open_calls())
            .sum()
    }

    /// Returns `true` if the PBX of source number `at` has open calls.
    pub fn has_open_calls(&self, at: usize) -> bool {
        self.pbxes_of(at).any(|pbx| pbx.assembler.open_calls() > 0)
    }
}

/// Returns the calls in progress along with their PBXs, each as if it ended `now`, and the finished
/// calls that are waiting for the catch-up file.
///
/// `open` holds the stored name, key, and snapshot of each open call in the spool. Unreadable
/// snapshots and second records of the same calls are omitted.
pub fn under_way(
    settings: &Settings,
    open: &[(String, u64, Vec<u8>)],
    now: EventTime,
) -> Vec<(String, FinishedCall)> {
    let mut assemblers: BTreeMap<&str, Assembler> = BTreeMap::new();
    let mut held: BTreeMap<&str, Reconciler> = BTreeMap::new();
    for (name, key, snapshot) in open {
        let (pbx, branch) = Branch::read(name);
        if branch == Some(Branch::Held) {
            let reconciler = held
                .entry(pbx)
                .or_insert_with(|| Reconciler::new(Patience::CDR));
            if let Err(error) = reconciler.restore(*key, snapshot) {
                tracing::debug!(pbx, key, %error, "a held call is not shown");
            }
        }
        if branch != Some(Branch::Events) {
            continue;
        }
        if !assemblers.contains_key(pbx) {
            // Contradictory trunks are rejected at startup.
            let Ok(settings) = settings.assembler(pbx) else {
                continue;
            };
            assemblers.insert(pbx, Assembler::new(settings));
        }
        if let Some(assembler) = assemblers.get_mut(pbx)
            && let Err(error) = assembler.restore(*key, snapshot)
        {
            tracing::debug!(pbx, key, %error, "an open call is not shown");
        }
    }
    let mut calls = Vec::new();
    for (pbx, assembler) in assemblers {
        for call in assembler.resolve_open(now) {
            calls.push((pbx.to_owned(), call));
        }
    }
    for (pbx, reconciler) in held {
        for call in reconciler.waiting() {
            calls.push((pbx.to_owned(), call.clone()));
        }
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_branch_name_is_read_back_as_its_branch() {
        let branches = SUFFIXES.map(|(branch, _)| branch);
        for branch in branches {
            let change = OpenChange {
                key: 1,
                snapshot: None,
            };
            let mut ops = Vec::new();
            branch.keep("hq", vec![change], &mut ops);
            let [Op::Open { pbx: name, .. }] = &ops[..] else {
                panic!("{ops:?}");
            };
            assert_eq!(Branch::read(name), ("hq", Some(branch)));
        }
        assert_eq!(Branch::read("hq?later"), ("hq", None));
    }
}
