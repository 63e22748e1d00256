//! The directory of leads as calls are judged by it: looked up beside the writer's thread, so that
//! no look-up waits for a commit, and each sees what was committed before it.

use super::{Db, Error};
use crate::read_connection::ReadConnection;
use crate::tables::directory::{holders, profile, responsible_employees, survivor};
use crate::tables::given::given;
use callbridge_leads::directory::{Finding, LeadProfile};
use callbridge_mapping::LeadAnswer;
use callbridge_mapping::people::Directory;
use callbridge_model::{EmployeeId, LeadId, Phone};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Look-ups in the tables of the spool's file.
#[derive(Debug)]
pub struct LeadDirectory {
    beside: Mutex<ReadConnection>,
    failed: AtomicBool,
}

impl LeadDirectory {
    /// Opens it beside the open spool of this folder.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        Ok(Self {
            beside: Mutex::new(ReadConnection::open(dir)?),
            failed: AtomicBool::new(false),
        })
    }

    /// A look-up has failed since this was asked last: calls may be parked that have a lead.
    pub fn has_failed(&self) -> bool {
        self.failed.swap(false, Ordering::AcqRel)
    }

    /// Looks up the leads that have this number, or had it.
    ///
    /// # Errors
    /// In words, when it cannot be looked up now.
    pub fn find(&self, phone: &Phone) -> Result<Finding, String> {
        self.ask("the directory of leads", |db| holders(db, phone))
    }

    /// Reads what is shown of a lead, or of the one it was merged into.
    ///
    /// # Errors
    /// In words, when it cannot be read now.
    pub fn profile(&self, lead: LeadId) -> Result<LeadProfile, String> {
        self.ask("the directory of leads", |db| profile(db, lead))
    }

    /// The lead that is left of this one, and what is shown of it; nothing where it cannot be read
    /// now.
    pub fn shown(&self, lead: LeadId) -> (LeadId, LeadProfile) {
        let known = self.ask("the directory of leads", |db| {
            let now = survivor(db, lead)?.unwrap_or(lead);
            Ok((now, profile(db, now)?))
        });
        known.unwrap_or((lead, LeadProfile::default()))
    }

    /// The employees who are responsible for leads, and for how many each. All leads are read.
    ///
    /// # Errors
    /// In words, when they cannot be read now.
    pub fn responsible_employees(&self) -> Result<Vec<(EmployeeId, u64)>, String> {
        self.ask("the directory of leads", responsible_employees)
    }

    fn ask<T>(
        &self,
        place: &str,
        question: impl FnOnce(&Db) -> Result<T, Error>,
    ) -> Result<T, String> {
        let mut beside = self.beside.lock().unwrap_or_else(PoisonError::into_inner);
        question(beside.db()).map_err(|error| {
            self.failed.store(true, Ordering::Release);
            tracing::warn!(%error, "a number cannot be looked up in {place}");
            error.to_string()
        })
    }
}

impl Directory for LeadDirectory {
    fn lead_of(&self, phone: &Phone) -> Result<LeadAnswer, String> {
        Ok(self.find(phone)?.answer())
    }

    fn given(&self, phone: &Phone) -> Result<Option<(LeadId, String)>, String> {
        let given = self.ask("the given leads", |db| given(db, phone))?;
        Ok(given.map(|it| (it.lead, it.words())))
    }
}
