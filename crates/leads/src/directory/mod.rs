//! The directory of leads: which lead has which phone, as the CRM reported it. The CRM cannot find
//! a lead by phone (§2.6), so the directory is built from `LEAD_*` events (§6) and pages of
//! `lead/filter` (§4.7).
//!
//! Events come in any order, more than once, or not at all (§6.1). Each piece of [`news`] is added
//! to the [`entry`] of its lead, in which the newest report of each fact is valid. A lookup
//! ([`mod@find`]) finds the leads with the number, follows [`merges`] to the surviving leads, and
//! leaves out deleted ones. So the result of a lookup does not depend on the order of the news.
//!
//! | module | content |
//! |---|---|
//! | [`news`] | one report about a lead, and contacts' phones read from texts |
//! | [`fact`] | the event or answer that reported a fact, and updates of facts |
//! | [`entry`] | everything known of one lead, and the precedence of facts |
//! | [`profile`] | name, responsible employee and stage |
//! | [`merges`] | chains of merges, with loops cut |
//! | [`ledger`] | the storage of entries, and how news is applied to it |
//! | [`mod@find`] | the lookup of a number, and its result as a message |
//! | [`rows`] | a tolerant parser of rows of `lead/filter` |
//! | [`backfill`] | the choice of the next page to read |
//! | `memory` | a directory in memory, for tests |

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
