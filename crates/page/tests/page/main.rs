//! Tests of the page over real sockets, with a daemon in memory.

mod branches;
mod calls;
mod causes;
mod client;
mod fake;
mod flood;
mod letters;
mod live;
mod morning;
mod numbers;
mod security;
mod today;
mod views;
