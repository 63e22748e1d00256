//! What polls and pages of the journal tell of the calls that wait to be confirmed.

use super::core::Core;
use super::flight::Flight;
use super::orphan;
use super::outcome::swept;
use super::plan::Task;
use super::schedule::{OLD_POLL, next_look};
use super::sweep::{Findings, WORTH};
use super::verdict::Verdict;
use callbridge_call::EventTime;
use callbridge_crm::Page;
use callbridge_model::clock::Now;
use callbridge_spool::{Step, Unconfirmed};
use std::time::Duration;

/// Between two sweeps that both count a call as absent.
const APART: Duration = Duration::from_secs(60);

/// How much longer than persisting lasts an orphan is looked for before it is given up.
const PATIENCE: Duration = Duration::from_secs(5);

impl Core {
    /// Nothing waits to be submitted, and little to be confirmed.
    pub(super) fn is_idle(&self) -> bool {
        !self.loaded && self.waiting < u64::from(WORTH)
    }

    /// A poll found its call in the journal: what that says of the sweeps.
    pub(super) fn polled(&mut self, flight: &Flight, now: Now) {
        let Task::Poll(call) = &flight.plan.task else {
            return;
        };
        self.settled_to = self.settled_to.max(call.submitted_at).min(now.wall);
        self.flow.asked_for(now.wall, call.age(now.wall));
        self.sweeper.polled(now.wall, call);
    }

    /// The poll came that tells why a sweep missed so much.
    pub(super) fn probed(&mut self, now: Now, probe: &Unconfirmed, verdict: &Verdict) {
        match verdict {
            Verdict::Journaled => self.sweeper.probe_was_written(now.wall),
            Verdict::NotYet => self.sweeper.probe_was_not(now.wall, probe),
            Verdict::Submitted { .. }
            | Verdict::Known(_)
            | Verdict::Swept(_)
            | Verdict::Unswept { .. }
            | Verdict::Dead { .. }
            | Verdict::Unpolled { .. }
            | Verdict::Lost { .. }
            | Verdict::Fault { .. }
            | Verdict::Halt { .. }
            | Verdict::TooMany => {}
        }
    }

    /// The steps that a page of the journal means for the calls it shows, and for those it should
    /// show and does not.
    pub(super) fn swept(&mut self, now: Now, page: &Page) -> Vec<(Unconfirmed, Step)> {
        let mut findings = self.sweeper.heard(now.wall, page, self.loaded);
        let (found, absent) = (
            std::mem::take(&mut findings.found),
            std::mem::take(&mut findings.absent),
        );
        for call in &found {
            self.settled_to = self.settled_to.max(call.submitted_at).min(now.wall);
            self.flow.asked_for(now.wall, call.age(now.wall));
        }
        if found.is_empty() {
            self.line.passed(swept(now));
        } else {
            self.line.good(swept(now));
        }
        let found = found.into_iter().map(|call| {
            let step = orphan::found(&call);
            (call, step)
        });
        let absent = absent.into_iter().map(|call| {
            let step = self.absent(now, &call, &findings);
            (call, step)
        });
        let told = found.chain(absent).collect();
        self.probe = findings.probe;
        told
    }

    /// A sweep did not show this call. That proves nothing: after two of them, a minute apart, it
    /// is polled alone. An orphan cannot be polled.
    pub(super) fn absent(&self, now: Now, call: &Unconfirmed, findings: &Findings) -> Step {
        let ahead = |at: EventTime| at > now.wall; // the clock was set back since
        let apart = |at| now.wall.since(at) >= APART || ahead(at);
        let apart = call.absent_at.is_none_or(apart);
        let counts = apart && findings.telling;
        let times = call.absent.saturating_add(u32::from(counts));
        let orphan = !self.tokens.reads(now, &call.token);
        let age = call.age(now.wall);
        if orphan && (findings.complete && findings.telling || times >= 2) {
            let given_time = age >= self.sweeper.ways.persisting + PATIENCE;
            if given_time {
                return orphan::absent(call, true);
            }
        }
        let barred = self.rights.polls_barred(now.boot);
        if barred && !orphan && times >= 2 && age >= OLD_POLL {
            return orphan::absent(&self.rights.with_bar(call), true);
        }
        // an orphan is never left to the polls, nor is anything to polls that are refused
        let (times, alone) = match orphan || barred {
            true => (times.min(1), false),
            false => (times, times >= 2),
        };
        let next_look = if alone {
            now.wall
        } else {
            // where absence says nothing another range may show it soon
            let soon = !self.loaded || !findings.telling;
            next_look(age, soon, now.wall)
        };
        Step::Absent { next_look, times }
    }
}
