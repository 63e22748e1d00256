//! The calls that wait to be confirmed: what polls, pages of the journal and webhooks tell of
//! them, and what is looked for how.

use crate::{Bar, JournalReconciliation, Load, Outcome, PageStrategy, STRAGGLER, Task};
use callbridge_call::EventTime;
use callbridge_model::Now;
use callbridge_spool::{FIRST_POLL, HELD_MAX, IfAbsent, Op, RowId, Step, Unconfirmed, WebhookPace};
use std::time::Duration;

/// Without a confirmation for so long nothing is expected of webhooks.
const SILENT: Duration = Duration::from_secs(10 * 60);

/// Least and most time for which a call is left to webhooks; between them it is twice the usual
/// time.
///
/// What does not get through comes again after 30 s (§6.9.1): that and as much again are worth
/// waiting for.
const LEFT: (Duration, Duration) = (Duration::from_secs(120), Duration::from_secs(5 * 60));

/// So many calls that had to be asked for, with no webhook in between, and webhooks flow no more.
const MISSED_MAX: u32 = 3;

/// State of the ways to confirm calls: polls, pages of the journal, webhooks.
#[derive(Debug, Default)]
pub(super) struct Confirmation {
    pub(super) reconciliation: JournalReconciliation,
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
    pub(super) fn unresolved(&self, now: Now, row: RowId, if_absent: IfAbsent, why: String) -> Op {
        let persisting = self.page_strategy().persisting.max(FIRST_POLL);
        let next_check = now.wall.plus(STRAGGLER + persisting);
        let step = Step::Unresolved {
            next_check,
            if_absent,
            why,
        };
        Op::step(row, step, now.wall)
    }

    /// A request about this leaves.
    pub(super) fn launched(&mut self, task: &Task) {
        self.polled_last = task.poll().is_some();
        if let Some(call) = task.poll() {
            self.reconciliation.asked_for(call);
        }
    }

    /// The reconciliation's request was refused.
    pub(super) fn unswept(&mut self, now: Now, bar: Bar) {
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

/// State of the webhooks: the newest confirmation, and calls that they missed.
///
/// Webhooks that confirm calls (CALL_COMPLETED, §6.8) cost nothing: while they flow, polls and
/// reconciliations stand back for what has come too late to come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WebhookExpectation {
    webhook_pace: Option<WebhookPace>,
    missed: u32,
}

impl WebhookExpectation {
    /// Takes in the newest confirmation by a webhook, as the spool has it.
    pub(super) fn seen(&mut self, webhook_pace: Option<WebhookPace>) {
        if self.webhook_pace != webhook_pace {
            self.missed = 0;
        }
        self.webhook_pace = webhook_pace;
    }

    /// So long after its acceptance a call is left to them; none while they do not flow.
    pub(super) fn left(&self, now: EventTime) -> Duration {
        let flows = |it: &WebhookPace| {
            let ahead = it.at > now.plus(HELD_MAX); // the clock was set back since
            !ahead && now.since(it.at) < SILENT && self.missed < MISSED_MAX
        };
        let (least, most) = LEFT;
        let webhook_pace = self.webhook_pace.as_ref().filter(|it| flows(it));
        webhook_pace.map_or(Duration::ZERO, |it| (it.usual * 2).clamp(least, most))
    }

    /// A call so old had to be asked for, and was in the journal.
    pub(super) fn asked_for(&mut self, now: EventTime, age: Duration) {
        let left = self.left(now);
        if !left.is_zero() && age >= left {
            self.missed += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: EventTime = EventTime::from_seconds(1_795_151_000);

    fn after(seconds: u64) -> EventTime {
        T0.plus(Duration::from_secs(seconds))
    }

    fn expectation(usual: u64) -> WebhookExpectation {
        let mut expectation = WebhookExpectation::default();
        expectation.seen(Some(WebhookPace {
            at: T0,
            after: Duration::from_secs(usual),
            usual: Duration::from_secs(usual),
        }));
        expectation
    }

    #[test]
    fn a_call_is_left_to_webhooks_for_twice_their_usual_time_within_bounds() {
        let left = |usual| expectation(usual).left(after(5)).as_secs();
        assert_eq!([left(2), left(75), left(2000)], [120, 150, 300]);
        assert_eq!(WebhookExpectation::default().left(T0), Duration::ZERO);
    }

    #[test]
    fn webhooks_that_fell_silent_are_not_waited_for() {
        let expectation = expectation(2);
        assert!(!expectation.left(after(599)).is_zero());
        assert!(expectation.left(after(600)).is_zero());
        let set_back = T0.minus(Duration::from_secs(7 * 24 * 3600));
        assert!(expectation.left(set_back).is_zero());
    }

    #[test]
    fn three_calls_that_had_to_be_asked_for_end_it_until_the_next_webhook() {
        let mut expectation = expectation(2);
        for _ in 0..5 {
            expectation.asked_for(after(30), Duration::from_secs(119)); // a deadline's poll
        }
        assert!(!expectation.left(after(121)).is_zero());
        for _ in 0..3 {
            expectation.asked_for(after(121), Duration::from_secs(120));
        }
        assert!(expectation.left(after(121)).is_zero());
        let webhook_pace = expectation.webhook_pace.map(|it| WebhookPace {
            at: after(130),
            ..it
        });
        expectation.seen(webhook_pace);
        assert!(!expectation.left(after(131)).is_zero());
    }
}
