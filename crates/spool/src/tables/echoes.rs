//! How the CRM's events show our calls, and calls of other providers. Both are kept in small
//! settings.

use super::{calls, meta};
use crate::finished::last_four;
use crate::foreign::{APART_SECONDS, ForeignCall, ForeignLog};
use crate::{CallEcho, Db, Error, Fit, RowId, Store, echo};
use callbridge_call::EventTime;
use callbridge_model::status::{ForeignCalls, JournalField};

/// Name of the setting that counts how fields of our calls are shown.
const FIELDS: &str = "journal.fields";
/// Name of the setting that keeps calls of other providers.
const FOREIGN: &str = "journal.foreign";

/// Notes that an event shows our call. `Some` has the values, if it was sent from here as
/// it is now.
pub(crate) fn note_shown(
    store: &Store,
    row: RowId,
    echo: Option<&CallEcho>,
    at: EventTime,
) -> Result<(), Error> {
    let call = calls::record(store, row)?;
    if let Some(shown) = echo {
        let names = &store.settings.names;
        let mut fields = fields(store)?;
        echo::count(&mut fields, names, echo::compare(&call, names, shown));
        meta::remember(store, FIELDS, &fields)?;
    }
    let Some(phone) = &call.client_phone else {
        return Ok(());
    };
    let mut log = log(store)?;
    if log.note_ours(phone, call.started_at, at) {
        meta::remember(store, FOREIGN, &log)?;
    }
    Ok(())
}

/// Notes that another provider has journaled a call of this company.
pub(crate) fn foreign(
    store: &Store,
    company: &str,
    call: &ForeignCall,
    at: EventTime,
) -> Result<(), Error> {
    if meta::binding(store)?.fits_their_company(company) != Fit::Same {
        return Ok(());
    }
    let phone = call.phone.as_str();
    let started = call.started.get();
    let apart = APART_SECONDS.cast_signed();
    let text = "SELECT 1 FROM calls WHERE phone_ending = ?4 AND phone = ?1
           AND started BETWEEN ?2 AND ?3 LIMIT 1";
    let from = started.saturating_sub(apart);
    let to = started.saturating_add(apart);
    let ours = store.exists(text, (phone, from, to, last_four(phone)))?;
    let mut log = log(store)?;
    log.foreign(call.clone(), ours, at);
    meta::remember(store, FOREIGN, &log)
}

/// Reads how fields of our calls are shown, one entry per field that was sent.
pub fn fields(db: &Db) -> Result<Vec<JournalField>, Error> {
    Ok(meta::recall(db, FIELDS)?.unwrap_or_default())
}

fn log(db: &Db) -> Result<ForeignLog, Error> {
    Ok(meta::recall(db, FOREIGN)?.unwrap_or_default())
}

/// Returns the other providers that journaled our calls in the last 24 hours before `at` (seconds).
pub fn foreign_calls(db: &Db, at: i64) -> Result<Vec<ForeignCalls>, Error> {
    Ok(log(db)?.providers(EventTime::from_seconds(at)))
}
