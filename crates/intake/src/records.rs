//! Call detail records of one PBX: folded to calls of their own where no events tell of them.
//!
//! Whether a PBX tells events is not configured but heard: an AMI user with `read = cdr` tells
//! records alone. So every record of an unknown call is kept, and is folded when it was waited for
//! long enough, nobody has told of its call meanwhile, and the events of the PBX, where there are
//! any, have come past its end: a queue of CDRs is read faster than one of channel events.

use super::stream_id::Branch;
use callbridge_call::{Cdr, EventTime, Folder, Settings};
use callbridge_spool::Op;

/// The records of one PBX that belong to no call told by events.
pub(super) struct Records {
    pub(super) folder: Folder,
    /// Calls that were known when their records had been waited for.
    pub(super) known: u64,
    dropped: u64,
}

impl Records {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            folder: Folder::new(settings),
            known: 0,
            dropped: 0,
        }
    }

    /// Takes in a record of an unknown call. `false` when its call was folded already.
    pub(super) fn on_record(&mut self, cdr: &Cdr<'_>, arrived: EventTime) -> bool {
        self.folder.hear(cdr, arrived)
    }

    /// The file that the records come from is read to its present end.
    pub(super) fn at_end(&mut self, now: EventTime) {
        self.folder.at_end(now);
    }

    pub(super) fn next_deadline(&self) -> Option<EventTime> {
        self.folder.next_deadline()
    }

    pub(super) fn open_calls(&self) -> usize {
        self.folder.open_calls()
    }

    /// What is kept of it.
    pub(super) fn keep(&mut self, pbx: &str, ops: &mut Vec<Op>) {
        Branch::Records.keep(pbx, self.folder.take_changes(), ops);
        let dropped = self.folder.counts().facts_dropped;
        let counts = [
            ("cdr_known", std::mem::take(&mut self.known)),
            ("facts_dropped", dropped - self.dropped),
        ];
        self.dropped = dropped;
        let counts = counts.into_iter().filter(|(_, by)| *by > 0);
        ops.extend(counts.map(|(counter, by)| Op::count(counter, by)));
    }

    /// Puts back what was kept.
    ///
    /// # Errors
    /// When the bytes are not a snapshot.
    pub(super) fn restore(
        &mut self,
        key: u64,
        bytes: &[u8],
    ) -> Result<(), callbridge_call::snapshots::Error> {
        self.folder.restore(key, bytes)
    }
}
