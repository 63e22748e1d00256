//! Nobody listens for a while: every recording with any part of it cut out.

mod cut;
mod filled;
mod recorded;
