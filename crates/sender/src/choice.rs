//! Which request is the best one now, in the order of [`Lane`].

use crate::{
    Admission, Core, DEADLINE, Decision, InFlightPart, Lane, OLD_POLL, PageStrategy, Part,
    PartAdmission, TOGETHER, Task, WORTH,
};
use callbridge_leads::lead_request::due::{LeadRequest, Urgency};
use callbridge_model::{Grant, Now};
use callbridge_spool::{Unconfirmed, WorkQueue};
use std::time::Duration;

/// Time between two checks of a wrong clock, of calls that wait to be confirmed together, and of
/// answers that have become slow and so allow another request.
const CHECK: Duration = Duration::from_secs(1);

/// Time between two checks of lead requests that wait for a better time.
const LEAD_REQUEST_CHECK: Duration = Duration::from_secs(5);

/// Nothing is planned further ahead, because the wall clock can be set meanwhile.
const PLAN_AHEAD_MAX: Duration = Duration::from_secs(60);

impl Core {
    /// Chooses the best request now and takes its slot.
    pub fn next(&mut self, now: Now, head: &WorkQueue) -> Decision {
        if self.clock_is_wrong(now) {
            return Decision::WaitUntil(now.boot + CHECK);
        }
        self.budget.check_clock(now);
        self.update_load(head);
        let barred = self.rights.polls_barred(now.boot);
        self.confirmation.webhooks.seen(head.webhook_pace);
        self.confirmation.reconciliation.only_way =
            barred || self.gate.troubles.next(Part::Polls).is_some();
        let choice = self.choice(now, head);
        let admission = self.gate.admission(now.boot, &choice.in_flight_parts);
        match admission {
            Admission::Calls | Admission::Probe if !self.in_flight.has_room(now) => {
                return Decision::WaitUntil(now.boot + CHECK);
            }
            Admission::Calls | Admission::Probe | Admission::Trial { .. } => {}
            Admission::Ask => return self.budget.take(now, Lane::Token, Task::TokenInfo),
            Admission::Until(at) => return Decision::WaitUntil(at),
            Admission::Answer | Admission::Token => return Decision::Idle,
        }
        if let Some(unresolved) = choice.unresolved() {
            return Decision::Revive(Box::new(unresolved.clone()));
        }
        let Some((lane, task)) = choice.choose(admission) else {
            return choice.wait().map_or(Decision::Idle, Decision::WaitUntil);
        };
        match self.budget.take(now, lane, task) {
            // a request that can wait does not delay calls
            Decision::WaitUntil(at) if lane == Lane::Spare => {
                let sooner = self.choice(now, head).wait();
                Decision::WaitUntil(sooner.map_or(at, |sooner| at.min(sooner)))
            }
            decision => decision,
        }
    }

    /// Borrows everything that a choice depends on.
    pub(super) fn choice<'a>(&'a self, now: Now, head: &'a WorkQueue) -> Choice<'a> {
        let in_flight_parts = self.in_flight.in_flight_parts();
        Choice {
            core: self,
            now,
            head,
            in_flight_parts,
        }
    }
}

/// State on which the choice depends. The choice does not change it.
#[derive(Debug)]
pub(super) struct Choice<'a> {
    core: &'a Core,
    now: Now,
    head: &'a WorkQueue,
    in_flight_parts: Vec<InFlightPart>,
}

