//! The outbox: recorded events and the state of their deliveries (§6.1, §3.4), the journal of
//! attempts (§6.9.5), and the dead rows (§3.4).

use crate::{
    Company, CrmEvent, Dice, Installation, Recorded, Settings, pairs, webhook::config::Config,
};
use callbridge_call::EventTime;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use uuid::Uuid;

/// Time after an event of a conversation in which no second event of the conversation is recorded
/// (§6.8).
pub const SUPPRESSED_FOR: Duration = Duration::from_secs(24 * 3600);
/// Largest number of deliveries in the outbox. Further deliveries are only counted.
pub const ROWS_MAX: usize = 200_000;
/// The id of the first installation. The number differs from usual company ids, so the two kinds of
/// ids cannot be confused.
const FIRST_INSTALLATION: i64 = 7_001;

const EVENT_NAMESPACE: Uuid = Uuid::from_u128(0x2f1c_83d6_50ab_4b67_8f0e_94d2_3b6c_1e05);

/// The delivery of one event to one installation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeliveryRow {
    /// The event that is delivered.
    pub recorded: Recorded,
    /// The moment before which no attempt is made.
    pub due: EventTime,
    /// The order among rows that are due at the same moment, lowest first.
    pub tie: u64,
    /// Number of attempts made so far.
    pub attempts: u32,
    /// `true` while an attempt is under way. After a restart the attempt is made again, which
    /// at-least-once allows (§6.1.4).
    #[serde(skip)]
    pub in_flight: bool,
    /// `true` if the delivery has arrived and is sent a second time (§6.1.4).
    pub arrived: bool,
}

/// The whole state of webhooks: configurations, installations and deliveries.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outbox {
    /// Configurations by the id of their application.
    pub configs: BTreeMap<i64, Config>,
    /// All installations by their id.
    pub installations: BTreeMap<i64, Installation>,
    /// Deliveries that are still to be made, or are under way.
    #[serde(with = "pairs")]
    pub rows: BTreeMap<DeliveryId, DeliveryRow>,
    /// Number of events with the same time, name, and subject in the last hour. The number gives
    /// each event a different id.
    #[serde(skip)]
    alike: BTreeMap<(EventTime, String, String), u64>,
    /// The attempts of the last seven days.
    pub attempts: Kept<Attempt>,
    /// Rows of the last seven days that are never sent again.
    pub dead: Kept<DeadRow>,
    /// The moment of each conversation's last event, by company and conversation id.
    #[serde(with = "pairs")]
    told: BTreeMap<(i64, String), EventTime>,
    /// Counts since the state was first created.
    pub counts: DeliveryCounts,
}

/// Counts of events and of their deliveries, since the state was first created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeliveryCounts {
    /// Events recorded for at least one installation.
    pub events: u64,
    /// Deliveries added for these events, one per event and installation.
    pub deliveries: u64,
    /// Events that were not recorded, because their conversation had an event within the 24 hours
    /// before.
    pub suppressed: u64,
    /// Deliveries that were not added because the outbox was full.
    pub overflowed: u64,
    /// Deliveries that a receiver accepted.
    pub delivered: u64,
    /// Deliveries that failed for good and are never sent again.
    pub dead: u64,
}

impl Outbox {
    /// Returns the id of the installation of a company and an application. Returns `None` if there
    /// is no installation, or if it was revoked.
    pub fn installed(&self, company: i64, application: i64) -> Option<i64> {
        let pair = (company, application);
        let mut all = self.installations.iter();
        let living = all.find(|(_, own)| !own.revoked && (own.company, own.application) == pair);
        living.map(|(id, _)| *id)
    }

    /// Creates the installation of a company and its own application, if there was never one. A
    /// revoked installation is not replaced.
    pub(crate) fn install(&mut self, company: &Company) {
        let pair = (company.id, company.application_id);
        let is_known = self
            .installations
            .values()
            .any(|known| (known.company, known.application) == pair);
        if !is_known {
            self.installation(company.id, company.application_id);
        }
    }

    /// Returns the installation of a company and an application. Creates a new one if there is no
    /// installation, or if it was revoked.
    pub(crate) fn installation(&mut self, company: i64, application: i64) -> &mut Installation {
        let made = i64::try_from(self.installations.len()).unwrap_or(i64::MAX);
        let next = FIRST_INSTALLATION.saturating_add(made);
        let id = self.installed(company, application).unwrap_or(next);
        self.installations.entry(id).or_insert(Installation {
            company,
            application,
            secret: None,
            revoked: false,
        })
    }

    /// Returns a new id for an event. The id depends only on the event's time, name, and subject,
    /// and on the number of equal events, so the same requests give the same ids.
    pub(super) fn event_id(&mut self, at: EventTime, company: i64, event: &CrmEvent) -> Uuid {
        let subject = format!("{company} {}", event.subject);
        let hour_ago = at.minus(Duration::from_secs(3_600));
        let oldest = (hour_ago, String::new(), String::new());
        self.alike = self.alike.split_off(&oldest);
        let key = (at, event.name.clone(), subject.clone());
        let number = self.alike.entry(key).or_default();
        *number += 1;
        let name = format!("{} {} {subject} {number}", at.micros(), event.name);
        Uuid::new_v5(&EVENT_NAMESPACE, name.as_bytes())
    }

