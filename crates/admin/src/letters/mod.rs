//! Dead letters: calls that wait for a person, and parked ones that wait for a lead.
//!
//! | module | what lives there |
//! |---|---|
//! | [`select`] | which letters a command means |
//! | [`retry`] | sending a letter again, under its own uuid |
//! | [`text`] | letters for people, and as CSV |

pub mod retry;
pub mod select;
pub mod text;
