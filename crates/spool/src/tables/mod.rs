//! All SQL, with one file for each kind of stored data. The functions take the [`Db`](crate::Db),
//! or the [`Store`](crate::Store) if they need its books and settings.
//!
//! # Errors
//! Every function may fail because of the disk or a damaged file. Any other errors are documented
//! on the function.

pub mod audited;
pub mod backfill;
pub mod books;
pub mod branches;
mod call_row;
pub mod calls;
pub mod connection;
pub mod deliveries;
pub mod directory;
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
mod ready;
pub(crate) mod reason_counts;
pub mod resume;
pub mod schema;
pub mod seen_calls;
pub(crate) mod senders;
pub mod shows;
pub(crate) mod silence;
pub mod slots;
pub(crate) mod step;
mod trials;
pub mod trunk_calls;
pub mod unknown_employees;
pub mod unreadable;
pub(crate) mod unreadable_settings;
pub mod waiting;
pub mod work_queue;
