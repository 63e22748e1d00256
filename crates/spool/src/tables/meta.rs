//! Small durable settings, and whose calls these are.

use crate::identity::Seen;
use crate::op::{Done, Op};
use crate::store::{Store, sql};
use crate::{Binding, Error, Fit};
use rusqlite::OptionalExtension as _;

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

impl Store {
    pub(crate) fn set_meta(&self, key: &str, value: &str) -> Result<Done, Error> {
        self.execute(
            "INSERT OR REPLACE INTO meta (key, value) VALUES (?1, ?2)",
            (key, value),
        )?;
        Ok(Done::Stored)
    }

    pub(crate) fn drop_meta(&self, key: &str) -> Result<Done, Error> {
        self.execute("DELETE FROM meta WHERE key = ?1", [key])?;
        Ok(Done::Stored)
    }

    /// Sees whether this is the file that was used here last.
    pub(crate) fn compare_identity(
        &mut self,
        seen: &Seen,
        stamp: Option<&str>,
        clean: bool,
    ) -> Result<(), Error> {
        let own = self.meta(FILE)?;
        let used = !self.slots()?.is_empty();
        let doubtful = seen.is_doubtful(own.as_deref(), stamp, clean, used);
        self.restored = doubtful || self.meta(RESTORED)?.is_some();
        Ok(())
    }

    /// The first commit of a process: an end without farewell is seen by the next start, and so is
    /// a copy of this file.
    pub(crate) fn begin(&mut self, seen: &Seen) -> Result<(), Error> {
        let identity = seen.identity.clone();
        let mut ops = vec![
            Op::MetaGone { key: CLEAN.into() },
            Op::Meta {
                key: FILE.into(),
                value: identity,
            },
        ];
        if self.restored {
            ops.push(Op::Meta {
                key: RESTORED.into(),
                value: "yes".into(),
            });
        }
        self.doubt()?;
        self.write(ops).map(drop)
    }

    /// The file was found to be a copy when this process opened it, or by an earlier process that
    /// made no request since: requests may have been made that it does not know of, and its slots
    /// are in doubt. A request makes an end of that for the processes to come: the first
    /// [`Op::Slot`] says that its sender has waited.
    pub const fn restored(&self) -> bool {
        self.restored
    }

    /// A request is made: the doubt is over for those who open the file after us.
    pub(crate) fn settle_identity(&self) -> Result<(), Error> {
        if self.restored {
            self.drop_meta(RESTORED)?;
        }
        Ok(())
    }

    pub(crate) fn remember_highest_id(&self) -> Result<(), Error> {
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

    pub(crate) fn bind_address(&self, address: &str, rebind: bool) -> Result<Done, Error> {
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

    pub(crate) fn bind_company(&self, company: &str, application: &str) -> Result<Done, Error> {
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
