//! Events that came through the stream before a token has told whose state this is: a standby asks
//! nothing of the CRM. From the stream nothing comes twice, so they are kept, in the transaction
//! of its place, and taken when the company is bound. The oldest give way to newer ones: of their
//! calls the stream tells otherwise too, and leads are read again by the backfill.

use super::deliveries;
use crate::db::Columns as _;
use crate::op::{Delivered, Delivery};
use crate::{Db, Error, Store};
use callbridge_call::EventTime;
use callbridge_message::WebhookMessage;

/// Events that are kept at most.
pub const EVENTS_MAX: i64 = 10_000;
/// Bytes of their messages together.
pub const BYTES_MAX: i64 = 16 << 20;

/// Counters: events that were kept, and those that gave way.
const KEPT: &str = "webhooks_waited";
const GAVE_WAY: &str = "webhooks_gave_way";

/// Keeps an event until it is known whose this state is.
pub(crate) fn keep(store: &mut Store, delivery: &Delivery) -> Result<Delivered, Error> {
    let values = (
        &delivery.installation,
        &delivery.event,
        delivery.at.micros(),
        delivery.message().write(),
    );
    let new = store.execute(
        "INSERT INTO waiting_deliveries (installation, event, at, message)
         VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
        values,
    )?;
    if new == 0 {
        return Ok(Delivered::Repeat);
    }
    store.tally.count(KEPT, 1);
    while gives_way(store)? {
        store.tally.count(GAVE_WAY, 1);
    }
    Ok(Delivered::Waits)
}

/// Forgets the oldest, where there are too many.
fn gives_way(db: &Db) -> Result<bool, Error> {
    let gone = db.execute(
        "DELETE FROM waiting_deliveries WHERE id = (SELECT min(id) FROM waiting_deliveries)
         AND (SELECT events > ?1 OR bytes > ?2 FROM waiting_deliveries_size WHERE one = 1)",
        [EVENTS_MAX, BYTES_MAX],
    )?;
    Ok(gone > 0)
}

/// How many are kept.
pub fn waiting(db: &Db) -> Result<u64, Error> {
    db.value(
        "SELECT events FROM waiting_deliveries_size WHERE one = 1",
        [],
    )
}

/// It is known whose state this is: all that are kept are taken, in their order.
pub(crate) fn take_all(store: &mut Store) -> Result<(), Error> {
    let all: Vec<(EventTime, String)> = store.query_all(
        "SELECT at, message FROM waiting_deliveries ORDER BY id LIMIT ?1",
        [EVENTS_MAX],
        |row| Ok((row.moment(0)?, row.get(1)?)),
    )?;
    if all.is_empty() {
        return Ok(());
    }
    store.execute("DELETE FROM waiting_deliveries", [])?;
    let (mut confirmed, mut learned, mut unread) = (0_u64, 0_u64, 0_u64);
    let events = all.len();
    for (at, message) in all {
        let told = WebhookMessage::read(message.as_bytes());
        let told = told.and_then(|it| Delivery::of_message(&it, at));
        let Ok(delivery) = told else {
            unread += 1;
            continue;
        };
        match deliveries::deliver(store, &delivery)? {
            Delivered::Confirmed { .. } => confirmed += 1,
            Delivered::Learned { new: true } => learned += 1,
            Delivered::Repeat
            | Delivered::Waits
            | Delivered::CompanyUnknown
            | Delivered::OtherCompany
            | Delivered::Overtaken(_)
            | Delivered::Settled(_)
            | Delivered::NotOurs
            | Delivered::Learned { new: false } => {}
        }
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
