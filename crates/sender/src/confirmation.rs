//! The calls that wait to be confirmed: what polls, pages of the journal and webhooks tell of
//! them, and what is looked for how.

use crate::webhook_expectation::WebhookExpectation;
use crate::{
    Bar, JournalReconciliation, Load, Outcome, PageStrategy, PossiblySentSearch, STRAGGLER, Task,
};
use callbridge_call::EventTime;
use callbridge_model::Now;
use callbridge_spool::{FIRST_POLL, IfAbsent, Op, RowId, Step, Unconfirmed, WebhookPace};
use std::time::Duration;

/// State of the ways to confirm calls: polls, pages of the journal, webhooks.
#[derive(Debug, Default)]
pub(super) struct Confirmation {
    pub(super) reconciliation: JournalReconciliation,
    /// Calls that another may have sent.
    pub(super) search: PossiblySentSearch,
    pub(super) webhooks: WebhookExpectation,
    /// Call whose outcome shows that the journal can, or cannot, be reconciled the way it was.
    pub(super) probe: Option<Unconfirmed>,
    /// Time since boot before which no reconciliation begins.
    pub(super) reconcile_from: Duration,
    pub(super) polled_last: bool,
    /// The latest acceptance of a call that is journaled.
    pub(super) settled_to: EventTime,
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

    /// On an idle line a reconciliation too early costs nothing; while calls wait it must pay.
    pub(super) fn confirmable_before(&self, now: Now, load: Load) -> EventTime {
        let age = match load.loaded {
            true => self.page_strategy().persisting,
            false => FIRST_POLL,
        };
        now.wall.minus(age.max(self.webhooks.left(now.wall)))
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

    /// The journal holds this call, as another way has shown.
    pub(super) fn settled(&mut self, now: Now, call: &Unconfirmed) {
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
}