impl<'a> Choice<'a> {
    /// A call that cannot be polled.
    fn unresolved(&self) -> Option<&'a Unconfirmed> {
        // its token may have expired during a poll: wait for the answer
        let unresolved = self
            .head
            .unresolved
            .as_ref()
            .filter(|_| !self.may_read_journal());
        let lost = unresolved.filter(|it| !self.core.in_flight.has_call(it.row));
        lost.or_else(|| self.unobservable())
    }

    /// The best request that can be sent.
    fn choose(&self, admission: Admission) -> Option<(Lane, Task)> {
        let picked = match admission {
            Admission::Trial { polls_first } => {
                let barred = self.core.rights.polls_barred(self.now.boot);
                self.pick(polls_first, &|part| part != Part::Polls || !barred)
            }
            Admission::Probe => self.asked_in_outage().or_else(|| self.pick_probe()),
            _ => {
                let call = self.pick(false, &|part| self.is_open(part));
                let before = call.as_ref().map_or(Lane::Spare, |(lane, _)| *lane);
                self.lead_request(before).or(call)
            }
        };
        // the check of the token's rights can wait for urgent requests
        let looks = admission == Admission::Calls && self.core.rights.is_due(self.now.boot);
        let first = picked.as_ref().is_some_and(|(lane, _)| *lane <= Lane::Live);
        match looks && !first {
            true => Some((Lane::Token, Task::TokenInfo)),
            false => picked,
        }
    }

    /// The part of the CRM works, as far as is known.
    fn is_open(&self, part: Part) -> bool {
        let barred = part == Part::Polls && self.core.rights.polls_barred(self.now.boot);
        !barred && self.admission(part) == PartAdmission::AtOnce
    }

    fn admission(&self, part: Part) -> PartAdmission {
        let troubles = &self.core.gate.troubles;
        troubles.admission(self.now.boot, part, &self.in_flight_parts)
    }

    fn pages(&self) -> &PageStrategy {
        self.core.confirmation.page_strategy()
    }

    /// A call that neither polls, which are refused, nor reconciliations can ever show. Either it
    /// was left to the polls before, or no page can be read and no webhook came during the lifetime
    /// of its requestId.
    fn unobservable(&self) -> Option<&'a Unconfirmed> {
        if !self.core.rights.polls_barred(self.now.boot) {
            return None;
        }
        let old = |call: &Unconfirmed, age| call.age(self.now.wall) >= age;
        let alone = self.head.alone.as_ref().filter(|it| old(it, OLD_POLL));
        let pages = self.pages().is_readable(self.now.wall);
        let oldest = self.head.oldest_submitted.iter().filter(|_| !pages);
        let oldest = oldest.filter(|it| old(it, DEADLINE));
        let mut all = alone.into_iter().chain(oldest);
        all.find(|it| !self.core.in_flight.has_call(it.row))
    }

    /// While nothing works, the request that was made longest ago. If no call waits, the token's
    /// record.
    fn pick_probe(&self) -> Option<(Lane, Task)> {
        let mut parts = [Part::Submissions, Part::Polls, Part::Reconciliation];
        parts.sort_by_key(|part| self.core.gate.troubles.asked(*part));
        let mut open = parts.into_iter().filter(|part| self.is_open(*part));
        let picked = open.find_map(|part| self.pick(false, &|it| it == part));
        let waits =
            self.head.submitted > 0 || self.core.load.unsent > 0 && !self.core.settings.dry_run;
        match picked {
            None if !waits && self.is_open(Part::Token) => Some((Lane::Token, Task::TokenInfo)),
            picked => picked,
        }
    }

    /// The journal can be read for calls that nothing else can find.
    pub(super) fn may_read_journal(&self) -> bool {
        let troubles = &self.core.gate.troubles;
        let certain = troubles.certain(Part::Reconciliation);
        let long = certain.is_some_and(|it| self.now.boot.saturating_sub(it.since) >= OLD_POLL);
        let fails = !troubles.is_whole() && long;
        self.pages().is_readable(self.now.wall) && !fails && !self.core.settings.dry_run
    }

    /// The journal can be reconciled, as far as is known.
    pub(super) fn may_reconcile(&self) -> bool {
        let fails = self.core.gate.troubles.fails(Part::Reconciliation);
        self.pages().is_on(self.now.wall) && !fails && !self.core.settings.dry_run
    }

    /// The best request to one of the parts that can be asked.
    fn pick(&self, polls_first: bool, open: &dyn Fn(Part) -> bool) -> Option<(Lane, Task)> {
        let polls = open(Part::Polls);
        if let Some(ending) = self.ending().filter(|_| polls) {
            return Some((Lane::Deadline, poll(ending)));
        }
        let due = self.due().filter(|_| polls);
        let turn = match self.may_reconcile() {
            true => (self.head.alone.as_ref()).filter(|it| polls && self.may_poll(it)),
            false => due,
        };
        let old = |it: &&Unconfirmed| it.age(self.now.wall) >= OLD_POLL;
        let turn = turn.filter(|it| old(it) && !self.core.confirmation.polled_last);
        if let Some(turn) = turn.or(due.filter(|_| polls_first)) {
            return Some((Lane::OldPoll, poll(turn)));
        }
        let submits = open(Part::Submissions) && !self.core.settings.dry_run;
        let live = self.head.live.as_ref().filter(|_| submits);
        // Live calls hardly wait for it: only one page at a time is in flight, and it confirms a
        // hundred.
        let pays = |_: &Task| live.is_none() || self.has_overdue();
        if let Some(page) = self.reconcile_if_it_pays(open).filter(pays) {
            return Some((Lane::Reconcile, page));
        }
        if let Some(live) = live {
            return Some((Lane::Live, Task::Submit(live.row)));
        }
        let backlog = self.head.backlog.as_ref().filter(|_| submits);
        if let Some(backlog) = backlog {
            return Some((Lane::Backlog, Task::Submit(backlog.row)));
        }
        self.confirm(open).map(|task| (Lane::Confirm, task))
    }

    /// A call whose requestId can soon no longer be polled: after 24 hours (§4.6), or when the
    /// token expires.
    fn ending(&self) -> Option<&'a Unconfirmed> {
        self.head.oldest_submitted.iter().find(|it| {
            let old = it.age(self.now.wall) >= DEADLINE;
            let ends = old || self.core.tokens.ends_soon(self.now, &it.token);
            ends && it.next_poll <= self.now.wall && self.may_poll(it)
        })
    }

    fn may_poll(&self, call: &Unconfirmed) -> bool {
        call.request_id.is_some()
            && !self.core.in_flight.has_call(call.row)
            && (!self.core.confirmation.reconciliation.seeks(call)
                || self.core.in_flight.page_is_slow(self.now))
    }

    /// A call that is due and that no webhook is expected for.
    fn due(&self) -> Option<&'a Unconfirmed> {
        (self.head.polls.iter()).find(|it| !self.is_left(it) && self.may_poll(it))
    }

    /// A webhook can still confirm it, which costs no request.
    fn is_left(&self, call: &Unconfirmed) -> bool {
        call.age(self.now.wall) < self.core.confirmation.webhooks.left(self.now.wall)
    }

    /// Confirmable calls that no request in flight asks for.
    fn confirmable(&self) -> u32 {
        (self.head.confirmable.calls).saturating_sub(self.core.in_flight.polls())
    }

    /// At most one reconciliation at a time.
    fn reconcile_when_free(&self, open: &dyn Fn(Part) -> bool) -> Option<Task> {
        let reconciliation = &self.core.confirmation.reconciliation;
        let begins = !reconciliation.is_running();
        // while reconciliations fail, one is made now and then to test them
        let on = self.pages().is_on(self.now.wall) && !self.core.settings.dry_run;
        let needs = reconciliation.only_way || self.head.unresolved.is_some();
        let free = (on || needs && self.may_read_journal())
            && open(Part::Reconciliation)
            && !self.core.in_flight.has_page()
            && (!begins || self.core.confirmation.reconcile_from <= self.now.boot);
        free.then_some(Task::Reconcile { begins })
    }

    /// A reconciliation that is worth its cost while calls wait, or the poll that shows whether it
    /// is.
    fn reconcile_if_it_pays(&self, open: &dyn Fn(Part) -> bool) -> Option<Task> {
        let reconciliation = &self.core.confirmation.reconciliation;
        if let Some(probe) = &self.core.confirmation.probe
            && open(Part::Polls)
            && self.may_poll(probe)
        {
            return Some(poll(probe));
        }
        let page = self.reconcile_when_free(open)?;
        let pays = reconciliation.is_running()
            || self.confirmable() >= reconciliation.worth_under_load()
            || self.has_overdue() && self.confirmable() > 0;
        pays.then_some(page)
    }

    fn has_overdue(&self) -> bool {
        let oldest = self.head.confirmable.oldest;
        oldest.is_some_and(|at| self.now.wall.since(at) >= OLD_POLL)
    }

    /// There is nothing to submit: confirm waiting calls, several at once if possible.
    fn confirm(&self, open: &dyn Fn(Part) -> bool) -> Option<Task> {
        let polls = open(Part::Polls);
        // while polls fail, a page is read even for one call
        let worth = if polls { WORTH } else { 1 };
        let enough = self.confirmable() >= worth || self.head.unresolved.is_some();
        let alone = self.head.alone.as_ref().filter(|it| self.may_poll(it));
        let due = alone.or_else(|| self.due()).filter(|_| polls);
        // now and then one is polled anyway, to test whether polls still fail
        let probes = due.is_some() && self.core.gate.troubles.fails(Part::Polls);
        let page = self.reconcile_when_free(open).filter(|_| enough && !probes);
        page.or_else(|| due.filter(|it| !self.has_company(it)).map(poll))
    }

    /// Other calls were accepted at about the same time. A reconciliation for all of them is
    /// cheaper than a poll for each, and possible soon.
    fn has_company(&self, call: &Unconfirmed) -> bool {
        self.core.load.waiting >= u64::from(WORTH)
            && (call.absent, call.polls) == (0, 0)
            && call.age(self.now.wall) < TOGETHER
            && self.may_reconcile()
    }

    /// Nothing is sent: returns when to check again.
    fn wait(&self) -> Option<Duration> {
        let waits = |it: &Unconfirmed| self.has_company(it) || self.is_left(it);
        let company = self.head.polls.iter().any(waits);
        let moments = [
            self.head.next_not_before,
            self.head.next_poll,
            self.head.lead_requests.next,
        ];
        let moment = moments.into_iter().flatten().min().map(|at| {
            // the wall clock can be set meanwhile, so check again within a minute
            let wait = at.since(self.now.wall);
            self.now.boot + wait.clamp(Duration::from_millis(1), PLAN_AHEAD_MAX)
        });
        let gates = Part::ALL
            .iter()
            .filter_map(|part| match self.admission(*part) {
                PartAdmission::From(at) => Some(at),
                PartAdmission::AtOnce | PartAdmission::Answer => None,
            });
        let looks = [
            gates.min(),
            Some(self.core.confirmation.reconcile_from).filter(|from| *from > self.now.boot),
            company.then_some(self.now.boot + CHECK),
            (!self.head.lead_requests.due.is_empty() || !self.core.lead_requests.asked.is_empty())
                .then_some(self.now.boot + LEAD_REQUEST_CHECK),
            self.core.rights.next_check(self.now.boot),
            moment,
        ];
        looks.into_iter().flatten().min()
    }

    /// Lead request of a command during an outage, while calls are only tried one by one.
    fn asked_in_outage(&self) -> Option<(Lane, Task)> {
        let lead_request = self.core.lead_requests.first_asked()?;
        let may = self.core.asks_all_the_same() && self.may_go(&lead_request);
        let lane = asked_lane(&lead_request).unwrap_or(Lane::LeadRequest);
        may.then(|| (lane, Task::LeadRequest(Box::new(lead_request))))
    }

    /// The lead request that goes before a call of this lane. If no call is sent, the one that can
    /// wait.
    fn lead_request(&self, before: Lane) -> Option<(Lane, Task)> {
        if self.core.settings.dry_run {
            return None;
        }
        if before > Lane::Live
            && let Some(lead_request) = self.core.lead_requests.first_asked()
            && self.may_go(&lead_request)
            && let Some(lane) = self.turn_of_asked(&lead_request, before)
        {
            return Some((lane, Task::LeadRequest(Box::new(lead_request))));
        }
        let soon = !self.core.load.loaded || self.core.lead_requests.from <= self.now.boot;
        let idle = self.core.in_flight.by_slot.is_empty();
        let mut due = self.head.lead_requests.due.iter().filter_map(|job| {
            let (lane, turn) = match job.urgency {
                Urgency::Ending => (Lane::Deadline, before > Lane::Deadline),
                Urgency::Soon => (Lane::LeadRequest, before >= Lane::Backlog && soon),
                Urgency::Spare => (Lane::Spare, before == Lane::Spare && idle),
            };
            (turn && self.may_go(&job.lead_request)).then_some((lane, &job.lead_request))
        });
        let (lane, lead_request) = due.next()?;
        Some((lane, Task::LeadRequest(Box::new(lead_request.clone()))))
    }

    /// The lane in which a command's request goes before a call of this lane. A page for the audit
    /// uses the spare half of the budget. While calls wait, one is sent every ten seconds.
    fn turn_of_asked(&self, lead_request: &LeadRequest, before: Lane) -> Option<Lane> {
        match (asked_lane(lead_request), before) {
            (None, _) => Some(Lane::LeadRequest),
            (Some(spare), Lane::Spare) => Some(spare),
            (Some(_), Lane::Backlog | Lane::Confirm) => {
                (self.core.lead_requests.from <= self.now.boot).then_some(Lane::LeadRequest)
            }
            (Some(_), _) => None,
        }
    }

    fn may_go(&self, lead_request: &LeadRequest) -> bool {
        let (tokens, in_flight) = (&self.core.tokens, &self.core.in_flight);
        let may = match lead_request {
            LeadRequest::LookUp(_) => tokens.may(Grant::LeadRead),
            LeadRequest::FieldWrite(_) => tokens.may(Grant::LeadSave),
            LeadRequest::FieldPoll(_) => !self.core.rights.polls_barred(self.now.boot),
            // a command learns from the CRM that it lacks the right, and a page of leads is
            // requested anyway
            LeadRequest::Catalogue | LeadRequest::Backfill(_) | LeadRequest::Asked(..) => true,
        };
        let token = lead_request.token();
        may && token.is_none_or(|token| tokens.reads(self.now, token))
            && !(in_flight.lead_requests()).any(|other| other.is_like(lead_request))
            && !self.core.lead_requests.rests(self.now, lead_request)
    }
}

/// The lane of a command's request if it can wait for an idle line.
fn asked_lane(lead_request: &LeadRequest) -> Option<Lane> {
    let page = matches!(lead_request, LeadRequest::Asked(_, asked) if asked.is_page());
    page.then_some(Lane::Spare)
}

fn poll(call: &Unconfirmed) -> Task {
    Task::Poll(Box::new(call.clone()))
}
