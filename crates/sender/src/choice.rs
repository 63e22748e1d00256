//! Which request is the best one now, in the order of [`Lane`]; its slot is taken.

use super::cause::Permit;
use super::core::Core;
use super::plan::{Decision, Lane, Load, Task};
use super::schedule::{DEADLINE, OLD_POLL, TOGETHER};
use super::sweep::WORTH;
use super::troubles::{Flying, Gate, Part};
use super::verdict::Halt;
use callbridge_crm::Endpoint;
use callbridge_model::clock::Now;
use callbridge_spool::{Due, Head, Unconfirmed};
use std::time::Duration;

/// A clock that is wrong is looked at this often.
const CLOCK_LOOK: Duration = Duration::from_secs(1);

/// Whether an answer is slow is looked at this often.
const ROOM_LOOK: Duration = Duration::from_secs(1);

/// Calls that wait for company are looked at this often.
const COMPANY_LOOK: Duration = Duration::from_secs(1);

/// Errands that wait for a better moment are looked at this often.
const ERRAND_LOOK: Duration = Duration::from_secs(5);

/// Nothing is planned further ahead: the wall clock may be set meanwhile.
const LOOK: Duration = Duration::from_secs(60);

/// What may be asked of the service now.
#[derive(Clone, Copy, Debug)]
struct Open {
    submissions: bool,
    polls: bool,
    sweeps: bool,
}

impl Open {
    const ALL: Self = Self {
        submissions: true,
        polls: true,
        sweeps: true,
    };

    fn only(part: Part) -> Self {
        Self {
            submissions: part == Part::Submissions,
            polls: part == Part::Polls,
            sweeps: part == Part::Sweeps,
        }
    }
}

impl Core {
    /// The best request now.
    pub fn next(&mut self, now: Now, head: &Head) -> Decision {
        if self.clock_is_wrong(now) {
            return Decision::WaitUntil(now.boot + CLOCK_LOOK);
        }
        self.budget.look_at_clock(now);
        self.look_at(head);
        let barred = self.rights.polls_barred(now.boot);
        let only_sweeps = barred || self.line.troubles().next(Part::Polls).is_some();
        self.confirmation.look(head.hooked, only_sweeps);
        self.look_for_ways(now);
        let flying = self.flights.flying();
        let permit = self.line.permit(now.boot, &flying);
        match permit {
            Permit::Calls | Permit::Probe if !self.flights.has_room(now) => {
                return Decision::WaitUntil(now.boot + ROOM_LOOK);
            }
            Permit::Calls | Permit::Probe | Permit::Trial { .. } => {}
            Permit::Ask => return self.budget.take(now, Lane::Token, Task::TokenInfo),
            Permit::Until(at) => return Decision::WaitUntil(at),
            Permit::Answer | Permit::Token => return Decision::Idle,
        }
        // its token may have ended while a poll is under way: the answer comes first
        let orphan = head.orphan.as_ref();
        let orphan = orphan.filter(|it| !self.may_look(now) && !self.flights.has_call(it.row));
        if let Some(orphan) = orphan.or_else(|| self.untold(now, head)) {
            return Decision::Revive(Box::new(orphan.clone()));
        }
        match self.choose(now, head, permit, &flying) {
            Some((Lane::Spare, task)) => match (self.budget.take(now, Lane::Spare, task), head) {
                (Decision::WaitUntil(at), head) => self.wait_no_longer(now, head, at),
                (decision, _) => decision,
            },
            Some((lane, task)) => self.budget.take(now, lane, task),
            None => self.wait(now, head),
        }
    }

    /// The best of what may go out.
    fn choose(
        &self,
        now: Now,
        head: &Head,
        permit: Permit,
        flying: &[Flying],
    ) -> Option<(Lane, Task)> {
        let picked = match permit {
            Permit::Trial { polls_first } => {
                let open = Open {
                    polls: !self.rights.polls_barred(now.boot),
                    ..Open::ALL
                };
                self.pick(now, head, polls_first, open)
            }
            Permit::Probe => {
                let asked = self.asked_in_outage(now);
                asked.or_else(|| self.pick_probe(now, head, flying))
            }
            _ => self.pick_any(now, head, self.open(now, flying)),
        };
        // what the token may do now can wait for what cannot
        let looks = permit == Permit::Calls && self.rights.is_due(now.boot);
        let first = picked.as_ref().is_some_and(|(lane, _)| *lane <= Lane::Live);
        match looks && !first {
            true => Some((Lane::Token, Task::TokenInfo)),
            false => picked,
        }
    }

    /// What works of the service, as far as is known.
    fn open(&self, now: Now, flying: &[Flying]) -> Open {
        let troubles = self.line.troubles();
        let open = |part| troubles.gate(now.boot, part, flying) == Gate::Open;
        Open {
            submissions: open(Part::Submissions),
            polls: open(Part::Polls) && !self.rights.polls_barred(now.boot),
            sweeps: open(Part::Sweeps),
        }
    }

