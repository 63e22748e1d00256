//! The second account of a PBX's calls (`--catch-up`): assembled apart from the first, so that it
//! can neither delay nor change what the primary tells, and brought together with it call by call.

use super::pbx::Pbx;
use super::second::Second;
use callbridge_call::{Decision, EventTime, Knowledge, UniqueId};
use callbridge_spool::Known;

/// Each round ends an open call of the primary; more are ended the next time.
const ROUNDS_MAX: usize = 64;

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
                second.reconciler.on_second(call, now);
            }
        }
        // An ended call is held first, and decided with its second account in another round.
        for _ in 0..ROUNDS_MAX {
            let ended = self.decide(&mut second, now, over, known);
            if !ended {
                break;
            }
            for call in self.assembler.take_finished() {
                if let Some(call) = second.reconciler.on_primary(call, now) {
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
        let is_open = |id: &UniqueId| {
            let id = id.as_str();
            !over && second.assembler.knows(id) && goes_on(id)
        };
        // All that was waited for is over, too.
        let then = if over { now.plus(FOREVER) } else { now };
        let decisions =
            second
                .reconciler
                .decide(then, &|call| outages.covers(call), &mut knows, &is_open);
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
