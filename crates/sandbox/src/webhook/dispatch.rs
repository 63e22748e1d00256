//! The cycle of the dispatcher: the deliveries to send now, and their outcomes (§6.9, Limits).
//!
//! This module selects the deliveries, and `post` sends them. The state file does not show that a
//! delivery is under way. After a restart, such a delivery is sent again, which at-least-once
//! delivery allows (§6.1.4).

use crate::{
    DeliveryId, Sandbox, SigningKey, webhook::config::NOT_HTTPS, webhook::config::PRIVATE,
    webhook::config::check_target, webhook::events, webhook::outbox::Attempt,
    webhook::outbox::dice,
};
use callbridge_call::{EpochSeconds, EventTime};
use callbridge_model::Secret;
use callbridge_model::webhook_signature::Key;
use std::collections::BTreeMap;
use std::time::Duration;
use url::Url;

/// Interval between two claims of due rows.
pub const CYCLE: Duration = Duration::from_secs(1);
/// Most deliveries of a company that are under way at the same time.
pub const IN_FLIGHT_MAX: usize = 20;
/// Most rows of a company claimed in a cycle.
pub const CLAIMED_MAX: usize = 10;
/// Most rows claimed in a cycle.
pub const CLAIMED_OVERALL_MAX: usize = 100;

/// A delivery to make, with everything but the time of its signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// The event and the installation it goes to.
    pub id: DeliveryId,
    /// The address that the body is posted to.
    pub target: Url,
    /// The signing key, read in this cycle.
    pub key: SigningKey,
    /// The body that is signed and sent.
    pub body: String,
}

impl Dispatch {
    /// Returns the four webhook headers (§6.3), with the signature for the time `sent_at` (§6.4).
    pub fn headers(&self, sent_at: EpochSeconds) -> [(&'static str, String); 4] {
        let timestamp = sent_at.get().to_string();
        let key = Key::new(&Secret::from(self.key.expose()));
        let signature = key.sign(&timestamp, self.body.as_bytes());
        let installation = self.id.installation.to_string();
        [
            ("x-webhook-id", self.id.event.to_string()),
            ("x-webhook-installation-id", installation),
            ("x-webhook-timestamp", timestamp),
            ("x-webhook-signature", signature),
        ]
    }
}

/// Claims the deliveries that are due, and returns them for sending. Deliveries without a valid
/// target, configuration, or key fail for good. The caller runs this once a second.
pub fn deliveries(core: &mut Sandbox, now: EventTime) -> Vec<Dispatch> {
    core.webhooks.attempts.forget(now);
    core.webhooks.dead.forget(now);
    let mut leaving = Vec::new();
    for id in claim(core, now) {
        let addressed = address(core, id.installation);
        match (addressed, core.webhooks.rows.get_mut(&id)) {
            (Ok((target, key)), Some(row)) => {
                row.in_flight = true;
                leaving.push(Dispatch {
                    id,
                    target,
                    key,
                    body: row.recorded.body(&core.settings.shapes).to_string(),
                });
            }
            (Err(why), _) => core.webhooks.die(now, id, why),
            (Ok(_), None) => {}
        }
    }
    leaving
}

/// Records the outcome of an attempt that took this long. The delivery is then done, scheduled for
/// another attempt, or dead.
pub fn delivered(
    core: &mut Sandbox,
    now: EventTime,
    dispatch: &Dispatch,
    outcome: &AttemptOutcome,
    took: Duration,
) {
    let id = dispatch.id;
    let outbox = &mut core.webhooks;
    let row = outbox.rows.get_mut(&id).filter(|row| row.in_flight);
    let Some(row) = row else { return };
    if *outcome == AttemptOutcome::Private {
        return outbox.die(now, id, PRIVATE);
    }
    row.in_flight = false;
    row.attempts += 1;
    let error = outcome.error();
    let attempt = Attempt {
        at: now,
        id,
        event_type: row.recorded.event.name.clone(),
        company: row.recorded.company,
        number: row.attempts,
        status: outcome.status(),
        error: error.clone(),
        duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
    };
    outbox.attempts.push(now, attempt);
    let mut dice = dice(core.settings.seed, id, 2);
    let twice = u64::from(core.settings.shapes.webhook_twice);
    let made = usize::try_from(row.attempts).unwrap_or(usize::MAX);
    let wait = if outcome.is_retried() {
        BACKOFF.get(made - 1)
    } else {
        None
    };
    // A delivery that arrived before is done. For a delivery that arrived now, a random number
    // decides whether it is sent a second time (§6.1.4).
    if row.arrived || error.is_none() && dice.below(100) >= twice {
        outbox.rows.remove(&id);
        outbox.counts.delivered += 1;
    } else if let Some(error) = error {
        match wait {
            Some(wait) => row.due = now.plus(*wait),
            None => outbox.die(now, id, &error),
        }
    } else {
        row.arrived = true;
        row.due = now.plus(Duration::from_millis(dice.below(3_000)));
    }
}

/// Returns the rows that are due, within the limits of a cycle. `tie` orders rows with the same due
/// time.
fn claim(core: &Sandbox, now: EventTime) -> Vec<DeliveryId> {
    let mut under_way: BTreeMap<i64, usize> = BTreeMap::new();
    let mut due = Vec::new();
    for (id, row) in &core.webhooks.rows {
        if row.in_flight {
            *under_way.entry(row.recorded.company).or_default() += 1;
        } else if row.due <= now {
            due.push((row.due, row.tie, *id, row.recorded.company));
        }
    }
    due.sort_unstable();
    let mut claimed: BTreeMap<i64, usize> = BTreeMap::new();
    let mut ids = Vec::new();
    for (_, _, id, company) in due {
        let own = claimed.entry(company).or_default();
        let flying = under_way.get(&company).copied().unwrap_or(0);
        if ids.len() < CLAIMED_OVERALL_MAX && *own < CLAIMED_MAX && flying + *own < IN_FLIGHT_MAX {
            *own += 1;
            ids.push(id);
        }
    }
    ids
}

/// Returns the current target and signing key of an installation's deliveries (§6.9.4, §6.4.4). The
/// error is the reason why the deliveries fail for good.
fn address(core: &Sandbox, installation: i64) -> Result<(Url, SigningKey), &'static str> {
    let own = core
        .webhooks
        .installations
        .get(&installation)
        .filter(|own| !events::is_gone(core, own))
        .ok_or("installation revoked")?;
    let config = core
        .webhooks
        .configs
        .get(&own.application)
        .ok_or("configuration missing")?;
    if !config.enabled || config.events.is_empty() {
        return Err("configuration disabled");
    }
    let target = Url::parse(&config.target_url).map_err(|_| NOT_HTTPS)?;
    check_target(&target, core.settings.private_targets)?;
    let key = own.secret.as_ref().or(config.secret.as_ref());
    Ok((target, key.ok_or("signing secret unresolvable")?.clone()))
}

