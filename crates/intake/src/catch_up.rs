//! The second record of a PBX's calls, which is what the PBX itself writes to a file
//! (`--catch-up`). It's assembled separately from the first record (the primary), so that it can
//! neither delay nor change the primary's calls.

use super::under_way::Branch;
use callbridge_call::{
    Assembler, EventTime, FinishedCall, Folder, Line, Patience, PbxEvent, Reconciler, Settings,
    Timing,
};
use callbridge_spool::Op;

/// Assembles the second record, and holds calls from both until it's decided which one to use.
pub(super) struct Second {
    pub(super) assembler: Assembler,
    pub(super) folder: Folder,
    pub(super) reconciler: Reconciler,
    /// When we first connected to the PBX. Calls that started before that aren't filled in.
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

    /// Processes an event from the second record.
    pub(super) fn on_event(
        &mut self,
        event: &PbxEvent<'_>,
        arrived: EventTime,
        line: Option<Line>,
    ) {
        self.assembler.timing(Timing {
            line,
            kept: true,
            ..Timing::default()
        });
        match event {
            PbxEvent::Channel(_) => drop(self.assembler.on_event(event, arrived)),
            PbxEvent::Cdr(cdr) => drop(self.folder.on_cdr(cdr, arrived)),
            PbxEvent::Mark(_) => {}
        }
    }

    /// Finishes the second record's open calls, because the file has been read to its current end.
    pub(super) fn at_end(&mut self, now: EventTime) {
        self.assembler.finish_all(now);
        self.folder.at_end(now);
    }

    pub(super) fn tick(&mut self, now: EventTime) {
        self.assembler.tick(now);
        self.folder.tick(now);
    }

    /// Takes the second record's finished calls.
    pub(super) fn take_finished(&mut self) -> Vec<FinishedCall> {
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

    /// Adds the operations that store changes to the open and held calls. `pbx` is the PBX's ID.
    pub(super) fn keep(&mut self, pbx: &str, ops: &mut Vec<Op>) {
        Branch::CatchUpEvents.keep(pbx, self.assembler.take_changes(), ops);
        Branch::CatchUpRecords.keep(pbx, self.folder.take_changes(), ops);
        Branch::Held.keep(pbx, self.reconciler.take_changes(), ops);
    }
}
