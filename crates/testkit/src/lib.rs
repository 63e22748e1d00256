//! Helpers that the tests of several crates share. Other crates use it only in their tests.
//!
//! | module | what it contains |
//! |---|---|
//! | [`golden`] | compares stored values with golden files |
//! | [`sample`] | made-up calls |
//! | [`wait`] | waiting for futures without a runtime |

pub mod golden;
pub mod sample;
pub mod wait;

pub use wait::Wait;
