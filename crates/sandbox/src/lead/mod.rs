//! The leads of the CRM: their data, changes by clients and people, and the events that are sent
//! (§2.4, §2.5, §4.4, §4.7).
//!
//! ```text
//! field list ─▶ write (requestId) ──due──▶ ┐
//! admin: create, update, merge, delete ──▶ leads ─▶ events (§6.2)
//! ```
//!
//! Where the document says "not shown", the names are those of the snapshot (§2.5) and of the
//! neighboring endpoints. Comments mark such names as the sandbox's choice.

pub mod act;
pub(super) mod admin;
pub mod catalog;
pub(super) mod endpoints;
pub mod record;
pub mod store;

pub use self::admin::{administer, all};
pub use self::record::Lead;
