//! Tests every recording without some of its messages, as if callbridge hadn't been connected.

mod cut;
mod filled;
mod recorded;
