//! What is due beside the calls, of every part that has errands.

use super::Store;
use crate::spool::{Ask, Errands, Error};

impl Store {
    /// The errands that are due. Costs next to nothing while there are none.
    ///
    /// # Errors
    /// The disk, or a damaged file.
    pub(super) fn errands(&self, _ask: &Ask) -> Result<Errands, Error> {
        Ok(Errands::default())
    }
}
