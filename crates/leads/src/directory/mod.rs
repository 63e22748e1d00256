//! The directory of leads, which knows which lead has which phone, as reported by the CRM. Since
//! the CRM can't find a lead by phone (§2.6), the directory is built from `LEAD_*` events (§6) and
//! pages of `lead/filter` (§4.7).
//!
//! Events may arrive in any order, more than once, or not at all (§6.1). Each piece of [`news`] is
//! added to its lead's [`entry`], in which the newest report of each fact is valid. A lookup
//! ([`mod@find`]) finds the leads with the number, follows [`merges`] to the surviving ones, and
//! omits those that were deleted. This way, a lookup's result doesn't depend on the order of the
//! news.
//!
//! | module | contents |
//! |---|---|
//! | [`news`] | one report about a lead, and contacts' phones read from texts |
//! | [`fact`] | the event or response that reported a fact, and updates to facts |
//! | [`entry`] | everything known about one lead, and which facts take precedence |
//! | [`profile`] | name, responsible employee, and stage |
//! | [`merges`] | chains of merges, with loops cut |
//! | [`ledger`] | the storage for entries, and how news is applied to it |
//! | [`mod@find`] | the lookup of a number, and its result as a message |
//! | [`rows`] | a tolerant parser for rows of `lead/filter` |
//! | [`backfill`] | which page to read next |
//! | `memory` | an in-memory directory for tests |

pub mod backfill;
pub mod entry;
pub mod fact;
pub mod find;
pub mod ledger;
pub mod memory;
pub mod merges;
pub mod news;
pub mod profile;
pub mod rows;

pub use fact::{ChangeKind, FactUpdate};
pub use find::{Finding, Holder, Standing};
pub use news::{ContactPhones, FirstPhone, LeadNews, Slot};
pub use profile::LeadProfile;

#[cfg(test)]
mod tests;
