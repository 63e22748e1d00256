//! Small durable settings, and whose calls these are.

use super::super::op::Done;
use super::{Store, sql};
use crate::spool::{Binding, Error, Fit};
use rusqlite::OptionalExtension as _;

/// The highest id ever given, where its row may be gone.
pub(super) const HIGHEST_ID: &str = "spool.highest_id";
/// `yes` after an orderly end.
pub(in crate::spool) const CLEAN: &str = "spool.clean";
const ADDRESS: &str = "bound.address";
const COMPANY: &str = "bound.company";
const APPLICATION: &str = "bound.application";

impl Store {
    pub(super) fn set_meta(&self, key: &str, value: &str) -> Result<Done, Error> {
        self.execute(
            "INSERT OR REPLACE INTO meta (key, value) VALUES (?1, ?2)",
            (key, value),
        )?;
        Ok(Done::Stored)
    }

    pub(super) fn drop_meta(&self, key: &str) -> Result<Done, Error> {
        self.execute("DELETE FROM meta WHERE key = ?1", [key])?;
        Ok(Done::Stored)
    }

    pub(super) fn remember_highest_id(&self) -> Result<(), Error> {
        self.set_meta(HIGHEST_ID, &(self.next_id - 1).to_string())?;
        Ok(())
    }

    /// A small durable setting.
    ///
    /// # Errors
    /// The disk, or a damaged file.
    pub fn meta(&self, key: &str) -> Result<Option<String>, Error> {
        let mut found = self.prepare("SELECT value FROM meta WHERE key = ?1")?;
        sql(self, found.query_row([key], |row| row.get(0)).optional())
    }

    /// What the state is bound to.
    ///
    /// # Errors
    /// The disk, or a damaged file.
    pub fn binding(&self) -> Result<Binding, Error> {
        Ok(Binding {
            address: self.meta(ADDRESS)?,
            company: self.meta(COMPANY)?,
            application: self.meta(APPLICATION)?,
        })
    }

    pub(super) fn bind_address(&self, address: &str, rebind: bool) -> Result<Done, Error> {
        let binding = self.binding()?;
        match binding.fits_address(address) {
            Fit::Same if !rebind => return Ok(Done::Stored),
            Fit::Other if !rebind => {
                return Err(Error::OtherAddress {
                    bound: binding.address.unwrap_or_default(),
                    given: address.to_owned(),
                });
            }
            Fit::Unbound | Fit::Same | Fit::Other => {}
        }
        if rebind {
            self.drop_meta(COMPANY)?;
            self.drop_meta(APPLICATION)?;
        }
        self.set_meta(ADDRESS, address.trim_end_matches('/'))
    }

    pub(super) fn bind_company(&self, company: &str, application: &str) -> Result<Done, Error> {
        let binding = self.binding()?;
        match binding.fits_company(company, application) {
            Fit::Same => Ok(Done::Stored),
            Fit::Other => Ok(Done::WrongCompany(binding)),
            Fit::Unbound => {
                self.set_meta(COMPANY, company)?;
                self.set_meta(APPLICATION, application)
            }
        }
    }
}
