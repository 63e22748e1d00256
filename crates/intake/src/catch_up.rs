//! The second account of a PBX's calls (`--catch-up`): assembled apart from the first, so that it
//! can neither delay nor change what the primary tells, and brought together with it call by call.

use super::pbx::Pbx;
use super::stream_id::Branch;
use callbridge_call::{
    Assembler, Decision, EventTime, FinishedCall, Folder, Knowledge, Patience, PbxEvent,
    Reconciler, Settings, UniqueId,
};
use callbridge_spool::{Known, Op};
use std::collections::BTreeMap;

/// Each round ends an open call of the primary; more are ended the next time.
const ROUNDS_MAX: usize = 64;

/// Assembles the second account, and holds what is not decided.
pub(super) struct Second {
    assembler: Assembler,
    folder: Folder,
    reconciler: Reconciler,
    /// Since when the PBX is listened to: a call that began before is not filled in.
    pub(super) since: Option<EventTime>,
}

impl Second {
    pub(super) fn new(settings: Settings, patience: Patience) -> Self {
        Self {
            folder: Folder::new(settings.clone()),
            assembler: Assembler::new(Settings {
                history: true,
                cdr_wait: None,
                ..settings
            }),
            reconciler: Reconciler::new(patience),
            since: None,
        }
    }

    /// Takes in what the second account tells.
    fn on_event(&mut self, told: &PbxEvent<'_>, arrived: EventTime) {
        match told {
            PbxEvent::Channel(_) => drop(self.assembler.hear(told, arrived)),
            PbxEvent::Cdr(cdr) => drop(self.folder.hear(cdr, arrived)),
            PbxEvent::Mark(_) => {}
        }
    }

    /// It is read to its present end.
    pub(super) fn at_end(&mut self, now: EventTime) {
        self.assembler.finish_all(now);
        self.folder.at_end(now);
    }

    pub(super) fn tick(&mut self, now: EventTime) {
        self.assembler.tick(now);
        self.folder.tick(now);
    }

    /// The calls of the second account that are over.
    fn take_finished(&mut self) -> Vec<FinishedCall> {
        let mut calls = self.assembler.take_finished();
        calls.append(&mut self.folder.take_finished());
        calls
    }

    pub(super) fn next_deadline(&self) -> Option<EventTime> {
        let deadlines = [
            self.assembler.next_deadline(),
            self.folder.next_deadline(),
            self.reconciler.next_deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// A call of the primary is finished: given back if nothing of it is missing.
    pub(super) fn heard(&mut self, call: FinishedCall, now: EventTime) -> Option<FinishedCall> {
        self.reconciler.heard(call, now)
    }

    /// Nothing waits for a decision.
    pub(super) fn is_idle(&self) -> bool {
        self.reconciler.is_empty()
    }

    /// Puts back what was kept of a branch, where it is one of the second account's.
    pub(super) fn restore(
        &mut self,
        branch: Branch,
        key: u64,
        bytes: &[u8],
    ) -> Result<(), callbridge_call::snapshots::Error> {
        match branch {
            Branch::Events | Branch::Records => Ok(()),
            Branch::CatchUpEvents => self.assembler.restore(key, bytes),
            Branch::CatchUpRecords => self.folder.restore(key, bytes),
            Branch::Held => self.reconciler.restore(key, bytes),
        }
    }

    /// What is kept of it.
    pub(super) fn keep(&mut self, pbx: &str, ops: &mut Vec<Op>) {
        Branch::CatchUpEvents.keep(pbx, self.assembler.take_changes(), ops);
        Branch::CatchUpRecords.keep(pbx, self.folder.take_changes(), ops);
        Branch::Held.keep(pbx, self.reconciler.take_changes(), ops);
    }
}

impl Pbx {
    /// Brings both accounts together: calls that are decided by now are finished. `all` is over:
    /// nothing more will be told by either.
    pub(super) fn reconcile(
        &mut self,
        now: EventTime,
        over: bool,
        known: &mut dyn FnMut(&str) -> Option<Known>,
    ) {
        self.collect(now);
        let Some(mut second) = self.second.take() else {
            return;
        };
        let since = second.since;
        for call in second.take_finished() {
            if since.is_none_or(|since| call.started >= since) {
                second.reconciler.told(call, now);
            }
        }
        // An ended call is held first, and decided with its second account in another round.
        for _ in 0..ROUNDS_MAX {
            let ended = self.decide(&mut second, now, over, known);
            if !ended {
                break;
            }
            for call in self.assembler.take_finished() {
                if let Some(call) = second.heard(call, now) {
                    self.finish(call);
                }
            }
        }
        self.second = Some(second);
    }

    /// `true` if a call of the primary was ended.
    fn decide(
        &mut self,
        second: &mut Second,
        now: EventTime,
        over: bool,
        known: &mut dyn FnMut(&str) -> Option<Known>,
    ) -> bool {
        let mut knows = |id: &UniqueId| {
            let id = id.as_str();
            if let Some(doubt) = self.assembler.in_doubt(id) {
                return Knowledge::Open { doubt };
            }
            let just = self.just_finished.get(id).cloned();
            just.or_else(|| known(id))
                .map_or(Knowledge::Unknown, |known| Knowledge::Finished {
                    incomplete: known.incomplete,
                    call: known.letter,
                })
        };
        let outages = &self.outages;
        // What the primary knows to be over, the second account may never tell the end of.
        let goes_on = |id: &str| self.assembler.in_doubt(id).is_some();
        let telling = |id: &UniqueId| {
            let id = id.as_str();
            !over && second.assembler.knows(id) && goes_on(id)
        };
        // All that was waited for is over, too.
        let then = if over { now.plus(FOREVER) } else { now };
        let decisions =
            second
                .reconciler
                .decide(then, &|call| outages.covers(call), &mut knows, &telling);
        let mut ended = false;
        for decision in decisions {
            match decision {
                Decision::Finish(call) => self.finish(*call),
                Decision::End(id) => {
                    self.assembler.end_unheard(id.as_str());
                    ended = true;
                }
            }
        }
        ended
    }
}

/// Longer than anything is waited for.
const FOREVER: std::time::Duration = std::time::Duration::from_secs(86_400 * 365);

/// Takes in what the second account of this PBX tells.
pub(super) fn on_event(
    pbxes: &mut BTreeMap<String, Pbx>,
    pbx: &str,
    told: &PbxEvent<'_>,
    arrived: EventTime,
) {
    let second = pbxes.get_mut(pbx).and_then(|pbx| pbx.second.as_mut());
    if let Some(second) = second {
        second.on_event(told, arrived);
    }
}
