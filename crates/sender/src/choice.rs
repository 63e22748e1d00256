//! Which request is the best one now, in the order of [`Lane`].

use crate::{
    Admission, Core, DEADLINE, Decision, InFlightPart, Lane, OLD_POLL, PageStrategy, Part,
    PartAdmission, SearchStep, TOGETHER, Task, WORTH,
};
use callbridge_leads::lead_request::due::{LeadRequest, Urgency};
use callbridge_model::{Grant, Now};
use callbridge_spool::{Due, Unconfirmed, WorkQueue};
use std::time::Duration;

/// A clock that is wrong is looked at this often.
const CLOCK_CHECK: Duration = Duration::from_secs(1);

/// Time between two checks whether an answer has become slow, which makes room for another request.
const ROOM_CHECK: Duration = Duration::from_secs(1);

/// Calls that wait for company are looked at this often.
const COMPANY_CHECK: Duration = Duration::from_secs(1);

/// Lead requests that wait for a better moment are looked at this often.
const LEAD_REQUEST_CHECK: Duration = Duration::from_secs(5);

/// Nothing is planned further ahead: the wall clock may be set meanwhile.
const PLAN_AHEAD_MAX: Duration = Duration::from_secs(60);

/// Parts of the service that may be asked now.
#[derive(Clone, Copy, Debug)]
struct Open {
    submissions: bool,
    polls: bool,
    reconciliation: bool,
}

impl Open {
    const ALL: Self = Self {
        submissions: true,
        polls: true,
        reconciliation: true,
    };

    fn only(part: Part) -> Self {
        Self {
            submissions: part == Part::Submissions,
            polls: part == Part::Polls,
            reconciliation: part == Part::Reconciliation,
        }
    }
}

impl Core {
    /// The best request now; its slot is taken.
    pub fn next(&mut self, now: Now, head: &WorkQueue) -> Decision {
        if self.clock_is_wrong(now) {
            return Decision::WaitUntil(now.boot + CLOCK_CHECK);
        }
        self.budget.check_clock(now);
        self.update_load(head);
        let barred = self.rights.polls_barred(now.boot);
        let only_pages = barred || self.gate.troubles.next(Part::Polls).is_some();
        self.confirmation.update(head.hooked, only_pages);
        let search = match self.search(now, head) {
            SearchStep::Commit(ops) => return Decision::Commit(ops),
            step => step,
        };
        let in_flight_parts = self.in_flight.in_flight_parts();
        let admission = self.gate.admission(now.boot, &in_flight_parts);
        match admission {
            Admission::Calls | Admission::Probe if !self.in_flight.has_room(now) => {
                return Decision::WaitUntil(now.boot + ROOM_CHECK);
            }
            Admission::Calls | Admission::Probe | Admission::Trial { .. } => {}
            Admission::Ask => return self.budget.take(now, Lane::Token, Task::TokenInfo),
            Admission::Until(at) => return Decision::WaitUntil(at),
            Admission::Answer | Admission::Token => return Decision::Idle,
        }
        let choice = Choice {
            search: &search,
            ..self.choice(now, head)
        };
        if let Some(unresolved) = choice.unresolved() {
            return Decision::Revive(Box::new(unresolved.clone()));
        }
        let Some((lane, task)) = choice.choose(admission, &in_flight_parts) else {
            return choice.wait();
        };
        match self.budget.take(now, lane, task) {
            Decision::WaitUntil(at) if lane == Lane::Spare => {
                let choice = Choice {
                    search: &search,
                    ..self.choice(now, head)
                };
                choice.wait_no_longer(at)
            }
            decision => decision,
        }
    }

    /// Borrows all that a choice depends on; pages of the search are left out.
    pub(super) fn choice<'a>(&'a self, now: Now, head: &'a WorkQueue) -> Choice<'a> {
        Choice {
            core: self,
            now,
            head,
            search: &SearchStep::Nothing,
        }
    }

    /// Next step for calls that another may have sent; `Nothing` in a dry run and while a page of
    /// theirs is under way.
    fn search(&mut self, now: Now, head: &WorkQueue) -> SearchStep {
        if self.settings.dry_run || self.in_flight.has_search() {
            return SearchStep::Nothing;
        }
        let readable = self.choice(now, head).may_read_journal();
        self.confirmation
            .search
            .next(now, &head.possibly_sent, readable)
    }
}

