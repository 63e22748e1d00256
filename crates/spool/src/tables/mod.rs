//! All SQL, a file a stored thing: functions on the [`Db`](crate::Db), or on the
//! [`Store`](crate::Store) where its books and settings count.
//!
//! # Errors
//! Each fails with the disk, or on a damaged file; what else it refuses it says itself.

pub mod audited;
pub mod backfill;
pub mod books;
pub mod branches;
mod call_row;
pub mod calls;
pub mod connection;
pub mod deliveries;
pub mod directory;
pub(crate) mod doubt;
pub mod echoes;
pub mod figures;
pub(crate) mod finish;
pub mod forward;
pub mod given;
pub mod hub;
pub(crate) mod hub_row;
pub(crate) mod intake;
mod intake_customers;
pub mod lead_requests;
pub mod leaders;
pub mod letters;
pub mod listed;
pub mod look_ups;
pub mod meta;
pub mod missed;
pub mod outbox;
pub(crate) mod purge;
pub(crate) mod reason_counts;
pub mod resume;
pub mod schema;
pub mod seen_calls;
pub mod shows;
pub mod slots;
pub(crate) mod step;
pub mod trunk_calls;
pub mod unknown_employees;
pub mod unreadable;
pub mod waiting;
pub mod work_queue;
