//! The state is bound to an address and a company at first use.

use super::deliveries;
use super::meta::{ADDRESS, APPLICATION, COMPANY, binding, drop_meta, set_meta};
use super::waiting::EVENTS_MAX;
use crate::db::Columns as _;
use crate::op::{Delivered, Delivery, Done};
use crate::{Db, Error, Fit, Store};
use callbridge_call::EventTime;
use callbridge_formats::message::WebhookMessage;

pub(crate) fn bind_address(db: &Db, address: &str, rebind: bool) -> Result<(), Error> {
    let binding = binding(db)?;
    match binding.fits_address(address) {
        Fit::Same if !rebind => return Ok(()),
        Fit::Other if !rebind => {
            return Err(Error::OtherAddress {
                bound: binding.address.unwrap_or_default(),
                given: address.to_owned(),
            });
        }
        Fit::Unbound | Fit::Same | Fit::Other => {}
    }
    if rebind {
        drop_meta(db, COMPANY)?;
        drop_meta(db, APPLICATION)?;
    }
    set_meta(db, ADDRESS, address.trim_end_matches('/'))
}

pub(crate) fn bind_company(
    store: &mut Store,
    company: &str,
    application: &str,
) -> Result<Done, Error> {
    let binding = binding(store)?;
    match binding.fits_company(company, application) {
        Fit::Same => Ok(Done::Stored),
        Fit::Other => Ok(Done::WrongCompany(binding)),
        Fit::Unbound => {
            set_meta(store, COMPANY, company)?;
            set_meta(store, APPLICATION, application)?;
            take_all(store)?;
            Ok(Done::Stored)
        }
    }
}

/// Takes all events that were kept until it was known whose state this is, in their order.
fn take_all(store: &mut Store) -> Result<(), Error> {
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
        let read = WebhookMessage::read(message.as_bytes());
        let read = read.and_then(|it| Delivery::of_message(&it, at));
        let Ok(delivery) = read else {
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
