//! Tests every recording without some of its messages, as if callbridge had not been connected.

mod cut;
mod filled;
mod recorded;
