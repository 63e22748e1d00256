//! The cycle of the dispatcher: which rows leave now, and what becomes of them (§6.9, Limits).
//!
//! It decides; the shell sends. What is under way is not logged: after a restart it goes again,
//! as at-least-once allows (§6.1.4).

use super::WebhookChange;
use super::attempts::{Attempt, DeadRow, DeliveryId, Tried};
use super::config::SigningKey;
use super::outbox::{DeliveryRow, Outbox, dice};
use super::shapes::Shapes;
use super::target;
use super::verdict::{AttemptOutcome, DeliveryVerdict, NextStep, next};
use crate::core::Sandbox;
use crate::webhook;
use callbridge_call::{EpochSeconds, EventTime};
use callbridge_model::secret::Secret;
use callbridge_model::webhook_signature::Key;
use std::collections::BTreeMap;
use std::time::Duration;
use url::Url;

/// How often rows are claimed.
pub const CYCLE: Duration = Duration::from_secs(1);
/// Most deliveries of a company under way.
pub const IN_FLIGHT_MAX: usize = 20;
/// Most rows of a company claimed in a cycle.
pub const CLAIMED_MAX: usize = 10;
/// Most rows claimed in a cycle.
pub const CLAIMED_OVERALL_MAX: usize = 100;

/// A delivery to make: everything but the moment of its signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// Which.
    pub id: DeliveryId,
    /// Where to.
    pub target: Url,
    /// What it is signed with.
    pub key: SigningKey,
    /// The raw body.
    pub body: String,
}

impl Dispatch {
    /// The four headers (§6.3), signed at this moment (§6.4).
    pub fn headers(&self, sent_at: EpochSeconds) -> [(&'static str, String); 4] {
        let timestamp = sent_at.get().to_string();
        let key = Key::new(&Secret::from(self.key.expose()));
        let signature = key.sign(&timestamp, self.body.as_bytes());
        [
            ("x-webhook-id", self.id.event.to_string()),
            (
                "x-webhook-installation-id",
                self.id.installation.to_string(),
            ),
            ("x-webhook-timestamp", timestamp),
            ("x-webhook-signature", signature),
        ]
    }
}

/// The deliveries of one cycle, which the caller makes once a second.
pub fn deliveries(sandbox: &mut Sandbox, now: EventTime) -> Vec<Dispatch> {
    sandbox.webhooks.forget(now);
    let shapes = sandbox.settings.shapes.webhook;
    let mut leaving = Vec::new();
    for id in claim(sandbox, now) {
        match address(sandbox, id.installation) {
            Ok((target, key)) => {
                let body = sandbox.webhooks.leaves(id, &shapes);
                leaving.extend(body.map(|body| Dispatch {
                    id,
                    target,
                    key,
                    body,
                }));
            }
            Err(why) => {
                let why = why.to_owned();
                webhook::webhook_change(sandbox, now, WebhookChange::Died { id, why });
            }
        }
    }
    leaving
}

/// A delivery came to its end.
pub fn delivered(
    sandbox: &mut Sandbox,
    now: EventTime,
    dispatch: &Dispatch,
    outcome: &AttemptOutcome,
    took: Duration,
) {
    let duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    let row = sandbox.webhooks.rows.get(&dispatch.id);
    if row.is_some_and(|row| row.in_flight) {
        attempted(sandbox, now, dispatch.id, outcome, duration_ms);
    }
}

/// The rows that are due, within the limits of a cycle.
fn claim(sandbox: &Sandbox, now: EventTime) -> Vec<DeliveryId> {
    let outbox = &sandbox.webhooks;
    let mut under_way: BTreeMap<i64, usize> = BTreeMap::new();
    for row in outbox.rows.values().filter(|row| row.in_flight) {
        *under_way.entry(row.recorded.company).or_default() += 1;
    }
    let (mut claimed, mut ids) = (BTreeMap::<i64, usize>::new(), Vec::new());
    for (due, _, id) in &outbox.waiting {
        if *due > now || ids.len() == CLAIMED_OVERALL_MAX {
            break;
        }
        let Some(row) = outbox.rows.get(id) else {
            continue;
        };
        let company = row.recorded.company;
        let own = claimed.entry(company).or_default();
        let flying = under_way.get(&company).copied().unwrap_or(0);
        if *own == CLAIMED_MAX || flying + *own >= IN_FLIGHT_MAX {
            continue;
        }
        *own += 1;
        ids.push(*id);
    }
    ids
}

/// Where an installation's deliveries go, and what signs them, at this moment (§6.9.4, §6.4.4);
/// else why its rows are dead.
fn address(sandbox: &Sandbox, installation: i64) -> Result<(Url, SigningKey), &'static str> {
    let installations = &sandbox.webhooks.installations;
    let own = installations.get(&installation);
    let own = own.filter(|own| !webhook::told::is_gone(sandbox, own));
    let own = own.ok_or("installation revoked")?;
    let config = sandbox.webhooks.config(own.application);
    let config = config.ok_or("configuration missing")?;
    if !config.enabled || config.events.is_empty() {
        return Err("configuration disabled");
    }
    let target = Url::parse(&config.target_url).map_err(|_| target::NOT_HTTPS)?;
    target::check(&target, sandbox.settings.private_targets)?;
    let key = own.secret.as_ref().or(config.secret.as_ref());
    Ok((target, key.ok_or("signing secret unresolvable")?.clone()))
}

