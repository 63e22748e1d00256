//! Which request is the best one now, in the order of [`Lane`]; its slot is taken.

use super::cause::Permit;
use super::core::{Core, UNDER_WAY_MAX};
use super::pacer::Pace;
use super::plan::{Decision, Lane, Plan, Task};
use super::schedule::{DEADLINE, OLD_POLL};
use crate::clock::Now;
use crate::spool::{Due, Head, RowId, Unconfirmed};
use std::time::Duration;

/// A clock that is wrong is looked at this often.
const CLOCK_LOOK: Duration = Duration::from_secs(1);

impl Core {
    /// The best request now.
    pub fn next(&mut self, now: Now, head: &Head) -> Decision {
        if self.clock_is_wrong(now) {
            return Decision::WaitUntil(now.boot + CLOCK_LOOK);
        }
        let under_way = self.flights.len();
        let polls_first = match self.line.permit(now.boot, under_way, UNDER_WAY_MAX) {
            Permit::Calls(most) if under_way < most => false,
            Permit::Trial { polls_first } => polls_first,
            Permit::Ask => return self.take(now, Lane::Token, Task::TokenInfo),
            Permit::Until(at) => return Decision::WaitUntil(at),
            Permit::Calls(_) | Permit::Answer | Permit::Token => return Decision::Idle,
        };
        let foreign = head
            .polls
            .iter()
            .find(|poll| self.token.as_ref() != Some(&poll.token));
        if let Some(poll) = foreign.filter(|poll| !self.is_under_way(poll.row)) {
            return Decision::Revive(poll.row);
        }
        match self.pick(now, head, polls_first) {
            Some((lane, task)) => self.take(now, lane, task),
            None => Self::wait(now, head),
        }
    }

    fn take(&mut self, now: Now, lane: Lane, task: Task) -> Decision {
        let pace = match lane {
            Lane::Token | Lane::Deadline | Lane::Live => Pace::AtOnce,
            Lane::OldPoll | Lane::Backlog | Lane::Poll => Pace::Even,
        };
        match self.pacer.take(now.boot, pace) {
            Ok(slot) => Decision::Send(Plan { slot, lane, task }),
            Err(Some(at)) => Decision::WaitUntil(at),
            Err(None) => Decision::Idle,
        }
    }

    fn is_under_way(&self, row: RowId) -> bool {
        self.flights
            .values()
            .any(|flight| flight.plan.row() == Some(row))
    }

    fn pick(&self, now: Now, head: &Head, polls_first: bool) -> Option<(Lane, Task)> {
        let free = |poll: &&Unconfirmed| {
            self.token.as_ref() == Some(&poll.token) && !self.is_under_way(poll.row)
        };
        let poll = |lane, poll: &Unconfirmed| (lane, Task::Poll(Box::new(poll.clone())));
        let ending = head.oldest_submitted.iter().find(|it| {
            it.next_poll <= now.wall && now.wall.since(it.submitted_at) >= DEADLINE && free(it)
        });
        if let Some(ending) = ending {
            return Some(poll(Lane::Deadline, ending));
        }
        let due = head.polls.iter().find(free);
        let old = due.filter(|it| now.wall.since(it.submitted_at) >= OLD_POLL);
        let turn = old.filter(|_| !self.polled_last);
        if let Some(turn) = turn.or(due.filter(|_| polls_first)) {
            return Some(poll(Lane::OldPoll, turn));
        }
        let submit = |due: &Due| Task::Submit(due.row);
        if !self.settings.dry_run {
            if let Some(live) = &head.live {
                return Some((Lane::Live, submit(live)));
            }
            if let Some(backlog) = &head.backlog {
                return Some((Lane::Backlog, submit(backlog)));
            }
        }
        due.map(|due| poll(Lane::Poll, due))
    }

    fn wait(now: Now, head: &Head) -> Decision {
        let moments = [head.next_not_before, head.next_poll];
        match moments.into_iter().flatten().min() {
            // the wall clock may be set meanwhile: look again within a minute
            Some(at) => {
                let wait = at
                    .since(now.wall)
                    .clamp(Duration::from_millis(1), OLD_POLL / 5);
                Decision::WaitUntil(now.boot + wait)
            }
            None => Decision::Idle,
        }
    }
}
