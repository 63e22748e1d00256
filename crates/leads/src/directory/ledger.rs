//! Where what is known of leads is kept.

use super::entry::{Entry, Life, Slot};
use super::fact::FactSource;
use callbridge_call::EpochSeconds;
use callbridge_model::{LeadId, Phone};

/// Storage of entries that can be looked up by number.
pub trait Ledger {
    /// Failure of the storage to read or write.
    type Error;

    /// Reads all that is known of a lead; an empty entry where nothing is.
    ///
    /// # Errors
    /// When it cannot be read.
    fn entry(&self, lead: LeadId) -> Result<Entry, Self::Error>;

    /// Puts `new` in the place of `old`.
    ///
    /// # Errors
    /// When it cannot be written.
    fn put(&self, lead: LeadId, old: &Entry, new: &Entry) -> Result<(), Self::Error>;

    /// The leads that were merged into this one, so many of them at most.
    ///
    /// # Errors
    /// When they cannot be read.
    fn merged_into(&self, lead: LeadId, limit: usize) -> Result<Vec<LeadId>, Self::Error>;

    /// Every row of a number, by lead.
    ///
    /// # Errors
    /// When they cannot be read.
    fn lead_phones(&self, phone: &Phone) -> Result<Vec<LeadPhone>, Self::Error>;

    /// Reads the state of a lead; the default where nothing is known of it.
    ///
    /// # Errors
    /// When it cannot be read.
    fn life(&self, lead: LeadId) -> Result<Life, Self::Error>;
}

/// A number in one slot of a lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeadPhone {
    /// The lead that the number was reported of.
    pub lead: LeadId,
    /// The slot of the lead that has the number, or gave it up.
    pub slot: Slot,
    /// Second and source of the report that the slot has the number; `None` where it does not have
    /// it.
    pub held: Option<(EpochSeconds, FactSource)>,
    /// Newest second at which the slot's contact gave the number up.
    pub gone: Option<EpochSeconds>,
    /// State of the lead, read together with the row.
    pub life: Life,
}
