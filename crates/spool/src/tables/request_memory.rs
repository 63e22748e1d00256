//! What is remembered of the requests beside the calls.

use super::meta;
use crate::{Db, Error};
use callbridge_leads::lead_request::memory::RequestMemory;

/// [`RequestMemory`].
pub(crate) const MEMORY: &str = "errand.memory";

/// What is remembered of them.
pub fn memory(db: &Db) -> Result<RequestMemory, Error> {
    Ok(meta::remembered(db, MEMORY)?.unwrap_or_default())
}

pub(super) fn change_memory<T>(
    db: &Db,
    change: impl FnOnce(&mut RequestMemory) -> T,
) -> Result<T, Error> {
    let before = memory(db)?;
    let mut memory = before.clone();
    let done = change(&mut memory);
    if memory != before {
        meta::remember(db, MEMORY, &memory)?;
    }
    Ok(done)
}
