//! Small durable settings, and whose calls these are.

use super::finish::json;
use super::{doubt, slots, waiting};
use crate::identity::Seen;
use crate::op::{Done, Op};
use crate::{Binding, Db, Error, Fit, RowId, Store};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

/// The highest id ever given, where its row may be gone.
pub(crate) const HIGHEST_ID: &str = "spool.highest_id";
/// `yes` after an orderly end.
pub(crate) const CLEAN: &str = "spool.clean";
/// Instead of `yes`: the end was orderly, but broke off the check of the file.
pub(crate) const UNCHECKED: &str = "unchecked";
/// Which file this is ([`Seen::identity`]).
const FILE: &str = "spool.file";
/// `yes` in a copy, until a request was made with it.
const RESTORED: &str = "spool.restored";
const ADDRESS: &str = "bound.address";
const COMPANY: &str = "bound.company";
const APPLICATION: &str = "bound.application";

pub(crate) fn set_meta(db: &Db, key: &str, value: &str) -> Result<(), Error> {
    db.run(
        "INSERT OR REPLACE INTO meta (key, value) VALUES (?1, ?2)",
        (key, value),
    )
}

pub(crate) fn drop_meta(db: &Db, key: &str) -> Result<(), Error> {
    db.run("DELETE FROM meta WHERE key = ?1", [key])
}

/// Sees whether this is the file that was used here last.
pub(crate) fn compare_identity(
    store: &mut Store,
    seen: &Seen,
    stamp: Option<&str>,
    clean: bool,
) -> Result<(), Error> {
    let own = meta(store, FILE)?;
    let used = !slots::slots(store)?.is_empty();
    let doubtful = seen.is_doubtful(own.as_deref(), stamp, clean, used);
    store.restored = doubtful || meta(store, RESTORED)?.is_some();
    Ok(())
}

/// The first commit of a process: an end without farewell is seen by the next start, and so is
/// a copy of this file.
pub(crate) fn begin(store: &mut Store, seen: &Seen) -> Result<(), Error> {
    let identity = seen.identity.clone();
    let mut ops = vec![
        Op::MetaGone { key: CLEAN.into() },
        Op::Meta {
            key: FILE.into(),
            value: identity,
        },
    ];
    if store.restored {
        ops.push(Op::Meta {
            key: RESTORED.into(),
            value: "yes".into(),
        });
    }
    doubt::doubt(store)?;
    store.write(ops).map(drop)
}

/// A request is made: the doubt is over for those who open the file after us.
pub(crate) fn settle_identity(store: &Store) -> Result<(), Error> {
    if store.restored {
        drop_meta(store, RESTORED)?;
    }
    Ok(())
}

pub(crate) fn remember_highest_id(store: &Store) -> Result<(), Error> {
    set_meta(store, HIGHEST_ID, &(store.next_id - 1).to_string())
}

/// A small durable setting.
pub fn meta(db: &Db, key: &str) -> Result<Option<String>, Error> {
    db.first_value("SELECT value FROM meta WHERE key = ?1", [key])
}

/// One that is JSON.
pub(crate) fn remembered<T: DeserializeOwned>(db: &Db, key: &str) -> Result<Option<T>, Error> {
    let text = meta(db, key)?;
    text.map(|text| db.read_json(RowId(0), &text)).transpose()
}

pub(crate) fn remember<T: Serialize>(db: &Db, key: &'static str, it: &T) -> Result<(), Error> {
    set_meta(db, key, &json(key, it)?)
}

/// Those whose key begins so, with what follows it.
pub fn meta_below(db: &Db, prefix: &str) -> Result<BTreeMap<String, String>, Error> {
    db.query_all(
        "SELECT substr(key, length(?1) + 1), value FROM meta
         WHERE substr(key, 1, length(?1)) = ?1",
        [prefix],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )
}

/// What the state is bound to.
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
            waiting::take_all(store)?;
            Ok(Done::Stored)
        }
    }
}
