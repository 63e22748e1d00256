//! A sender that is stopped in order, and the one that goes on with what it has left.

use super::{Chain, FINISH};
use crate::chain_paths::ChainPath;
use std::time::Duration;

impl Chain {
    /// Who sends, or sent last, is stopped in order.
    pub fn stop_holder(&mut self) {
        let holder = self.holder.filter(|it| self.living().contains(it));
        if let (Some(holder), None) = (holder, self.stopping) {
            self.stopping = Some((holder, self.world.truth.plus(FINISH)));
        }
    }

    /// Who goes on takes over what another has left to it.
    pub(super) fn inherit(&mut self, process: usize) {
        let inherited = self.lease.take_inherited(process);
        if inherited.is_empty() {
            return;
        }
        self.meet(ChainPath::HandedOn);
        let own = self.lease.clock(self.lease_time(), process);
        let now = self.world.now;
        // by its machine's clock as by its claim's, which is the other model's
        let ended = inherited
            .iter()
            .map(|at| (now.boot + *at).saturating_sub(own));
        let ended: Vec<Duration> = ended.collect();
        let ops = self.world.core.adopt(now, &ended);
        self.world.unwritten.push_back(ops);
    }

    /// Who goes on ends in order: what is under way is given up, and its slots are left to the
    /// next.
    pub(super) fn stop(&mut self) {
        let (process, now) = (self.world.process, self.lease_time());
        let own = self.lease.clock(now, process);
        let boot = self.world.now.boot;
        let left = self.world.core.left_slots(self.world.now);
        let ended = left.map(|it| {
            it.iter()
                .map(|at| (own + *at).saturating_sub(boot))
                .collect()
        });
        let ended: Option<Vec<Duration>> = ended;
        self.world.strike_down();
        let again = self.again();
        match ended {
            Some(ended) => self.lease.stop(now, process, &ended, again),
            None => self.lease.die(process, again),
        }
        self.has_ended();
    }
}
