//! How commands speak to the running daemon, and never past it.
//!
//! [`protocol`] says what can be asked, [`socket`] carries it, [`patience`] waits for a lock.
//! Where no daemon runs, the commands open the spool themselves and ask the same desk.

pub mod command;
pub mod desk;
pub mod patience;
pub mod protocol;
pub mod socket;
mod watch;

pub use desk::Desk;
pub use protocol::{Ask, Employee, Reply, Selection};
