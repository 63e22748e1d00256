//! Which request is the best one now, in the order of [`Lane`]; its slot is taken.

use super::cause::Permit;
use super::core::{Core, UNDER_WAY_MAX};
use super::pacer::Pace;
use super::plan::{Decision, Lane, Plan, Task};
use super::schedule::{DEADLINE, OLD_POLL, PROBE, TOGETHER};
use super::sweep::WORTH;
use crate::clock::Now;
use crate::spool::{Due, Head, RowId, TokenPrint, Unconfirmed};
use std::time::Duration;

/// A clock that is wrong is looked at this often.
const CLOCK_LOOK: Duration = Duration::from_secs(1);

/// Calls that wait for company are looked at this often.
const COMPANY_LOOK: Duration = Duration::from_secs(1);

/// Errands that wait for a better moment are looked at this often.
const ERRAND_LOOK: Duration = Duration::from_secs(5);

/// Nothing is planned further ahead: the wall clock may be set meanwhile.
const LOOK: Duration = Duration::from_secs(60);

impl Core {
    /// The best request now.
    pub fn next(&mut self, now: Now, head: &Head) -> Decision {
        if self.clock_is_wrong(now) {
            return Decision::WaitUntil(now.boot + CLOCK_LOOK);
        }
        self.look_at_clock(now);
        self.loaded = head.live.is_some() || head.backlog.is_some();
        self.waiting = head.submitted;
        self.flow.seen(head.hooked);
        let under_way = self.flights.len();
        let (polls_first, trial) = match self.line.permit(now.boot, under_way, UNDER_WAY_MAX) {
            Permit::Calls(most) if under_way < most => (false, false),
            Permit::Trial { polls_first } => (polls_first, true),
            Permit::Ask => return self.take(now, Lane::Token, Task::TokenInfo),
            Permit::Until(at) => return Decision::WaitUntil(at),
            Permit::Calls(_) | Permit::Answer | Permit::Token => return Decision::Idle,
        };
        // its token may have ended while a poll is under way: the answer comes first
        let orphan = head.orphan.as_ref();
        let orphan = orphan.filter(|it| !self.may_look(now) && !self.is_under_way(it.row));
        if let Some(orphan) = orphan {
            return Decision::Revive(Box::new(orphan.clone()));
        }
        let picked = match trial {
            true => self.pick(now, head, polls_first),
            false => self.pick_any(now, head),
        };
        match picked {
            Some((Lane::Spare, task)) => match (self.take(now, Lane::Spare, task), head) {
                (Decision::WaitUntil(at), head) => self.wait_no_longer(now, head, at),
                (decision, _) => decision,
            },
            Some((lane, task)) => self.take(now, lane, task),
            None => self.wait(now, head),
        }
    }

    /// A call, or an errand beside them.
    fn pick_any(&self, now: Now, head: &Head) -> Option<(Lane, Task)> {
        let call = self.pick(now, head, false);
        let before = match call {
            Some((lane, _)) => lane,
            None => Lane::Spare,
        };
        let errand = self.errand(now, head, before);
        errand.or(call)
    }

    fn take(&mut self, now: Now, lane: Lane, task: Task) -> Decision {
        let pace = match lane {
            Lane::Token | Lane::Deadline | Lane::Live => Pace::AtOnce,
            Lane::OldPoll | Lane::Sweep | Lane::Backlog | Lane::Confirm | Lane::Errand => {
                Pace::Even
            }
            Lane::Spare => Pace::Spare,
        };
        match self.pacer.take(now.boot, pace) {
            Ok(slot) => Decision::Send(Plan { slot, lane, task }),
            Err(Some(at)) => Decision::WaitUntil(at),
            Err(None) => Decision::Idle,
        }
    }

    pub(super) fn is_under_way(&self, row: RowId) -> bool {
        self.flights
            .values()
            .any(|flight| flight.plan.row() == Some(row))
    }

    /// The journal can be read for what nothing else can find.
    fn may_look(&self, now: Now) -> bool {
        self.sweeper.ways.is_readable(now.wall) && !self.settings.dry_run
    }

    /// The journal lets itself be swept, as far as is known.
    fn may_sweep(&self, now: Now) -> bool {
        self.sweeper.ways.is_on(now.wall) && !self.settings.dry_run
    }

    fn pick(&self, now: Now, head: &Head, polls_first: bool) -> Option<(Lane, Task)> {
        if let Some(ending) = self.ending(now, head) {
            return Some((Lane::Deadline, poll(ending)));
        }
        let due = self.due(now, head);
        let old = |it: &&Unconfirmed| it.age(now.wall) >= OLD_POLL;
        let turn = match self.may_sweep(now) {
            true => head.alone.as_ref().filter(|it| self.may_poll(it)),
            false => due,
        };
        let turn = turn.filter(old).filter(|_| !self.polled_last);
        if let Some(turn) = turn.or(due.filter(|_| polls_first)) {
            return Some((Lane::OldPoll, poll(turn)));
        }
        let submit = |due: &Due| Task::Submit(due.row);
        if let Some(live) = head.live.as_ref().filter(|_| !self.settings.dry_run) {
            return Some((Lane::Live, submit(live)));
        }
        if let Some(sweep) = self.sweep_that_pays(now, head) {
            return Some((Lane::Sweep, sweep));
        }
        if let Some(backlog) = head.backlog.as_ref().filter(|_| !self.settings.dry_run) {
            return Some((Lane::Backlog, submit(backlog)));
        }
        self.confirm(now, head).map(|task| (Lane::Confirm, task))
    }

