//! Events that the CRM sends by webhook. Each pair of installation and event is applied only once
//! (§6.9), as is each signature, whatever its installation. An event's content is applied in the
//! same transaction that stores the delivery.

use super::{directory, echoes, look_ups, meta, step};
use crate::db::Asked;
use crate::op::{Delivered, Delivery, Done, WebhookEvent};
use crate::state::{self, IfAbsent, State, Step};
use crate::{CallEcho, DELIVERIES_KEPT, DELIVERIES_MAX, Db, Error, Fit, RowId, Store, WebhookPace};
use callbridge_call::EventTime;
use callbridge_crm::ShownCall;
use callbridge_model::{CallUuid, LeadId, Reason};
use serde::Deserialize;
use std::time::Duration;

/// Maximum number of deliveries that a single purge deletes.
const FORGOTTEN_MAX: u32 = 2_000;
/// Name of the setting that keeps [`WebhookPace`], with its times in microseconds and its branch,
/// separated by spaces.
pub(crate) const WEBHOOK_PACE: &str = "webhook.pace";
/// A stored call reported by an event or a journal page.
#[derive(Deserialize)]
struct DeliveredCall {
    id: RowId,
    state: State,
    reason: Option<Reason>,
    if_absent: Option<IfAbsent>,
    message: String,
    accepted: Option<EventTime>,
    lead: Option<LeadId>,
    turn: String,
    /// Whether the call was sent, so that the event may be the result of its request.
    sent: bool,
    /// Whether the call may have been sent with other values before its present ones.
    changed: bool,
    /// Whether the call was resent because the journal had lost it.
    again: bool,
}

impl DeliveredCall {
    fn step(&self) -> Option<Step> {
        state::step_when_shown(self.state, self.reason, self.if_absent, &self.message)
    }
}

/// Parses the stored [`WebhookPace`], or returns `None` if the text has another format.
pub(crate) fn read_webhook_pace(text: &str) -> Option<WebhookPace> {
    let [at, after, usual, turn] = Vec::from_iter(text.splitn(4, ' '))[..] else {
        return None;
    };
    let [at, after, usual] = [at, after, usual].map(|number| number.parse::<u64>().ok());
    Some(WebhookPace {
        turn: turn.to_owned(),
        at: EventTime::from_micros(i64::try_from(at?).ok()?),
        after: Duration::from_micros(after?),
        usual: Duration::from_micros(usual?),
    })
}

pub(crate) fn deliver(store: &mut Store, delivery: &Delivery) -> Result<Delivered, Error> {
    match meta::binding(store)?.fits_their_company(&delivery.company) {
        Fit::Unbound => return Ok(Delivered::CompanyUnknown),
        Fit::Other => return Ok(Delivered::OtherCompany),
        Fit::Same => {}
    }
    let values = (
        &delivery.installation,
        &delivery.event,
        delivery.at.micros(),
        &delivery.signature,
    );
    let text = "INSERT INTO webhook_deliveries (installation, event, at, signature)
         VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT DO NOTHING";
    if store.execute(text, values)? == 0 {
        return Ok(Delivered::Repeat);
    }
    match &delivery.news {
        WebhookEvent::Completed { uuid, leads, shown } => {
            note_completed(store, *uuid, (leads, shown), delivery.at)
        }
        WebhookEvent::Learn(news) => look_ups::learn(store, news).map(Delivered::Learned),
    }
}

/// Handles an event that reports that a call is in the journal. `leads` and `shown` are the call's
/// leads and values there.
fn note_completed(
    store: &mut Store,
    uuid: CallUuid,
    (leads, shown): (&[LeadId], &CallEcho),
    at: EventTime,
) -> Result<Delivered, Error> {
    let Some(found) = find_delivered(store, uuid)? else {
        return Ok(Delivered::NotOurs);
    };
    let row = found.id;
    let as_sent = found.sent && !found.changed && !found.again;
    let shown = if as_sent { Some(shown) } else { None };
    echoes::note_shown(store, row, shown, at)?;
    // If the call was resent, the event may be from before the journal lost it, so only a journal
    // page confirms the call.
    let step = if found.again { None } else { found.step() };
    let Some(step) = step else {
        return Ok(Delivered::Settled(row));
    };
    let done = step::step(store, row, &step, at)?;
    if done != Done::Stepped(State::Journaled) {
        return Ok(Delivered::Overtaken(row));
    }
    let after = if found.state == State::Submitted {
        found.accepted.map(|accepted| at.since(accepted))
    } else if found.state == State::Sending {
        Some(Duration::ZERO)
    } else {
        None
    };
    remember_webhook_pace(store, at, after, &found.turn)?;
    let other_lead = match found.lead {
        Some(own) if !leads.is_empty() && !leads.contains(&own) => {
            let survivor = directory::survivor(store, own)?;
            survivor.is_none_or(|survivor| !leads.contains(&survivor))
        }
        Some(_) | None => false,
    };
    Ok(Delivered::Confirmed { row, other_lead })
}

