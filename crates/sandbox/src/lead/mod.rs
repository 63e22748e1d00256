//! The leads of the CRM: what is known of them, what clients and people change, what is told (§2.4,
//! §2.5, §4.4, §4.7).
//!
//! ```text
//! field list ─▶ write (requestId) ──due──▶ ┐
//! admin: create, update, merge, delete ──▶ leads ─▶ events (§6.2)
//! ```
//!
//! Where the document says "not shown", the names are those of the snapshot (§2.5) and of the
//! neighbouring endpoints; each is ours, and said to be.

pub mod act;
mod admin;
pub mod catalogue;
pub(crate) mod endpoints;
mod field_list;
pub mod list;
mod news;
pub mod record;
pub mod store;

pub use self::admin::{administer, all};
pub use self::catalogue::Catalogue;
pub use self::list::LeadList;
pub use self::record::{Contact, Lead};
pub use self::store::Leads;
