//! Events that came through the stream before a token has told whose state this is: a standby asks
//! nothing of the CRM. From the stream nothing comes twice, so they are kept, in the transaction
//! of its place, and taken when the company is bound. The oldest give way to newer ones: of their
//! calls the stream tells otherwise too, and leads are read again by the backfill.

use crate::op::{Delivered, Delivery};
use crate::{Db, Error, Store};

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

/// Counts the events that are kept.
pub fn waiting(db: &Db) -> Result<u64, Error> {
    db.value(
        "SELECT events FROM waiting_deliveries_size WHERE one = 1",
        [],
    )
}
