//! Where what is known of leads is kept.

use super::entry::{Entry, Life, Slot};
use super::fact::FactSource;
use callbridge_call::EpochSeconds;
use callbridge_model::{LeadId, Phone};

/// Where entries are kept, and can be looked up by number.
pub trait Ledger {
    /// Why they cannot be.
    type Error;

    /// What is known of a lead; an empty entry where nothing is.
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

    /// How a lead stands; the default where nothing is known of it.
    ///
    /// # Errors
    /// When it cannot be read.
    fn life(&self, lead: LeadId) -> Result<Life, Self::Error>;
}

/// A number in one slot of a lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeadPhone {
    /// The lead.
    pub lead: LeadId,
    /// Where its phones stand.
    pub slot: Slot,
    /// It has the number since then, and what told it.
    pub held: Option<(EpochSeconds, FactSource)>,
    /// When the slot's contact gave the number up last.
    pub gone: Option<EpochSeconds>,
    /// How the lead stands.
    pub life: Life,
}
