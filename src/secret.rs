//! Secrets cannot be printed: tokens and passwords live in [`Secret`].

pub use secrecy::{ExposeSecret, SecretString as Secret};
