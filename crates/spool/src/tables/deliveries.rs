//! Events that the service sends: each pair of installation and event once (§6.9), each signature
//! once under whatever installation it comes, and what it tells in the same transaction.
//!
//! Some come through the stream before a token has told whose state this is: a standby asks nothing
//! of the CRM. From the stream nothing comes twice, so they are kept, in the transaction of its
//! place, and taken when the company is bound. The oldest give way to newer ones: of their calls
//! the stream tells otherwise too, and leads are read again by the backfill.

use super::{directory, echoes, look_ups, meta, step};
use crate::op::{Delivered, Delivery, Done, WebhookEvent};
use crate::state::{self, IfAbsent, State, Step};
use crate::{DELIVERIES_KEPT, DELIVERIES_MAX, Db, Error, Fit, RowId, Store, WebhookPace};
use callbridge_call::EventTime;
use callbridge_crm::ShownCall;
use callbridge_formats::message::WebhookMessage;
use callbridge_formats::message::webhook::CallEcho;
use callbridge_model::{CallUuid, LeadId, Reason};
use serde::Deserialize;
use std::time::Duration;

/// Deliveries that a purge forgets at most.
const FORGOTTEN_MAX: u32 = 2_000;
/// Name of the setting that keeps [`WebhookPace`]: its fields in microseconds, with spaces between.
pub(crate) const HOOKED: &str = "webhook.hooked";
/// Events that are kept at most.
pub(crate) const WAITING_MAX: i64 = 10_000;
/// Bytes of their messages together.
pub(crate) const WAITING_BYTES_MAX: i64 = 16 << 20;

/// Counters: events that were kept, and those that gave way.
const WAITED: &str = "webhooks_waited";
const GAVE_WAY: &str = "webhooks_gave_way";

/// A call that an event is about.
#[derive(Deserialize)]
struct DeliveredCall {
    id: RowId,
    state: State,
    reason: Option<Reason>,
    fate: Option<IfAbsent>,
    message: String,
    accepted: Option<EventTime>,
    lead: Option<LeadId>,
    /// A request of ours may have brought it there.
    sent: bool,
    /// Perhaps it was on its way before with other values.
    changed: bool,
    /// The call was taken in again, for the journal had lost it.
    again: bool,
}

impl DeliveredCall {
    fn step(&self) -> Option<Step> {
        state::hooked(self.state, self.reason, self.fate, &self.message)
    }
}

/// Reads the pace as it is stored; `None` where that cannot be read.
pub(crate) fn read_hooked(text: &str) -> Option<WebhookPace> {
    let numbers: Option<Vec<u64>> = text.split(' ').map(|it| it.parse().ok()).collect();
    let [at, after, usual] = numbers?[..] else {
        return None;
    };
    Some(WebhookPace {
        at: EventTime::from_micros(i64::try_from(at).ok()?),
        after: Duration::from_micros(after),
        usual: Duration::from_micros(usual),
    })
}

pub(crate) fn deliver(store: &mut Store, delivery: &Delivery) -> Result<Delivered, Error> {
    match meta::binding(store)?.fits_their_company(&delivery.company) {
        Fit::Unbound if delivery.service_retries => return Ok(Delivered::CompanyUnknown),
        Fit::Unbound => return keep_waiting(store, delivery),
        Fit::Other => return Ok(Delivered::OtherCompany),
        Fit::Same => {}
    }
    let values = (
        &delivery.installation,
        &delivery.event,
        delivery.at.micros(),
        &delivery.signature,
    );
    let text = "INSERT INTO deliveries (installation, event, at, signature) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT DO NOTHING";
    if store.execute(text, values)? == 0 {
        return Ok(Delivered::Repeat);
    }
    match &delivery.news {
        WebhookEvent::Completed { uuid, leads, shown } => {
            completed(store, *uuid, (leads, shown.as_deref()), delivery.at)
        }
        WebhookEvent::Learn(news) => look_ups::learn(store, news).map(Delivered::Learned),
    }
}

/// Takes in that the journal holds this call.
fn completed(
    store: &mut Store,
    uuid: CallUuid,
    (leads, shown): (&[LeadId], Option<&CallEcho>),
    at: EventTime,
) -> Result<Delivered, Error> {
    let Some(found) = found(store, uuid)? else {
        return Ok(Delivered::NotOurs);
    };
    let row = found.id;
    let as_sent = found.sent && !found.changed && !found.again;
    echoes::shown(store, row, shown.filter(|_| as_sent), at)?;
    // An event may tell of the time before the journal lost the call: pages say more.
    let Some(step) = found.step().filter(|_| !found.again) else {
        return Ok(Delivered::Settled(row));
    };
    let done = step::step(store, row, &step, at)?;
    if done != Done::Stepped(State::Journaled) {
        return Ok(Delivered::Overtaken(row));
    }
    let after = if found.state == State::Submitted {
        found.accepted.map(|accepted| at.since(accepted))
    } else {
        (found.state == State::Sending).then_some(Duration::ZERO)
    };
    remember_hooked(store, at, after)?;
    let other_lead = match found.lead {
        Some(own) if !leads.is_empty() && !leads.contains(&own) => {
            let survivor = directory::survivor(store, own)?;
            survivor.is_none_or(|survivor| !leads.contains(&survivor))
        }
        Some(_) | None => false,
    };
    Ok(Delivered::Confirmed { row, other_lead })
}

