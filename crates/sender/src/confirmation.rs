//! The calls that wait to be confirmed: what polls, pages of the journal and webhooks tell of
//! them, and what is looked for how.

use crate::schedule::next_check;
use crate::webhook_expectation::WebhookExpectation;
use crate::{
    Bar, Findings, JournalReconciliation, KnownTokens, Load, OLD_POLL, Outcome, PageStrategy,
    PossiblySentSearch, Rights, STRAGGLER, Task, unresolved,
};
use callbridge_call::EventTime;
use callbridge_crm::{FilterPage, Page};
use callbridge_model::{Now, TokenFingerprint};
use callbridge_spool::{FIRST_POLL, IfAbsent, Op, RowId, Step, Unconfirmed, WebhookPace};
use std::time::Duration;

/// Between two reconciliations that both count a call as absent.
const APART: Duration = Duration::from_secs(60);

/// Time beyond `persisting` after which an unresolved call is given up.
const PATIENCE: Duration = Duration::from_secs(5);

/// Wait after a reconciliation that could not begin.
const RECONCILE_AGAIN: Duration = Duration::from_secs(1);

/// State of the ways to confirm calls: polls, pages of the journal, webhooks.
#[derive(Debug, Default)]
pub(super) struct Confirmation {
    pub(super) reconciliation: JournalReconciliation,
    /// Calls that another may have sent.
    pub(super) search: PossiblySentSearch,
    webhooks: WebhookExpectation,
    /// Call whose outcome shows that the journal can, or cannot, be reconciled the way it was.
    pub(super) probe: Option<Unconfirmed>,
    /// Time since boot before which no reconciliation begins.
    pub(super) reconcile_from: Duration,
    pub(super) polled_last: bool,
    /// The latest acceptance of a call that is journaled.
    pub(super) settled_to: EventTime,
}

/// State outside of [`Confirmation`] that decides on a call which no page shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Circumstances<'a> {
    pub(super) load: Load,
    pub(super) tokens: &'a KnownTokens,
    pub(super) rights: &'a Rights,
}

impl Confirmation {
    /// With what is remembered of the journal.
    pub(super) fn new(page_strategy: PageStrategy) -> Self {
        Self {
            reconciliation: JournalReconciliation::new(page_strategy),
            ..Self::default()
        }
    }

    /// Way in which pages of the journal are asked for.
    pub(super) fn page_strategy(&self) -> &PageStrategy {
        &self.reconciliation.page_strategy
    }

    /// So long after its acceptance a call is left to webhooks.
    pub(super) fn webhooks_wait(&self, now: Now) -> Duration {
        self.webhooks.left(now.wall)
    }

    /// On an idle line a reconciliation too early costs nothing; while calls wait it must pay.
    pub(super) fn confirmable_before(&self, now: Now, load: Load) -> EventTime {
        let age = match load.loaded {
            true => self.page_strategy().persisting,
            false => FIRST_POLL,
        };
        now.wall.minus(age.max(self.webhooks_wait(now)))
    }

    /// A call that may have arrived, or may yet.
    pub(super) fn unresolved(&self, now: Now, row: RowId, fate: IfAbsent, why: String) -> Op {
        let persisting = self.page_strategy().persisting.max(FIRST_POLL);
        let next_check = now.wall.plus(STRAGGLER + persisting);
        let step = Step::Unresolved {
            next_check,
            fate,
            why,
        };
        Op::step(row, step, now.wall)
    }

    /// Takes in the spool's newest webhook, and that nothing but reconciliations will do
    /// (`only_pages`).
    pub(super) fn update(&mut self, hooked: Option<WebhookPace>, only_pages: bool) {
        self.webhooks.seen(hooked);
        self.reconciliation.only_way = only_pages;
    }

    /// A request about this leaves.
    pub(super) fn launched(&mut self, task: &Task) {
        self.polled_last = task.poll().is_some();
        self.search.had_turn = matches!(task, Task::Search { .. });
        if let Some(call) = task.poll() {
            self.reconciliation.asked_for(call);
        }
    }

    /// The page to ask for; `None` where none is worth it now.
    pub(super) fn page(
        &mut self,
        now: Now,
        load: Load,
        tokens: &[TokenFingerprint],
        unconfirmed: Vec<Unconfirmed>,
    ) -> Option<FilterPage> {
        let confirmable_before = self.confirmable_before(now, load);
        let page = (self.reconciliation).page(now.wall, confirmable_before, tokens, unconfirmed);
        if page.is_none() {
            self.reconcile_from = now.boot + RECONCILE_AGAIN;
        }
        page
    }