    /// What the spool says of the calls that wait.
    fn look_at(&mut self, head: &Head) {
        let ready = head.live.is_some() || head.backlog.is_some();
        self.load = Load {
            loaded: ready && !self.line.troubles().fails(Part::Submissions),
            unsent: head.ready + head.sending,
            waiting: head.submitted,
        };
        if !ready && self.load.unsent == 0 {
            self.line.nothing_waits(Part::Submissions);
        }
    }

    /// The ways that were left are gone, too.
    fn look_for_ways(&mut self, now: Now) {
        let gone = self.rights.polls_barred(now.boot)
            && self.load.waiting > 0
            && self.line.is_open()
            && !self.confirmation.works_without_polls(now);
        if gone && let Some(why) = self.rights.take_bar() {
            let halt = Halt::NoGrant(Endpoint::Poll);
            self.line.halted(now.boot, halt, &why);
        }
    }

    /// A call that neither polls, which are refused, nor sweeps will ever tell of: it was left to
    /// the polls before, or no page can be read and a webhook was waited for as long as a requestId
    /// lives.
    fn untold<'head>(&self, now: Now, head: &'head Head) -> Option<&'head Unconfirmed> {
        if !self.rights.polls_barred(now.boot) {
            return None;
        }
        let old = |call: &Unconfirmed, age| call.age(now.wall) >= age;
        let alone = head.alone.as_ref().filter(|it| old(it, OLD_POLL));
        let pages = self.confirmation.ways().is_readable(now.wall);
        let oldest = head.oldest_submitted.iter().filter(|_| !pages);
        let oldest = oldest.filter(|it| old(it, DEADLINE));
        let mut all = alone.into_iter().chain(oldest);
        all.find(|it| !self.flights.has_call(it.row))
    }

    /// While nothing works, what was asked longest ago; the token's record where no call waits.
    fn pick_probe(&self, now: Now, head: &Head, flying: &[Flying]) -> Option<(Lane, Task)> {
        let troubles = self.line.troubles();
        let barred = self.rights.polls_barred(now.boot);
        let open = |part: &Part| {
            let may = *part != Part::Polls || !barred;
            may && troubles.gate(now.boot, *part, flying) == Gate::Open
        };
        let mut parts = [Part::Submissions, Part::Polls, Part::Sweeps];
        parts.sort_by_key(|part| troubles.asked(*part));
        let open_parts = parts.iter().filter(|part| open(part));
        let mut picked =
            open_parts.filter_map(|part| self.pick(now, head, false, Open::only(*part)));
        let picked = picked.next();
        let waits = head.submitted > 0 || self.load.unsent > 0 && !self.settings.dry_run;
        match picked {
            None if !waits && open(&Part::Token) => Some((Lane::Token, Task::TokenInfo)),
            picked => picked,
        }
    }

    /// A call, or an errand beside them.
    fn pick_any(&self, now: Now, head: &Head, open: Open) -> Option<(Lane, Task)> {
        let call = self.pick(now, head, false, open);
        let before = match call {
            Some((lane, _)) => lane,
            None => Lane::Spare,
        };
        let errand = self.errand(now, head, before);
        errand.or(call)
    }

    /// The journal can be read for what nothing else can find.
    fn may_look(&self, now: Now) -> bool {
        let troubles = self.line.troubles();
        let fails = troubles.fails_since(Part::Sweeps);
        let fails = fails.filter(|_| !troubles.is_whole());
        let fails = fails.is_some_and(|since| now.boot.saturating_sub(since) >= OLD_POLL);
        self.confirmation.ways().is_readable(now.wall) && !fails && !self.settings.dry_run
    }

    /// The journal lets itself be swept, as far as is known.
    pub(super) fn may_sweep(&self, now: Now) -> bool {
        let fails = self.line.troubles().fails(Part::Sweeps);
        self.confirmation.ways().is_on(now.wall) && !fails && !self.settings.dry_run
    }

    fn pick(&self, now: Now, head: &Head, polls_first: bool, open: Open) -> Option<(Lane, Task)> {
        if let Some(ending) = self.ending(now, head).filter(|_| open.polls) {
            return Some((Lane::Deadline, poll(ending)));
        }
        let due = self.due(now, head).filter(|_| open.polls);
        let old = |it: &&Unconfirmed| it.age(now.wall) >= OLD_POLL;
        let turn = match self.may_sweep(now) {
            true => head
                .alone
                .as_ref()
                .filter(|it| open.polls && self.may_poll(now, it)),
            false => due,
        };
        let turn = turn
            .filter(old)
            .filter(|_| !self.confirmation.polled_last());
        if let Some(turn) = turn.or(due.filter(|_| polls_first)) {
            return Some((Lane::OldPoll, poll(turn)));
        }
        let submit = |due: &Due| Task::Submit(due.row);
        let submits = open.submissions && !self.settings.dry_run;
        if let Some(live) = head.live.as_ref().filter(|_| submits) {
            return Some((Lane::Live, submit(live)));
        }
        if let Some(sweep) = self.sweep_that_pays(now, head, open) {
            return Some((Lane::Sweep, sweep));
        }
        if let Some(backlog) = head.backlog.as_ref().filter(|_| submits) {
            return Some((Lane::Backlog, submit(backlog)));
        }
        let confirm = self.confirm(now, head, open);
        confirm.map(|task| (Lane::Confirm, task))
    }

    /// A call whose requestId cannot be asked for much longer: after 24 hours (§4.6), or when the
    /// token ends.
    fn ending<'head>(&self, now: Now, head: &'head Head) -> Option<&'head Unconfirmed> {
        let mut ending = head.oldest_submitted.iter().filter(|it| {
            let old = it.age(now.wall) >= DEADLINE;
            let ends = old || self.tokens.ends_soon(now, &it.token);
            ends && it.next_poll <= now.wall && self.may_poll(now, it)
        });
        ending.next()
    }

    fn may_poll(&self, now: Now, call: &Unconfirmed) -> bool {
        let seeks = || self.confirmation.sweeper().seeks(call) && !self.flights.sweep_is_slow(now);
        call.request_id.is_some() && !self.flights.has_call(call.row) && !seeks()
    }

    /// A call that is due, and that no webhook is expected for.
    fn due<'head>(&self, now: Now, head: &'head Head) -> Option<&'head Unconfirmed> {
        let mut due = head.polls.iter().filter(|it| !self.is_left(now, it));
        due.find(|it| self.may_poll(now, it))
    }

    /// A webhook may still confirm it, for nothing.
    fn is_left(&self, now: Now, call: &Unconfirmed) -> bool {
        call.age(now.wall) < self.confirmation.webhooks_wait(now)
    }

    /// Ripe calls that no request of ours asks for just now.
    fn ripe(&self, head: &Head) -> u32 {
        head.ripe.calls.saturating_sub(self.flights.polls())
    }

    /// One sweep at a time.
    fn free_to_sweep(&self, now: Now, head: &Head, open: Open) -> Option<Task> {
        let begins = !self.confirmation.sweeper().is_running();
        // where sweeps fail one goes out now and then, to see whether they still do
        let on = self.confirmation.ways().is_on(now.wall) && !self.settings.dry_run;
        let needs = self.confirmation.sweeper().only_way || head.orphan.is_some();
        let may = on || needs && self.may_look(now);
        let free = may
            && open.sweeps
            && !self.flights.has_sweep()
            && (!begins || self.confirmation.sweep_from() <= now.boot);
        free.then_some(Task::Sweep { begins })
    }

    /// A sweep that pays even while calls wait, or what tells whether it would.
    fn sweep_that_pays(&self, now: Now, head: &Head, open: Open) -> Option<Task> {
        let probe = self.confirmation.probe().filter(|_| open.polls);
        if let Some(probe) = probe.filter(|it| self.may_poll(now, it)) {
            return Some(poll(probe));
        }
        let sweep = self.free_to_sweep(now, head, open)?;
        let oldest = head.ripe.oldest;
        let pays = self.confirmation.sweeper().is_running()
            || self.ripe(head) >= self.confirmation.sweeper().worth_under_load()
            || oldest.is_some_and(|at| now.wall.since(at) >= OLD_POLL) && self.ripe(head) > 0;
        pays.then_some(sweep)
    }

    /// Nothing is to be submitted: what waits is confirmed, several at once where they are.
    fn confirm(&self, now: Now, head: &Head, open: Open) -> Option<Task> {
        let sweep = self.free_to_sweep(now, head, open);
        // where polls fail a page is read for one call, too
        let worth = if open.polls { WORTH } else { 1 };
        let enough = self.ripe(head) >= worth || head.orphan.is_some();
        let due = head.alone.as_ref().filter(|it| self.may_poll(now, it));
        let due = due.or_else(|| self.due(now, head));
        let due = due.filter(|_| open.polls);
        // and now and then one is asked for all the same, to see whether they still fail
        let probes = due.is_some() && self.line.troubles().fails(Part::Polls);
        if let Some(sweep) = sweep.filter(|_| enough && !probes) {
            return Some(sweep);
        }
        let due = due?;
        (!self.has_company(now, due)).then(|| poll(due))
    }

    /// Others were accepted about when this call was: a sweep for all of them is cheaper than a
    /// poll for each, and soon.
    fn has_company(&self, now: Now, call: &Unconfirmed) -> bool {
        let young = call.age(now.wall) < TOGETHER && call.polls == 0;
        self.load.waiting >= u64::from(WORTH) && call.absent == 0 && young && self.may_sweep(now)
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
        let flying = self.flights.flying();
        let gates = Part::ALL.into_iter().filter_map(|part| {
            match self.line.troubles().gate(now.boot, part, &flying) {
                Gate::From(at) => Some(at),
                Gate::Open | Gate::Answer => None,
            }
        });
        let looks = [
            gates.min(),
            Some(self.confirmation.sweep_from()).filter(|from| *from > now.boot),
            company.then_some(now.boot + COMPANY_LOOK),
            (!head.errands.due.is_empty()).then_some(now.boot + ERRAND_LOOK),
            self.rights.look(now.boot),
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