    /// A call whose requestId cannot be asked for much longer: after 24 hours (§4.6), or when the
    /// token ends.
    fn ending<'head>(&self, now: Now, head: &'head Head) -> Option<&'head Unconfirmed> {
        let mut ending = head.oldest_submitted.iter().filter(|it| {
            let old = it.age(now.wall) >= DEADLINE;
            let ends = old || self.token_ends(now, &it.token);
            ends && it.next_poll <= now.wall && self.may_poll(it)
        });
        ending.next()
    }

    /// The token ends soon, and with it all that can be asked of its requestIds.
    fn token_ends(&self, now: Now, token: &TokenPrint) -> bool {
        let (expires, soon) = match self.before.as_ref().filter(|it| it.token == *token) {
            Some(before) => (Some(before.until), self.token_end.min(PROBE)),
            None => {
                let expires = self.info.as_ref().and_then(|info| info.expires_at);
                (expires, self.token_end)
            }
        };
        expires.is_some_and(|at| {
            now.wall.plus(soon).floor_seconds() >= at && now.wall.floor_seconds() < at
        })
    }

    fn may_poll(&self, call: &Unconfirmed) -> bool {
        call.request_id.is_some() && !self.is_under_way(call.row) && !self.sweeper.seeks(call)
    }

    /// A call that is due, and that no webhook is expected for.
    fn due<'head>(&self, now: Now, head: &'head Head) -> Option<&'head Unconfirmed> {
        let mut due = head.polls.iter().filter(|it| !self.is_left(now, it));
        due.find(|it| self.may_poll(it))
    }

    /// A webhook may still confirm it, for nothing.
    fn is_left(&self, now: Now, call: &Unconfirmed) -> bool {
        call.age(now.wall) < self.flow.left(now.wall)
    }

    /// Ripe calls that no request of ours asks for just now.
    fn ripe(&self, head: &Head) -> u32 {
        let polled = self.flights.values();
        let polled = polled.filter(|it| matches!(it.plan.task, Task::Poll(_)));
        let polled = u32::try_from(polled.count()).unwrap_or(u32::MAX);
        head.ripe.calls.saturating_sub(polled)
    }

    /// One sweep at a time.
    fn free_to_sweep(&self, now: Now, head: &Head) -> Option<Task> {
        let mut under_way = self.flights.values();
        let swept = under_way.any(|it| matches!(it.plan.task, Task::Sweep { .. }));
        let begins = !self.sweeper.is_running();
        let may = self.may_sweep(now) || head.orphan.is_some() && self.may_look(now);
        let free = may && !swept && (!begins || self.sweep_from <= now.boot);
        free.then_some(Task::Sweep { begins })
    }

    /// A sweep that pays even while calls wait, or what tells whether it would.
    fn sweep_that_pays(&self, now: Now, head: &Head) -> Option<Task> {
        if let Some(probe) = self.probe.as_ref().filter(|it| self.may_poll(it)) {
            return Some(poll(probe));
        }
        let sweep = self.free_to_sweep(now, head)?;
        let oldest = head.ripe.oldest;
        let pays = self.sweeper.is_running()
            || self.ripe(head) >= self.sweeper.worth_under_load()
            || oldest.is_some_and(|at| now.wall.since(at) >= OLD_POLL) && self.ripe(head) > 0;
        pays.then_some(sweep)
    }

    /// Nothing is to be submitted: what waits is confirmed, several at once where they are.
    fn confirm(&self, now: Now, head: &Head) -> Option<Task> {
        let sweep = self.free_to_sweep(now, head);
        let enough = self.ripe(head) >= WORTH || head.orphan.is_some();
        if let Some(sweep) = sweep.filter(|_| enough) {
            return Some(sweep);
        }
        let due = head.alone.as_ref().filter(|it| self.may_poll(it));
        let due = due.or_else(|| self.due(now, head))?;
        (!self.has_company(now, due)).then(|| poll(due))
    }

    /// Others were accepted about when this call was: a sweep for all of them is cheaper than a
    /// poll for each, and soon.
    fn has_company(&self, now: Now, call: &Unconfirmed) -> bool {
        let young = call.age(now.wall) < TOGETHER && call.polls == 0;
        self.waiting >= u64::from(WORTH) && call.absent == 0 && young && self.may_sweep(now)
    }

    /// What can wait for this moment does not make calls wait for it.
    fn wait_no_longer(&self, now: Now, head: &Head, at: Duration) -> Decision {
        match self.wait(now, head) {
            Decision::WaitUntil(sooner) => Decision::WaitUntil(at.min(sooner)),
            Decision::Idle | Decision::Send(_) | Decision::Revive(_) => Decision::WaitUntil(at),
        }
    }

    fn wait(&self, now: Now, head: &Head) -> Decision {
        let waits = |it: &Unconfirmed| self.has_company(now, it) || self.is_left(now, it);
        let company = head.polls.iter().any(waits);
        let moments = [head.next_not_before, head.next_poll, head.errands.next];
        let moment = moments.into_iter().flatten().min().map(|at| {
            // the wall clock may be set meanwhile: look again within a minute
            let wait = at.since(now.wall).clamp(Duration::from_millis(1), LOOK);
            now.boot + wait
        });
        let looks = [
            (self.sweep_from > now.boot).then_some(self.sweep_from),
            company.then_some(now.boot + COMPANY_LOOK),
            (!head.errands.due.is_empty()).then_some(now.boot + ERRAND_LOOK),
            moment,
        ];
        match looks.into_iter().flatten().min() {
            Some(at) => Decision::WaitUntil(at),
            None => Decision::Idle,
        }
    }
}

fn poll(call: &Unconfirmed) -> Task {
    Task::Poll(Box::new(call.clone()))
}