fn attempted(
    sandbox: &mut Sandbox,
    now: EventTime,
    id: DeliveryId,
    outcome: &AttemptOutcome,
    duration_ms: u64,
) {
    let Some(row) = sandbox.webhooks.rows.get(&id) else {
        return;
    };
    let verdict = outcome.verdict();
    let next = match (row.arrived, verdict) {
        // It had arrived before: nothing more is owed.
        (true, _) => NextStep::Done,
        (false, DeliveryVerdict::Delivered) => perhaps_twice(sandbox, now, id),
        (false, DeliveryVerdict::Retry | DeliveryVerdict::Never) => {
            next(now, row.attempts + 1, verdict)
        }
    };
    if *outcome == AttemptOutcome::Private {
        let why = target::PRIVATE.to_owned();
        return webhook::webhook_change(sandbox, now, WebhookChange::Died { id, why });
    }
    let tried = Tried {
        status: outcome.status(),
        error: outcome.error(),
        duration_ms,
    };
    webhook::webhook_change(sandbox, now, WebhookChange::Attempted { id, tried, next });
}

fn perhaps_twice(sandbox: &Sandbox, now: EventTime, id: DeliveryId) -> NextStep {
    let mut dice = dice(sandbox.settings.seed, id, 2);
    let shapes = &sandbox.settings.shapes.webhook;
    if dice.below(100) < u64::from(shapes.twice_percent) {
        NextStep::Twice(now.plus(Duration::from_millis(dice.below(3_000))))
    } else {
        NextStep::Done
    }
}

impl Outbox {
    /// A row is being sent; its body, in the shapes that the document leaves open.
    fn leaves(&mut self, id: DeliveryId, shapes: &Shapes) -> Option<String> {
        let row = self.rows.get_mut(&id)?;
        row.in_flight = true;
        self.waiting.remove(&(row.due, row.tie, id));
        Some(row.recorded.body(shapes).to_string())
    }

    /// Drops what is kept for seven days.
    fn forget(&mut self, now: EventTime) {
        self.attempts.forget(now);
        self.dead.forget(now);
    }

    pub(super) fn apply_attempt(
        &mut self,
        at: EventTime,
        id: DeliveryId,
        tried: Tried,
        next: NextStep,
    ) {
        let Some(mut row) = self.take(id) else {
            return;
        };
        row.attempts += 1;
        let why = tried.error.clone().unwrap_or_default();
        let attempt = Attempt {
            at,
            id,
            event_type: row.recorded.event.name,
            company: row.recorded.company,
            number: row.attempts,
            tried,
        };
        self.attempts.push(at, attempt);
        match next {
            NextStep::Done => self.counts.delivered += 1,
            NextStep::At(due) => self.put_back(id, row, due),
            NextStep::Twice(due) => {
                row.arrived = true;
                self.put_back(id, row, due);
            }
            NextStep::Dead => self.bury(at, id, &row, why),
        }
    }

    pub(super) fn apply_death(&mut self, at: EventTime, id: DeliveryId, why: String) {
        match self.take(id) {
            // It arrived before; the second time was more than was owed.
            Some(row) if row.arrived => self.counts.delivered += 1,
            Some(row) => self.bury(at, id, &row, why),
            None => {}
        }
    }

    fn take(&mut self, id: DeliveryId) -> Option<DeliveryRow> {
        let row = self.rows.remove(&id)?;
        self.waiting.remove(&(row.due, row.tie, id));
        Some(row)
    }

    fn put_back(&mut self, id: DeliveryId, mut row: DeliveryRow, due: EventTime) {
        row.due = due;
        row.in_flight = false;
        self.waiting.insert((due, row.tie, id));
        self.rows.insert(id, row);
    }

    fn bury(&mut self, at: EventTime, id: DeliveryId, row: &DeliveryRow, why: String) {
        self.counts.dead += 1;
        let dead = DeadRow {
            at,
            id,
            event_type: row.recorded.event.name,
            attempts: row.attempts,
            why,
        };
        self.dead.push(at, dead);
    }
}
