//! Small durable settings, including which CRM address, company, and application the state is bound
//! to.

use crate::db::Asked;
use crate::store::HIGHEST_ID;
use crate::{Binding, Db, Done, Error, Fit, RowId, Store, json};
use callbridge_leads::lead_request::memory::RequestMemory;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Name of a setting that is `yes` or [`UNCHECKED`] after a clean shutdown, and missing otherwise.
pub(crate) const CLEAN: &str = "spool.clean";
/// The value of [`CLEAN`] if callbridge shut down cleanly, but before the file's integrity check
/// was complete.
pub(crate) const UNCHECKED: &str = "unchecked";
/// Name of the setting that keeps the identity of the file that this state was written to
/// ([`Seen::identity`](crate::identity::Seen::identity)).
pub(crate) const FILE: &str = "spool.file";
const ADDRESS: &str = "bound.address";
const COMPANY: &str = "bound.company";
const APPLICATION: &str = "bound.application";

pub(crate) fn set_meta(db: &Db, key: &str, value: &str) -> Result<(), Error> {
    let text = "INSERT INTO meta (key, value)
         VALUES (?1, ?2)
         ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    db.run(text, (key, value))
}

pub(crate) fn drop_meta(db: &Db, key: &str) -> Result<(), Error> {
    db.run("DELETE FROM meta WHERE key = ?1", [key])
}

pub(crate) fn remember_highest_id(store: &Store) -> Result<(), Error> {
    set_meta(store, HIGHEST_ID, &(store.next_id - 1).to_string())
}

/// Reads a small durable setting, if it's set.
pub fn meta(db: &Db, key: &str) -> Result<Option<String>, Error> {
    db.query_first("SELECT value FROM meta WHERE key = ?1", [key])
}

/// Sends the query for a small durable setting, whose result is read later.
pub(super) fn ask_meta(db: &Db, key: &str) -> Result<Asked<String>, Error> {
    db.ask("SELECT value FROM meta WHERE key = ?1", [key])
}

/// Reads a small durable setting from its JSON, if it's set.
pub(crate) fn recall<T: DeserializeOwned>(db: &Db, key: &str) -> Result<Option<T>, Error> {
    let text = meta(db, key)?;
    text.map(|text| db.read_json(RowId(0), &text)).transpose()
}

pub(crate) fn remember<T: Serialize>(db: &Db, key: &'static str, value: &T) -> Result<(), Error> {
    set_meta(db, key, &json(key, value)?)
}

pub fn binding(db: &Db) -> Result<Binding, Error> {
    Ok(Binding {
        address: meta(db, ADDRESS)?,
        company: meta(db, COMPANY)?,
        application: meta(db, APPLICATION)?,
    })
}

pub(crate) fn bind_address(db: &Db, address: &str, rebind: bool) -> Result<(), Error> {
    let binding = binding(db)?;
    match binding.fits_address(address) {
        Fit::Same if !rebind => return Ok(()),
        Fit::Other if !rebind => {
            let bound = binding.address.unwrap_or_default();
            return Err(Error::OtherAddress(bound, address.to_owned()));
        }
        Fit::Unbound | Fit::Same | Fit::Other => {}
    }
    if rebind {
        drop_meta(db, COMPANY)?;
        drop_meta(db, APPLICATION)?;
    }
    set_meta(db, ADDRESS, address.trim_end_matches('/'))
}

pub(crate) fn bind_company(db: &Db, company: &str, application: &str) -> Result<Done, Error> {
    let binding = binding(db)?;
    match binding.fits_company(company, application) {
        Fit::Same => Ok(Done::Stored),
        Fit::Other => Ok(Done::WrongCompany(binding)),
        Fit::Unbound => {
            set_meta(db, COMPANY, company)?;
            set_meta(db, APPLICATION, application)?;
            Ok(Done::Stored)
        }
    }
}

/// Name of the setting that stores [`RequestMemory`].
pub(crate) const MEMORY: &str = "lead_requests.memory";

/// Reads the stored [`RequestMemory`] for lead requests, which is empty before the first one.
pub fn memory(db: &Db) -> Result<RequestMemory, Error> {
    Ok(recall(db, MEMORY)?.unwrap_or_default())
}

/// Reads the result of [`ask_meta`] from its JSON, if the setting is set.
pub(super) fn read_asked<T: DeserializeOwned>(
    db: &Db,
    asked: Asked<String>,
) -> Result<Option<T>, Error> {
    let text = asked.first(db)?;
    text.map(|text| db.read_json(RowId(0), &text)).transpose()
}

pub(super) fn change_memory<T>(
    db: &Db,
    change: impl FnOnce(&mut RequestMemory) -> T,
) -> Result<T, Error> {
    let before = memory(db)?;
    let mut memory = before.clone();
    let done = change(&mut memory);
    if memory != before {
        remember(db, MEMORY, &memory)?;
    }
    Ok(done)
}