/// Waits after the first, second, and third failure. After the fourth, there is no attempt.
pub const BACKOFF: [Duration; 3] = [
    Duration::from_secs(30),
    Duration::from_secs(5 * 60),
    Duration::from_secs(30 * 60),
];

/// The outcome of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The receiver answered with this status. Its body is not read.
    Status(u16),
    /// The receiver did not answer in time.
    TimedOut,
    /// The connection failed or broke, with the reason.
    Broken(String),
    /// The name of the target has a private address, so nothing was sent.
    Private,
}

impl AttemptOutcome {
    /// Returns `true` if the delivery is tried again after its backoff (§6.9): after 408, 429, 5xx,
    /// a timeout, or a broken connection.
    pub const fn is_retried(&self) -> bool {
        match self {
            Self::Status(408 | 429 | 500..=599) | Self::TimedOut | Self::Broken(_) => true,
            Self::Status(_) | Self::Private => false,
        }
    }

    /// Returns the status, if there was an answer.
    pub const fn status(&self) -> Option<u16> {
        match self {
            Self::Status(status) => Some(*status),
            Self::TimedOut | Self::Broken(_) | Self::Private => None,
        }
    }

    /// Returns the failure as a message for the journal of attempts, or `None` for a 2xx.
    pub fn error(&self) -> Option<String> {
        match self {
            Self::Status(200..=299) => None,
            Self::Status(300..=399) => Some("a redirect is not followed".to_owned()),
            Self::Status(status) => Some(format!("status {status}")),
            Self::TimedOut => Some("timeout".to_owned()),
            Self::Broken(message) => Some(message.clone()),
            Self::Private => Some(PRIVATE.to_owned()),
        }
    }
}
