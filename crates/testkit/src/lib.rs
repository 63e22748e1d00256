//! What the tests of several crates share. No crate uses it but in its tests.
//!
//! | module | what lives there |
//! |---|---|
//! | [`golden`] | compares stored values with golden files |
//! | [`sample`] | made-up calls |
//! | [`wait`] | futures waited for without a runtime |

pub mod golden;
pub mod sample;
pub mod wait;

pub use wait::Wait;