fn find_delivered(db: &Db, uuid: CallUuid) -> Result<Option<DeliveredCall>, Error> {
    let text = "SELECT id, state, reason, if_absent, message, submitted_at AS accepted,
                lead, turn, first_sent IS NOT NULL AS sent,
                times_dead > CASE WHEN state = 'dead' THEN 1 ELSE 0 END
                    OR reroute_history IS NOT NULL AS changed,
                sent_again AS again
         FROM calls WHERE uuid = ?1";
    db.query_first(text, [uuid.0.into_bytes()])
}

/// Marks calls on a journal page as journaled, as a webhook does, if they were sent from this
/// state. If a call may have been sent with other values before, it's confirmed only if the page
/// shows its present lead, since the page may otherwise show the earlier request.
pub(crate) fn note_shown(
    store: &mut Store,
    calls: &[ShownCall],
    at: EventTime,
) -> Result<(), Error> {
    for call in calls {
        let Some(found) = find_delivered(store, call.uuid)? else {
            continue;
        };
        let is_same_lead = !found.changed
            || found
                .lead
                .is_some_and(|lead| call.leads.contains(&lead.get()));
        if found.sent
            && is_same_lead
            && let Some(step) = found.step()
        {
            step::step(store, found.id, &step, at)?;
        }
    }
    Ok(())
}

fn remember_webhook_pace(
    db: &Db,
    at: EventTime,
    after: Option<Duration>,
    turn: &str,
) -> Result<(), Error> {
    let before = webhook_pace(db)?.map(|before| (before.after, before.usual));
    let (last, usual) = before.unwrap_or_default();
    let usual = after
        .map_or(usual, |after| after.max(usual - usual / 8))
        .as_micros();
    let after = after.unwrap_or(last).as_micros();
    meta::set_meta(
        db,
        WEBHOOK_PACE,
        &format!("{} {after} {usual} {turn}", at.micros()),
    )
}

pub(super) fn ask_webhook_pace(db: &Db) -> Result<Asked<String>, Error> {
    meta::ask_meta(db, WEBHOOK_PACE)
}

pub(super) fn read_asked_pace(db: &Db, asked: Asked<String>) -> Result<Option<WebhookPace>, Error> {
    Ok(asked.first(db)?.and_then(|text| read_webhook_pace(&text)))
}

/// Reads how long webhooks take to confirm calls, or returns `None` before the first confirmation
/// by webhook.
pub fn webhook_pace(db: &Db) -> Result<Option<WebhookPace>, Error> {
    Ok(meta::meta(db, WEBHOOK_PACE)?.and_then(|text| read_webhook_pace(&text)))
}

/// Deletes deliveries that are older than [`DELIVERIES_KEPT`] or beyond [`DELIVERIES_MAX`], oldest
/// first. Returns `true` if more are left to delete. Deliveries from the future (the clock was set
/// back) count as old.
pub(crate) fn purge_deliveries(db: &Db, now: EventTime) -> Result<bool, Error> {
    let before = now.minus(DELIVERIES_KEPT).micros();
    let ahead = now.plus(DELIVERIES_KEPT).micros();
    let text = "DELETE FROM webhook_deliveries
         WHERE id IN (SELECT id FROM webhook_deliveries ORDER BY id LIMIT ?1)
         AND (at < ?2 OR at > ?3 OR id <= (SELECT max(id) FROM webhook_deliveries) - ?4)";
    let gone = db.execute(text, (FORGOTTEN_MAX, before, ahead, DELIVERIES_MAX))?;
    Ok(gone == FORGOTTEN_MAX as usize)
}
