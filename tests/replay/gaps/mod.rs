//! Tests every recording with any part of it cut out, as if callbridge had not been connected.

mod cut;
mod filled;
mod recorded;
