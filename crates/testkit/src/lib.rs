//! What the tests of several crates share. No crate uses it but in its tests.
//!
//! | module | what lives there |
//! |---|---|
//! | [`golden`] | what is stored, held to files that released versions wrote |
//! | [`sample`] | made-up calls |
//! | [`wait`] | futures waited for without a runtime |

pub mod golden;
pub mod sample;
pub mod wait;

pub use wait::Wait;