    /// Another token; `renewed`: what the old one was refused says nothing.
    pub(super) fn token_replaced(&mut self, renewed: bool) {
        if renewed {
            self.reconciliation.renewed();
        }
        self.probe = None;
    }

    /// The reconciliation's request was refused.
    pub(super) fn unswept(&mut self, now: Now, bar: Bar) {
        self.search.begin_anew();
        self.reconciliation.unswept(now.wall, bar);
    }

    /// A poll found its call in the journal: what that says of the reconciliations.
    pub(super) fn polled(&mut self, now: Now, call: &Unconfirmed) {
        self.settled(now, call);
        self.reconciliation.polled(now.wall, call);
    }

    fn settled(&mut self, now: Now, call: &Unconfirmed) {
        self.settled_to = self.settled_to.max(call.submitted_at).min(now.wall);
        self.webhooks.asked_for(now.wall, call.age(now.wall));
    }

    /// Takes in the outcome of a call that was asked for; the probe's says why a reconciliation
    /// missed so much.
    pub(super) fn answered(&mut self, now: Now, row: Option<RowId>, outcome: Outcome) {
        let Some(probe) = self.probe.take_if(|probe| Some(probe.row) == row) else {
            return;
        };
        if outcome == Outcome::Journaled {
            self.reconciliation.probe_was_written(now.wall);
        } else if outcome == Outcome::NotYet {
            self.reconciliation.probe_was_not(now.wall, &probe);
        }
    }

    /// The steps that a page of the journal means for the calls it shows, which come first, and
    /// for those it should show and does not; and whether it shows any.
    pub(super) fn swept(
        &mut self,
        now: Now,
        page: &Page,
        around: Circumstances<'_>,
    ) -> (Vec<(Unconfirmed, Step)>, bool) {
        let findings = (self.reconciliation).on_page(now.wall, page, around.load.loaded);
        for call in &findings.found {
            self.settled(now, call);
        }
        let found = (findings.found.iter()).map(|call| (call.clone(), unresolved::found(call)));
        let absent = (findings.absent.iter())
            .map(|call| (call.clone(), self.absent(now, call, &findings, around)));
        let steps = found.chain(absent).collect();
        self.probe.clone_from(&findings.probe);
        (steps, !findings.found.is_empty())
    }

    /// A reconciliation did not show this call. That proves nothing: after two of them, a minute
    /// apart, it is polled alone. An unresolved call cannot be polled.
    pub(super) fn absent(
        &self,
        now: Now,
        call: &Unconfirmed,
        findings: &Findings,
        around: Circumstances<'_>,
    ) -> Step {
        let ahead = |at: EventTime| at > now.wall; // the clock was set back since
        let apart = |at| now.wall.since(at) >= APART || ahead(at);
        let apart = call.absent_at.is_none_or(apart);
        let counts = apart && findings.conclusive;
        let times = call.absent.saturating_add(u32::from(counts));
        let unresolved = !around.tokens.reads(now, &call.token);
        let age = call.age(now.wall);
        let given_time = age >= self.page_strategy().persisting + PATIENCE;
        if unresolved && given_time && (findings.complete && findings.conclusive || times >= 2) {
            return unresolved::absent(call, true);
        }
        let barred = around.rights.polls_barred(now.boot);
        if barred && !unresolved && times >= 2 && age >= OLD_POLL {
            return unresolved::absent(&around.rights.with_bar(call), true);
        }
        // an unresolved call is never left to the polls, nor is anything to polls that are refused
        let (times, alone) = match unresolved || barred {
            true => (times.min(1), false),
            false => (times, times >= 2),
        };
        let absent = Some(times);
        let next_check = if alone {
            now.wall
        } else if unresolved && given_time && findings.conclusive {
            // the journal is longer than what is read of it: sooner, its silence does not count
            let counted = call.absent_at.filter(|at| !counts && !ahead(*at));
            counted.unwrap_or(now.wall).plus(APART)
        } else {
            // where absence says nothing another range may show it soon
            let soon = !around.load.loaded || !findings.conclusive;
            next_check(age, soon, now.wall)
        };
        Step::NotYet { next_check, absent }
    }
}
