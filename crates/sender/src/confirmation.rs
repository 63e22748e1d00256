//! The calls that wait to be confirmed: what polls, pages of the journal and webhooks tell of
//! them, and what is looked for how.

use crate::{Bar, JournalReconciliation, Load, Outcome, PageStrategy, STRAGGLER, Task};
use callbridge_call::EventTime;
use callbridge_model::Now;
use callbridge_spool::{FIRST_POLL, HELD_MAX, IfAbsent, Op, RowId, Step, Unconfirmed, WebhookPace};
use std::time::Duration;

/// After this time without a confirmation, no webhook is expected.
const SILENT: Duration = Duration::from_secs(10 * 60);

/// Shortest and longest time for which a call is left to webhooks. Between them it is twice the
/// usual time.
///
/// A failed delivery comes again after 30 s (§6.9.1). It is worth waiting for that, and as long
/// again.
const LEFT: (Duration, Duration) = (Duration::from_secs(120), Duration::from_secs(5 * 60));

/// If this many calls in a row had to be polled although webhooks should have confirmed them,
/// webhooks count as stopped.
const MISSED_MAX: u32 = 3;

/// State of the ways to confirm calls: polls, pages of the journal, webhooks.
#[derive(Debug, Default)]
pub(super) struct Confirmation {
    pub(super) reconciliation: JournalReconciliation,
    pub(super) webhooks: WebhookExpectation,
    /// Call whose outcome shows whether the journal can be reconciled in the current way.
    pub(super) probe: Option<Unconfirmed>,
    /// Time since boot before which no reconciliation begins.
    pub(super) reconcile_from: Duration,
    pub(super) polled_last: bool,
    /// The latest acceptance time of a journaled call.
    pub(super) settled_to: EventTime,
}

impl Confirmation {
    /// Starts with what is remembered of the journal.
    pub(super) fn new(page_strategy: PageStrategy) -> Self {
        Self {
            reconciliation: JournalReconciliation::new(page_strategy),
            ..Self::default()
        }
    }

    pub(super) fn page_strategy(&self) -> &PageStrategy {
        &self.reconciliation.page_strategy
    }

    /// On an idle line, a reconciliation that is too early costs nothing. While calls wait, it must
    /// be worth its cost.
    pub(super) fn confirmable_before(&self, now: Now, load: Load) -> EventTime {
        let age = match load.loaded {
            true => self.page_strategy().persisting,
            false => FIRST_POLL,
        };
        now.wall.minus(age.max(self.webhooks.left(now.wall)))
    }

    /// Handles a call that may have arrived or can still arrive.
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

    pub(super) fn launched(&mut self, task: &Task) {
        self.polled_last = task.poll().is_some();
        if let Some(call) = task.poll() {
            self.reconciliation.asked_for(call);
        }
    }

    /// Handles the refusal of a reconciliation's request.
    pub(super) fn unswept(&mut self, now: Now, bar: Bar) {
        self.reconciliation.unswept(now.wall, bar);
    }

    /// A poll found its call in the journal. Updates the reconciliations.
    pub(super) fn polled(&mut self, now: Now, call: &Unconfirmed) {
        self.settled(now, call);
        self.reconciliation.polled(now.wall, call);
    }

    /// The journal holds this call, as another source has shown.
    pub(super) fn settled(&mut self, now: Now, call: &Unconfirmed) {
        self.settled_to = self.settled_to.max(call.submitted_at).min(now.wall);
        self.webhooks.asked_for(now.wall, call.age(now.wall));
    }

    /// Handles the outcome of a polled call. The probe's outcome shows why a reconciliation missed
    /// so much.
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
/// Webhooks that confirm calls (CALL_COMPLETED, §6.8) cost no request. While they arrive, polls and
/// reconciliations are only made for calls that they have missed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WebhookExpectation {
    webhook_pace: Option<WebhookPace>,
    missed: u32,
}

impl WebhookExpectation {
    /// Updates the newest confirmation by a webhook from the spool.
    pub(super) fn seen(&mut self, webhook_pace: Option<WebhookPace>) {
        if self.webhook_pace != webhook_pace {
            self.missed = 0;
        }
        self.webhook_pace = webhook_pace;
    }

    /// Time after its acceptance for which a call is left to webhooks. Zero while none arrive.
    pub(super) fn left(&self, now: EventTime) -> Duration {
        let flows = |it: &WebhookPace| {
            let ahead = it.at > now.plus(HELD_MAX); // the clock was set back since
            !ahead && now.since(it.at) < SILENT && self.missed < MISSED_MAX
        };
        let (least, most) = LEFT;
        let webhook_pace = self.webhook_pace.as_ref().filter(|pace| flows(pace));
        webhook_pace.map_or(Duration::ZERO, |pace| (pace.usual * 2).clamp(least, most))
    }

    /// A call of this age had to be polled, and was in the journal.
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
    fn webhook_wait_is_twice_usual_time_within_bounds() {
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
    fn webhook_wait_ends_after_three_late_polls_until_webhook() {
        let mut expectation = expectation(2);
        for _ in 0..5 {
            expectation.asked_for(after(30), Duration::from_secs(119)); // a deadline's poll
        }
        assert!(!expectation.left(after(121)).is_zero());
        for _ in 0..3 {
            expectation.asked_for(after(121), Duration::from_secs(120));
        }
        assert!(expectation.left(after(121)).is_zero());
        let webhook_pace = expectation.webhook_pace.map(|pace| WebhookPace {
            at: after(130),
            ..pace
        });
        expectation.seen(webhook_pace);
        assert!(!expectation.left(after(131)).is_zero());
    }
}