/// State on which the choice depends, none of which it changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice<'a> {
    core: &'a Core,
    now: Now,
    head: &'a WorkQueue,
    /// Next step for calls that another may have sent.
    search: &'a SearchStep,
}

impl<'a> Choice<'a> {
    /// A call that nobody can be asked about.
    fn unresolved(&self) -> Option<&'a Unconfirmed> {
        // its token may have ended while a poll is under way: the answer comes first
        let unresolved = self.head.unresolved.as_ref();
        let unresolved = unresolved
            .filter(|it| !self.may_read_journal() && !self.core.in_flight.has_call(it.row));
        unresolved.or_else(|| self.unobservable())
    }

    /// The best of what may go out.
    fn choose(
        &self,
        admission: Admission,
        in_flight_parts: &[InFlightPart],
    ) -> Option<(Lane, Task)> {
        let picked = match admission {
            Admission::Trial { polls_first } => {
                let open = Open {
                    polls: !self.core.rights.polls_barred(self.now.boot),
                    ..Open::ALL
                };
                self.pick(polls_first, open)
            }
            Admission::Probe => {
                let asked = self.asked_in_outage();
                asked.or_else(|| self.pick_probe(in_flight_parts))
            }
            _ => self.pick_any(self.open(in_flight_parts)),
        };
        // what the token may do now can wait for what cannot
        let looks = admission == Admission::Calls && self.core.rights.is_due(self.now.boot);
        let first = picked.as_ref().is_some_and(|(lane, _)| *lane <= Lane::Live);
        match looks && !first {
            true => Some((Lane::Token, Task::TokenInfo)),
            false => picked,
        }
    }

    /// Parts of the service that work, as far as is known.
    fn open(&self, in_flight_parts: &[InFlightPart]) -> Open {
        Open {
            submissions: self.is_open(Part::Submissions, in_flight_parts),
            polls: self.is_open(Part::Polls, in_flight_parts),
            reconciliation: self.is_open(Part::Reconciliation, in_flight_parts),
        }
    }

    fn is_open(&self, part: Part, in_flight_parts: &[InFlightPart]) -> bool {
        let barred = part == Part::Polls && self.core.rights.polls_barred(self.now.boot);
        !barred && self.admission(part, in_flight_parts) == PartAdmission::AtOnce
    }

    fn admission(&self, part: Part, in_flight_parts: &[InFlightPart]) -> PartAdmission {
        let troubles = &self.core.gate.troubles;
        troubles.admission(self.now.boot, part, in_flight_parts)
    }

    /// Way in which pages of the journal are read.
    fn pages(&self) -> &PageStrategy {
        self.core.confirmation.page_strategy()
    }

    /// A call that neither polls, which are refused, nor reconciliations will ever tell of: it was
    /// left to the polls before, or no page can be read and a webhook was waited for as long as a
    /// requestId lives.
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

    /// While nothing works, what was asked longest ago; the token's record where no call waits.
    fn pick_probe(&self, in_flight_parts: &[InFlightPart]) -> Option<(Lane, Task)> {
        let open = |part| self.is_open(part, in_flight_parts);
        let mut parts = [Part::Submissions, Part::Polls, Part::Reconciliation];
        parts.sort_by_key(|part| self.core.gate.troubles.asked(*part));
        let open_parts = parts.into_iter().filter(|part| open(*part));
        let mut picked = open_parts.filter_map(|part| self.pick(false, Open::only(part)));
        let picked = picked.next();
        let waits =
            self.head.submitted > 0 || self.core.load.unsent > 0 && !self.core.settings.dry_run;
        match picked {
            None if !waits && open(Part::Token) => Some((Lane::Token, Task::TokenInfo)),
            picked => picked,
        }
    }

    /// A call, or a lead request beside them.
    fn pick_any(&self, open: Open) -> Option<(Lane, Task)> {
        let call = self.pick(false, open);
        let before = match call {
            Some((lane, _)) => lane,
            None => Lane::Spare,
        };
        let lead_request = self.lead_request(before);
        lead_request.or(call)
    }

    /// The journal can be read for what nothing else can find.
    pub(super) fn may_read_journal(&self) -> bool {
        let troubles = &self.core.gate.troubles;
        let fails = troubles.fails_since(Part::Reconciliation);
        let fails = fails.filter(|_| !troubles.is_whole());
        let fails = fails.is_some_and(|since| self.now.boot.saturating_sub(since) >= OLD_POLL);
        self.pages().is_readable(self.now.wall) && !fails && !self.core.settings.dry_run
    }

    /// The journal lets itself be reconciled, as far as is known.
    pub(super) fn may_reconcile(&self) -> bool {
        let fails = self.core.gate.troubles.fails(Part::Reconciliation);
        self.pages().is_on(self.now.wall) && !fails && !self.core.settings.dry_run
    }

    fn pick(&self, polls_first: bool, open: Open) -> Option<(Lane, Task)> {
        if let Some(ending) = self.ending().filter(|_| open.polls) {
            return Some((Lane::Deadline, poll(ending)));
        }
        let due = self.due().filter(|_| open.polls);
        let old = |it: &&Unconfirmed| it.age(self.now.wall) >= OLD_POLL;
        let alone = self.head.alone.as_ref();
        let turn = match self.may_reconcile() {
            true => alone.filter(|it| open.polls && self.may_poll(it)),
            false => due,
        };
        let turn = turn
            .filter(old)
            .filter(|_| !self.core.confirmation.polled_last);
        if let Some(turn) = turn.or(due.filter(|_| polls_first)) {
            return Some((Lane::OldPoll, poll(turn)));
        }
        let submit = |due: &Due| Task::Submit(due.row);
        let submits = open.submissions && !self.core.settings.dry_run;
        if let Some(live) = self.head.live.as_ref().filter(|_| submits) {
            return Some((Lane::Live, submit(live)));
        }
        if let Some(page) = self.reconcile_if_it_pays(open) {
            return Some((Lane::Reconcile, page));
        }
        let backlog = self.head.backlog.as_ref().filter(|_| submits);
        if let Some(page) = self.search_page(open)
            && !(self.core.confirmation.search.had_turn && backlog.is_some())
        {
            return Some((Lane::Reconcile, page));
        }
        if let Some(backlog) = backlog {
            return Some((Lane::Backlog, submit(backlog)));
        }
        let confirm = self.confirm(open);
        confirm.map(|task| (Lane::Confirm, task))
    }

    /// A call whose requestId cannot be asked for much longer: after 24 hours (§4.6), or when the
    /// token ends.
    fn ending(&self) -> Option<&'a Unconfirmed> {
        let mut ending = self.head.oldest_submitted.iter().filter(|it| {
            let old = it.age(self.now.wall) >= DEADLINE;
            let ends = old || self.core.tokens.ends_soon(self.now, &it.token);
            ends && it.next_poll <= self.now.wall && self.may_poll(it)
        });
        ending.next()
    }

    fn may_poll(&self, call: &Unconfirmed) -> bool {
        let seeks = || {
            self.core.confirmation.reconciliation.seeks(call)
                && !self.core.in_flight.page_is_slow(self.now)
        };
        call.request_id.is_some() && !self.core.in_flight.has_call(call.row) && !seeks()
    }

    /// A call that is due, and that no webhook is expected for.
    fn due(&self) -> Option<&'a Unconfirmed> {
        let mut due = self.head.polls.iter().filter(|it| !self.is_left(it));
        due.find(|it| self.may_poll(it))
    }

    /// A webhook may still confirm it, for nothing.
    fn is_left(&self, call: &Unconfirmed) -> bool {
        call.age(self.now.wall) < self.core.confirmation.webhooks_wait(self.now)
    }

    /// Confirmable calls that no request of ours asks for just now.
    fn confirmable(&self) -> u32 {
        self.head
            .confirmable
            .calls
            .saturating_sub(self.core.in_flight.polls())
    }

    /// One reconciliation at a time.
    fn reconcile_when_free(&self, open: Open) -> Option<Task> {
        let begins = !self.core.confirmation.reconciliation.is_running();
        // where reconciliations fail one goes out now and then, to see whether they still do
        let on = self.pages().is_on(self.now.wall) && !self.core.settings.dry_run;
        let needs =
            self.core.confirmation.reconciliation.only_way || self.head.unresolved.is_some();
        let may = on || needs && self.may_read_journal();
        let free = may
            && open.reconciliation
            && !self.core.in_flight.has_page()
            && (!begins || self.core.confirmation.reconcile_from <= self.now.boot);
        free.then_some(Task::Reconcile { begins })
    }

    /// A page for calls that another may have sent: in turns with those that wait to be sent.
    fn search_page(&self, open: Open) -> Option<Task> {
        match self.search {
            SearchStep::Page(begins) => open
                .reconciliation
                .then_some(Task::Search { begins: *begins }),
            SearchStep::Nothing | SearchStep::Wait(_) | SearchStep::Commit(_) => None,
        }
    }

    /// A reconciliation that pays even while calls wait, or what tells whether it would.
    fn reconcile_if_it_pays(&self, open: Open) -> Option<Task> {
        let probe = self.core.confirmation.probe.as_ref().filter(|_| open.polls);
        if let Some(probe) = probe.filter(|it| self.may_poll(it)) {
            return Some(poll(probe));
        }
        let page = self.reconcile_when_free(open)?;
        let oldest = self.head.confirmable.oldest;
        let pays = self.core.confirmation.reconciliation.is_running()
            || self.confirmable() >= self.core.confirmation.reconciliation.worth_under_load()
            || oldest.is_some_and(|at| self.now.wall.since(at) >= OLD_POLL)
                && self.confirmable() > 0;
        pays.then_some(page)
    }

    /// Nothing is to be submitted: what waits is confirmed, several at once where they are.
    fn confirm(&self, open: Open) -> Option<Task> {
        let page = self.reconcile_when_free(open);
        // where polls fail a page is read for one call, too
        let worth = if open.polls { WORTH } else { 1 };
        let enough = self.confirmable() >= worth || self.head.unresolved.is_some();
        let due = self.head.alone.as_ref().filter(|it| self.may_poll(it));
        let due = due.or_else(|| self.due());
        let due = due.filter(|_| open.polls);
        // and now and then one is asked for all the same, to see whether they still fail
        let probes = due.is_some() && self.core.gate.troubles.fails(Part::Polls);
        if let Some(page) = page.filter(|_| enough && !probes) {
            return Some(page);
        }
        let due = due?;
        (!self.has_company(due)).then(|| poll(due))
    }

    /// Others were accepted about when this call was: a reconciliation for all of them is cheaper
    /// than a poll for each, and soon.
    fn has_company(&self, call: &Unconfirmed) -> bool {
        let young = call.age(self.now.wall) < TOGETHER && call.polls == 0;
        self.core.load.waiting >= u64::from(WORTH)
            && call.absent == 0
            && young
            && self.may_reconcile()
    }

    /// Waits until `at`, or a sooner moment at which a call may be due: a request that can wait
    /// does not make calls wait for it.
    fn wait_no_longer(&self, at: Duration) -> Decision {
        match self.wait() {
            Decision::WaitUntil(sooner) => Decision::WaitUntil(at.min(sooner)),
            Decision::Idle | Decision::Send(_) | Decision::Revive(_) | Decision::Commit(_) => {
                Decision::WaitUntil(at)
            }
        }
    }

    /// Nothing goes out: when to look again.
    fn wait(&self) -> Decision {
        let waits = |it: &Unconfirmed| self.has_company(it) || self.is_left(it);
        let company = self.head.polls.iter().any(waits);
        let moments = [
            self.head.next_not_before,
            self.head.next_poll,
            self.head.lead_requests.next,
        ];
        let moment = moments.into_iter().flatten().min().map(|at| {
            // the wall clock may be set meanwhile: look again within a minute
            let wait = at
                .since(self.now.wall)
                .clamp(Duration::from_millis(1), PLAN_AHEAD_MAX);
            self.now.boot + wait
        });
        let in_flight_parts = self.core.in_flight.in_flight_parts();
        let gates = Part::ALL.iter().copied().filter_map(|part| {
            match self.admission(part, &in_flight_parts) {
                PartAdmission::From(at) => Some(at),
                PartAdmission::AtOnce | PartAdmission::Answer => None,
            }
        });
        let looks = [
            gates.min(),
            Some(self.core.confirmation.reconcile_from).filter(|from| *from > self.now.boot),
            company.then_some(self.now.boot + COMPANY_CHECK),
            (!self.head.lead_requests.due.is_empty() || self.core.lead_requests.is_asked())
                .then_some(self.now.boot + LEAD_REQUEST_CHECK),
            self.core.rights.next_check(self.now.boot),
            moment,
            match self.search {
                SearchStep::Wait(at) => Some(*at),
                SearchStep::Nothing | SearchStep::Page(_) | SearchStep::Commit(_) => None,
            },
        ];
        match looks.into_iter().flatten().min() {
            Some(at) => Decision::WaitUntil(at),
            None => Decision::Idle,
        }
    }

    /// Lead request of a command while calls are tried one by one, for none is taken.
    fn asked_in_outage(&self) -> Option<(Lane, Task)> {
        let lead_request = self.core.lead_requests.first_asked()?;
        let asks = self.core.gate.refuses_calls_alone() && !self.core.settings.dry_run;
        let may = asks && self.may_go(&lead_request);
        let lane = asked_lane(&lead_request).unwrap_or(Lane::LeadRequest);
        may.then(|| (lane, Task::LeadRequest(Box::new(lead_request))))
    }

    /// The lead request that goes before a call of this lane; the one that can wait where none goes
    /// out.
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
        let mut due = self.head.lead_requests.due.iter().filter_map(|job| {
            let lane = match job.urgency {
                Urgency::Ending => Lane::Deadline,
                Urgency::Soon => Lane::LeadRequest,
                Urgency::Spare => Lane::Spare,
            };
            let turn = match lane {
                Lane::Deadline => before > Lane::Deadline,
                Lane::LeadRequest => {
                    before >= Lane::Backlog
                        && (!self.core.load.loaded
                            || self.core.lead_requests.is_due_under_load(self.now))
                }
                _ => before == Lane::Spare && self.core.in_flight.by_slot.is_empty(),
            };
            (turn && self.may_go(&job.lead_request)).then_some((lane, &job.lead_request))
        });
        let (lane, lead_request) = due.next()?;
        Some((lane, Task::LeadRequest(Box::new(lead_request.clone()))))
    }

    /// In which lane what a command asks goes before a call of this one. A page for the audit takes
    /// from the half of the budget that is to spare; while calls wait, one goes in ten seconds.
    fn turn_of_asked(&self, lead_request: &LeadRequest, before: Lane) -> Option<Lane> {
        match (asked_lane(lead_request), before) {
            (None, _) => Some(Lane::LeadRequest),
            (Some(spare), Lane::Spare) => Some(spare),
            (Some(_), Lane::Backlog | Lane::Confirm) => self
                .core
                .lead_requests
                .is_due_under_load(self.now)
                .then_some(Lane::LeadRequest),
            (Some(_), _) => None,
        }
    }

    fn may_go(&self, lead_request: &LeadRequest) -> bool {
        // a command is told by the service itself that it may not ask
        let asks = matches!(lead_request, LeadRequest::FieldPoll(_));
        lead_request
            .token()
            .is_none_or(|token| self.core.tokens.reads(self.now, token))
            && !(asks && self.core.rights.polls_barred(self.now.boot))
            && self.is_granted(lead_request)
            && !self
                .core
                .in_flight
                .lead_requests()
                .any(|other| other.is_like(lead_request))
            && !self.core.lead_requests.rests(self.now, lead_request)
    }

    /// Returns `false` for a look-up or field write that the token's record forbids (§5.4). A
    /// command gets that answer from the service itself, and a page of leads is asked for all the
    /// same.
    fn is_granted(&self, lead_request: &LeadRequest) -> bool {
        match lead_request {
            LeadRequest::LookUp(_) => self.core.tokens.may(Grant::LeadRead),
            LeadRequest::FieldWrite(_) => self.core.tokens.may(Grant::LeadSave),
            LeadRequest::Catalogue
            | LeadRequest::FieldPoll(_)
            | LeadRequest::Backfill(_)
            | LeadRequest::Asked(..) => true,
        }
    }
}

/// The lane of what a command asks, where that can wait for an idle line.
fn asked_lane(lead_request: &LeadRequest) -> Option<Lane> {
    let page = matches!(lead_request, LeadRequest::Asked(_, asked) if asked.is_page());
    page.then_some(Lane::Spare)
}

fn poll(call: &Unconfirmed) -> Task {
    Task::Poll(Box::new(call.clone()))
}
