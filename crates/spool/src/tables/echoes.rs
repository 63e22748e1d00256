//! Counts how the fields of our calls show up in the CRM's events, and keeps track of calls logged
//! by other providers. Both are stored as small durable settings.

use super::{calls, meta};
use crate::finished::last_four;
use crate::foreign::{APART_SECONDS, ForeignCall, ForeignLog};
use crate::{CallEcho, Db, Error, Fit, RowId, Store, echo};
use callbridge_call::EventTime;
use callbridge_model::status::{ForeignCalls, JournalField};

/// Name of the setting that stores these counts of our calls' fields.
const FIELDS: &str = "journal.fields";
/// Name of the setting that stores calls logged by other providers.
const FOREIGN: &str = "journal.foreign";

/// Records that our call showed up in the journal. `echo` contains the journal's values, or is
/// `None` if they can't be compared because the call may have been sent with different ones.
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

/// Records that another provider has journaled `call`, provided that the state is bound to
/// `company`.
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

/// Reads the counts of how the fields of our calls show up in the CRM's events, with one entry for
/// each field that was sent.
pub fn fields(db: &Db) -> Result<Vec<JournalField>, Error> {
    Ok(meta::recall(db, FIELDS)?.unwrap_or_default())
}

fn log(db: &Db) -> Result<ForeignLog, Error> {
    Ok(meta::recall(db, FOREIGN)?.unwrap_or_default())
}

/// Returns the other providers that journaled calls of ours within the 24 hours before `at` (in
/// epoch seconds).
pub fn foreign_calls(db: &Db, at: i64) -> Result<Vec<ForeignCalls>, Error> {
    Ok(log(db)?.providers(EventTime::from_seconds(at)))
}
