//! What becomes of the stream itself: it is deleted and declared again, restored from a copy, loses
//! its end with the power of its brokers, or is overtaken by retention.

use super::{Chain, SimCollector};
use crate::chain_paths::ChainPath;
use crate::stream::StreamMessage;
use callbridge_broker::{forwarder, message};
use callbridge_formats::message::MessageKind;
use callbridge_spool::{RowId, tables};
use std::time::Duration;

/// What the brokers had not written when their power went: confirmed within this.
const UNWRITTEN: Duration = Duration::from_secs(120);
/// Messages of a copy that are missing, at most.
const COPY_LACKS: u64 = 60;

impl Chain {
    /// This becomes of the stream, where everybody is there and has read it: what only a stream
    /// held is gone with it. Of its last messages that need not be so, for their collectors publish
    /// them again. `false`: it has to wait.
    pub fn stream_meets(&mut self, path: ChainPath) -> bool {
        if !self.down.is_empty() || self.living().len() < self.lease.processes() {
            return false;
        }
        let read = self.readers.iter().all(|it| it.has_read(&self.stream));
        let (end, now) = (self.stream.end(), self.world.now.wall);
        match path {
            ChainPath::TailLost => {
                let from = self.stream.since(now.minus(UNWRITTEN));
                let lost = self.dice.below(u64::try_from(end - from).expect("few") + 1);
                self.stream
                    .end_at(end - usize::try_from(lost).expect("few"));
                self.publish_again();
            }
            _ if !read => return false,
            ChainPath::StreamAnew => self.stream.end_at(0),
            ChainPath::StreamRestored => {
                let lacks = usize::try_from(1 + self.dice.below(COPY_LACKS)).expect("few");
                self.stream.end_at(end.saturating_sub(lacks));
            }
            ChainPath::Overtaken => self.stream.begin_at(end),
            other => panic!("{other:?} is nothing that becomes of a stream"),
        }
        self.meet(path);
        self.changes += 1;
        self.readers.iter_mut().for_each(|it| it.line_lost());
        true
    }

    /// Every collector publishes again what was confirmed shortly before it lost its broker.
    fn publish_again(&mut self) {
        let now = self.world.now.wall;
        let since = (now.minus(forwarder::BEFORE_LOSS), RowId(0));
        for SimCollector { store, .. } in &self.collectors {
            let calls = tables::calls::forwarded(store, since, now, usize::MAX);
            for row in calls.expect("readable") {
                self.stream.push(StreamMessage {
                    kind: MessageKind::Call,
                    body: message::body(&row),
                    at: now,
                });
            }
        }
    }

    /// Nobody looks any more whether a stream is the one that was read.
    pub fn believe_names(&mut self) {
        self.readers.iter_mut().for_each(|it| it.believes = true);
    }

    /// Calls that this sender has never taken, though all was told and read.
    pub fn untaken(&mut self, process: usize) -> usize {
        self.goes_on(process);
        let taken = self.world.disk.store.books().finished;
        self.calls.len() - usize::try_from(taken).expect("few")
    }
}