fn found(db: &Db, uuid: CallUuid) -> Result<Option<DeliveredCall>, Error> {
    let text = "SELECT id, state, reason, fate, message, submitted_at AS accepted,
                json_extract(record, '$.leadId') AS lead, first_sent IS NOT NULL AS sent,
                deaths > (state = 'dead') OR been IS NOT NULL AS changed, generation > 0 AS again
         FROM calls WHERE uuid = ?1";
    db.query_first(text, [uuid.0.into_bytes()])
}

/// Takes from pages of the journal what webhooks report, of calls that were sent from here. A call
/// that went out with another lead after it was a letter is the one that the page shows only where
/// the page says so: else that may be the one before.
pub(crate) fn shown(store: &mut Store, calls: &[ShownCall], at: EventTime) -> Result<(), Error> {
    for call in calls {
        let Some(found) = found(store, call.uuid)? else {
            continue;
        };
        let own = |lead: LeadId| call.leads.contains(&lead.get());
        let same = !found.changed || found.lead.is_some_and(own);
        if let Some(step) = found.step().filter(|_| found.sent && same) {
            step::step(store, found.id, &step, at)?;
        }
    }
    Ok(())
}

/// Keeps an event until it is known whose this state is.
fn keep_waiting(store: &mut Store, delivery: &Delivery) -> Result<Delivered, Error> {
    let values = (
        &delivery.installation,
        &delivery.event,
        delivery.at.micros(),
        delivery.message().write(),
    );
    let text = "INSERT INTO waiting_deliveries (installation, event, at, message)
         VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING";
    if store.execute(text, values)? == 0 {
        return Ok(Delivered::Repeat);
    }
    store.tally.count(WAITED, 1);
    // The oldest are forgotten, where there are too many.
    let text = "DELETE FROM waiting_deliveries WHERE id = (SELECT min(id) FROM waiting_deliveries)
         AND (SELECT events > ?1 OR bytes > ?2 FROM waiting_deliveries_size WHERE one = 1)";
    while store.execute(text, [WAITING_MAX, WAITING_BYTES_MAX])? > 0 {
        store.tally.count(GAVE_WAY, 1);
    }
    Ok(Delivered::Waits)
}

/// Counts the events that are kept.
pub fn waiting(db: &Db) -> Result<u64, Error> {
    let text = "SELECT events FROM waiting_deliveries_size WHERE one = 1";
    db.query_one(text, [])
}

/// Takes all events that were kept until it was known whose state this is, in their order.
pub(crate) fn take_waiting(store: &mut Store) -> Result<(), Error> {
    let text = "SELECT at, message FROM waiting_deliveries ORDER BY id LIMIT ?1";
    let all: Vec<(EventTime, String)> = store.query_all(text, [WAITING_MAX])?;
    if all.is_empty() {
        return Ok(());
    }
    store.execute("DELETE FROM waiting_deliveries", [])?;
    let (mut confirmed, mut learned, mut unread) = (0_u64, 0_u64, 0_u64);
    let events = all.len();
    for (at, message) in all {
        let read = WebhookMessage::read(message.as_bytes());
        let Ok(delivery) = read.and_then(|it| Delivery::of_message(&it, at)) else {
            unread += 1;
            continue;
        };
        let taken = deliver(store, &delivery)?;
        confirmed += u64::from(matches!(taken, Delivered::Confirmed { .. }));
        learned += u64::from(taken == Delivered::Learned(true));
    }
    tracing::info!(
        events,
        confirmed,
        learned,
        unread,
        "webhooks that came before it was known whose this state is are taken"
    );
    Ok(())
}

fn remember_hooked(db: &Db, at: EventTime, after: Option<Duration>) -> Result<(), Error> {
    let before = hooked(db)?.map(|before| (before.after, before.usual));
    let (last, usual) = before.unwrap_or_default();
    let usual = after
        .map_or(usual, |after| after.max(usual - usual / 8))
        .as_micros();
    let after = after.unwrap_or(last).as_micros();
    meta::set_meta(db, HOOKED, &format!("{} {after} {usual}", at.micros()))
}

/// Returns what is known of an event before it is taken, for a machine that passes it on: whose it
/// is, and whether it was taken, or waits, already.
pub fn foreknown(db: &Db, delivery: &Delivery) -> Result<(Fit, bool), Error> {
    let fit = meta::binding(db)?.fits_their_company(&delivery.company);
    let text = "SELECT 1 FROM deliveries WHERE event = ?2 AND installation = ?1 OR signature = ?3
         UNION ALL
         SELECT 1 FROM waiting_deliveries WHERE event = ?2 AND installation = ?1 LIMIT 1";
    let values = (&delivery.installation, &delivery.event, &delivery.signature);
    Ok((fit, db.exists(text, values)?))
}

/// Reads the pace at which webhooks confirm calls; `None` before the first.
pub fn hooked(db: &Db) -> Result<Option<WebhookPace>, Error> {
    Ok(meta::meta(db, HOOKED)?.and_then(|text| read_hooked(&text)))
}

/// Forgets the oldest deliveries after their time, and beyond their number; whether there is
/// more to forget. What was written before the clock was set back is old.
pub(crate) fn purge_deliveries(db: &Db, now: EventTime) -> Result<bool, Error> {
    let (before, ahead) = (now.minus(DELIVERIES_KEPT), now.plus(DELIVERIES_KEPT));
    let (before, ahead) = (before.micros(), ahead.micros());
    let text = "DELETE FROM deliveries WHERE id IN (SELECT id FROM deliveries ORDER BY id LIMIT ?1)
         AND (at < ?2 OR at > ?3 OR id <= (SELECT max(id) FROM deliveries) - ?4)";
    let gone = db.execute(text, (FORGOTTEN_MAX, before, ahead, DELIVERIES_MAX))?;
    Ok(gone == FORGOTTEN_MAX as usize)
}
