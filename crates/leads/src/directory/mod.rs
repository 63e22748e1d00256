//! The directory of leads: which lead has which phone, learned from what the CRM tells. The
//! service finds no lead by phone (§2.6), so it is put together from `LEAD_*` events (§6) and
//! pages of `lead/filter` (§4.7).
//!
//! Events come in any order, more than once, or not at all (§6.1). Each piece of [`news`] is put
//! to what is known of its lead ([`entry`]), where per fact the newest holds; a lookup
//! ([`mod@find`]) then asks who has the number, follows [`merges`] to the leads that are left, and
//! leaves out the dead. What is looked up is therefore a function of the news alone, not of their
//! order.
//!
//! | module | what lives there |
//! |---|---|
//! | [`news`] | what was told of one lead, and contacts' phones read from texts |
//! | [`fact`] | which event or answer told a fact, and whether any did |
//! | [`entry`] | all that is known of one lead, and what holds of two facts |
//! | [`profile`] | name, responsible employee and stage |
//! | [`merges`] | chains of merges, and loops cut |
//! | [`ledger`] | where entries are kept, and news taken in |
//! | [`mod@find`] | a number looked up, and what was found in words |
//! | [`rows`] | rows of `lead/filter` read tolerantly |
//! | [`backfill`] | which page is read next, and what it taught |
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