    /// Returns `true` and counts the event as suppressed if its conversation had an event within 24
    /// hours (§6.8). Otherwise stores `at` as the time of the conversation's last event. Events of
    /// leads are never suppressed.
    pub(super) fn suppress_repeat(
        &mut self,
        at: EventTime,
        company: i64,
        event: &CrmEvent,
    ) -> bool {
        let Some(id) = event.call_id() else {
            return false;
        };
        let key = (company, id.to_owned());
        let last = self.told.get(&key);
        let before = last.is_some_and(|last| at.since(*last) < SUPPRESSED_FOR);
        if before {
            self.counts.suppressed += 1;
        } else {
            self.told.insert(key, at);
        }
        before
    }

    pub(super) fn push(&mut self, installation: i64, recorded: Recorded, settings: &Settings) {
        if self.rows.len() >= ROWS_MAX {
            self.counts.overflowed += 1;
            return;
        }
        self.counts.deliveries += 1;
        let id = DeliveryId {
            event: recorded.event_id,
            installation,
        };
        let shapes = &settings.shapes;
        let late = u64::try_from(shapes.webhook_late.as_micros()).unwrap_or(0);
        let late = dice(settings.seed, id, 0).below(late.saturating_add(1));
        let row = DeliveryRow {
            due: recorded.at.plus(Duration::from_micros(late)),
            recorded,
            tie: if shapes.webhook_shuffled {
                dice(settings.seed, id, 1).roll()
            } else {
                self.counts.deliveries
            },
            attempts: 0,
            in_flight: false,
            arrived: false,
        };
        self.rows.insert(id, row);
    }

    /// Removes a delivery that failed for good, and adds it to the dead rows with the reason `why`.
    pub(super) fn die(&mut self, at: EventTime, id: DeliveryId, why: &str) {
        let Some(row) = self.rows.remove(&id) else {
            return;
        };
        // The delivery arrived before and only its intended repeat failed, so it counts as
        // delivered.
        if row.arrived {
            self.counts.delivered += 1;
            return;
        }
        self.counts.dead += 1;
        let dead = DeadRow {
            at,
            id,
            event_type: row.recorded.event.name,
            attempts: row.attempts,
            why: why.to_owned(),
        };
        self.dead.push(at, dead);
    }
}

/// Returns the random number generator of one delivery for one purpose, the number `throw`. The
/// random numbers do not depend on the order of deliveries.
pub(super) fn dice(seed: u64, id: DeliveryId, throw: u64) -> Dice {
    let (high, low) = id.event.as_u64_pair();
    let throw = throw.wrapping_mul(0xd6e8_feb8_6659_fd93);
    Dice::new(seed ^ high ^ low.rotate_left(17) ^ id.installation.unsigned_abs() ^ throw)
}

/// Time for which attempts and dead rows are kept.
pub const KEPT_FOR: Duration = Duration::from_secs(7 * 86_400);
/// Most entries of each kind. The oldest are removed first.
pub const KEPT_MAX: usize = 10_000;

/// An event and the installation it goes to. Receivers identify a delivery by this pair (§6.9.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DeliveryId {
    /// The event's id, sent as `eventId`.
    pub event: Uuid,
    /// The installation's id, sent as `X-Webhook-Installation-Id`.
    pub installation: i64,
}

/// An attempt in the journal of deliveries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// The moment at which the attempt ended.
    pub at: EventTime,
    /// The delivery that was attempted.
    #[serde(flatten)]
    pub id: DeliveryId,
    /// The name of the event (§6.2).
    pub event_type: String,
    /// The id of the event's company.
    pub company: i64,
    /// The attempt's number within its delivery, from 1.
    pub number: u32,
    /// The status of the answer, if there was one.
    pub status: Option<u16>,
    /// The failure, as a message. `None` for a 2xx.
    pub error: Option<String>,
    /// Milliseconds from the start of the attempt to its outcome, including the connection.
    pub duration_ms: u64,
}

/// A row that is never sent again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadRow {
    /// The moment from which the delivery is never sent again.
    pub at: EventTime,
    /// The delivery that failed.
    #[serde(flatten)]
    pub id: DeliveryId,
    /// The name of the event (§6.2).
    pub event_type: String,
    /// Number of attempts that were made.
    pub attempts: u32,
    /// The reason why the delivery is never sent again, as text.
    pub why: String,
}

/// Entries of the last seven days, oldest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Kept<T>(VecDeque<(EventTime, T)>);

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Kept<T> {
    /// Adds an entry. If there are [`KEPT_MAX`], the oldest one is removed.
    pub fn push(&mut self, at: EventTime, entry: T) {
        if self.0.len() == KEPT_MAX {
            self.0.pop_front();
        }
        self.0.push_back((at, entry));
    }

    /// Drops entries older than seven days.
    pub fn forget(&mut self, now: EventTime) {
        self.0.retain(|(at, _)| now.since(*at) <= KEPT_FOR);
    }

    /// Iterates over the entries, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, entry)| entry)
    }
}
