//! The collectors of the chain, and what becomes of a call between their disks and the stream.

use super::Chain;
use crate::chain_paths::ChainPath;
use crate::stream::StreamMessage;
use callbridge_broker::message;
use callbridge_formats::message::MessageKind;
use callbridge_spool::{Finished, Op, Row, Step, Store, tables};
use std::collections::VecDeque;

/// A collector: what its PBX tells, and what its disk holds. All else dies with it.
pub(super) struct SimCollector {
    pub(super) untold: VecDeque<Finished>,
    pub(super) store: Store,
}

impl Chain {
    /// Every collector that has something publishes it.
    pub(super) fn collect(&mut self, percent: u64) {
        for n in 0..self.collectors.len() {
            let at = self.world.now.wall;
            let collector = &mut self.collectors[n];
            if collector.is_done() {
                continue;
            }
            let ends = self.told_percent >= 100 || self.dice.chance(self.told_percent);
            let told = ends.then(|| collector.untold.pop_front()).flatten();
            let told = told.map(|call| Op::Finish(Box::new(call)));
            if let Some(op) = told {
                collector.store.write(vec![op]).expect("written");
            }
            let ready = tables::calls::ready(&collector.store, 500).expect("readable");
            for row in ready {
                let step = Step::Forwarded;
                if self.publish(&row, percent) {
                    let op = Op::Step {
                        row: row.id,
                        step,
                        at,
                    };
                    self.collectors[n].store.write(vec![op]).expect("written");
                }
            }
        }
    }

    /// Whether the call's confirm is on the disk at the end.
    fn publish(&mut self, row: &Row, percent: u64) -> bool {
        let death = self.dice.chance(percent).then(|| self.dice.below(4));
        if death == Some(0) {
            self.meet(ChainPath::PublishLost);
            return false;
        }
        self.stream.push(StreamMessage {
            kind: MessageKind::Call,
            body: message::body(row),
            at: self.world.now.wall,
        });
        match death {
            Some(1) => self.meet(ChainPath::PublishKept),
            Some(2) => self.meet(ChainPath::ConfirmUnwritten),
            Some(_) => self.meet(ChainPath::ConfirmLost),
            None => return true,
        }
        false
    }

    /// The books of each collector.
    pub fn assert_collectors_balance(&self) {
        for collector in &self.collectors {
            let books = collector.store.books();
            assert!(
                books.balance() && books.dead + books.parked == 0,
                "{books:?}"
            );
        }
    }
}

impl SimCollector {
    /// All that its PBX had to tell is forwarded.
    pub(super) fn is_done(&self) -> bool {
        let books = self.store.books();
        self.untold.is_empty() && books.forwarded == books.finished
    }
}
